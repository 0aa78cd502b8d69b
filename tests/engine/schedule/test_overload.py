"""Overload of an engine, with a clock that its executor moves: no test sleeps.

Each scenario is compared with the same engine under the same load without deadlines. That engine is never
idle and refuses no request, so that the number of its answers is the largest possible one.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import array_api_compat.numpy
import numpy as np
import pytest

from engine.errors import DeadlineExceeded, Overloaded
from engine.schedule.engine import Engine, EngineSettings
from engine.search.executor import TopK
from engine.search.stepper import PlainStepper
from engine.types import DecodeOptions, Limits, Request, Result
from tests.support.fake import EOS, PAD, FakeEncoded
from tests.support.thorough import some_of

WORD = 4
GREEDY = DecodeOptions(beam_size=1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Station:
    """An executor whose work advances a clock. The first token of a source is the length of its answer.

    Time passes for each step, for each slot in it, and for each source token, times the pace.
    """

    pad, eos, start, beams, device = PAD, EOS, EOS, 1, "cpu"
    namespace = array_api_compat.numpy

    def __init__(self, clock: Clock, slots: int, pace: Callable[[float], float]) -> None:
        self.clock, self.slots, self.pace = clock, slots, pace
        self.limits = Limits(beams=1, source=64, target=200, vocab=8)
        self.left = [0] * slots

    def encode(self, sources):
        self.clock.now += 0.0002 * sum(map(len, sources)) * self.pace(self.clock.now)
        return FakeEncoded(list(sources))

    def place(self, encoded, i, slot, prefix=()):
        self.left[slot] = encoded.memories[i][0]

    def stepper(self):
        return PlainStepper(self)

    def step(self, n, inputs, *, attention=False):
        self.clock.now += (0.010 + 0.004 * n) * self.pace(self.clock.now)
        scores = np.full((n, 1, 2), -np.inf, np.float32)
        scores[:, :, 0] = 0.0
        ids = np.full((n, 1, 2), EOS)
        for slot in range(n):
            self.left[slot] -= 1
            ids[slot, 0] = (EOS, WORD) if not self.left[slot] else (WORD, EOS)
        return TopK(scores, ids, None)

    def move(self, source, target):
        self.left[target] = self.left[source]


@dataclass
class Tally:
    sent: int = 0
    refused: int = 0
    good: int = 0  # in time
    late: int = 0
    steps: int = 0  # of the good ones
    worst: float = 0.0  # share of its time that an answer took
    groups: list[bool] = field(default_factory=list)

    @property
    def kept(self) -> float:
        return self.good / max(1, self.good + self.late)


@dataclass(frozen=True)
class Scenario:
    """A load.

    rate: requests as a share of the capacity at normal speed.
    pace: function of the time that returns the slowdown (1: normal).
    group: number of requests of a group, and seconds between two groups."""

    rate: Callable[[float], float]
    pace: Callable[[float, random.Random], float]
    deadline: float = 5.0
    seconds: float = 40.0
    group: int = 0
    every: float = 10.0


def noisy(low: float, high: float, period: float) -> Callable[[float, random.Random], float]:
    """Speed jumps between two levels every `period` seconds, and each step has a fifth of noise."""

    def pace(now: float, chance: random.Random) -> float:
        return (high if int(now / period) % 2 else low) * chance.uniform(0.8, 1.2)

    return pace


def run(scenario: Scenario, seed: int, *, deadlines: bool = True) -> Tally:
    chance, clock, tally = random.Random(seed), Clock(), Tally()
    noise = random.Random(seed + 1000)
    began = clock.now
    station = Station(clock, 8, lambda now: scenario.pace(now - began, noise))
    engine = Engine([station], EngineSettings(queue_tokens=10**9 if not deadlines else 65_536), clock=clock)
    capacity = 8 / (0.010 + 0.004 * 8) / 25  # requests a second, of 25 steps each
    end, arrival, grouped = began + scenario.seconds, began, began + scenario.every

    def send(size: int, at: float) -> None:
        within, left = at + scenario.deadline * (1 if size == 1 else 8), [size]
        requests = []
        for _ in range(size):
            length = chance.randint(5, 35)
            steps = max(1, round(length * chance.gauss(1.2, 0.25)) + 1)

            def reply(outcome, steps=steps):
                timely = isinstance(outcome, Result) and (not deadlines or clock.now <= within)
                assert isinstance(outcome, Result | DeadlineExceeded), outcome
                tally.good += timely
                tally.late += not timely
                tally.steps += steps * (timely and clock.now <= end)
                left[0] -= timely
                if size > 1 and not left[0]:
                    tally.groups.append(True)

            source = [steps, *[5] * (length - 2), EOS]
            requests.append(Request(source, GREEDY, reply, within if deadlines else math.inf, arrived=at))
        tally.sent += size
        try:
            engine.submit(requests)
        except Overloaded:
            tally.refused += size
            if size > 1:
                tally.groups.append(False)

    while clock.now < end or (deadlines and _busy(engine)):
        while arrival <= clock.now and arrival < end:
            send(1, arrival)
            arrival += chance.expovariate(max(0.01, scenario.rate(arrival - began)) * capacity)
        if scenario.group and grouped <= clock.now < end:
            send(scenario.group, grouped)
            grouped += scenario.every
        if _busy(engine):
            engine.turn()
        else:
            clock.now = max(clock.now, min(arrival, end))
            if arrival >= end:
                break
    return tally


def _busy(engine: Engine) -> bool:
    stats = engine.stats()
    return stats.waiting_requests > 0 or any(stats.active)


def steady(rate: float) -> Callable[[float], float]:
    return lambda now: rate


SCENARIOS = {
    "ten times too much": Scenario(steady(10), noisy(1, 1, 1)),
    "a speed that halves every three seconds": Scenario(steady(10), noisy(1, 2, 3)),
    "a speed that halves every half second": Scenario(steady(5), noisy(1, 2, 0.5)),
    "bursts": Scenario(lambda now: 12 if int(now) % 3 == 0 else 0.3, noisy(1, 1.5, 4), deadline=8.0),
    "a little too much": Scenario(steady(1.2), noisy(1, 2, 5)),
    "hardly time to decode": Scenario(steady(10), noisy(1, 1.3, 3), deadline=2.5),
    "groups among single requests": Scenario(steady(4), noisy(1, 1.5, 3), group=40, every=6.0),
}


@pytest.mark.parametrize("seed", some_of([1, 2], 2))
@pytest.mark.parametrize(  # one is traced for coverage: the others take the same lines, many times over
    "name",
    [
        name if name == "hardly time to decode" else pytest.param(name, marks=pytest.mark.no_cover)
        for name in SCENARIOS
    ],
)
def test_accepted_requests_are_in_time_and_the_engine_is_never_idle(name, seed):
    scenario = SCENARIOS[name]
    found, endless = run(scenario, seed), run(scenario, seed, deadlines=False)
    assert found.good + found.late + found.refused == found.sent
    assert endless.refused == endless.late == 0
    assert found.kept >= 0.99
    assert found.steps >= 0.9 * endless.steps
    if scenario.group:
        assert any(found.groups)
