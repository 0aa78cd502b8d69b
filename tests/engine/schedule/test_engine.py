"""The engine without its thread: mixed traffic, admission, fairness, statistics."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError, ExecutorFailed, InvalidRequest, Overloaded, TooLarge
from engine.schedule.engine import Engine, EngineSettings
from engine.types import DecodeOptions, Result
from tests.support import cases
from tests.support.fake import EOS, PAD
from tests.support.late import stepper  # noqa: F401
from tests.support.rig import LONG, MODEL, PAST, QUICK, Inbox, assert_right, busy, engine_of, exhaust, turn
from tests.support.thorough import some

# --- mixed traffic


@pytest.mark.usefixtures("stepper")
@pytest.mark.parametrize("seed", range(some(3)))
def test_mixed_jobs_over_several_lanes_with_random_cancellations_equal_the_oracle(seed):
    g = np.random.default_rng(seed)
    engine, _ = engine_of((3, 1), (2, 3), (4, 8), encode_tokens=20, queue_tokens=10_000)
    inbox, everybody, cancelled = Inbox(), [], set()
    for _ in range(60):
        size = int(g.integers(1, 9))
        group = [inbox.request(cases.source(g, 19), cases.options(g, 19)) for _ in range(size)]
        engine.submit(group)
        everybody += group
        for _ in range(int(g.integers(0, 6))):
            if busy(engine):
                turn(engine)
        if g.random() < 0.5:
            chosen = everybody[int(g.integers(len(everybody)))]
            if chosen not in inbox.outcomes:
                cancelled.add(chosen)
            if g.random() < 0.5:
                engine.cancel([chosen])
            else:
                chosen.cancelled = True  # the flag alone is enough
    exhaust(engine)
    assert len(cancelled) > 5
    assert set(inbox.outcomes) == set(everybody) - cancelled
    assert inbox.twice == 0
    for request, outcome in inbox.outcomes.items():
        wanted = cases.expect(MODEL, request.source, request.options, 14)
        if wanted:
            assert_right(request, outcome)
        else:
            assert isinstance(outcome, ExecutorFailed)
    stats = engine.stats()
    assert (stats.waiting_requests, stats.waiting_tokens, stats.active) == (0, 0, (0, 0, 0))


def test_a_request_takes_the_narrowest_lane_that_has_its_beam_size():
    engine, (one, five, eight) = engine_of((2, 8), (2, 1), (2, 5))[0], (0, 1, 2)
    inbox = Inbox()
    assert [lane.executor.beams for lane in engine.lanes] == [1, 5, 8]
    for beam, lane in ((1, one), (2, five), (5, five), (6, eight), (8, eight)):
        engine.submit([inbox.request(options=DecodeOptions(beam_size=beam, min_length=9, max_length=9))])
        turn(engine)
        assert [i for i, count in enumerate(engine.stats().active) if count] == [lane]
        exhaust(engine)
    for request, outcome in inbox.outcomes.items():
        assert_right(request, outcome)


# --- admission


@pytest.mark.parametrize(
    ("error", "source", "options", "names"),
    [
        (InvalidRequest, (), QUICK, "empty"),
        (InvalidRequest, (4, 5), QUICK, "end-of-sentence"),
        (TooLarge, (4,) * 12 + (EOS,), QUICK, "at most 12"),
        (InvalidRequest, (4, EOS), DecodeOptions(beam_size=9), "beam_size"),
        (InvalidRequest, (4, EOS), DecodeOptions(prefix=(5, EOS), beam_size=2), "prefix"),
        (InvalidRequest, (4, EOS), DecodeOptions(prefix=(PAD,), beam_size=2), "prefix"),
    ],
)
def test_one_bad_request_refuses_its_whole_group(error, source, options, names):
    engine, _ = engine_of()
    inbox = Inbox()
    good = [inbox.request() for _ in range(3)]
    with pytest.raises(error, match=names):
        engine.submit([*good[:2], inbox.request(source, options), good[2]])
    assert engine.stats().waiting_requests == engine.stats().waiting_tokens == 0
    engine.submit(good)
    exhaust(engine)
    assert set(inbox.outcomes) == set(good)


def test_a_group_that_does_not_fit_is_refused_as_a_whole():
    engine, _ = engine_of(queue_tokens=30)
    inbox = Inbox()
    engine.submit([inbox.request() for _ in range(7)])  # 21 tokens
    with pytest.raises(Overloaded) as caught:
        engine.submit([inbox.request() for _ in range(4)])
    assert caught.value.retry_after == 1.0
    assert engine.stats().waiting_requests == 7
    assert engine.stats().waiting_tokens == 21
    engine.submit([inbox.request() for _ in range(3)])  # exactly full
    exhaust(engine)
    assert len(inbox.outcomes) == 10
    assert engine.stats().waiting_tokens == 0
    engine.submit([inbox.request() for _ in range(10)])
    exhaust(engine)
    assert len(inbox.outcomes) == 20


def test_a_group_that_could_never_fit_is_too_large():
    engine, _ = engine_of(queue_tokens=30)
    with pytest.raises(TooLarge, match="at most 30"):
        engine.submit([Inbox().request() for _ in range(11)])
    assert engine.stats().waiting_requests == 0


def test_an_empty_group_is_accepted():
    engine, _ = engine_of()
    engine.submit([])
    assert engine.stats().waiting_requests == 0


def test_an_overloaded_engine_returns_retry_after():
    engine, _ = engine_of((1, 4), queue_tokens=30)
    inbox = Inbox()
    engine.submit([inbox.request() for _ in range(10)])
    turn(engine)
    time.sleep(0.01)
    waits = []
    for count in (2, 5, 10):
        with pytest.raises(Overloaded) as caught:
            engine.submit([inbox.request() for _ in range(count)])
        waits.append(caught.value.retry_after)
    assert all(1 <= w <= 60 for w in waits)
    assert waits == sorted(waits)


@pytest.mark.parametrize("fault", [{"queue_tokens": 0}, {"encode_tokens": 0}])
def test_settings_without_room_are_refused(fault):
    with pytest.raises(ConfigError):
        EngineSettings(**fault)


def test_an_engine_without_executors_is_refused():
    with pytest.raises(ConfigError):
        Engine([])


# --- fairness


@given(st.integers(5, 40), st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 3))
def test_a_big_group_starves_no_other_request(big, arrivals, slots):
    """Before a new request, at most as many requests of the big group are admitted as there are groups and
    slots."""
    engine, _ = engine_of((slots, 4))
    inbox = Inbox()
    crowd = [inbox.request(options=QUICK) for _ in range(big)]
    engine.submit(crowd)
    for ahead, turns in enumerate(arrivals):
        for _ in range(turns):
            if busy(engine):
                turn(engine)
        newcomer = inbox.request(options=QUICK)
        engine.submit([newcomer])
        before = sum(r.admitted > 0 for r in crowd)
        while not newcomer.admitted:
            turn(engine)
        admitted = sum(r.admitted > 0 for r in crowd) - before
        assert admitted <= ahead + slots
    exhaust(engine)
    assert len(inbox.outcomes) == big + len(arrivals)


def test_a_new_request_is_answered_long_before_an_earlier_big_group():
    engine, _ = engine_of((1, 4))
    inbox = Inbox()
    engine.submit([inbox.request() for _ in range(30)])
    turn(engine)
    newcomer = inbox.request()
    engine.submit([newcomer])
    exhaust(engine)
    assert list(inbox.outcomes).index(newcomer) <= 2


def test_encode_tokens_bounds_the_encoding_between_two_steps():
    engine, (executor,) = engine_of((8, 4), encode_tokens=7)
    inbox = Inbox()
    engine.submit([inbox.request([4] * n + [EOS], LONG) for n in (2, 1, 1, 11, 1, 2, 3)])  # 3 2 2 12 2 3 4
    exhaust(engine)
    encoded = []
    for entry in executor.diary:
        if entry == "step":
            encoded.append(0)
        else:
            encoded = encoded or [0]
            encoded[-1] += entry
    assert sorted(e for e in encoded if e) == [4, 5, 7, 12]  # the long one alone


def test_lanes_take_turns_to_encode():
    engine, executors = engine_of((8, 1), (8, 4), encode_tokens=3)
    inbox = Inbox()
    greedy = DecodeOptions(beam_size=1, min_length=13, max_length=13)
    engine.submit([inbox.request(options=o) for o in [greedy] * 4 + [LONG] * 4])
    for count in range(1, 9):
        turn(engine)
        assert sum(engine.stats().active) == count
        assert abs(engine.stats().active[0] - engine.stats().active[1]) <= 1
    exhaust(engine)
    assert len(inbox.outcomes) == 8


# --- statistics


class Diary:
    """An observer that records its calls."""

    def __init__(self):
        self.steps, self.batches = [], []

    def on_step(self, seconds, slots):
        self.steps.append((seconds, slots))

    def on_encode(self, seconds, requests, tokens):
        self.batches.append((seconds, requests, tokens))


def test_observers_and_stats_agree():
    diary = Diary()
    engine, _ = engine_of((2, 4), observer=diary)
    inbox = Inbox()
    bad = inbox.request(deadline=PAST)
    engine.submit([inbox.request(options=LONG), inbox.request([4, EOS], LONG), inbox.request(), bad])
    assert engine.stats().waiting_tokens == 11
    exhaust(engine)
    stats = engine.stats()
    assert stats.slots == (2,)
    assert [(r, t) for _, r, t in diary.batches] == [(2, 5), (1, 3)]
    assert stats.encoded_requests == 3
    assert stats.encode_seconds == pytest.approx(sum(s for s, _, _ in diary.batches))
    assert stats.steps == len(diary.steps)
    assert stats.step_seconds == pytest.approx(sum(s for s, _ in diary.steps))
    assert {n for _, n in diary.steps} == {1, 2}
    assert (stats.answered, stats.failed) == (3, 1)
    results = [o for o in inbox.outcomes.values() if isinstance(o, Result)]
    assert stats.tokens == sum(len(r.hypotheses[0].tokens) + 1 for r in results)


def test_an_observer_that_raises_fails_no_request(caplog):
    class Rude(Diary):
        def on_step(self, seconds, slots):
            raise RuntimeError("rude")

    engine, _ = engine_of(observer=Rude())
    inbox = Inbox()
    request = inbox.request()
    engine.submit([request])
    exhaust(engine)
    assert_right(request, inbox.outcomes[request])
    assert "rude" in caplog.text
