"""Both clients against a server."""

import inspect
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from starlette.responses import JSONResponse
from starlette.routing import Route

from convoy_client import (
    ApiError,
    AsyncClient,
    BadAnswer,
    Client,
    Detection,
    Translation,
)
from tests.convoy_client.serving import GERMAN, TEXTS, plain, using

ROOT = Path(__file__).parents[2]


def test_text_and_array_of_texts_are_translated(ask, place):
    assert ask(lambda c: c.translate(GERMAN, "en", "de")) == Translation(plain(place)["translatedText"])
    found = ask(lambda c: c.translate_all(TEXTS, "en", "de"))
    assert [t.text for t in found] == plain(place, q=TEXTS)["translatedText"]
    assert ask(lambda c: c.translate_all([], "en", "de")) == []


def test_all_parts_of_an_answer_are_typed(ask, place):
    wish = {"alternatives": 2, "scores": True, "alignment": True, "timings": True}
    expected = plain(place, q=TEXTS, source="auto", **wish)
    found = ask(lambda c: c.translate_all(TEXTS, "en", **wish))
    for i, one in enumerate(found):
        assert one.alternatives == expected["alternatives"][i]
        assert one.detected == Detection(**expected["detectedLanguage"][i])
        assert one.scores.score == expected["scores"][i]["score"]
        assert one.scores.token_scores == expected["scores"][i]["tokenScores"]
        assert one.scores.target_tokens == expected["scores"][i]["targetTokens"]
        assert [a.matrix for a in one.alignment] == [a["matrix"] for a in expected["alignment"][i]]
        assert one.timings.steps == expected["timings"]["steps"]
    single = ask(lambda c: c.translate(GERMAN, "en", **wish))
    assert single.text == found[0].text
    assert single.scores == found[0].scores
    assert single.alignment == found[0].alignment


def test_texts_are_summarized(ask, place):
    found = ask(lambda c: c.summarize("Guten Tag.", max_length=5))
    assert found.text == plain(place, "/summarize", q="Guten Tag.", source=None, max_length=5)["summaryText"]
    assert found.truncated is False
    both = ask(lambda c: c.summarize_all(["Guten Tag. " * 40, "Guten Tag."], max_length=5, truncate=True))
    assert [s.truncated for s in both] == [True, False]
    assert both[1].text == found.text


def test_texts_are_scored(ask, place):
    pair = ("It is good.", "Das ist gut.")
    answer = plain(place, "/score", q=[pair[0], ""], source_text=[pair[1], "Ja."], model="toy-de-en")
    scores = answer["scores"]
    one = ask(lambda c: c.score(*pair, model="toy-de-en"))
    assert one.model == "toy-de-en"
    assert (one.score, one.perplexity) == (scores[0]["score"], scores[0]["perplexity"])
    assert (one.tokens, one.token_scores) == (scores[0]["tokens"], scores[0]["tokenScores"])
    assert one.words == 3
    both = ask(lambda c: c.score_all([pair[0], ""], [pair[1], "Ja."], source="de", target="en"))
    assert both[0] == one
    assert both[1].score == scores[1]["score"]
    assert ask(lambda c: c.score_all([])) == []
    with pytest.raises(ApiError, match="no such language model") as raised:
        ask(lambda c: c.score("a"))
    assert raised.value.status == 404


@pytest.mark.parametrize(
    "answer", [[], {}, *({"scores": s} for s in ([], [{}], [{}, {}], {}, [1, 2], None, "ab"))]
)
def test_missing_scores_are_an_error(kind, answer, small):
    async def endpoint(_):
        return JSONResponse(answer)

    url = small(Route("/score", endpoint, methods=["POST"]))
    with pytest.raises(BadAnswer):
        using(kind, url, lambda c: c.score_all(["a", "b"]))


def test_languages_models_and_health_are_typed(ask, place):
    http = place[0]
    assert [vars_of(lang) for lang in ask(lambda c: c.languages())] == http.get("/languages").json()
    models = ask(lambda c: c.models())
    for model, described in zip(models, http.get("/models").json(), strict=True):
        assert {
            name: value for name, value in vars_of(model).items() if name != "extra"
        }.items() <= described.items()
    assert ask(lambda c: c.detect(GERMAN))[0].language == "de"
    assert ask(lambda c: c.health()) is True


def vars_of(found):
    return {name: getattr(found, name) for name in type(found).__dataclass_fields__}


def test_error_has_the_message_of_the_server(ask):
    with pytest.raises(ApiError, match="^zz is not supported$") as raised:
        ask(lambda c: c.translate(GERMAN, "zz", "de"))
    assert raised.value.status == 400
    with pytest.raises(ApiError, match="beam_size") as raised:
        ask(lambda c: c.translate(GERMAN, "en", "de", beam_size=0))
    assert raised.value.status == 400
    with pytest.raises(ApiError, match="Invalid API key") as raised:
        ask(lambda c: c.translate(GERMAN, "en", "de"), api_key="wrong")
    assert raised.value.status == 403
    with pytest.raises(ApiError, match="API key") as raised:
        ask(lambda c: c.translate(GERMAN, "en", "de"), api_key=None)
    assert raised.value.status == 400


def test_server_refuses_text_that_is_not_unicode(ask):
    with pytest.raises(ApiError) as raised:
        ask(lambda c: c.translate("\ud800", "en", "de"))
    assert raised.value.status == 400


def test_request_has_the_timeout(ask):
    long = {"min_length": 2000, "max_length": 2000, "timeout": 0.002}
    began = time.monotonic()
    with pytest.raises(ApiError) as raised:
        ask(lambda c: c.translate_all(TEXTS[:2] * 8, "en", "de", **long))
    assert raised.value.status in (503, 504)
    assert time.monotonic() - began < 300


def test_client_imports_only_httpx_and_itself():
    code = (
        "import sys, convoy_client\n"
        "heavy = {'engine', 'server', 'cli', 'torch', 'numpy', 'onnxruntime', 'pydantic', 'fastapi'}\n"
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_both_clients_have_the_same_methods():
    def offered(kind):
        return {
            name: [p.replace(annotation="") for p in inspect.signature(method).parameters.values()]
            for name, method in inspect.getmembers(kind, callable)
            if not name.startswith("_")
        }

    assert offered(Client) == offered(AsyncClient)
    assert httpx.__name__ in sys.modules


def test_no_texts_are_no_request(ask):
    for call in (
        lambda c: c.translate_all([], "en"),
        lambda c: c.summarize_all([]),
        lambda c: c.score_all([]),
    ):
        assert ask(call) == []
