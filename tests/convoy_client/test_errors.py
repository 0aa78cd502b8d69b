"""Both clients against small servers that are slow, busy or broken."""

import asyncio
import socket

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route

from convoy_client import (
    ApiError,
    BadAnswer,
    Unreachable,
)
from tests.convoy_client.serving import GOOD, KEY, answering, using


def test_overload_is_retried_not_before_retry_after(kind, small):
    seen = []
    pairs = ((429, "0"), (503, "1"))
    busy = [JSONResponse({"error": "busy"}, status, {"Retry-After": after}) for status, after in pairs]
    url = small(answering(*busy, JSONResponse(GOOD), seen=seen))
    found = using(kind, url, lambda c: c.translate("a", "en"), api_key=KEY)
    assert found.text == "good"
    times = [moment for moment, _, _ in seen]
    assert len(times) == 3
    assert times[2] - times[1] >= 1.0
    assert len({body for _, _, body in seen}) == 1
    assert {headers["authorization"] for _, headers, _ in seen} == {f"Bearer {KEY}"}
    timeouts = [float(headers["x-request-timeout"]) for _, headers, _ in seen]
    assert 60 >= timeouts[0] > timeouts[1] > timeouts[2] > 50


@pytest.mark.parametrize(
    ("status", "retry_after", "arguments", "tries"),
    [
        (429, "3600", {}, 1),  # longer than the timeout: an error at once
        (503, "Fri, 31 Dec 2100 23:59:59 GMT", {}, 1),
        (503, "0", {"retries": 2}, 3),
        (429, "0", {"retries": 0}, 1),
        (400, "0", {}, 1),
        (403, "", {}, 1),
        (500, "", {}, 1),
    ],
)
def test_permanent_errors_are_raised(kind, status, retry_after, arguments, tries, small):
    seen = []
    url = small(answering(JSONResponse({"error": "no"}, status, {"Retry-After": retry_after}), seen=seen))
    with pytest.raises(ApiError, match="^no$") as raised:
        using(kind, url, lambda c: c.translate("a", "en"), **arguments)
    assert raised.value.status == status
    assert len(seen) == tries


@pytest.mark.parametrize(
    ("answer", "error", "wanted"),
    [
        (PlainTextResponse("<html>"), BadAnswer, "Convoy"),
        (JSONResponse([]), BadAnswer, "Convoy"),
        (JSONResponse({}), BadAnswer, "Convoy"),
        (JSONResponse({"translatedText": 5}), BadAnswer, "text"),
        (JSONResponse({"translatedText": "a", "scores": {}}), BadAnswer, "scores"),
        (JSONResponse({"message": "as DeepL"}, 456), ApiError, "^as DeepL$"),
        (JSONResponse({"detail": "as others"}, 404), ApiError, "^as others$"),
        (PlainTextResponse("bad gateway", 502), ApiError, "^bad gateway$"),
        (PlainTextResponse("", 502), ApiError, "^Bad Gateway$"),
        (RedirectResponse("https://there.example"), ApiError, "https://there.example"),
    ],
)
def test_answers_of_other_servers_are_errors(kind, answer, error, wanted, small):
    url = small(answering(answer))
    with pytest.raises(error, match=wanted):
        using(kind, url, lambda c: c.translate("a", "en"), retries=0)


@pytest.mark.parametrize(
    "answer", [{"translatedText": ["a"]}, {"translatedText": ["a", "b"], "alternatives": [[], [], []]}]
)
def test_missing_answers_are_an_error(kind, small, answer):
    url = small(answering(JSONResponse(answer)))
    with pytest.raises(BadAnswer, match="each of the 2"):
        using(kind, url, lambda c: c.translate_all(["a", "b"], "en"))


def test_field_of_another_type_is_ignored(kind, small):
    url = small(answering(JSONResponse(GOOD | {"truncated": "no", "alternatives": 5})))
    answer = using(kind, url, lambda c: c.translate("a", "en"))
    assert (answer.truncated, answer.alternatives) == (False, [])


def test_fields_of_a_newer_server_are_kept_in_extra(kind, small):
    url = small(answering(JSONResponse(GOOD | {"coverage": [1, 2]})))
    assert using(kind, url, lambda c: c.translate("a", "en")).extra == {"coverage": [1, 2]}


def test_server_under_a_path_is_reached(kind, small):
    async def endpoint(_):
        return JSONResponse(GOOD)

    url = small(Route("/under/this/translate", endpoint, methods=["POST"]))
    assert using(kind, f"{url}/under/this/", lambda c: c.translate("a", "en")).text == "good"
    assert using(kind, f"{url}/under/this", lambda c: c.translate("a", "en")).text == "good"


def test_missing_server_is_unreachable_after_all_retries(kind):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unreachable, match="no connection"):
        using(kind, url, lambda c: c.translate("a", "en"), retries=1)


def test_silent_server_is_a_timeout(kind, monkeypatch, small):
    async def endpoint(request):
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)
        return JSONResponse(GOOD)

    monkeypatch.setattr("convoy_client.exchange.GRACE_SECONDS", 0.0)
    route = Route("/translate", endpoint, methods=["POST"])
    url = small(route)
    with pytest.raises(Unreachable, match="in time"):
        using(kind, url, lambda c: c.translate("a", "en", timeout=0.1))


def test_health_is_false_before_models_are_ready(kind, small):
    async def endpoint(_):
        return JSONResponse({"error": "models are being tried out"}, 503)

    url = small(Route("/health/ready", endpoint))
    assert using(kind, url, lambda c: c.health()) is False


def test_file_is_uploaded_and_its_translation_downloaded(kind, tmp_path, small):
    seen = {}

    async def upload(request):
        async with request.form() as form:
            seen.update(form, name=form["file"].filename, content=await form["file"].read())
        return JSONResponse(
            {"translatedFileUrl": "http://inside.example:99/download_file/1%20a.gr%C3%BC%C3%9F.txt"}
        )

    async def download(request):
        return PlainTextResponse(request.path_params["name"])

    (tmp_path / "grüß.txt").write_bytes(b"\x00Guten Tag")
    routes = Route("/translate_file", upload, methods=["POST"]), Route("/download_file/{name}", download)
    url = small(*routes)
    found = using(kind, url, lambda c: c.translate_file(tmp_path / "grüß.txt", "en", "de"))
    assert found.decode() == "1 a.grüß.txt"
    assert (seen["source"], seen["target"], seen["name"]) == ("de", "en", "grüß.txt")
    assert seen["content"] == b"\x00Guten Tag"


def test_error_has_its_message_status_and_time_to_wait():
    error = ApiError("too many requests", 429, 7.5)
    assert (str(error), error.message) == ("too many requests",) * 2
    assert (error.status, error.retry_after) == (429, 7.5)
    assert ApiError("no", 400).retry_after is None
