"""Streams of answers, by both clients."""

import asyncio
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import StreamingResponse
from starlette.routing import Route

from convoy_client import (
    ApiError,
    BadAnswer,
    Client,
    Partial,
    Translation,
    Unreachable,
)
from convoy_client.events import Event, EventReader
from tests.convoy_client.serving import GERMAN, plain, using


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
def test_stream_yields_beginnings_and_then_the_answer(kind, size, small):
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
    ("events", "error", "wanted"),
    [
        (sse(*SAID, ("error", {"error": "the deadline passed"})), ApiError, "^the deadline passed$"),
        (sse(*SAID), Unreachable, "before its result"),
        ("event: partial\ndata: {\n\n", BadAnswer, "event"),
        ("event: result\ndata: {}\n\n", BadAnswer, "Convoy"),
    ],
)
def test_failed_stream_is_an_error(kind, events, error, wanted, small):
    url = small(streaming(events.encode()))
    with pytest.raises(error, match=wanted):
        using(kind, url, lambda c: c.stream("Guten Tag", "en"))


def test_refused_stream_is_an_error_with_its_status(kind, small):
    route = streaming(b'{"error": "zz is not supported"}', status=400)
    url = small(route)
    with pytest.raises(ApiError, match="^zz is not supported$") as raised:
        using(kind, url, lambda c: c.stream("a", "zz"))
    assert raised.value.status == 400


def test_abandoned_stream_is_closed(small):
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
        assert gone.wait(300)


def test_stream_of_a_server_grows_and_ends_with_the_answer(ask, place):
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
def test_events_are_parsed_for_any_chunks(messages, size, end):
    text = "".join(
        f"event: e{end}" + "".join(f"data: {line}{end}" for line in lines) + end for lines in messages
    ).encode()
    reader = EventReader()
    found = [e for i in range(0, len(text), size) for e in reader.feed(text[i : i + size])]
    assert found == [Event("e", "\n".join(lines)) for lines in messages]
