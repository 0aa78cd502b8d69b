"""What the cuda backend costs its host: a lane over a device whose work is replaced by nothing. Needs no GPU.

    python -m loadtest.engine.host_work --slots 1 --beams 1
    python -m loadtest.engine.host_work --slots 256 --beams 4

Steps, placing, moving and answering run as they are; a graph does nothing but end the hypotheses that are
long enough, a kernel nothing but copy what is told, and what the lane waits for is there. What that takes is
not counted. Requests have lengths as in newstest, so that some end at every step. On a GPU each launch, copy
and event adds some microseconds.

Between steps a loop of the same kind of work is timed, of which the usual time is known (`USUAL`). Figures
are scaled by it: they are those of that processor, on any machine and beside any neighbours.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from ctypes import memmove
from dataclasses import asdict, astuple, dataclass
from math import inf
from typing import Final

import numpy as np
import torch
from torch import Tensor

from engine.backends import LaneSize
from engine.executors.cuda_graph import CapturedExecutor
from engine.kernels.calls import Call, Kernels
from engine.models import build
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Outcome, Request
from loadtest.engine.gpu_bench.models import config_of
from loadtest.engine.nothing import Nothing

MODEL: Final = "dynamicconv-213M"  # its layers, with small numbers
PATIENT: Final = 80  # tokens of answers that nobody leaves before
WARMING: Final = 500  # steps that are not counted
LENGTHS: Final = (8, 48)  # tokens of sources and answers, uniform
WINDOW: Final = 8  # requests that are counted together; of windows the median counts
USUAL: Final = 38e-6  # seconds of the loop of `yardstick` on an AMD Zen 4 that does nothing else
TRIES: Final = 3  # before a limit is taken to be broken


@dataclass(frozen=True, slots=True)
class HostWork:
    """Milliseconds of one processor, scaled: of a step in which nobody comes or goes, and of each request
    beside that, from its admission to its answer, as they come and go by a few at every step.

    slowness: of this machine at that time, beside the usual one.
    """

    slots: int
    beams: int
    step: float
    request: float
    slowness: float


class Ending(Nothing):
    """A device that ends hypotheses which are long enough.

    lengths: of the answers.
    seconds: what that took of the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lengths: dict[Request, int] = {}
        self.seconds = 0.0
        self.lane: Lane | None = None

    def step(self) -> None:
        began = time.thread_time()
        if self.lane is not None:
            search, n = self.lane.search, len(self.lane.active)
            longest = np.fromiter((self.lengths[f.request] for f in self.lane.active), np.int64, n)
            search.state.done[:n] = torch.from_numpy(search.taken[:n] + 1 >= longest)
            search.state.kept_steps[:n] = torch.from_numpy(longest - 1)[:, None]
        self.seconds += time.thread_time() - began

    def upload(self, tensor: Tensor, target: Tensor) -> None:
        target.copy_(tensor)  # the host's part of an upload: into pinned memory

    def __call__(self, call: Call) -> None:
        super().__call__(call)
        if call.kernel.entry == "scatter" and call.grid[1] == 1:  # what is told, which the host will read
            began = time.thread_time()
            plan, items = call.arguments[:2]
            assert isinstance(plan, Tensor) and isinstance(items, Tensor)
            for copies in np.einsum("it,tcn->icn", items.numpy(), plan.numpy()).tolist():
                for target, source, _, size, *_ in copies:
                    memmove(target, source, size)
            self.seconds += time.thread_time() - began


class Traffic:
    """Requests through a lane over nothing."""

    def __init__(self, slots: int, beams: int) -> None:
        self.work, self.beams, self.answered = Ending(), beams, 0
        with torch.no_grad():
            model = build(config_of(MODEL, tiny=True)).to(torch.bfloat16)
            executor = CapturedExecutor(model, LaneSize(beams, slots), self.work, Kernels(self.work))
        self.lane = self.work.lane = Lane(executor, self._reply)
        self.lane.search.state.kept_count[:] = 1  # what `end_step` would leave
        self._random, self._options = np.random.default_rng(0), DecodeOptions(beam_size=beams)

    def request(self, length: int = 0) -> Request:
        """Make a request for that many tokens, or for a random length."""
        source, target = (int(n) for n in self._random.integers(*LENGTHS, 2))
        request = Request([5] * source + [2], self._options, print)
        self.work.lengths[request] = length or target
        return request

    def step(self, newcomers: list[Request]) -> tuple[float, bool]:
        """Take one step that some come to; return its seconds, and whether anybody came or went."""
        before = self.answered, len(self.lane.active)
        began, standing = time.thread_time(), self.work.seconds
        if newcomers:
            self.lane.admit(newcomers)
        self.lane.step()
        seconds = time.thread_time() - began - (self.work.seconds - standing)
        return seconds, bool(newcomers) or before != (self.answered, len(self.lane.active))

    def _reply(self, request: Request, outcome: Outcome) -> None:
        self.answered += 1


def yardstick() -> float:
    """Measure the seconds of some Python, numpy and torch that never changes."""
    began = time.thread_time()
    table = {i: (i, [i] * 3) for i in range(24)}
    total = sum(i + len(more) for i, more in table.values())
    for size in (3, 5, 7, 9):
        rows = np.arange(total % 7 + 64).reshape(-1, 1)[:size] + np.zeros((size, 4), np.int64)
        tensor = torch.from_numpy(rows)
        tensor[: size - 1].view(-1, 2).clone()
        rows.max()
    return time.thread_time() - began


def measure(slots: int, beams: int, steps: int) -> HostWork:
    """Measure the host's part of so many steps with all slots in use."""
    traffic = Traffic(slots, beams)
    traffic.step([traffic.request(PATIENT) for _ in range(slots)])
    quiet = [(traffic.step([])[0], yardstick()) for _ in range(PATIENT // 2)]
    traffic.lane.drain()
    busy, beside = list[tuple[float, int]](), list[float]()
    for i in range(WARMING + steps):
        newcomers = [traffic.request() for _ in range(traffic.lane.free)]
        seconds, changed = traffic.step(newcomers)
        if i >= WARMING and changed:  # every size of batch has been met
            busy.append((seconds, len(newcomers)))
            beside.append(yardstick())  # as seldom, and as far from the processor's caches
    step, usual = (statistics.median(column) for column in zip(*quiet, strict=True))
    request = _each([(seconds - step, came) for seconds, came in busy])
    slowness = statistics.median(beside) / USUAL
    return HostWork(slots, beams, step * 1e3 * USUAL / usual, request * 1e3 / slowness, slowness)


def _each(spent: list[tuple[float, int]]) -> float:
    """Seconds of a request: of windows the median."""
    windows, seconds, came = list[float](), 0.0, 0
    for more, newcomers in spent:
        if came >= WINDOW and newcomers:  # who came has gone
            windows.append(seconds / came)
            seconds, came = 0.0, 0
        seconds, came = seconds + more, came + newcomers
    return statistics.median(windows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--most-step", type=float, default=inf, help="milliseconds; more is an error")
    parser.add_argument("--most-request", type=float, default=inf, help="likewise")
    options = parser.parse_args()
    torch.set_num_threads(1)
    gc.freeze()
    for _ in range(TRIES):
        runs = [measure(options.slots, options.beams, options.steps) for _ in range(options.runs)]
        medians = (statistics.median(column) for column in zip(*(astuple(run) for run in runs), strict=True))
        result = HostWork(options.slots, options.beams, *[*medians][2:])
        print(json.dumps(asdict(result)))
        if result.step <= options.most_step and result.request <= options.most_request:
            return
    raise SystemExit(f"more than {options.most_step} ms a step or {options.most_request} ms a request")


if __name__ == "__main__":
    main()
