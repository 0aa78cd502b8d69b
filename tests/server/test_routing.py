"""A server with two models of one direction: the second one answers sentences in doubt."""

import json

import pytest

from engine.api import ConfigError, Service
from tests.support.routed import FIRST, SECOND, SHIPPED, renamed
from tests.support.served import server, settings_of, value

TEXT = "Der Vorstand beschloss gestern eine Satzungsänderung."
GERMAN = {"source": "de", "target": "en"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return [SHIPPED, renamed(tmp_path_factory.mktemp("routed"))]


def write_rule(folder, second=SECOND, share=1.0):
    path = folder / "upstream.toml"
    path.write_text(
        f'[routing."de:en"]\nfirst = "{FIRST}"\nsecond = "{second}"\nscore = 0.0\nshare = {share}\n'
    )
    return path


@pytest.fixture(scope="module")
def client(models, tmp_path_factory):
    path = write_rule(tmp_path_factory.mktemp("settings"))
    settings = {"upstreams": path, "lanes": ((1, 4), (5, 8)), "verify": False}

    def opened(observe, **values):
        return Service.open(models, settings_of(**values), observe)

    with server(service_settings=settings, opened=opened, cache_bytes=1 << 20) as (found, _, _):
        yield found


def translate(client, q, **fields):
    answer = client.post("/translate", json=GERMAN | {"q": q, "model": FIRST} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_answer_names_the_model_of_each_sentence(client):
    answer = translate(client, TEXT, via=True)
    assert answer["via"] == [{"model": SECOND, "doubt": "score", "refused": ""}]
    several = translate(client, [TEXT, "😀"], via=True)
    assert [[sentence["model"] for sentence in text] for text in several["via"]] == [[SECOND], []]
    assert "via" not in translate(client, TEXT)
    own = translate(client, TEXT, via=True, model=SECOND)
    assert own["via"] == [{"model": SECOND, "doubt": "", "refused": ""}]


def test_metrics_count_the_sentences_by_outcome(client):
    labels = {"model": FIRST, "outcome": "second"}
    before = value(client, "convoy_routed_sentences_total", **labels)
    translate(client, f"{TEXT} Zum ersten Mal.", via=True)
    assert value(client, "convoy_routed_sentences_total", **labels) == before + 2


def test_pages_streams_and_other_contracts_go_through_the_same_path(client):
    def count():
        return value(client, "convoy_routed_sentences_total", model=FIRST, outcome="second")

    before = count()
    page = translate(client, "<p>Der <b>Hund</b> schläft auf dem Dach.</p>", format="html")
    assert page["translatedText"].count("<b>") == 1
    assert count() == before + 1
    with client.stream(
        "POST", "/translate", json=GERMAN | {"q": f"{TEXT} Nun ja.", "stream": True}
    ) as events:
        names = [line for line in events.iter_lines() if line.startswith("event:")]
    assert names == ["event: result"]
    assert count() == before + 3
    deepl = client.post("/v2/translate", json={"text": ["Das Dach ist rot."], "target_lang": "EN"})
    assert deepl.status_code == 200
    chat = {"model": FIRST, "messages": [{"role": "user", "content": "Das Haus steht am Fluss."}]}
    assert client.post("/v1/chat/completions", json=chat).status_code == 200
    assert count() == before + 5


def test_long_texts_are_routed_by_the_workers(client):
    lines = [f"Der Vorstand beschloss die Änderung Nummer {number}." for number in range(60)]
    answer = translate(client, "\n".join(lines), via=True)
    assert len(answer["via"]) == 60
    assert {sentence["model"] for sentence in answer["via"]} == {SECOND}
    assert len(answer["translatedText"].splitlines()) == 60


def test_via_is_refused_with_html(client):
    answer = client.post("/translate", json=GERMAN | {"q": "<p>a</p>", "format": "html", "via": True})
    assert answer.status_code == 400
    assert "via are of plain text" in answer.json()["error"]


def test_a_rule_with_an_unknown_model_stops_the_start(models, tmp_path):
    path = write_rule(tmp_path, second="gemma")
    with pytest.raises(ConfigError, match="names the model 'gemma', which is not served; there are: "):
        Service.open(models, settings_of(upstreams=path, lanes=((5, 8),), verify=False), lazily=True)


def test_an_answer_without_budget_is_not_cached(models, tmp_path):
    path = write_rule(tmp_path, share=1e-6)
    settings = {"upstreams": path, "lanes": ((1, 4), (5, 8)), "verify": False}

    def opened(observe, **values):
        return Service.open(models, settings_of(**values), observe)

    with server(service_settings=settings, opened=opened, cache_bytes=1 << 20) as (client, _, _):
        refused = translate(client, f"{TEXT} Nun ja.", via=True)["via"]
        assert sorted(sentence["refused"] for sentence in refused) == ["", "budget"]
        translate(client, f"{TEXT} Nun ja.")
        assert value(client, "convoy_cache_hits_total") == 0
        assert json.dumps(refused)
