"""Single steps: their time by the clock and as a replayed graph, next to predictions; the same without single
optimisations; and the time of the engine's thread.

A replay is timed by events of the device, without the host's work between two steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np
import torch

from engine.backends import LaneSize
from engine.bundle.shortlist import Shortlist
from engine.executors.cuda.captured_slots import CapturedSlots
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.streams import CudaStreams, Replay
from engine.kernels import calls, products
from engine.kernels.taps import TapProducts
from engine.schedule.lane import Lane
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.clock import forgive, wait
from loadtest.engine.gpu_bench.contenders import (
    Contender,
    Flow,
    contenders,
    make_requests,
    open_contender,
    straight,
)
from loadtest.engine.gpu_bench.sentences import lengths, sentences
from loadtest.engine.gpu_bench.setting import PartRun, Setting

SETTLING_STEPS: Final = 8  # steps before the measurement
TIMED_STEPS: Final = 16  # at least; a launch may run several
TARGET_TOKENS: Final = 400  # length of each answer, so that no request finishes during the measurement
REPLAYS: Final = 30
CACHED_REPLAYS: Final = 6  # of a model with caches: a graph is valid for its first 64 columns only
IN_A_ROW: Final = (1, 2, 4)  # replays between two events
TURNS: Final = 5  # measurements of each figure; the median counts


class Shape(NamedTuple):
    """A measured step.

    model: key of `models.MODELS`.
    beams: number of beams of each sentence.
    slots: number of sentences.
    predicted: predicted microseconds of a replay on an H100 in bf16: the measurement of 2026-11-26
        (docs/gpu.md) minus the predicted gain of later changes; None: no prediction.
    source: number of source tokens; None: as in newstest2013.
    listed: number of tokens in the shortlist of each sentence; None: the whole vocabulary.
    """

    model: str
    beams: int
    slots: int
    predicted: float | None = None
    source: int | None = None
    listed: int | None = None


ONE: Final = Shape(models.SIX, 1, 1, 181)
DEFAULT: Final = Shape(models.SIX, 5, 1, 212)
LONG_SOURCE: Final = Shape(models.SIX, 1, 1, 184, source=128)
LONGEST_SOURCE: Final = Shape(models.SIX, 1, 1, 187, source=512)
FEW: Final = Shape(models.SIX, 4, 4, 311)
EIGHT: Final = Shape(models.SIX, 4, 8, 357)  # 32 rows
SIXTEEN: Final = Shape(models.SIX, 4, 16, 395)  # 64 rows
MANY: Final = Shape(models.SIX, 4, 256, 1_037)
SHAPES: Final = (
    ONE,
    Shape(models.SIX, 2, 1, 185),
    Shape(models.SIX, 4, 1, 201),
    DEFAULT,
    Shape(models.SIX, 1, 8, 208),
    Shape(models.SIX, 5, 2, 321),
    FEW,
    EIGHT,
    SIXTEEN,
    Shape(models.SIX, 4, 64, 534),
    MANY,
    Shape(models.ATTENTION, 1, 1, 213),
    Shape(models.ATTENTION, 5, 1, 247),
    Shape(models.ATTENTION, 4, 256, 1_645),
    Shape(models.OPUS, 1, 1),
    Shape(models.OPUS, 5, 1, 220),
    Shape(models.SIX, 1, 1, 181, source=32),
    LONG_SOURCE,
    LONGEST_SOURCE,
    ONE._replace(listed=1_500, predicted=165),
    DEFAULT._replace(listed=1_500, predicted=193),
    FEW._replace(listed=1_500, predicted=293),
)


INT8_SHAPES: Final = (ONE, DEFAULT, FEW, SIXTEEN, Shape(models.SIX, 4, 64))  # with weights of 8 bits too


class Ablation(NamedTuple):
    """An optimisation, and the value without it.

    owner: module or class with the value.
    name: name of the value.
    value: value that turns the optimisation off.
    shapes: steps to measure.
    """

    owner: Any
    name: str
    value: Any
    shapes: tuple[Shape, ...]


ABLATIONS: Final = {
    "taps in the convolution": Ablation(TapProducts, "takes_taps", lambda *_, **__: False, (ONE, DEFAULT)),
    "own products of 16 rows": Ablation(products, "TILED_ROW_BUCKETS", products.ROW_BUCKETS, (FEW,)),
    "own products of 32 and 64 rows": Ablation(products, "MAX_REREAD_BYTES", 0, (EIGHT, SIXTEEN)),
    "rows shared by blocks": Ablation(products, "MAX_ROW_GROUPS", 1, (SIXTEEN,)),
    "sources shared by warps": Ablation(calls, "MAX_TILED_WARPS", 1, (LONG_SOURCE, LONGEST_SOURCE)),
}


@dataclass(slots=True)
class LastReplay:
    """The graph that was replayed last, of all streams."""

    replay: Replay | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the graphs that are captured within the context whenever they are replayed."""
        capture = CudaStreams.capture

        def recorded(streams: CudaStreams, step: Callable[[], None]) -> Replay:
            captured = capture(streams, step)

            def replay() -> None:
                self.replay = captured
                captured()

            return replay

        with mock.patch.object(CudaStreams, "capture", recorded):
            yield


def steps(run: PartRun) -> dict[str, Any]:
    """Measure the steps of SHAPES. Rows: shape, predicted and measured microseconds of a replay, of a step by
    the clock, and of one of 2 and of 4 replays in a row."""
    findings: dict[str, Any] = {"rows": [], "not_run": {}}
    for shape in SHAPES:
        _measure_into(run, findings, shape, _shape_columns(shape))
    (contender, *_) = contenders(run.setting)
    for shape in INT8_SHAPES if contender.backend == "cuda" else ():
        shape = shape._replace(predicted=None)
        _measure_into(run, findings, shape, _shape_columns(shape), replace(contender, precision="int8"))
    return findings


def ablations(run: PartRun) -> dict[str, Any]:
    """Measure steps without single optimisations. Rows: as of `steps`, with the optimisation that is off."""
    findings: dict[str, Any] = {"rows": [], "not_run": {}}
    for shape in dict.fromkeys(shape for ablation in ABLATIONS.values() for shape in ablation.shapes):
        _measure_into(run, findings, shape, {"without": "nothing"} | _shape_columns(shape))
    for name, (owner, attribute, value, shapes) in ABLATIONS.items():
        with mock.patch.object(owner, attribute, value):
            for shape in shapes:
                _measure_into(run, findings, shape, {"without": name} | _shape_columns(shape))
    return findings


def _shape_columns(shape: Shape) -> dict[str, Any]:
    return {key: value for key, value in shape._asdict().items() if value is not None}


def _measure_into(
    run: PartRun,
    findings: dict[str, Any],
    shape: Shape,
    columns: dict[str, Any],
    contender: Contender | None = None,
) -> None:
    """Add the row of a step to the findings, or the reason why there is none.

    run: the part that measures it.
    findings: rows and reasons.
    shape: the step.
    columns: first columns of its row.
    contender: backend and precision; None: the first of the call.
    """
    contender = contender or contenders(run.setting)[0]
    name = ", ".join(str(value) for value in columns.values())
    if time.monotonic() > run.until and findings["rows"]:
        findings["not_run"][f"{name}, {contender}"] = "no time was left"
        return
    run.measuring(str(contender))
    try:
        row = _measure(run.setting, contender, shape)
    except Exception as error:
        findings["not_run"][f"{name}, {contender}"] = forgive(error)
    else:
        findings["rows"].append({"contender": str(contender)} | columns | row)
        print(findings["rows"][-1], flush=True)
    run.save(findings)


def _measure(setting: Setting, contender: Contender, shape: Shape) -> dict[str, float]:
    """Return the microseconds of a step by the clock, and those of its replays.

    setting: options of the call.
    contender: backend and precision.
    shape: model, numbers of beams and sentences, and length of the source.
    """
    last = LastReplay()
    bundle = models.bundle_of(setting.folder, shape.model, tiny=setting.scale.tiny)
    slots = min(shape.slots, setting.scale.slots)
    _, pairs = lengths(setting.corpora, slots)
    work = sentences(bundle.config, [(shape.source or source, TARGET_TOKENS) for source, _ in pairs])
    with last.recording():
        (executor,) = open_contender(setting, bundle, contender, [LaneSize(shape.beams, slots)])
        if shape.listed is not None and isinstance(executor, CapturedExecutor):
            executor = _with_shortlist(executor, shape.listed)
        if isinstance(executor, CapturedSlots):
            executor.warm = False  # only the measured step is captured
        lane = Lane(executor, straight)
        requests, _ = make_requests(work, shape.beams)
        lane.admit(requests)
        run_steps(lane, SETTLING_STEPS, setting.device)
        seconds, _ = run_steps(lane, TIMED_STEPS, setting.device)
        row = {"step_microseconds": seconds * 1e6}
    if last.replay is not None and isinstance(executor, CapturedSlots):
        with executor.streams.decoding():
            row |= _replayed(last.replay, cached=executor.history.caches is not None)
    return row


def _with_shortlist(executor: CapturedExecutor, tokens: int) -> CapturedExecutor:
    """Return a lane like this one whose answers have the first `tokens` tokens of the vocabulary only."""
    config = executor.model.config
    listed = np.arange(min(tokens, config.target_vocab), dtype=np.int32)
    shortlist = Shortlist(np.full((config.source_vocab, 1), -1, np.int32), np.union1d(listed, [executor.eos]))
    lane = LaneSize(executor.beams, executor.slots)
    return CapturedExecutor(executor.model, lane, executor.streams, executor.kernels, shortlist)


def run_steps(lane: Lane, count: int, device: str) -> tuple[float, int]:
    """Run steps; return the seconds of a step, and the number of steps that were run.

    lane: lane with requests.
    count: least number of steps.
    device: device of the lane.
    """
    wait(device)
    began, taken = time.perf_counter(), 0
    while taken < count:  # a call may run several steps
        taken += lane.step()
    wait(device)
    return (time.perf_counter() - began) / taken, taken


def _replayed(replay: Replay, *, cached: bool) -> dict[str, float]:
    """Return the microseconds of a replay on the device and on the host, and of one of a few in a row.

    replay: function that replays the graph of a step.
    cached: limit the replays to the columns that are left, and measure none in a row.
    """
    replay()
    found = [_timed(replay, CACHED_REPLAYS if cached else REPLAYS) for _ in range(TURNS)]
    row = {"replay_microseconds": statistics.median(each for each, _ in found)}
    row["host_microseconds"] = statistics.median(host for _, host in found)
    for count in () if cached else IN_A_ROW:
        row[f"in_a_row_{count}"] = statistics.median(_timed(replay, count)[0] for _ in range(4 * TURNS))
    return row


def _timed(replay: Replay, count: int) -> tuple[float, float]:
    """Return the device's and the host's microseconds of one of `count` replays."""
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    began = time.perf_counter()
    for _ in range(count):
        replay()
    host = time.perf_counter() - began
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count * 1e3, host / count * 1e6


@dataclass(slots=True)
class Waited:
    """Seconds in which a thread waited for events of the device."""

    seconds: float = 0.0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the waits of all threads within the context."""
        synchronize = torch.cuda.Event.synchronize

        def counted(event: torch.cuda.Event) -> None:
            began = time.perf_counter()
            try:
                synchronize(event)
            finally:
                self.seconds += time.perf_counter() - began

        with mock.patch.object(torch.cuda.Event, "synchronize", counted):
            yield


def host(run: PartRun) -> dict[str, Any]:
    """Measure the engine's thread with all slots in use. Rows: sentences a second, steps, milliseconds of a
    step by the clock, and the part of them in which the thread did not wait for the device."""
    setting, scale = run.setting, run.setting.scale
    bundle = models.bundle_of(setting.folder, models.SIX, tiny=scale.tiny)
    origin, pairs = lengths(setting.corpora, scale.sentences)
    work = sentences(bundle.config, pairs)
    (contender, *_) = contenders(setting)
    run.measuring(str(contender))
    findings: dict[str, Any] = {"lengths": origin, "beam": scale.beam, "slots": scale.slots, "rows": []}
    (executor,) = open_contender(setting, bundle, contender, [LaneSize(scale.beam, scale.slots)])
    flow = Flow(executor, scale.beam)
    try:
        for _ in range(scale.turns):
            requests, answers = make_requests(work, scale.beam)
            waited, before, began = Waited(), flow.engine.stats(), time.perf_counter()
            with waited.counting():
                flow.submit(requests)
                answers.results()
            seconds, after = time.perf_counter() - began, flow.engine.stats()
            taken = after.steps - before.steps
            row = {"contender": str(contender), "sentences/s": len(work) / seconds, "steps": taken}
            row["step_milliseconds"] = seconds / taken * 1e3
            row["host_milliseconds"] = (seconds - waited.seconds) / taken * 1e3
            findings["rows"].append(row)
            print(row, flush=True)
            run.save(findings)
            if time.monotonic() > run.until:
                break
    finally:
        flow.stop()
    return findings
