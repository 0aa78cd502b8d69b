"""Measurements of `convoy bench`: decoding steps of a lane, and whole texts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from engine.api import Service, ServiceSettings, TextOptions
from engine.backends import LaneSize, Placement
from engine.bundle.bundle import Bundle, open_bundle
from engine.errors import ConvoyError, InvalidRequest
from engine.executors import open_executors
from engine.schedule.lane import Lane
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions, Outcome, Request

LANE_SLOTS: Final = 32
LONG: Final = 200  # source tokens of the long source, if the model allows it
SHORT: Final = 10  # source tokens of the other sources
# by language, so that the vocabulary has the words; a file of real lines is better
TEXTS: Final = {
    "de": (
        "Wir haben gestern lange auf den Zug gewartet, weil es in den Bergen geschneit hat.",
        "Kannst du mir bitte sagen, wo ich hier in der Nähe ein gutes Buch kaufen kann?",
        "Meine Schwester arbeitet seit drei Jahren in einem kleinen Krankenhaus am Meer.",
        "Ich weiß nicht, ob er morgen kommt, aber wir sollten trotzdem auf ihn warten.",
    ),
    "en": (
        "We waited a long time for the train yesterday because it had snowed in the mountains.",
        "Could you please tell me where I can buy a good book somewhere around here?",
        "My sister has been working in a small hospital by the sea for three years.",
        "I do not know whether he will come tomorrow, but we should wait for him anyway.",
    ),
}


@dataclass(frozen=True, slots=True)
class Work:
    """The size of a measurement.

    steps: decoding steps of a run.
    source: number of source tokens of a sentence.
    texts: number of lines in a run of kind "text".
    runs: number of runs of each case.
    """

    steps: int
    source: int
    texts: int
    runs: int


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table.

    kind: "step", "mixed" (one long source among short ones) or "text" (whole texts).
    precision: format of the weights, such as "int8".
    beam: number of beams of a sentence.
    sentences: number of sentences, or of texts.
    """

    kind: str
    precision: str
    beam: int
    sentences: int


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run of a case: target tokens, lines, decoding steps, seconds."""

    tokens: int
    lines: int
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of a case over its runs.

    case: the case.
    unit: "ms/step" or, for texts, "lines/s".
    median, least, greatest: figures in that unit.
    tokens_per_second: median of target tokens a second.
    """

    case: Case
    unit: str
    median: float
    least: float
    greatest: float
    tokens_per_second: float


def measure(
    path: Path, place: Placement, work: Work, cases: Sequence[Case], lines: Sequence[str]
) -> list[Row]:
    """Run every case once without measuring, then all cases in turn, `work.runs` times.

    Cases alternate, so that a disturbance of the machine affects all of them.

    path: folder of the bundle.
    place: backend and device.
    work: size of the measurement.
    cases: rows of the table.
    lines: text of the source language; empty: built-in sentences.
    """
    bundle = open_bundle(path)
    lines = lines or TEXTS.get(bundle.source, TEXTS["en"])
    with ExitStack() as stack:
        runners = [_runner(stack, bundle, place, work, case, lines) for case in cases]
        measurements: list[list[Run]] = [[] for _ in cases]
        for turn in range(work.runs + 1):
            for runs, run in zip(measurements, runners, strict=True):
                result = run()
                if turn:  # turn 0 warms up
                    runs.append(result)
    return [_row(case, runs) for case, runs in zip(cases, measurements, strict=True)]


def _runner(
    stack: ExitStack, bundle: Bundle, place: Placement, work: Work, case: Case, lines: Sequence[str]
) -> Callable[[], Run]:
    """Return a function that runs a case once.

    stack: stops the service of a case of kind "text" on exit.
    bundle: the model.
    place: backend and device.
    work: size of the measurement.
    case: row of the table.
    lines: text of the source language.
    """
    one = replace(place, precision=case.precision, lanes=(LaneSize(case.beam, LANE_SLOTS),))
    if case.kind == "text":
        return _texts(stack, bundle, one, case, list(islice(cycle(lines), case.sentences)))
    (executor,) = open_executors(bundle, one)
    longest = executor.limits.source
    if work.source > longest or work.steps > executor.limits.target:
        raise InvalidRequest(
            f"{bundle.name} takes {longest} source tokens and {executor.limits.target} steps at most"
        )
    lengths = [work.source] * case.sentences
    if case.kind == "mixed":
        lengths = [min(LONG, longest)] + [SHORT] * (case.sentences - 1)
    sources = _sources(bundle, lines, lengths)
    options = DecodeOptions(beam_size=case.beam, min_length=work.steps, max_length=work.steps)

    def run() -> Run:
        return _steps(Lane(executor, _raise_error), sources, options)

    return run


def _texts(
    stack: ExitStack, bundle: Bundle, place: Placement, case: Case, lines: Sequence[str]
) -> Callable[[], Run]:
    """Return a function that translates lines with the whole service, many at a time."""
    lanes = tuple(LaneSize(beam, LANE_SLOTS) for beam in sorted({case.beam, bundle.options.beam_size}))
    settings = ServiceSettings(replace(place, precision=case.precision, lanes=lanes), verify=False)
    service = Service.open([bundle.path], settings)
    service.start()
    stack.callback(service.stop, drain=False, timeout=10.0)
    options = TextOptions({"beam_size": case.beam}, truncate=True)

    def run() -> Run:
        began = time.perf_counter()
        tokens = sum(r.target_tokens for r in service.run_many(bundle.name, lines, options))
        return Run(tokens, len(lines), 0, time.perf_counter() - began)

    return run


def _steps(lane: Lane, sources: Sequence[list[int]], options: DecodeOptions) -> Run:
    """Encode and admit sources, then measure the steps until all are done; all have equal lengths."""
    lane.admit([Request(source, options, reply=_ignore) for source in sources])
    began = time.perf_counter()
    steps = lane.drain()
    return Run(steps * len(sources), len(sources), steps, time.perf_counter() - began)


def _raise_error(request: Request, outcome: Outcome) -> None:
    if isinstance(outcome, ConvoyError):
        raise outcome


def _ignore(outcome: Outcome) -> None:
    """Do nothing: `_raise_error` receives the outcomes."""


def _sources(bundle: Bundle, lines: Sequence[str], lengths: Sequence[int]) -> list[list[int]]:
    """Return sources of the given lengths, with end-of-sentence, made of the tokens of the lines."""
    tokenizer = open_tokenizer(bundle)
    words = cycle([token for line in lines for token in tokenizer.encode(line)] or [bundle.config.eos])
    return [[*islice(words, n - 1), bundle.config.eos] for n in lengths]


def _row(case: Case, runs: Sequence[Run]) -> Row:
    """Return median, least and greatest rate of the runs of a case."""
    if case.kind == "text":
        unit, values = "lines/s", [r.lines / r.seconds for r in runs]
    else:
        unit, values = "ms/step", [1000 * r.seconds / r.steps for r in runs]
    tokens = statistics.median(r.tokens / r.seconds for r in runs)
    return Row(case, unit, statistics.median(values), min(values), max(values), tokens)
