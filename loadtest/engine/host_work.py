"""Measure the host's work of the cuda backend, CUDA's calls included, with an engine over a device that does
nothing. Needs no GPU.

    python -m loadtest.engine.host_work --slots 256 --beams 4

All of Convoy's own code runs unchanged: queue, turns, lane, stepper, plans, encoders' batches, answers. A
graph only ends the hypotheses that are long enough, and the kernel that reports them writes the values that
the lane reads; the time of this emulation is not counted. CUDA's calls are counted by kind, with the prices
of an H100's machine (`PRICES_US`). Convoy's code takes there `HOST_SLOWDOWN` times its time on the processor
to which figures are scaled: that was the slowdown of `Lane._outcome`, which calls no CUDA, in a profile of
3,000 sentences (docs/lab/gpu.md). The sum is fitted to that profile: 2.2 to 2.5 ms a step.

Between turns a loop of similar work with a known usual time is timed (`USUAL_SECONDS`), so that figures are
comparable between machines and under other load.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int64
from dataclasses import asdict, dataclass
from math import inf
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.backends import LaneSize
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.snapshots import WORD_BYTES, finished_dtype
from engine.executors.cuda.streams import Mark, Replay, StagingRing
from engine.kernels.calls import Kernels
from engine.kernels.launches import CONVERTED, Call, addresses_of, argument
from engine.models import build
from engine.schedule.engine import Engine, EngineSettings
from engine.types import DecodeOptions, Outcome, Request
from loadtest.engine.gpu_bench.models import config_of
from loadtest.engine.nothing import Nothing, ReachedMark

MODEL: Final = "dynamicconv-213M"  # number of layers; all widths are small
LENGTHS: Final = (8, 48)  # range of tokens of sources and answers, uniform
TOKENS: Final = (1_000, 30_000)  # Python caches smaller numbers, which would be faster
QUEUE_TOKENS: Final = 1 << 24
USUAL_SECONDS: Final = 38e-6  # duration of `yardstick` on an idle AMD Zen 4
HOST_SLOWDOWN: Final = 5.2  # 67 us of `Lane._outcome` in the profile for 12.9 us on that Zen 4
CLOCKED: Final = 1000  # number of empty emulations that measure the cost of the clock itself
ATTEMPTS: Final = 3  # attempts before a limit counts as exceeded
# microseconds on the machine of the H100; estimates: launch = replay, wait = 2 launches, query = launch / 2
PRICES_US: Final[Mapping[str, float]] = {
    "event": 9.0,  # create and record
    "pin": 4.0,  # `pin_memory`, or an empty pinned tensor
    "copy up": 6.0,
    "copy down": 5.0,
    "clone": 10.0,
    "replay": 4.0,
    "launch": 4.0,
    "wait": 8.0,
    "query": 2.0,
}


@dataclass(frozen=True, slots=True)
class HostWork:
    """The host's work of a step, on the machine of the H100.

    slots: number of slots of the lane.
    beams: number of beams of each slot.
    requests: number of requests that end and begin in a step.
    step_ms: whole time.
    house_ms: time of Convoy's own code.
    cuda_ms: time of CUDA's calls.
    calls: number of CUDA's calls, by kind.
    slowness: time of the calibration loop over its usual time.
    """

    slots: int
    beams: int
    requests: float
    step_ms: float
    house_ms: float
    cuda_ms: float
    calls: Mapping[str, float]
    slowness: float


class Emulated:
    """A context around work of the device that the host emulates. The cost of `with` itself is included.

    seconds: total time in the context.
    """

    def __init__(self) -> None:
        self.seconds = self._began = self._own = 0.0
        began = time.thread_time()
        for _ in range(CLOCKED):
            with self:
                pass
        self.seconds, self._own = 0.0, (time.thread_time() - began - self.seconds) / CLOCKED

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.thread_time() - self._began + self._own


class CountedMark(ReachedMark):
    """A mark that counts queries."""

    def __init__(self, calls: Counter[str]) -> None:
        self._calls = calls

    def query(self) -> bool:
        self._calls["query"] += 1
        return True


class CountedDevice(Nothing):
    """A device that counts its calls and ends hypotheses which are long enough.

    calls: number of CUDA's calls, by kind.
    lengths: number of tokens of the answer to each request.
    emulation: clock of the emulated work, whose time is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[str]()
        self.lengths: dict[Request, int] = {}
        self.emulation = Emulated()
        self._ahead = 0  # steps since the last fetch, which `search.taken` does not include yet
        self.engine: Engine | None = None
        self._rings: dict[bool, StagingRing] = {}  # pinned staging buffers, by stream

    def step(self) -> None:
        """End the hypotheses that have reached the length of their answer, as the search would."""
        with self.emulation:
            if self.engine is None:
                return
            (lane,) = self.engine.lanes
            search, n = lane.search, len(lane.active)
            self._ahead += 1
            longest = np.fromiter((self.lengths[f.request] for f in lane.active), np.int64, n)
            search.state.done[:n] = torch.from_numpy(search.taken[:n] + self._ahead >= longest)
            search.state.kept_steps[:n] = torch.from_numpy(longest - 1)[:, None]

    def capture(self, step: Callable[[], None]) -> Replay:
        """Return a replay that is counted."""
        replay = super().capture(step)

        def counted() -> None:
            self.calls["replay"] += 1
            replay()

        return counted

    def mark(self) -> Mark:
        self.calls["event"] += 1
        return CountedMark(self.calls)

    def wait(self, mark: Mark, tensors: object) -> None:
        self.calls["wait"] += 1

    def to_device(self, tensor: Tensor) -> Tensor:
        self.calls.update(("pin", "copy up"))
        return tensor

    def upload(self, parts: Sequence[NDArray[np.int64]], target: Tensor) -> None:
        self.calls["copy up"] += 1
        ring = self._rings.get(self._decoding) or self._rings.setdefault(self._decoding, StagingRing(self))
        staged = ring.stage(parts)
        self._copy(staged, target.narrow(0, 0, staged.numel()))

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        self.calls["pin"] += 1
        return super().pinned(shape, dtype)

    def fetch(self, tensor: Tensor, target: Tensor) -> None:
        self._ahead = 0
        self.calls["copy down"] += 1
        self._copy(tensor, target)

    def clone(self, tensor: Tensor) -> Tensor:
        self.calls["clone"] += 1
        return tensor

    def to_host(self, tensor: Tensor) -> Tensor:
        self.calls.update(("pin", "copy down"))
        with self.emulation:
            return tensor.clone()

    def __call__(self, call: Call) -> None:
        if call.addresses is None:
            addresses_of([argument(a) for a in call.arguments])  # same work as in `engine.kernels.launch`
        with self.emulation:
            self.calls["launch"] += 1
            super().__call__(call)
            if call.kernel.entry == "follow_back":  # writes the results of finished slots
                self._follow_back(call)

    def _follow_back(self, call: Call) -> None:
        """Write the result rows of finished slots, as the kernel `follow_back` would: `beams` hypotheses a
        slot, of the slot's length, with constant tokens and scores.

        call: launch of the kernel; its grid has one block a slot, its last number is the address of the rows.
        """
        assert self.engine is not None
        # integers among the arguments: the first is the address of the slot numbers
        numbers = [int(a.value or 0) for a in call.arguments if isinstance(a, CONVERTED)]
        slot_numbers, *_, beams, _, columns, rows = numbers
        row, count, state = finished_dtype(beams, columns), call.grid[0], self.engine.lanes[0].search.state
        slots = np.ctypeslib.as_array((c_int64 * count).from_address(slot_numbers))
        words = count * row.itemsize // WORD_BYTES
        answers = np.ctypeslib.as_array((c_int64 * words).from_address(rows)).view(row)
        pool = answers["pool"]
        pool["count"], pool["longest"] = beams, state.longest.numpy()[slots]
        answers["places"]["token"] = TOKENS[0]
        pool["ends"] = -1.0, 0, 0.0
        pool["ends"]["step"] = state.kept_steps.numpy()[slots]

    def _copy(self, tensor: Tensor, target: Tensor) -> None:
        with self.emulation:
            target.copy_(tensor)


class Traffic:
    """Requests to an engine over an emulated device, one turn at a time."""

    def __init__(self, slots: int, beams: int) -> None:
        self.device, self.beams, self.answered = CountedDevice(), beams, 0
        with torch.no_grad():
            model = build(config_of(MODEL, tiny=True)).to(torch.bfloat16)
            lane = LaneSize(beams, slots)
            executor = CapturedExecutor(model, lane, self.device, Kernels(self.device), warm=True)
        self.engine = self.device.engine = Engine([executor], EngineSettings(QUEUE_TOKENS))
        self.engine.lanes[0].search.state.kept_count[:] = 1  # value after `end_step`
        self._random, self._options = np.random.default_rng(0), DecodeOptions(beam_size=beams)

    def request(self, length: int = 0) -> Request:
        """Return a request whose answer has a given number of tokens, or a random number."""
        source, target = (int(n) for n in self._random.integers(*LENGTHS, 2))
        tokens = self._random.integers(*TOKENS, source).tolist()
        request = Request([*tokens, 2], self._options, self._answer)
        self.device.lengths[request] = length or target
        return request

    def turn(self) -> float:
        """Run one turn of the engine, and return the processor seconds without the emulation."""
        began, emulated = time.thread_time(), self.device.emulation.seconds
        self.engine.turn()
        return time.thread_time() - began - (self.device.emulation.seconds - emulated)

    def _answer(self, outcome: Outcome) -> None:
        self.answered += 1


def yardstick() -> float:
    """Return the seconds of a fixed sequence of Python, numpy and torch operations."""
    began = time.thread_time()
    table = {i: (i, [i] * 3) for i in range(24)}
    total = sum(i + len(more) for i, more in table.values())
    for size in (3, 5, 7, 9):
        rows = np.arange(total % 7 + 64).reshape(-1, 1)[:size] + np.zeros((size, 4), np.int64)
        tensor = torch.from_numpy(rows)
        tensor[: size - 1].view(-1, 2).clone()
        rows.max()
    return time.thread_time() - began


def measure(slots: int, beams: int, requests: int) -> HostWork:
    """Measure the host's part of an engine's work.

    slots: number of slots of the lane.
    beams: number of beams of each slot.
    requests: number of requests, sent as one group after one warm-up with all sizes of batches.
    """
    traffic = Traffic(slots, beams)
    for counted in (False, True):  # the first pass only warms up
        gc.freeze()  # like a server, to exclude full collections
        traffic.answered, spent, calibration = 0, list[float](), list[float]()
        traffic.device.calls.clear()
        before = traffic.engine.stats().steps
        traffic.engine.submit([traffic.request() for _ in range(requests)])
        while traffic.answered < requests:
            spent.append(traffic.turn())
            if counted:
                calibration.append(yardstick())  # once a turn, with caches as cold as the turn's
    steps = traffic.engine.stats().steps - before
    slowness = statistics.median(calibration) / USUAL_SECONDS
    house = sum(spent) / slowness * HOST_SLOWDOWN * 1e3 / steps
    calls = {kind: count / steps for kind, count in sorted(traffic.device.calls.items())}
    cuda = sum(PRICES_US[kind] * count for kind, count in calls.items()) / 1e3
    return HostWork(slots, beams, requests / steps, house + cuda, house, cuda, calls, slowness)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=5, help="of which the quickest counts")
    parser.add_argument("--most-step", type=float, default=inf, help="milliseconds; more is an error")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for _ in range(ATTEMPTS):
        runs = [measure(options.slots, options.beams, options.requests) for _ in range(options.runs)]
        result = min(runs, key=lambda run: run.step_ms)  # other programs only add time
        rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(result).items()}
        print(json.dumps(rounded | {"calls": {k: round(v, 2) for k, v in result.calls.items()}}))
        if result.step_ms <= options.most_step:
            return
    raise SystemExit(f"more than {options.most_step} ms a step")


if __name__ == "__main__":
    main()
