"""The contenders: every backend and precision that opens here, and the reasons of the others."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

from engine.backends import BACKENDS, LaneSize, Placement
from engine.bundle.bundle import Bundle, open_bundle
from engine.errors import BundleError, ConfigError, ConvoyError
from engine.executors import open_executors
from engine.schedule.engine import Engine, EngineSettings
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from engine.types import Outcome, Request, Result
from loadtest.engine.gpu_bench.clock import forgive
from loadtest.engine.gpu_bench.sentences import SizedSentence, request
from loadtest.engine.gpu_bench.setting import REPOSITORY, SKIPPED, PartRun, Setting

CPU_TWINS: Final = ("onnx-pure", "onnx-native")  # measured by the benchmark of the CPU
COMPILED: Final = "tensorrt"
COMPILED_PRECISIONS: Final = ("bf16",)  # each takes minutes to compile
LIKELY_FASTEST: Final = ("cuda bf16", "cuda fp16", "tensorrt bf16", "cuda fp32", "torch fp32")
QUEUE_TOKENS: Final = 1 << 24  # source tokens that may wait, enough for a run


@dataclass(frozen=True, slots=True)
class Contender:
    backend: str
    precision: str

    def __str__(self) -> str:
        return f"{self.backend} {self.precision}"


def contenders(setting: Setting) -> list[Contender]:
    """List the backends of the table for this kind of device, in the wanted precisions; some will not open.
    CPU_TWINS are included only if they are named, and TensorRT in other precisions only if one is wanted."""
    kind = setting.device.partition(":")[0]
    names = setting.backends or tuple(name for name in BACKENDS if name not in CPU_TWINS)
    candidates = [
        Contender(backend, precision)
        for backend in names
        if backend in BACKENDS
        for precision in BACKENDS[backend].precisions.get(kind, ())
        if precision in setting.precisions
        if backend != COMPILED or precision in COMPILED_PRECISIONS or len(setting.precisions) == 1
    ]
    rank = {name: i for i, name in enumerate(LIKELY_FASTEST)}
    return sorted(candidates, key=lambda contender: rank.get(str(contender), len(LIKELY_FASTEST)))


def open_contender(
    setting: Setting, bundle: Bundle, contender: Contender, lanes: Sequence[LaneSize]
) -> list[Executor]:
    """Open one executor for each lane, and first add engines or graphs to the bundle if they are missing.

    setting: options of the call.
    bundle: the model.
    contender: backend and precision.
    lanes: sizes of the executors.

    Raises ConvoyError, or ImportError for a missing library.
    """
    place = Placement(contender.backend, setting.device, contender.precision, 1, tuple(lanes))
    if contender.backend == COMPILED:
        return _open_compiled(bundle, place)
    if BACKENDS[contender.backend].runtime == "onnxruntime" and setting.device.startswith("cuda"):
        bundle = _export_graphs(bundle, contender.precision)
    return open_executors(bundle, place)


def open_all(
    run: PartRun, bundle: Bundle, lanes: Sequence[LaneSize], not_run: dict[str, str]
) -> Iterator[tuple[Contender, list[Executor]]]:
    """Yield the contenders that open, one after another, with an executor for each lane.

    run: the part that measures them.
    bundle: the model.
    lanes: sizes of the executors.
    not_run: errors of contenders that do not open, by "model, contender", added here.

    Raises ContextLost.
    """
    for contender in contenders(run.setting):
        if str(contender) in run.setting.skip:
            not_run[f"{bundle.name}, {contender}"] = SKIPPED
            continue
        run.measuring(str(contender))
        try:
            yield contender, open_contender(run.setting, bundle, contender, lanes)
        except Exception as error:
            not_run[f"{bundle.name}, {contender}"] = forgive(error)


@contextmanager
def record_failure(key: str, not_run: dict[str, str]) -> Iterator[None]:
    """Record the error of a contender while it starts. Raises ContextLost."""
    try:
        yield
    except Exception as error:
        not_run[key] = forgive(error)


def _open_compiled(bundle: Bundle, place: Placement) -> list[Executor]:
    """Open the engines of the lanes, and first compile the missing ones."""
    from export.graphs.tensorrt import LaneShape as Compiled
    from export.graphs.tensorrt import build

    if find_spec("tensorrt") is None:
        raise ConfigError("TensorRT is not installed")
    for beams, slots in place.lanes:
        try:
            open_executors(bundle, replace(place, lanes=(LaneSize(beams, slots),)))
        except BundleError:
            bundle = build(bundle, Compiled(place.precision, beams, slots), device=place.device)
    return open_executors(bundle, place)


def _export_graphs(bundle: Bundle, precision: str) -> Bundle:
    """Open the graphs of a precision. Raises ConfigError if ONNX Runtime has no CUDA or the graphs can't be
    made."""
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ConfigError("this onnxruntime has no CUDA: pip install onnxruntime-gpu")
    if any(f".{precision}" in name for name in bundle.files() if name.startswith("onnx/step")):
        return bundle
    command = [sys.executable, "-m", "cli.main", "export", str(bundle.path), "--precision", precision]
    process = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if process.returncode:
        raise ConfigError(f"convoy export: {process.stderr.strip()[-400:]}")
    return open_bundle(bundle.path, verify=False)


def straight(request: Request, outcome: Outcome) -> None:
    """Answer a request of a lane without an engine. Raises the error, if the outcome is one."""
    if isinstance(outcome, ConvoyError):
        raise outcome
    request.reply(outcome)


def through(lane: Lane, requests: Sequence[Request]) -> int:
    """Translate requests in groups of the number of slots; returns the number of steps."""
    slots = lane.executor.slots
    return sum(lane.drain(requests[first : first + slots]) for first in range(0, len(requests), slots))


class Flow:
    """A running engine with one lane and in-flight batching."""

    def __init__(self, executor: Executor, beam: int) -> None:
        self.engine = Engine([executor], EngineSettings(queue_tokens=QUEUE_TOKENS))
        self.beam = beam
        self.engine.start()

    def submit(self, group: Sequence[Request]) -> None:
        self.engine.submit(group)

    def stop(self) -> None:
        self.engine.stop(drain=False, timeout=30.0)


@dataclass(slots=True)
class Answers:
    """Collects answers with their times (time.monotonic()), in the order of the requests; an event is set
    once all have arrived. Any thread may reply."""

    outcomes: list[Outcome | None]
    ended: list[float]
    _left: int
    _lock: Any
    done: threading.Event

    @classmethod
    def empty(cls, count: int) -> Answers:
        return cls([None] * count, [0.0] * count, count, threading.Lock(), threading.Event())

    def take(self, i: int, outcome: Outcome) -> None:
        """Store the outcome of request `i` and its time; the last one sets `done`."""
        self.outcomes[i], self.ended[i] = outcome, time.monotonic()
        with self._lock:
            self._left -= 1
            if not self._left:
                self.done.set()

    def results(self, timeout: float = 600.0) -> list[Result]:
        """Wait for all results. Raises the first error, or TimeoutError."""
        if not self.done.wait(timeout):
            raise TimeoutError(f"{self._left} requests were not answered in {timeout:.0f} seconds")
        results = []
        for outcome in self.outcomes:
            if not isinstance(outcome, Result):
                raise outcome if isinstance(outcome, ConvoyError) else TypeError(f"{outcome!r} is no answer")
            results.append(outcome)
        return results


def make_requests(sentences: Sequence[SizedSentence], beam: int) -> tuple[list[Request], Answers]:
    """Return requests and the object that collects their answers."""
    answers = Answers.empty(len(sentences))

    def reply(i: int) -> Any:
        return lambda outcome: answers.take(i, outcome)

    return [request(sentence, beam, reply(i)) for i, sentence in enumerate(sentences)], answers


def check_lengths(sentences: Sequence[SizedSentence], results: Sequence[Result]) -> None:
    """Raise ValueError if an answer does not have the requested length, which makes figures incomparable."""
    for sentence, result in zip(sentences, results, strict=True):
        length = len(result.hypotheses[0].tokens)
        if length != sentence.target:
            raise ValueError(f"an answer has {length} tokens, not the {sentence.target} asked for")
