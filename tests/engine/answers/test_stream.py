"""Answers as they grow: whatever is told is a beginning of the answer, in whole words, from token to wire."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from contextlib import aclosing
from functools import cache

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    ExecutorFailed,
    InvalidRequest,
    MarkedText,
    Partial,
    Placement,
    Service,
    ServiceSettings,
    TextOptions,
)
from engine.text.tokenizers.pieces import Pieces
from tests.engine.text.test_tokenizers import real_tokenizer, toy
from tests.support.golden_fixtures import ROOT, real_golden
from tests.support.served import LINES, LONG, busy, draining, running, server, slow_down, until
from tests.support.thorough import some

MODELS = ROOT.parent / "models"
CORPUS = ROOT.parent.parent / "shared" / "corpora" / "tatoeba-de-en" / "test.tsv.gz"
TEXT = " Das ist gut. Wer bist du?\n\n😀 Guten Abend!  Was ist das? "


@pytest.fixture(scope="module")
def service():
    with running() as made:
        yield made


def listen(service, texts, options=None, model="toy-de-en"):
    """Everything told of a group: the partial texts of each, and the results."""

    async def collect():
        told, results = [[] for _ in texts], []
        async with aclosing(service.stream(model, texts, options)) as news:
            async for event in news:
                assert not results
                if isinstance(event, Partial):
                    told[event.index].append(event.text)
                else:
                    results = event
        return told, results

    return asyncio.run(collect())


def assert_beginnings(told, final):
    for earlier, later in itertools.pairwise(["", *told, final]):
        assert later.startswith(earlier)
    assert len(set(told)) == len(told)


# tokens to text


@cache
def with_bytes():
    """A SentencePiece model whose unknown characters are bytes."""
    import io

    out = io.BytesIO()
    lines = [line for r in real_golden()["results"] for line in (r["src"], r["ref"])]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        vocab_size=600,
        byte_fallback=True,
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
    )
    return Pieces(sentencepiece.SentencePieceProcessor(model_proto=out.getvalue()))


@given(tokens=st.lists(st.integers(0, 599), max_size=25), text=st.text(max_size=12))
def test_what_is_settled_of_pieces_begins_every_longer_text(tokens, text):
    tokenizer = with_bytes()
    for ids in (tokens, tokenizer.encode(text), [*tokenizer.encode(text), *tokens]):
        final = tokenizer.decode(ids)
        for end in range(len(ids) + 1):
            assert final.startswith(tokenizer.decode_whole_words(ids[:end]))


MOSES = [
    "@-@",
    "a",
    "l&apos;",
    "&apos;",
    "&quot;",
    "'",
    '"',
    "``",
    "„",
    "s",
    "Jones",
    ".",
    ",",
    "$",
    "(",
    ")",
]
MOSES += ["&apos;s", "%", "?", "日", "本", "1", ":", "ssa", "x@@", "&amp;", "@@", "-", "li", "e"]


@pytest.mark.parametrize("language", ["en", "de", "fr", "it", "fi", "cs", "es"])
def test_what_is_settled_of_moses_words_begins_every_longer_text(language, tmp_path):
    lines = "".join(f"{word} 1\n" for word in dict.fromkeys(MOSES))
    tokenizer = toy(tmp_path, lines, target_language=language)

    @given(tokens=st.lists(st.integers(2, 3 + len(set(MOSES))), max_size=14))
    def check(tokens):
        final = tokenizer.decode(tokens)
        for end in range(len(tokens) + 1):
            assert final.startswith(tokenizer.decode_whole_words(tokens[:end]))

    check()


def test_nothing_is_settled_of_a_czech_sentence_because_its_end_decides(tmp_path):
    """Moses' rule for decimal numbers looks at the last two words, wherever the number stands."""
    tokenizer = toy(tmp_path, "x 1\ny 1\n1 1\ne 1\n. 1\n", target_language="cs")
    tokens = [4, 5, 6, 7, 6, 8]
    assert tokenizer.decode(tokens) == "x y1 e1."
    assert tokenizer.decode(tokens[:4]) == "x y 1 e"
    assert [tokenizer.decode_whole_words(tokens[:end]) for end in range(6)] == [""] * 6


def test_real_translations_are_settled_word_by_word():
    tokenizer = real_tokenizer()
    told = 0
    for result in real_golden()["results"]:
        tokens = result["hyps"][0]["tokens"]
        for end in range(len(tokens) + 1):
            beginning = tokenizer.decode_whole_words(tokens[:end])
            assert result["text"].startswith(beginning)
            assert result["text"][len(beginning) :][:1] in ("", " ") or not beginning
            told += bool(beginning)
    assert told > 1000  # or it settles nothing


# texts


@pytest.mark.parametrize("alternatives", [0, 2])
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("beams", [1, 3, 4])
def test_every_partial_text_is_a_beginning_of_the_answer(service, beams, penalty, alternatives):
    if alternatives >= beams:
        return
    decode = {"beam_size": beams, "length_penalty": penalty, "max_length": 12}
    options = TextOptions(decode, alternatives=alternatives)
    texts = [TEXT, "", "😀", "Haus.", MarkedText("Wer bist du?")]
    told, results = listen(service, texts, options)
    plain = asyncio.run(service.run("toy-de-en", texts, options))
    assert [r.text for r in results] == [r.text for r in plain]
    assert [r.score for r in results] == [r.score for r in plain]
    for partials, result in zip(told, results, strict=True):
        assert_beginnings(partials, result.text)
    assert told[0]


@given(text=st.text(max_size=50), beams=st.integers(1, 4), sampling=st.booleans())
def test_any_text_grows_without_being_taken_back(service, text, beams, sampling):
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    options = TextOptions({"beam_size": beams, "sampling": sampling, "max_length": 6})
    (told,), (result,) = listen(service, [text], options)
    assert_beginnings(told, result.text)


def test_300_real_sentences_never_take_a_word_back():
    """Sentence by sentence and together, and protected; partial texts end where a word ends."""
    if not CORPUS.exists():
        pytest.skip("no ../shared/corpora")
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        sentences = [line.split("\t")[0] for line in itertools.islice(lines, some(300))]
    last = len(sentences) * 4 // 5
    texts = [*sentences[:last], *(" ".join(sentences[i : i + 4]) for i in range(last, len(sentences), 4))]
    made = Service.open([MODELS / "tatoeba-de-en"], ServiceSettings(Placement(lanes=((5, 32),))))
    made.start()
    try:
        named = [text.replace("Tom", "{name}").replace("Ich", "%s") for text in texts[-some(90) :]]
        for options, asked in ((TextOptions(), texts), (TextOptions(protect=True), named)):
            told, results = listen(made, asked, options, "tatoeba-de-en")
            for partials, result in zip(told, results, strict=True):
                assert_beginnings(partials, result.text)
                for text in partials:
                    assert result.text[len(text) :][:1] in ("", " ")
            early = [p for p, r in zip(told, results, strict=True) if p and p[0] != r.text]
            assert len(early) > len(asked) / 4  # they are told something before their end
    finally:
        made.stop(drain=False, timeout=30)


def test_a_single_sample_is_told_word_by_word(service):
    decode = {
        "beam_size": 1,
        "sampling": True,
        "seed": 3,
        "temperature": 2.0,
        "min_length": 60,
        "max_length": 60,
    }
    (told,), (result,) = listen(service, ["Wer bist du?"], TextOptions(decode))
    assert_beginnings(told, result.text)
    assert len(told) > 3


def test_the_first_sentence_is_told_before_the_others_are_decoded(service):
    """All have the same length: together they would end in the same step, and none would be told by words."""
    options = TextOptions(dict.fromkeys(LONG, 60))
    stepper = service.repository.loaded["toy-de-en"].engine.lanes[1].stepper
    slow_down(stepper)  # who listens is told of the newest only
    try:
        told, results = listen(service, ["Das ist gut. Wer bist du? Was ist das?"], options)
    finally:
        del stepper.launch
    first, second = (listen(service, [text], options)[1][0].text for text in ("Das ist gut.", "Wer bist du?"))
    assert results[0].text.startswith(f"{first} {second}")
    within = [text for text in told[0] if len(first) < len(text) < len(first) + len(second)]
    assert within
    assert [text for text in told[0] if len(text) <= len(first)]


def test_leaving_a_stream_frees_its_slots(service):
    async def leave():
        options = TextOptions(LONG, prefix="The house is")
        async with aclosing(service.stream("toy-de-en", LINES[:9], options)) as news:
            async for event in news:
                assert isinstance(event, Partial)
                break

    asyncio.run(leave())
    until(lambda: busy(service) == (0, 0))


def test_a_stream_raises_what_a_run_raises(service):
    with pytest.raises(InvalidRequest, match="unknown decoding options"):
        listen(service, ["a"], TextOptions({"beams": 1}))
    with running() as broken:
        engine = broken.repository.loaded["toy-de-en"].engine

        def fail(*args, **kwargs):
            raise RuntimeError("no device")

        engine.lanes[1].stepper.launch = fail
        with pytest.raises(ExecutorFailed, match="no device"):
            listen(broken, ["Wer bist du?"])


def test_a_slow_listener_gets_the_newest_only(service):
    options = TextOptions({"beam_size": 1, "min_length": 300, "max_length": 300})

    async def sleepy():
        told = []
        async with aclosing(service.stream("toy-de-en", ["Wer bist du?"], options)) as news:
            async for event in news:
                told.append(event)
                if len(told) == 1:
                    while busy(service)[0]:
                        await asyncio.sleep(0.01)
        return told

    told = asyncio.run(sleepy())
    assert len(told) <= 4
    assert told[-1][0].text.startswith(told[-2].text)


# the wire


@pytest.fixture(scope="module")
def place():
    with server() as found:
        yield found


def read(response):
    """Server-sent events as (event, data, id), by the rules of the HTML standard."""
    found, event = [], {}
    for line in response.iter_lines():
        name, _, value = line.partition(":")
        if not line:
            if "data" in event:
                found.append((event.get("event", "message"), json.loads(event["data"]), event.get("id")))
            event = {}
        elif name:
            event[name] = value.removeprefix(" ")
    return found


def events(client, method, path, **kwargs):
    with client.stream(method, path, **kwargs) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["access-control-allow-origin"] == "*"
        return read(response)


# its first words are certain at once, whatever the model makes of the rest
ENDLESS = LONG | {"prefix": "The house is", "stream": True}
BODY = {"q": TEXT, "source": "de", "target": "en", "max_length": 30, "min_length": 30}


@pytest.mark.parametrize("way", ["json", "form", "get"])
@pytest.mark.parametrize("more", [{}, {"scores": True, "alternatives": 1}, {"source": "auto"}])
def test_a_streamed_translation_ends_with_the_plain_answer(place, way, more):
    client, body = place[0], BODY | more
    plain = client.post("/translate", json=body).json()
    if way == "get":
        found = events(client, "GET", "/translate/stream", params=body)
    else:
        found = events(
            client, "POST", "/translate", **{"json" if way == "json" else "data": body | {"stream": True}}
        )
    *partials, last = found
    assert last == ("result", plain, "end")
    assert {name for name, _, _ in partials} == {"partial"}
    assert_beginnings([data["text"] for _, data, _ in partials], plain["translatedText"])
    assert {data["index"] for _, data, _ in partials} == {0}


def test_an_array_is_streamed_by_index(place):
    body = BODY | {"q": ["Wer bist du?", "😀", "Das ist gut."], "stream": True}
    *partials, last = events(place[0], "POST", "/translate", json=body)
    texts = last[1]["translatedText"]
    assert {data["index"] for _, data, _ in partials} == {0, 2}
    for _, data, _ in partials:
        assert texts[data["index"]].startswith(data["text"])


def test_html_is_streamed_in_one_piece(place):
    body = BODY | {"q": "<p>Wer <b>bist</b> du?</p>", "format": "html"}
    plain = place[0].post("/translate", json=body).json()
    assert events(place[0], "POST", "/translate", json=body | {"stream": True}) == [("result", plain, "end")]


@pytest.mark.parametrize("way", ["post", "get"])
def test_summaries_are_streamed_too(place, way):
    body = {"q": "We prove a theorem.", "max_length": 20, "min_length": 20}
    plain = place[0].post("/summarize", json=body).json()
    if way == "post":
        found = events(place[0], "POST", "/summarize", json=body | {"stream": True})
    else:
        found = events(place[0], "GET", "/summarize/stream", params=body)
    assert found[-1] == ("result", plain, "end")
    assert_beginnings([data["text"] for _, data, _ in found[:-1]], plain["summaryText"])


@pytest.mark.parametrize("path", ["/translate/stream", "/summarize/stream"])
def test_what_is_wrong_from_the_start_has_its_status(place, path):
    answer = place[0].get(path)
    assert (answer.status_code, answer.json()) == (400, {"error": "Invalid request: missing q parameter"})
    params = {"q": "a", "source": "en", "target": "de", "beam_size": 99}
    assert place[0].get(path, params=params).status_code == 400


def test_a_failure_after_the_start_is_an_event(place):
    client, house, _ = place
    engine = house.service.repository.loaded["toy-de-en"].engine
    with client.stream("POST", "/translate", json=BODY | ENDLESS) as response:
        lines = response.iter_lines()
        assert next(lines) == "event: partial"
        stepper = engine.lanes[1].stepper

        def fail(*args, **kwargs):
            raise RuntimeError("no device")

        stepper.launch = fail
        try:
            rest = list(lines)
        finally:
            del stepper.launch
    assert rest[-4:-2] == ["event: error", 'data: {"error":"the backend failed: RuntimeError: no device"}']
    assert house.metrics.rejections.labels("executor_failed")._value.get() == 1


def test_a_browser_that_comes_back_after_the_end_is_sent_away(place):
    answer = place[0].get("/translate/stream", params=BODY, headers={"Last-Event-ID": "end"})
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_client_that_goes_frees_the_slots(place):
    client, house, _ = place
    with client.stream("POST", "/translate", json=BODY | ENDLESS) as response:
        lines = response.iter_lines()  # closes the connection when it is collected
        assert next(lines) == "event: partial"
        assert busy(house.service)[0]
    until(lambda: busy(house.service) == (0, 0))


def test_a_draining_server_takes_no_new_stream(place):
    client, house, _ = place
    with draining(house):
        answers = [client.get(f"/{name}/stream", params=BODY) for name in ("translate", "summarize")]
    assert [answer.status_code for answer in answers] == [503, 503]


def test_silence_is_filled_with_comments(place, monkeypatch):
    monkeypatch.setattr("server.answering.events.COMMENT_SECONDS", 0.02)
    monkeypatch.setattr("server.answering.events.PLAIN_ERROR_SECONDS", 0.01)
    client, house, _ = place
    engine = house.service.repository.loaded["toy-de-en"].engine
    stepper, launch = engine.lanes[1].stepper, engine.lanes[1].stepper.launch

    def slow(*args, **kwargs):
        import time

        time.sleep(0.1)
        return launch(*args, **kwargs)

    stepper.launch = slow
    try:
        with client.stream(
            "POST", "/translate", json=BODY | {"max_length": 3, "min_length": 0, "stream": True}
        ) as r:
            lines = list(r.iter_lines())
    finally:
        del stepper.launch
    assert ": still at work" in lines
    assert "event: result" in lines
