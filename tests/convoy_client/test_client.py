"""The client, of both kinds, against a real server, and small ones that are slow, busy or broken."""

import asyncio
import inspect
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.routing import Route

from convoy_client import (
    ApiError,
    AsyncClient,
    BadAnswer,
    Client,
    Detection,
    Partial,
    Translation,
    Unreachable,
)
from convoy_client.events import Event, EventReader
from tests.support.served import server, until

ROOT = Path(__file__).parents[2]
GERMAN = "Wo ist denn hier der Bahnhof?"
TEXTS = [GERMAN, "Das ist gut.", "😀"]
KEY = "a-key-that-an-operator-chose"


@pytest.fixture(scope="module")
def place():
    with server(api_keys=KEY) as found:
        yield found


@pytest.fixture(params=["sync", "async"])
def kind(request):
    return request.param


def using(kind, url, use, **arguments):
    """What `use` makes of a client: the result of the call it returns, or the list of what that yields."""
    if kind == "sync":
        with Client(url, **arguments) as client:
            found = use(client)
            return list(found) if inspect.isgenerator(found) else found

    async def run():
        async with AsyncClient(url, **arguments) as client:
            found = use(client)
            return [part async for part in found] if inspect.isasyncgen(found) else await found

    return asyncio.run(run())


@pytest.fixture
def ask(kind, place):
    url = str(place[0].base_url)
    return lambda use, **arguments: using(kind, url, use, **{"api_key": KEY} | arguments)


def plain(place, path="/translate", **fields):
    """The server's answer to a request of httpx."""
    values = {"q": GERMAN, "source": "de", "target": "en", "api_key": KEY} | fields
    return place[0].post(path, json=values).json()


# against a real server


def test_a_text_and_texts_are_translated(ask, place):
    assert ask(lambda c: c.translate(GERMAN, "en", "de")) == Translation(plain(place)["translatedText"])
    found = ask(lambda c: c.translate_all(TEXTS, "en", "de"))
    assert [t.text for t in found] == plain(place, q=TEXTS)["translatedText"]
    assert ask(lambda c: c.translate_all([], "en", "de")) == []


def test_everything_that_can_be_asked_for_is_typed(ask, place):
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


def test_summaries(ask, place):
    found = ask(lambda c: c.summarize("Guten Tag.", max_length=5))
    assert found.text == plain(place, "/summarize", q="Guten Tag.", source=None, max_length=5)["summaryText"]
    assert found.truncated is False
    both = ask(lambda c: c.summarize_all(["Guten Tag. " * 40, "Guten Tag."], max_length=5, truncate=True))
    assert [s.truncated for s in both] == [True, False]
    assert both[1].text == found.text


def test_scores(ask, place):
    pair = ("It is good.", "Das ist gut.")
    told = plain(place, "/score", q=[pair[0], ""], source_text=[pair[1], "Ja."], model="toy-de-en")
    one = ask(lambda c: c.score(*pair, model="toy-de-en"))
    assert one.model == "toy-de-en"
    assert (one.score, one.perplexity) == (told["scores"][0]["score"], told["scores"][0]["perplexity"])
    assert (one.tokens, one.token_scores) == (told["scores"][0]["tokens"], told["scores"][0]["tokenScores"])
    assert one.words == 3
    both = ask(lambda c: c.score_all([pair[0], ""], [pair[1], "Ja."], source="de", target="en"))
    assert both[0] == one
    assert both[1].score == told["scores"][1]["score"]
    assert ask(lambda c: c.score_all([])) == []
    with pytest.raises(ApiError, match="no such language model") as raised:
        ask(lambda c: c.score("a"))
    assert raised.value.status == 404


@pytest.mark.parametrize(
    "answer", [[], {}, *({"scores": s} for s in ([], [{}], [{}, {}], {}, [1, 2], None, "ab"))]
)
def test_scores_that_are_not_of_each_text_are_an_error(kind, answer, small):
    async def endpoint(_):
        return JSONResponse(answer)

    url = small(Route("/score", endpoint, methods=["POST"]))
    with pytest.raises(BadAnswer):
        using(kind, url, lambda c: c.score_all(["a", "b"]))


def test_what_the_server_says_of_itself(ask, place):
    http = place[0]
    assert [vars_of(lang) for lang in ask(lambda c: c.languages())] == http.get("/languages").json()
    models = ask(lambda c: c.models())
    for model, told in zip(models, http.get("/models").json(), strict=True):
        assert {
            name: value for name, value in vars_of(model).items() if name != "extra"
        }.items() <= told.items()
    assert ask(lambda c: c.detect(GERMAN))[0].language == "de"
    assert ask(lambda c: c.health()) is True


def vars_of(found):
    return {name: getattr(found, name) for name in type(found).__dataclass_fields__}


def test_the_servers_own_words_are_the_error(ask):
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


def test_text_that_is_no_unicode_is_the_servers_to_refuse(ask):
    with pytest.raises(ApiError) as raised:
        ask(lambda c: c.translate("\ud800", "en", "de"))
    assert raised.value.status == 400


def test_the_server_is_told_the_timeout(ask):
    long = {"min_length": 2000, "max_length": 2000, "timeout": 0.002}
    began = time.monotonic()
    with pytest.raises(ApiError) as raised:
        ask(lambda c: c.translate_all(TEXTS[:2] * 8, "en", "de", **long))
    assert raised.value.status in (503, 504)
    assert time.monotonic() - began < 30


# against small servers


class Stage:
    """One real server for all small ones: what it plays is changed."""

    def __init__(self):
        self.app = None
        config = uvicorn.Config(self, port=0, log_config=None, lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, send)


@pytest.fixture(scope="module")
def stage():
    made = Stage()
    made.thread.start()
    until(lambda: made.server.started or not made.thread.is_alive())
    yield made
    made.server.should_exit = True
    made.thread.join(30)


@pytest.fixture
def small(stage):
    """Plays these routes: the URL."""

    def play(*routes):
        stage.app = Starlette(routes=list(routes))
        return f"http://127.0.0.1:{stage.server.servers[0].sockets[0].getsockname()[1]}"

    return play


def answering(*answers, seen=None):
    """A /translate that gives these answers in turn, the last for ever; notes each request."""
    left, seen = list(answers), [] if seen is None else seen

    async def endpoint(request):
        seen.append((time.monotonic(), request.headers, await request.body()))
        return left.pop(0) if len(left) > 1 else left[0]

    return Route("/translate", endpoint, methods=["POST"])


GOOD = {"translatedText": "good"}


def test_overload_is_tried_again_and_not_before_retry_after(kind, small):
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
    told = [float(headers["x-request-timeout"]) for _, headers, _ in seen]
    assert 60 >= told[0] > told[1] > told[2] > 50


@pytest.mark.parametrize(
    ("status", "retry_after", "arguments", "tries"),
    [
        (429, "3600", {}, 1),  # longer than the timeout: told at once
        (503, "Fri, 31 Dec 2100 23:59:59 GMT", {}, 1),
        (503, "0", {"retries": 2}, 3),
        (429, "0", {"retries": 0}, 1),
        (400, "0", {}, 1),
        (403, "", {}, 1),
        (500, "", {}, 1),
    ],
)
def test_what_can_not_be_helped_is_raised(kind, status, retry_after, arguments, tries, small):
    seen = []
    url = small(answering(JSONResponse({"error": "no"}, status, {"Retry-After": retry_after}), seen=seen))
    with pytest.raises(ApiError, match="^no$") as raised:
        using(kind, url, lambda c: c.translate("a", "en"), **arguments)
    assert raised.value.status == status
    assert len(seen) == tries


@pytest.mark.parametrize(
    ("answer", "error", "told"),
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
def test_answers_of_other_servers_are_told_apart(kind, answer, error, told, small):
    url = small(answering(answer))
    with pytest.raises(error, match=told):
        using(kind, url, lambda c: c.translate("a", "en"), retries=0)


@pytest.mark.parametrize(
    "answer", [{"translatedText": ["a"]}, {"translatedText": ["a", "b"], "alternatives": [[], [], []]}]
)
def test_texts_that_are_not_all_answered_are_an_error(kind, small, answer):
    url = small(answering(JSONResponse(answer)))
    with pytest.raises(BadAnswer, match="each of the 2"):
        using(kind, url, lambda c: c.translate_all(["a", "b"], "en"))


def test_a_field_of_another_kind_is_as_if_it_were_not_there(kind, small):
    url = small(answering(JSONResponse(GOOD | {"truncated": "no", "alternatives": 5})))
    answer = using(kind, url, lambda c: c.translate("a", "en"))
    assert (answer.truncated, answer.alternatives) == (False, [])


def test_fields_of_a_newer_server_are_kept(kind, small):
    url = small(answering(JSONResponse(GOOD | {"coverage": [1, 2]})))
    assert using(kind, url, lambda c: c.translate("a", "en")).extra == {"coverage": [1, 2]}


def test_a_server_under_a_path_is_reached(kind, small):
    async def endpoint(_):
        return JSONResponse(GOOD)

    url = small(Route("/under/this/translate", endpoint, methods=["POST"]))
    assert using(kind, f"{url}/under/this/", lambda c: c.translate("a", "en")).text == "good"
    assert using(kind, f"{url}/under/this", lambda c: c.translate("a", "en")).text == "good"


def test_no_server_is_unreachable_after_the_tries(kind):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unreachable, match="no connection"):
        using(kind, url, lambda c: c.translate("a", "en"), retries=1)


def test_a_server_that_says_nothing_is_given_up(kind, monkeypatch, small):
    async def endpoint(_):
        await asyncio.sleep(0.6)
        return JSONResponse(GOOD)

    monkeypatch.setattr("convoy_client.exchange.GRACE_SECONDS", 0.0)
    route = Route("/translate", endpoint, methods=["POST"])
    url = small(route)
    with pytest.raises(Unreachable, match="in time"):
        using(kind, url, lambda c: c.translate("a", "en", timeout=0.1))


def test_health_is_false_while_models_are_tried_out(kind, small):
    async def endpoint(_):
        return JSONResponse({"error": "models are being tried out"}, 503)

    url = small(Route("/health/ready", endpoint))
    assert using(kind, url, lambda c: c.health()) is False


def test_a_file_goes_and_its_translation_comes_from_the_same_server(kind, tmp_path, small):
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


# streams


def sse(*events):
    return "".join(
        f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n" for name, data in events
    )


def streaming(*chunks, status=200):
    async def chunk():
        for one in chunks:
            await asyncio.sleep(0)
            yield one

    async def endpoint(request):
        assert (await request.json())["stream"] is True
        return StreamingResponse(chunk(), status, media_type="text/event-stream")

    return Route("/translate", endpoint, methods=["POST"])


SAID = [("partial", {"index": 0, "text": "Good\u2028"}), ("partial", {"index": 0, "text": "Good day, 😀"})]
RESULT = ("result", {"translatedText": "Good day, 😀!", "alternatives": ["Hello"]})


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_stream_gives_beginnings_and_then_the_answer(kind, size, small):
    data = (": a comment\n\n" + sse(*SAID, ("later", 1), RESULT)).encode()
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    url = small(streaming(*chunks))
    found = using(kind, url, lambda c: c.stream("Guten Tag", "en"))
    assert found == [
        Partial(0, "Good\u2028"),
        Partial(0, "Good day, 😀"),
        Translation("Good day, 😀!", ["Hello"]),
    ]


@pytest.mark.parametrize(
    ("events", "error", "told"),
    [
        (sse(*SAID, ("error", {"error": "the deadline passed"})), ApiError, "^the deadline passed$"),
        (sse(*SAID), Unreachable, "before its result"),
        ("event: partial\ndata: {\n\n", BadAnswer, "event"),
        ("event: result\ndata: {}\n\n", BadAnswer, "Convoy"),
    ],
)
def test_a_stream_that_goes_wrong_is_an_error(kind, events, error, told, small):
    url = small(streaming(events.encode()))
    with pytest.raises(error, match=told):
        using(kind, url, lambda c: c.stream("Guten Tag", "en"))


def test_a_stream_that_is_refused_is_an_error_with_its_status(kind, small):
    route = streaming(b'{"error": "zz is not supported"}', status=400)
    url = small(route)
    with pytest.raises(ApiError, match="^zz is not supported$") as raised:
        using(kind, url, lambda c: c.stream("a", "zz"))
    assert raised.value.status == 400


def test_a_stream_that_is_left_is_closed(small):
    gone = threading.Event()

    async def chunks():
        try:
            while True:
                yield sse(SAID[0])
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    async def endpoint(_):
        return StreamingResponse(chunks(), media_type="text/event-stream")

    url = small(Route("/translate", endpoint, methods=["POST"]))
    with Client(url) as client:
        parts = client.stream("a", "en")
        assert next(parts) == Partial(0, "Good\u2028")
        parts.close()
        assert gone.wait(10)


def test_a_real_stream_grows_and_ends_with_the_plain_answer(ask, place):
    page = place[0].get("/openapi.json").text
    if '"stream"' not in page:
        pytest.skip("this server does not stream")
    *parts, last = ask(lambda c: c.stream(GERMAN, "en", "de"))
    assert last.text == plain(place)["translatedText"]
    for one, longer in zip(parts, [*parts[1:], last], strict=True):
        assert longer.text.startswith(one.text)


LINES = st.lists(
    st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=8), min_size=1
)


@given(messages=st.lists(LINES, max_size=4), size=st.integers(1, 20), end=st.sampled_from(["\n", "\r\n"]))
def test_events_are_read_whatever_the_cuts(messages, size, end):
    text = "".join(
        f"event: e{end}" + "".join(f"data: {line}{end}" for line in lines) + end for lines in messages
    ).encode()
    reader = EventReader()
    found = [e for i in range(0, len(text), size) for e in reader.feed(text[i : i + size])]
    assert found == [Event("e", "\n".join(lines)) for lines in messages]


def test_the_client_needs_httpx_and_nothing_of_the_house():
    code = (
        "import sys, convoy_client\n"
        "heavy = {'engine', 'server', 'cli', 'torch', 'numpy', 'onnxruntime', 'pydantic', 'fastapi'}\n"
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_both_clients_offer_the_same():
    def offered(kind):
        return {
            name: [p.replace(annotation="") for p in inspect.signature(method).parameters.values()]
            for name, method in inspect.getmembers(kind, callable)
            if not name.startswith("_")
        }

    assert offered(Client) == offered(AsyncClient)
    assert httpx.__name__ in sys.modules
