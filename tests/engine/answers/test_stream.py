"""Streams of a service: partial texts are beginnings of the answer, in whole words."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import threading
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answers.drafts import Drafts
from engine.answers.plan import plan
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
from engine.schedule.slices import at_once
from tests.support.copying import copied, text_model
from tests.support.golden_fixtures import ROOT
from tests.support.served import LINES, LONG, busy, running, slow_down, until
from tests.support.thorough import some

MODELS = ROOT.parent / "models"
CORPUS = ROOT.parent.parent / "shared" / "corpora" / "tatoeba-de-en" / "test.tsv.gz"
TEXT = " Das ist gut. Wer bist du?\n\n😀 Guten Abend!  Was ist das? "


def listen(service, texts, options=None, model="toy-de-en"):
    """Return the partial texts of each text of a group, and the results."""

    async def collect():
        partial, results = [[] for _ in texts], []
        async with aclosing(service.stream(model, texts, options)) as events:
            async for event in events:
                assert not results
                if isinstance(event, Partial):
                    partial[event.index].append(event.text)
                else:
                    results = event
        return partial, results

    return asyncio.run(collect())


def assert_beginnings(partial, final):
    for earlier, later in itertools.pairwise(["", *partial, final]):
        assert later.startswith(earlier)
    assert len(set(partial)) == len(partial)


@pytest.mark.parametrize("alternatives", [0, 2])
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("beams", [1, 3, 4])
def test_every_partial_text_is_a_beginning_of_the_answer(service, beams, penalty, alternatives):
    if alternatives >= beams:
        return
    decode = {"beam_size": beams, "length_penalty": penalty, "max_length": 12}
    options = TextOptions(decode, alternatives=alternatives)
    texts = [TEXT, "", "😀", "Haus.", MarkedText("Wer bist du?")]
    partial, results = listen(service, texts, options)
    plain = asyncio.run(service.run("toy-de-en", texts, options))
    assert [r.text for r in results] == [r.text for r in plain]
    assert [r.score for r in results] == [r.score for r in plain]
    for partials, result in zip(partial, results, strict=True):
        assert_beginnings(partials, result.text)
    assert partial[0]


def test_sentences_that_waited_for_the_first_are_composed_in_a_slice_each():
    model = text_model()
    planned = at_once(plan(model, " ".join(f"Das ist Satz {n}." for n in range(60)), TextOptions()))
    count = len(planned.sentences)
    results = [copied(job, "shorter") for job in at_once(planned.job_slices(range(count)))]
    drafts = Drafts()
    watch = drafts.begin(model, [planned])
    for number in range(1, count):
        watch(number, results[number])
    assert at_once(drafts.take()) == []
    watch(0, results[0])
    slices = drafts.take()
    assert sum(1 for _ in slices) == count == 60


@pytest.mark.parametrize(("sentences", "names"), [(1, {"MainThread"}), (60, {"convoy-slices"})])
def test_beginnings_of_long_answers_are_composed_outside_of_the_event_loop(
    service, monkeypatch, sentences, names
):
    found, composed = Drafts._finished, set()

    def finished(*given):
        composed.add(threading.current_thread().name)
        return found(*given)

    monkeypatch.setattr(Drafts, "_finished", finished)
    partial, results = listen(service, ["Das ist gut. " * sentences])
    assert composed <= names
    assert_beginnings(partial[0], results[0].text)


@given(text=st.text(max_size=50), beams=st.integers(1, 4), sampling=st.booleans())
def test_partial_texts_of_any_text_only_grow(service, text, beams, sampling):
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    options = TextOptions({"beam_size": beams, "sampling": sampling, "max_length": 6})
    (partial,), (result,) = listen(service, [text], options)
    assert_beginnings(partial, result.text)


def test_partial_texts_of_300_real_sentences_never_lose_a_word():
    """Sentence by sentence and together, also protected; partial texts end with a word."""
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
            partial, results = listen(made, asked, options, "tatoeba-de-en")
            for partials, result in zip(partial, results, strict=True):
                assert_beginnings(partials, result.text)
                for text in partials:
                    assert result.text[len(text) :][:1] in ("", " ")
            early = [p for p, r in zip(partial, results, strict=True) if p and p[0] != r.text]
            assert len(early) > len(asked) / 4  # most sentences have a partial text
    finally:
        made.stop(drain=False, timeout=30)


def test_a_single_sample_is_streamed_word_by_word(service):
    decode = {
        "beam_size": 1,
        "sampling": True,
        "seed": 3,
        "temperature": 2.0,
        "min_length": 60,
        "max_length": 60,
    }
    (partial,), (result,) = listen(service, ["Wer bist du?"], TextOptions(decode))
    assert_beginnings(partial, result.text)
    assert len(partial) > 3


def test_the_first_sentence_is_streamed_before_the_others_are_decoded(service):
    """All answers have one length: decoded together they would end in one step, without partial texts."""
    options = TextOptions(dict.fromkeys(LONG, 60))
    stepper = service.repository.loaded["toy-de-en"].engine.lanes[1].stepper
    slow_down(stepper)  # a slow engine, so that no update is skipped
    try:
        partial, results = listen(service, ["Das ist gut. Wer bist du? Was ist das?"], options)
    finally:
        del stepper.launch
    first, second = (listen(service, [text], options)[1][0].text for text in ("Das ist gut.", "Wer bist du?"))
    assert results[0].text.startswith(f"{first} {second}")
    within = [text for text in partial[0] if len(first) < len(text) < len(first) + len(second)]
    assert within
    assert [text for text in partial[0] if len(text) <= len(first)]


def test_closing_a_stream_frees_its_slots(service):
    async def leave():
        options = TextOptions(LONG, prefix="The house is")
        async with aclosing(service.stream("toy-de-en", LINES[:9], options)) as events:
            async for event in events:
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


def test_a_slow_consumer_gets_the_newest_partial_text_only(service):
    options = TextOptions({"beam_size": 1, "min_length": 300, "max_length": 300})

    async def sleepy():
        partial = []
        async with aclosing(service.stream("toy-de-en", ["Wer bist du?"], options)) as events:
            async for event in events:
                partial.append(event)
                if len(partial) == 1:
                    while busy(service)[0]:
                        await asyncio.sleep(0.01)
        return partial

    partial = asyncio.run(sleepy())
    assert len(partial) <= 4
    assert partial[-1][0].text.startswith(partial[-2].text)
