"""Many texts through a service in bounded memory: `Service.run_many`."""

import asyncio
import random
import threading
from itertools import islice

import pytest

from engine.answers import plan as planning
from engine.api import ExecutorFailed, Overloaded, Stopping, TextOptions, TooLarge, at_once
from engine.bundle.bundle import open_bundle
from engine.text.tokenizers.tokenizer import open_tokenizer
from tests.support.served import LINES, LONG, bundles, busy, open_service, running, until


def ask(service, text, options=None, model="toy-de-en"):
    return asyncio.run(service.run(model, [text], options))[0]


def test_many_lines_are_in_order_and_equal_to_single_answers(service):
    lines = [f"{'Das ist ' * (i % 7)}Haus {i}." for i in range(60)] + ["", "  ", "😀"]
    done = []
    results = list(service.run_many("toy-de-en", lines, on_done=done.append))
    assert [r.text for r in results] == [ask(service, line).text for line in lines]
    assert sum(done) == len(lines)


def test_equal_sentences_of_lines_in_flight_are_decoded_once(service):
    rng = random.Random(3)
    lines = [" ".join(rng.choices(LINES[:20], k=rng.randrange(1, 4))) for _ in range(60)]
    sentences = {sentence + "." for line in lines for sentence in line.rstrip(".").split(". ")}
    with running() as own:
        results = list(own.run_many("toy-de-en", lines))
        assert own.stats()["toy-de-en"].encoded_requests == len(sentences)
    assert [r.text for r in results] == [ask(service, line).text for line in lines]


def test_equal_lines_that_draw_samples_are_decoded_each():
    drawn = TextOptions({"sampling": True, "seed": 7, "max_length": 3})
    with running() as own:
        list(own.run_many("toy-de-en", LINES[:1] * 5, drawn))
        assert own.stats()["toy-de-en"].encoded_requests == 5


def test_a_line_is_decoded_again_where_an_equal_one_has_failed():
    """A failed job may have failed because of another line."""
    with running() as own:
        engine = own.repository.loaded["toy-de-en"].engine
        submit, failed = engine.submit, []

        def fail_first(requests, **options):
            if not failed:
                failed.extend(requests)
                requests[0].reply(ExecutorFailed("a batch failed"))
            else:
                submit(requests, **options)

        engine.submit = fail_first
        texts = [(text, TextOptions()) for text in LINES[:1] * 3]
        first, *others = own.run_each("toy-de-en", texts)
        assert isinstance(first, ExecutorFailed)
        assert len({other.text for other in others}) == 1


def test_reading_ahead_is_bounded_by_the_queue():
    read = []

    def lines():
        for i in range(500):
            read.append(i)
            yield f"Das ist Haus {i}."

    with running(queue_tokens=200) as service:
        stream = service.run_many("toy-de-en", lines())
        next(stream)
        assert 1 < len(read) < 100
        ahead = [len(read) - number for number, _ in enumerate(stream, 2)]
    assert len(ahead) == 499
    assert min(ahead[:400]) > 1


def test_an_error_names_its_line(service):
    lines = ["Das ist gut.", "Haus und Hof " * 60]
    with pytest.raises(TooLarge, match=r"^line 2: the text has"):
        list(service.run_many("toy-de-en", lines, TextOptions(split=False)))


def test_an_engine_that_stops_ends_the_stream_with_the_line(service):
    with running() as own:
        stream = own.run_many("toy-de-en", ["Das ist gut."] * 2, TextOptions(LONG))
        own.repository.loaded["toy-de-en"].engine.stop(drain=False, timeout=0)
        with pytest.raises(Stopping):
            next(stream)


def test_answers_that_never_come_name_their_line():
    with running() as own:

        def lines():
            yield "Das ist gut."
            own.repository.loaded["toy-de-en"].engine.stop(drain=False, timeout=30)

        with pytest.raises(Stopping, match="^line 1: "):
            list(own.run_many("toy-de-en", lines(), TextOptions(LONG)))


def test_closing_the_stream_early_frees_every_slot(service):
    stream = service.run_many("toy-de-en", ["😀", *LINES[:40]], TextOptions(LONG))
    assert next(stream).text == "😀"
    assert sum(busy(service)) > 0
    answered = service.stats()["toy-de-en"].answered
    stream.close()
    until(lambda: busy(service) == (0, 0))
    assert service.stats()["toy-de-en"].answered == answered


class Gate:
    """An observer that blocks the engine's thread after an encoding until the gate is opened."""

    def __init__(self):
        self.opened = threading.Event()

    def on_encode(self, seconds, requests, tokens):
        self.opened.wait(300)

    def on_step(self, seconds, slots):
        pass


@pytest.fixture
def crowded():
    """A stream of lines by a service whose slot is busy, and whose queue has space for `room` more lines."""
    encode = open_tokenizer(open_bundle(bundles() / "toy-de-en")).encode
    size = len(encode(LINES[0])) + 1
    alike = (line for line in LINES if len(encode(line)) + 1 == size)
    texts, others = list(islice(alike, 12)), list(islice(alike, 6))
    gate = Gate()
    with running(observe=lambda _: gate, queue_tokens=5 * size, lanes=((4, 1),)) as service:

        def lines(room):
            yield from texts[:room]
            gate.opened.set()  # further lines are read when the queue is full
            yield from texts[room:]

        async def stream(room):
            groups = [asyncio.create_task(service.run("toy-de-en", others[5:]))]
            while busy(service)[0] == 0:
                await asyncio.sleep(0.002)
            groups.append(asyncio.create_task(service.run("toy-de-en", others[: 5 - room])))
            await asyncio.sleep(0)
            asked = lines(room) if room else texts  # the first line is refused
            try:
                results = await asyncio.to_thread(lambda: list(service.run_many("toy-de-en", asked)))
                return texts, [result.text for result in results]
            finally:
                gate.opened.set()
                for group in groups:
                    group.cancel()

        yield stream


def test_a_stream_fails_when_others_fill_the_queue_and_it_has_nothing_in_flight(crowded):
    with pytest.raises(Overloaded, match="^line 1: the queue is full"):
        asyncio.run(crowded(0))


def test_a_stream_waits_for_its_own_answers_when_others_fill_the_queue(service, crowded):
    texts, answers = asyncio.run(crowded(2))
    assert answers == [ask(service, text).text for text in texts]


def test_a_stream_needs_a_running_service():
    with pytest.raises(Stopping, match="start the service first"):
        list(open_service().run_many("toy-de-en", ["Das ist gut."]))


def test_text_of_too_many_sentences_is_refused_while_it_is_split(service, monkeypatch):
    read, fits = [], planning._Planner._fits
    monkeypatch.setattr(planning._Planner, "_fits", lambda *values: read.append(values[1]) or fits(*values))
    model, text = service.repository.loaded["toy-de-en"].text, "Das ist gut. " * 500
    assert len(at_once(planning.plan(model, text, TextOptions(), most=500)).sentences) == 500
    assert len(read) >= 500
    read.clear()
    with pytest.raises(TooLarge, match="4096 sentences"):
        at_once(planning.plan(model, text, TextOptions(), most=20))
    assert len(read) == 21
