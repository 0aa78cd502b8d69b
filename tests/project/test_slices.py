"""No slice of the thread that all requests share takes long, whatever a client sends.

The thread can't be stopped, so that each kind of its work is either here, with the content that takes longest
up to the limits of a request, or runs in a worker that can be killed. A slice's time is the processor time of
this thread.
"""

import ast
import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from documents.spans import Segment, Span
from documents.worker import from_lines, to_lines
from engine.answers.directions import Directions
from engine.api import ConvoyError, MarkedText, Slices, TextOptions, one_slice
from engine.repository.catalogue import Leg, ModelRoute
from engine.text.detect import detect
from server.answering.translation import _mark_protected
from server.cache import keys_of
from server.contracts.deepl.entries import present_entries, read_entries
from server.contracts.deepl.translate import _joined
from server.files.document_processes import _collect
from server.http.forms import read_fields, read_parts
from server.http.media import media_of
from server.http.responses import SLICE_CHARACTERS, _parts, _serialize
from tests.project.rooms import ROOT, module_of
from tests.support.timing import slowness, thrice

pytestmark = pytest.mark.no_cover  # a traced function is slower

MOST_SECONDS = 0.25  # of a slice, on a processor as fast as a Zen 4; the longest takes a quarter of it
BODY = 1 << 20  # bytes of a body
FILE = 10 << 20  # bytes of a form with a file
TEXT = 100_000  # characters of a text
PUMPS = (*"a%+&=;.-'1\n\t é東😀", "%61", "%6", "a ", ". ", "\r\n--", "a\tb\n", "a,b\n", '",', "A", "\u0301")
PART = b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\n"
END = b"\r\n--x--"
MEDIA = media_of("multipart/form-data; boundary=x")
COUNTED = "counts of sentences and tokens bound the group before it is submitted"
DETECTION = "server.answering.translation:routes_for"
ENTRIES = "server.contracts.deepl.glossary_routes:create"
PHRASES = "server.contracts.deepl.translate:_translate_all"
EXTRAS = "copies results, whose numbers and tokens the engine has bounded"


def pumped(characters: int) -> Iterator[str]:
    """Yield texts of repeated pieces."""
    for pump in PUMPS:
        yield pump * (characters // len(pump))


def forms() -> Iterator[Slices[Any]]:
    for text in pumped(BODY):
        yield read_fields(b"q=" + text.encode()[:BODY])
    for pump in (b"\r\n--x", b"\r\n--", b"\xff", PART, b"\r\n--xa"):
        yield read_parts(PART + pump * (FILE // len(pump)) + END, MEDIA)


def answers() -> Iterator[Slices[Any]]:
    numbers = np.linspace(-1, 1, 1_000_000, dtype=np.float32)
    for value in (numbers, numbers.reshape(2, -1), ["ä\n" * 50_000] * 20, "\x01" * FILE, [[]] * 20_000):
        yield _serialize({"a": value})
    yield _serialize([1, *[{"a": [1.5]}] * 20_000])


def tables() -> Iterator[Slices[Any]]:
    for text in pumped(BODY):
        yield from (read_entries(text, kind) for kind in ("tsv", "csv"))
    yield read_entries("".join(f"a{n}\tb\n" for n in range(50_000)), "tsv")


def lookups() -> Iterator[Slices[Any]]:
    texts = ["a" * TEXT, "ab " * (TEXT // 3)]
    for entries in (
        {"a" * (n % 1_000 + 1) + str(n): "b" for n in range(3_000)},
        {f"{n:08}{'a' * 1_000}": "b" for n in range(1_000)},
        {"a" * n: "b" for n in range(1, 1_024)},
    ):
        # the lookup is refused after some seconds: its first slices have all kinds
        yield islice(present_entries(entries, texts), 400)


def detections() -> Iterator[Slices[Any]]:
    yield from (one_slice(detect, text, ["de", "en", "fr"]) for text in pumped(BODY))


def digests() -> Iterator[Slices[Any]]:
    class Route:
        name, infos = "a", ()

    phrases = {f"{'a' * 500}{n}": "b" * 500 for n in range(1_000)}
    spans = tuple((n, n + 1) for n in range(0, 20_000, 2))
    texts = [MarkedText("a" * TEXT, spans), "東" * TEXT]
    yield keys_of(Route(), texts, TextOptions(glossary=phrases, ignore=tuple(phrases)))


def segment() -> Segment:
    return Segment("x" * TEXT, tuple(Span(n, n + 1, kept=True) for n in range(5_000)))


def marks() -> Iterator[Slices[Any]]:
    for remote in ("", "localhost:1"):
        route = ModelRoute((Leg(SimpleNamespace(remote=remote, placeholders=1), Directions((), ())),))
        yield one_slice(_mark_protected, segment(), route)


def files() -> Iterator[Slices[Any]]:
    lines = b"".join(to_lines([segment()] * 3))
    yield _collect(from_lines(lines))
    yield _collect(to_lines([segment()] * 3))


WORKS: dict[str, Callable[[], Iterator[Slices[Any]]] | str] = {
    "server.http.forms:form_of": forms,
    "server.http.responses:json_bytes": answers,
    ENTRIES: tables,
    "server.contracts.deepl.multilingual_routes:_dictionaries": ENTRIES,
    PHRASES: lookups,
    "server.contracts.deepl.documents:_submit": PHRASES,
    "server.contracts.deepl.translate:_translate_plain": lambda: (_joined([text]) for text in pumped(BODY)),
    DETECTION: detections,
    "server.answering.texts:pick_summarizer": DETECTION,
    "server.answering.translation:wrong_source": DETECTION,
    "server.contracts.reading.routes:_target": DETECTION,
    "server.contracts.reading.routes:_detect": DETECTION,
    "server.contracts.libretranslate.languages:detect": DETECTION,
    "server.contracts.mcp.tools:detect_language": DETECTION,
    "server.answering.results:results_of": digests,
    "server.answering.translation:_answer_segments": marks,
    "server.files.document_processes:read": files,
    "server.files.document_processes:recall": "server.files.document_processes:read",
    "server.files.document_processes:_run_with": "server.files.document_processes:read",
    "server.contracts.convoy.score:score": EXTRAS,
    "server.contracts.convoy.summarize:_answer": EXTRAS,
    "server.contracts.libretranslate.translate:_answer_in": EXTRAS,
    "engine.answers.answer:live": "a sentence at a time, see test_linear_requests.py",
    "engine.schedule.aio:generate_group": COUNTED,
    "engine.repository.ipc.host:_submit_outside_loop": COUNTED,
    "engine.schedule.workers:run_work": "at most 2,000 characters, see test_linear_requests.py",
}
TIMED = [name for name, work in WORKS.items() if not isinstance(work, str)]


def test_every_work_of_the_shared_thread_is_bounded():
    assert set(callers_of("in_slices")) == set(WORKS)


@cache
def callers_of(name: str) -> list[str]:
    """Return `module:function` of each call of a function in server/ and engine/."""
    found = []
    for folder in ("server", "engine"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            for function in ast.walk(ast.parse(text)) if name in text else ():
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
                    if any(isinstance(c.func, ast.Name) and c.func.id == name for c in calls):
                        found.append(f"{module_of(path)}:{function.name}")
    return found


def longest(slices: Iterator[None]) -> float:
    """Return the processor seconds of the longest slice of a work."""
    most, before = 0.0, time.thread_time()
    with suppress(ConvoyError):
        for _ in slices:
            now = time.thread_time()
            most, before = max(most, now - before), now
    return max(most, time.thread_time() - before)


@pytest.mark.parametrize("name", TIMED)
def test_no_slice_of_the_shared_thread_takes_long(name):
    detect("Das ist gut.", ["de"])  # its model is loaded
    number = len(list(WORKS[name]()))

    def attempt(index: int) -> str:
        work = next(islice(WORKS[name](), index, None))
        gc.disable()
        try:
            seconds, allowed = longest(work), MOST_SECONDS * slowness()
        finally:
            gc.enable()
        return f"work {index} has a slice of {seconds:.3f} s" if seconds > allowed else ""

    for index in range(number):
        thrice(partial(attempt, index))


@pytest.mark.parametrize(
    "value",
    [
        ["ä\n" * 50_000] * 3,
        ["a" * 1_000] * 400,
        "\x01" * 200_000,
        np.ones(100_000, np.float32),
        [1, *[{"a": "b" * 1_000}] * 300],
        {"a": [["b" * 1_000] * 300]},
    ],
)
def test_answers_are_written_in_short_parts_that_join_to_json(value):
    parts = list(_parts(value))
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    assert json.loads("".join(parts)) == plain
    assert max(map(len, parts)) <= 6 * SLICE_CHARACTERS + 2  # an escape has six characters
    assert len(parts) > 1
