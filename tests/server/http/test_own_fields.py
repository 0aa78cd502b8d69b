"""Fields of Convoy's own on LibreTranslate's routes, and routes of Convoy."""

import math

import pytest

from engine.api import DecodeOptions
from server.http.schemas import ELSEWHERE
from tests.server.http.conftest import GERMAN, direct, post
from tests.support.served import LANES, LINES, MODELS, until


def test_scores_alignment_and_timings_are_optional(place):
    answer = post(place[0], scores=True, alignment=True, timings=True, alternatives=1).json()
    wanted = direct(place, GERMAN)
    scores = answer["scores"]
    assert scores["score"] == pytest.approx(wanted.score)
    assert scores["tokens"] == wanted.tokens
    assert scores["tokenScores"] == pytest.approx(wanted.token_scores)
    assert scores["finish"] == wanted.finish
    (sentence,) = answer["alignment"]
    assert sentence["target"] == wanted.tokens
    assert all(math.isclose(sum(row), 1, abs_tol=1e-3) for row in sentence["matrix"])
    assert answer["timings"]["steps"] >= 1
    batch = post(place[0], q=["😀", GERMAN], scores=True).json()["scores"]
    assert [s["targetTokens"] for s in batch] == [0, wanted.target_tokens]


@pytest.mark.parametrize("name", sorted(DecodeOptions.__dataclass_fields__))
def test_every_decoding_option_has_a_documented_field(client, name):
    schema = client.get("/openapi.json").json()["paths"]["/translate"]["post"]["requestBody"]
    known = schema["content"]["application/json"]["schema"]["properties"]
    assert name in ELSEWHERE or name in known


def test_decoding_options_reach_the_model(place):
    client = place[0]
    two = post(client, min_length=2, max_length=2, scores=True).json()["scores"]
    assert (two["targetTokens"], two["finish"]) == (2, "length")
    assert post(client, prefix="The house").json()["translatedText"].startswith("The house")
    form = {"q": GERMAN, "source": "de", "target": "en", "beam_size": "1", "sampling": "true", "seed": "7"}
    one, same = (client.post("/translate", data=form).json() for _ in range(2))
    assert one == same
    other = [client.post("/translate", data=form | {"seed": str(s)}).json() for s in range(8)]
    assert any(answer != one for answer in other)


def test_model_can_be_chosen_by_name(client):
    assert post(client, model="toy-de-en").status_code == 200
    assert post(client, model="toy-en-de").status_code == 404
    unknown = post(client, model="nobody")
    assert unknown.status_code == 404
    assert "no model 'nobody'; there are:" in unknown.json()["error"]


def test_unsplit_text_is_translated_whole_or_refused(client):
    assert post(client, split=False).status_code == 200
    answer = post(client, q="Haus und Hof " * 60, split=False)
    assert answer.status_code == 413
    assert "at most 64" in answer.json()["error"]


def test_summaries_have_the_format_of_translations(place):
    client = place[0]

    def summarize(**fields):
        return post(client, "/summarize", **({"source": None, "target": None} | fields))

    text = "We prove a theorem. It is new."
    wanted = direct(place, text, "toy-title").text
    assert summarize(q=text).json() == {"summaryText": wanted, "truncated": False}
    batch = summarize(q=[text, text * 20], truncate=True, alternatives=1, source="en").json()
    assert batch["truncated"] == [False, True]
    assert batch["summaryText"][0] == wanted
    assert len(batch["alternatives"]) == 2
    long = summarize(q=text * 20)
    assert long.status_code == 413
    assert "choose a strategy" in long.json()["error"]
    assert summarize(q=text, source="auto", model="toy-title", max_length=2).status_code == 200
    assert summarize(q=text, source="fr").status_code == 404


def test_models_route_describes_the_models(client):
    found = {m["name"]: m for m in client.get("/models").json()}
    assert set(found) == set(MODELS)
    toy = found["toy-de-en"]
    assert (toy["task"], toy["limits"]["beams"], toy["options"]["beam_size"]) == (
        "translate",
        LANES[-1][0],
        4,
    )
    assert client.get("/version").json()["name"] == "convoy"
    assert client.get("/docs").status_code == 200


def test_docs_page_loads_nothing_from_other_hosts(client):
    page = client.get("/docs").text
    assert "http://" not in page
    assert "https://" not in page
    for name in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert name in page
        assert len(client.get(f"/static-offline-docs/{name}").content) > 10_000


def test_metrics_count_requests_and_work(client):
    def read():
        lines = client.get("/metrics").text.splitlines()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def settled():
        """Metrics are recorded just after the answer is sent."""
        until(lambda: read()[steps] == read()[seconds])
        return read()

    latency = "convoy_request_duration_seconds_count"
    steps, seconds = (
        'convoy_steps_total{model="toy-de-en"}',
        'convoy_step_duration_seconds_count{model="toy-de-en"}',
    )
    post(client)
    before = settled()
    post(client, q=list(LINES[:3]))
    post(client, target="zz")
    client.request("BREW", "/a/very/odd/path")
    until(lambda: f'{latency}{{model="none",outcome="invalid",route="other"}}' in read())
    after = settled()

    def grown(name):
        return after[name] - before.get(name, 0.0)

    assert grown('convoy_sentences_answered_total{model="toy-de-en"}') == 3
    assert grown('convoy_rejected_total{model="none",reason="invalid_request",route="/translate"}') == 1
    assert grown('convoy_queue_duration_seconds_count{model="toy-de-en"}') == 1
    assert grown(f'{latency}{{model="toy-de-en",outcome="ok",route="/translate"}}') == 1
    assert grown(f'{latency}{{model="none",outcome="invalid",route="other"}}') == 1
    assert after['convoy_slots{lane="1",model="toy-de-en"}'] == LANES[1][1]
    assert grown(steps) >= 1
    assert grown('convoy_tokens_total{kind="source",model="toy-de-en"}') > 3
