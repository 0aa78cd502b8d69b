"""Engines over real executors that tests can break or pause, and a collector of their answers."""

import math
import threading

from engine.schedule.engine import Engine, EngineSettings
from engine.types import DecodeOptions, Request, Result
from tests.support import cases
from tests.support.fake import EOS, FakeExecutor, FakeModel

MODEL = FakeModel(seed=1)
LONG = DecodeOptions(beam_size=3, min_length=13, max_length=13)
QUICK = DecodeOptions(beam_size=2, max_length=2)
PAST = -math.inf


class Switchable(FakeExecutor):
    """A real executor that logs its calls, raises in the methods named by `broken`, and pauses at `gate`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.broken, self.diary, self.widths = set(), [], []
        self.message = ""  # message of the error that it raises
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()

    def encode(self, sources):
        self.diary.append(sum(len(s) for s in sources))
        self._break("encode")
        return super().encode(sources)

    def step(self, n, inputs, *, attention=False):
        self.diary.append("step")
        self.entered.set()
        assert self.gate.wait(300)
        self._break("step")
        return super().step(n, inputs, attention=attention)

    def move(self, source, target):
        self._break("move")
        super().move(source, target)

    def _break(self, where):
        if where in self.broken:
            raise RuntimeError(self.message or f"{where} is broken")


class Inbox:
    """Makes requests and collects their outcomes in order of arrival. `twice` counts second outcomes."""

    def __init__(self):
        self.outcomes: dict[Request, object] = {}
        self.twice = 0

    def request(self, source=(4, 5, EOS), options=QUICK, deadline=math.inf):
        def reply(outcome):
            self.twice += made in self.outcomes
            self.outcomes[made] = outcome

        made = Request(list(source), options, reply, deadline)
        return made


def engine_of(*shapes, model=MODEL, observer=None, **limits):
    """Return an engine with one lane for each (slots, beams), and its executors."""
    executors = [Switchable(model, slots, beams) for slots, beams in shapes or [(4, 4)]]
    return Engine(executors, EngineSettings(**limits), observer), executors


def busy(engine):
    stats = engine.stats()
    return stats.waiting_requests > 0 or any(stats.active)


def turn(engine):
    """Run one turn of a busy engine; an idle one would wait forever."""
    assert busy(engine)
    assert engine.turn()


def exhaust(engine):
    """Run turns until no request is queued or running."""
    while busy(engine):
        turn(engine)


def assert_right(request, outcome, model=MODEL):
    assert isinstance(outcome, Result), outcome
    wanted = cases.expect(model, request.source, request.options, 14)
    cases.same(outcome.hypotheses, wanted, model, request.source)
