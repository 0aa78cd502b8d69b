"""Fields that nothing reads are named in the answers of every contract that has room for that."""

import json
from difflib import get_close_matches

import pytest

from convoy_client import Client, UnreadOption
from server.contracts.kserve.tensors import INPUT_NAME
from server.contracts.libretranslate.translate import READ
from server.http.unread import MOST_COMPARED, MOST_SUGGESTIONS, unread_of
from tests.support.served import server

GERMAN = {"q": "Das ist gut.", "source": "de", "target": "en"}
MISSPELT = {"beamsize": 2, "colour": "red"}
WARNINGS = {
    "beamsize": "was not read: there is no such field; did you mean beam_size?",
    "colour": "was not read: there is no such field",
}
BARE = dict.fromkeys(MISSPELT, "was not read: there is no such field")


@pytest.fixture(scope="module")
def client():
    with server() as (client, _, _):
        yield client


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        ("/translate", GERMAN, WARNINGS),
        ("/translate", GERMAN | {"q": ["Gut.", "Schlecht.", "Na ja."]}, WARNINGS),
        ("/translate", GERMAN | {"q": ["Gut.", "x" * 200_000], "partial": True}, WARNINGS),
        ("/translate", GERMAN | {"format": "html"}, WARNINGS),
        ("/summarize", {"q": "We present a method."}, WARNINGS),
        ("/score", {"q": "Good.", "source_text": "Gut.", "source": "de", "target": "en"}, BARE),
        ("/v2/translate", {"text": ["Gut."], "target_lang": "EN"}, BARE),
        ("/v2/translate", {"text": ["Gut."], "target_lang": "EN", "partial": True}, BARE),
    ],
)
def test_unknown_fields_are_named_and_change_no_answer(client, path, body, wanted):
    plain = client.post(path, json=body).raise_for_status().json()
    found = client.post(path, json=body | MISSPELT).raise_for_status().json()
    assert found.pop("warnings") == wanted
    assert found == plain
    assert "warnings" not in plain


def test_openais_answers_and_streams_name_them(client):
    body = {"model": "toy-de-en", "messages": [{"role": "user", "content": "Gut."}], "seed": 1, "user": "u"}
    misspelt = body | {"temprature": 0.5, "colour": "red"}
    wanted = {"temprature": f"{BARE['colour']}; did you mean temperature?", "colour": BARE["colour"]}
    plain, found = (
        client.post("/v1/chat/completions", json=one).raise_for_status().json() for one in (body, misspelt)
    )
    assert found["warnings"] == wanted and found["choices"] == plain["choices"]
    assert "warnings" not in plain
    streamed = client.post("/v1/chat/completions", json=misspelt | {"stream": True}).text
    *_, last, done = [line.removeprefix("data: ") for line in streamed.splitlines() if line]
    assert (json.loads(last)["choices"], json.loads(last)["warnings"], done) == ([], wanted, "[DONE]")
    prompt = {"model": "toy-de-en", "prompt": "Gut.", "colour": "red"}
    assert client.post("/v1/completions", json=prompt).json()["warnings"] == {"colour": BARE["colour"]}


def test_forms_queries_streams_and_files_get_warnings(client):
    assert client.post("/translate", data=GERMAN | MISSPELT).json()["warnings"] == WARNINGS
    streamed = client.get("/translate/stream", params=GERMAN | MISSPELT).text
    result = streamed.partition("event: result")[2].partition("data: ")[2].partition("\n")[0]
    assert json.loads(result)["warnings"] == WARNINGS
    files = {"file": ("a.txt", b"Gut.")}
    form = {"source": "de", "target": "en", "colour": "red"}
    answer = client.post("/translate_file", files=files, data=form)
    assert answer.json()["warnings"] == {"colour": f"{BARE['colour']}; did you mean columns?"}


def test_fields_that_clients_send_are_known(client):
    libretranslate = GERMAN | {"format": "text", "alternatives": 1, "api_key": "", "secret": ""}
    deepl = {"text": ["Gut."], "target_lang": "EN", "auth_key": "x", "show_billed_characters": True}
    kserve = {"text_input": "Gut.", "parameters": {"stream": False, "beam_size": 1, "timeout": 9e6}}
    for path, body in (
        ("/translate", libretranslate),
        ("/v2/translate", deepl),
        ("/v2/models/toy-de-en/generate", kserve),
    ):
        answer = client.post(path, json=body).raise_for_status().json()
        assert not {"warnings", "parameters"} & answer.keys()


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("generate", {"text_input": "Gut."}),
        ("infer", {"inputs": [{"name": INPUT_NAME, "shape": [1], "datatype": "BYTES", "data": ["Gut."]}]}),
    ],
)
def test_unknown_parameters_of_kserve_are_named(client, verb, body):
    path = f"/v2/models/toy-de-en/{verb}"
    plain = client.post(path, json=body).raise_for_status().json()
    found = client.post(path, json=body | {"parameters": MISSPELT}).raise_for_status().json()
    assert found.pop("parameters") == {"warnings": "; ".join(f"{k} {v}" for k, v in WARNINGS.items())}
    assert found == plain


def test_client_warns_about_unknown_options(client):
    with Client(str(client.base_url)) as convoy:
        with pytest.warns(UnreadOption, match="beamsize was not read.* did you mean beam_size"):
            found = convoy.translate("Das ist gut.", "en", "de", beamsize=2)
        with pytest.warns(UnreadOption, match="beamsize"):
            both = convoy.translate_all(["Das ist gut.", "Gut."], "en", "de", beamsize=2)
        assert [found.text, convoy.translate("Gut.", "en", "de").text] == [one.text for one in both]


def test_many_long_names_are_cut_to_few_short_ones():
    names = [f"{number:05}{'beam_size' * 100}" for number in range(49_000)]
    found = unread_of(names, {"beam_size", "length_penalty"})
    assert list(found) == [name[:60] for name in names[:10]]


def test_unknown_names_are_compared_with_few_known_ones(monkeypatch):
    compared = []

    def compare(name, known, count):
        compared.append(len(known))
        return get_close_matches(name, known, count)

    monkeypatch.setattr("server.http.unread.get_close_matches", compare)
    found = unread_of([f"beam_sizes_{number:02}" for number in range(10)], READ)
    assert len(found) == 10
    assert max(compared) <= MOST_COMPARED
    assert sum(map(bool, compared)) <= MOST_SUGGESTIONS
    compared.clear()
    unread_of(["x" * 1_000], READ)
    assert sum(compared) == 0


@pytest.mark.parametrize(
    ("misspelt", "known"),
    [
        ("beam_sise", "beam_size"),
        ("lenght_penalty", "length_penalty"),
        ("langauge", None),
        ("sorce", "source"),
        ("targets", "target"),
        ("temprature", "temperature"),
    ],
)
def test_misspelt_name_gets_the_nearest_known_one(misspelt, known):
    warning = unread_of([misspelt], READ)[misspelt]
    assert warning.endswith(f"; did you mean {known}?") if known else "mean" not in warning
