"""Requests with `partial`: one bad text does not fail the others. Requests with several targets."""

import json
import re

import deepl
import pytest

from tests.support.served import server

LINES = ["Wo ist der Bahnhof?", "x" * 60, "Das ist gut.", "Il fait beau aujourd'hui à Paris, n'est-ce pas ?"]
CODE = "invalid_request"
KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def client():
    with server(char_limit=50, api_keys=KEY) as (found, _, _):
        found.headers["Authorization"] = f"Bearer {KEY}"
        yield found


def used(client):
    return client.get("/v2/usage").json()["character_count"]


def translated(client, text):
    body = {"q": text, "source": "de", "target": "en"}
    return client.post("/translate", json=body).json()["translatedText"]


def test_partial_answers_good_texts_and_reports_errors_of_others(client):
    body = {"q": LINES, "source": "auto", "target": "en", "partial": True, "timings": True, "scores": True}
    good = [translated(client, LINES[0]), translated(client, LINES[2])]
    before = used(client)
    answer = client.post("/translate", json=body)
    assert answer.status_code == 200, answer.text
    values = answer.json()
    assert values["translatedText"] == [good[0], None, good[1], None]
    assert [one and one["language"] for one in values["detectedLanguage"]] == ["de", None, "de", None]
    assert [one and one["code"] for one in values["errors"]] == [None, CODE, None, CODE]
    assert "exceeds text limit" in values["errors"][1]["error"]
    assert "French" in values["errors"][3]["error"]
    assert values["scores"][0]["tokens"]
    assert values["scores"][1] is None
    assert values["timings"]
    assert used(client) - before == len(LINES[0]) + len(LINES[2])


def test_without_a_bad_text_the_answer_is_the_usual_one_with_no_errors(client):
    body = {"q": LINES[:1] * 3, "source": "de", "target": "en"}
    usual = client.post("/translate", json=body).json()
    assert client.post("/translate", json=body | {"partial": True}).json() == usual | {"errors": [None] * 3}
    assert client.post("/translate", json=body | {"q": LINES[0], "partial": True}).json() == {
        "translatedText": usual["translatedText"][0]
    }


def test_partial_fails_if_no_text_can_be_translated(client):
    before = used(client)
    body = {"q": [LINES[1], LINES[3]], "source": "auto", "target": "en", "partial": True}
    answer = client.post("/translate", json=body)
    assert answer.status_code == 400
    assert "exceeds text limit" in answer.json()["error"]
    assert client.post("/translate", json=body | {"partial": False, "q": LINES}).status_code == 400
    assert used(client) == before


def test_error_of_all_texts_fails_the_request(client):
    body = {"q": LINES, "source": "auto", "target": "en", "partial": True}
    late = client.post("/translate", json=body, headers={"X-Request-Timeout": "0.000001"})
    assert late.status_code == 504
    assert client.post("/translate", json=body | {"target": "zz"}).status_code == 400


def test_streams_name_texts_by_their_numbers_in_the_request(client):
    body = {"q": LINES, "source": "auto", "target": "en", "partial": True, "stream": True}
    text = client.post("/translate", json=body).text
    assert '"index":1' not in text
    assert "event: result" in text
    assert '"errors":[null,' in text


def test_html_and_summaries(client):
    page = {"q": [f"<p>{LINES[0]}</p>", LINES[1]], "source": "de", "target": "en"}
    page |= {"format": "html", "partial": True}
    answer = client.post("/translate", json=page).json()
    assert answer["translatedText"][0].startswith("<p>")
    assert answer["translatedText"][1] is None
    body = {"q": ["A text about models.", "x" * 60], "partial": True, "strategy": "parts"}
    summaries = client.post("/summarize", json=body).json()
    assert summaries["summaryText"][0]
    assert summaries["summaryText"][1] is None
    assert summaries["truncated"] == [False, None]


def test_deepl_answers_have_a_message_instead_of_the_text(client):
    body = {"text": LINES, "target_lang": "EN-GB", "partial": True}
    translations = client.post("/v2/translate", json=body).json()["translations"]
    assert [bool(one["text"]) for one in translations] == [True, False, True, False]
    assert "exceeds text limit" in translations[1]["message"]
    translator = deepl.Translator(KEY, server_url=str(client.base_url).rstrip("/"))
    results = translator.translate_text(LINES, target_lang="EN-GB", extra_body_parameters={"partial": True})
    assert [bool(one.text) for one in results] == [True, False, True, False]


@pytest.mark.parametrize("q", ["Das ist gut.", ["Das ist gut.", "Wo ist der Bahnhof?"]])
def test_several_targets_have_the_answers_of_each_and_are_charged_for_each(client, q):
    body = {"q": q, "source": "auto", "scores": True, "alternatives": 1}
    before = used(client)
    answer = client.post("/translate", json=body | {"target": ["en", "de-AT"]}).raise_for_status().json()
    assert used(client) - before == 2 * sum(map(len, [q] if isinstance(q, str) else q))
    for asked, found in zip(["en", "de-AT"], answer.pop("translations"), strict=True):
        assert found == {"target": asked} | client.post("/translate", json=body | {"target": asked}).json()
    assert answer == {}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"target": []}, "missing target parameter"),
        ({"target": ["en", 1]}, "target must be a string or an array of strings"),
        ({"target": ["en", "zz"]}, "zz is not supported"),
        ({"target": ["en"] * 21}, "21 targets; a request takes 20"),
        ({"target": ["en", "de"], "stream": True}, "stream and partial take one target"),
        ({"target": ["en", "de"], "q": ["Gut."], "partial": True}, "stream and partial take one target"),
        ({"target": ["en"] * 20, "q": ["Gut."] * 51}, r"request \(1020\) exceeds text limit \(1000\)"),
    ],
)
def test_invalid_targets_are_refused_with_the_reason_and_cost_nothing(client, values, error):
    before = used(client)
    answer = client.post("/translate", json={"q": "Gut.", "source": "de"} | values)
    assert answer.status_code == 400
    assert re.search(error, answer.json()["error"]), answer.text
    assert used(client) == before


def test_suggestions_are_kept_where_the_operator_wants_them(tmp_path):
    path = tmp_path / "suggestions.jsonl"
    form = {"q": "Bahnhof", "s": "station ünd", "source": "de", "target": "en"}
    with server(suggestions=path) as (client, _, _):
        assert client.get("/frontend/settings").json()["suggestions"] is True
        assert client.post("/suggest", data=form).json() == {"success": True}
        assert client.post("/suggest", json=form | {"s": "stop\nhere"}).json() == {"success": True}
        assert client.post("/suggest", json=form | {"source": "xx"}).status_code == 400
        assert "missing s" in client.post("/suggest", data=form | {"s": ""}).json()["error"]
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["s"] for line in lines] == ["station ünd", "stop\nhere"]
    assert lines[0].items() >= form.items()
    assert path.stat().st_mode & 0o777 == 0o600
