"""The thread of an engine: start, stop, idling, stalls and submissions by many threads."""

import threading
import time

import numpy as np
import pytest

from engine.errors import Stopping
from engine.schedule.engine import Engine
from engine.types import DecodeOptions, Request
from tests.support import cases
from tests.support.fake import EOS, FakeExecutor
from tests.support.rig import LONG, MODEL, PAST, QUICK, Inbox, assert_right, engine_of
from tests.support.served import until


def test_draining_finishes_accepted_requests_and_accepts_no_more(running):
    engine = running(engine_of()[0])
    assert engine.healthy
    inbox = Inbox()
    requests = [inbox.request([4 + i % 9, EOS], LONG) for i in range(20)]
    engine.submit(requests)
    engine.stop(drain=True, timeout=300)
    assert set(inbox.outcomes) == set(requests)
    for request in requests:
        assert_right(request, inbox.outcomes[request])
    with pytest.raises(Stopping):
        engine.submit([inbox.request()])
    assert not engine.healthy


def test_stopping_without_draining_answers_all_requests_with_stopping(running):
    engine, (executor,) = engine_of((2, 4))
    executor.gate.clear()
    running(engine)
    inbox = Inbox()
    requests = [inbox.request(options=LONG) for _ in range(5)]
    engine.submit(requests)
    assert executor.entered.wait(300)
    engine.stop(drain=True, timeout=0)
    assert not inbox.outcomes
    engine.stop(drain=False, timeout=0)
    executor.gate.set()
    engine.stop(drain=False, timeout=300)
    assert set(inbox.outcomes) == set(requests)
    assert all(isinstance(o, Stopping) for o in inbox.outcomes.values())
    assert executor.diary.count("step") == 1
    assert engine.stats().waiting_tokens == 0


def test_stop_answers_the_requests_of_an_engine_that_never_started():
    engine, _ = engine_of()
    inbox = Inbox()
    late, fine = inbox.request(deadline=PAST), inbox.request()
    engine.submit([late, fine])
    assert not engine.healthy
    engine.stop()
    assert all(isinstance(inbox.outcomes[r], Stopping) for r in (late, fine))


class Counting(Engine):
    """An engine that counts its turns."""

    turns = 0

    def turn(self):
        self.turns += 1
        return super().turn()


def test_an_idle_engine_sleeps_and_wakes_for_a_request(running):
    engine = running(Counting([FakeExecutor(MODEL)]))
    answered = threading.Event()
    for _ in range(3):
        before = engine.turns
        time.sleep(0.05)
        assert engine.turns <= before + 1
        answered.clear()
        engine.submit([Request([4, 5, EOS], QUICK, lambda _: answered.set())])
        assert answered.wait(300)


def test_a_hanging_turn_is_a_stall_and_waiting_for_work_is_not(running):
    engine, (executor,) = engine_of((2, 4))
    moment = 100.0
    engine._clock = lambda: moment
    running(engine)
    assert engine.stall_seconds == 0
    executor.gate.clear()
    inbox = Inbox()
    engine.submit([inbox.request(options=QUICK)])
    assert executor.entered.wait(300)
    moment = 130.0
    assert engine.stall_seconds == 30
    executor.gate.set()
    until(lambda: inbox.outcomes and engine.stall_seconds == 0)
    moment = 1000.0
    assert engine.stall_seconds == 0


def test_a_thread_ended_by_a_bug_stalls_forever():
    engine, _ = engine_of((2, 4))
    moment = 100.0
    engine._clock = lambda: moment
    engine._forecast.end_turn = lambda now, work: 1 / 0
    engine.start()
    engine.submit([Inbox().request(options=LONG)])
    until(lambda: not engine.healthy)
    moment = 160.0
    assert engine.stall_seconds == 60


class Buggy(Engine):
    """An engine that raises where no error is caught, as a bug would."""

    def turn(self):
        while not self._queue.requests:
            time.sleep(0.001)
        raise ZeroDivisionError("a bug")


def test_a_thread_that_dies_answers_all_requests(caplog):
    engine = Buggy([FakeExecutor(MODEL)])
    engine.start()
    inbox = Inbox()
    request = inbox.request()
    engine.submit([request])
    engine.stop(timeout=300)
    assert isinstance(inbox.outcomes[request], Stopping)
    assert not engine.healthy
    with pytest.raises(Stopping):
        engine.submit([inbox.request()])


def test_many_threads_may_submit_at_once(running):
    engine = running(engine_of((4, 1), (4, 4), queue_tokens=100_000)[0])
    inbox = Inbox()

    def client(seed):
        g = np.random.default_rng(seed)
        for _ in range(15):
            options = DecodeOptions(beam_size=int(g.integers(1, 5)), max_length=6)
            engine.submit([inbox.request(cases.source(g, 19), options) for _ in range(2)])

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.stop(drain=True, timeout=300)
    assert len(inbox.outcomes) == 180
    for request, outcome in inbox.outcomes.items():
        assert_right(request, outcome)
