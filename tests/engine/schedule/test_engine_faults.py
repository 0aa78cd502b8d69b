"""Deadlines, cancellation and errors of an engine without its thread."""

import time

import pytest

from engine.errors import DeadlineExceeded, ExecutorFailed, Overloaded
from engine.types import DecodeOptions, Request
from tests.support.fake import EOS
from tests.support.rig import LONG, PAST, QUICK, Inbox, assert_right, engine_of, exhaust, turn

# --- deadlines and cancellation


def test_expired_requests_are_answered_and_free_queue_space():
    engine, (executor,) = engine_of((1, 4), queue_tokens=30)
    inbox = Inbox()
    alive = [inbox.request(options=LONG) for _ in range(4)]
    late = [inbox.request(deadline=PAST) for _ in range(6)]
    engine.submit([*alive[:2], *late, *alive[2:]])
    engine.submit([inbox.request() for _ in range(6)])  # fits, because expired requests use no space
    assert engine.stats().waiting_tokens == 30
    turn(engine)
    assert list(inbox.outcomes) == late
    assert all(isinstance(o, DeadlineExceeded) for o in inbox.outcomes.values())
    assert executor.diary == [3, "step"]
    exhaust(engine)
    assert len(inbox.outcomes) == 16
    assert inbox.twice == 0
    for request in alive:
        assert_right(request, inbox.outcomes[request])


def test_a_request_expires_in_the_queue_while_slots_are_busy():
    engine, _ = engine_of((1, 4))
    later = 0.0
    engine._clock = lambda: time.monotonic() + later
    inbox = Inbox()
    busy, waits = inbox.request(options=LONG), inbox.request(deadline=time.monotonic() + 60)
    engine.submit([busy])
    engine.submit([waits])  # accepted: the engine has no samples yet
    turn(engine)
    turn(engine)
    assert not inbox.outcomes
    later = 61.0
    turn(engine)
    assert list(inbox.outcomes) == [waits]
    assert isinstance(inbox.outcomes[waits], DeadlineExceeded)
    assert engine.stats().active == (1,)
    assert engine.stats().waiting_tokens == 0


def test_a_deadline_that_passes_during_decoding_frees_the_slot():
    engine, _ = engine_of()
    inbox = Inbox()
    requests = [inbox.request([4 + i, EOS], LONG) for i in range(3)]
    engine.submit(requests)
    turn(engine)
    turn(engine)
    requests[0].deadline = PAST
    turn(engine)
    assert isinstance(inbox.outcomes[requests[0]], DeadlineExceeded)
    assert engine.stats().active == (2,)
    exhaust(engine)
    assert inbox.twice == 0
    for request in requests[1:]:
        assert_right(request, inbox.outcomes[request])


def test_a_cancelled_request_frees_its_slot_at_the_next_step():
    engine, _ = engine_of((2, 4))
    inbox = Inbox()
    requests = [inbox.request([4 + i, EOS], LONG) for i in range(3)]
    engine.submit(requests)
    turn(engine)
    engine.cancel(requests[:1])
    turn(engine)
    assert [f.request for f in engine.lanes[0].active] == [requests[1], requests[2]]
    exhaust(engine)
    assert list(inbox.outcomes) == requests[1:]
    for request in requests[1:]:
        assert_right(request, inbox.outcomes[request])


def test_cancelling_frees_queue_space_at_once():
    engine, (executor,) = engine_of((1, 4), queue_tokens=12)
    inbox = Inbox()
    requests = [inbox.request() for _ in range(4)]
    engine.submit(requests)
    with pytest.raises(Overloaded):
        engine.submit([inbox.request()])
    engine.cancel(requests[1:3])
    assert engine.stats().waiting_tokens == 6
    requests[3].cancelled = True  # the flag frees the space when it is needed
    engine.submit([inbox.request() for _ in range(3)])
    exhaust(engine)
    assert len(inbox.outcomes) == 4
    assert not set(inbox.outcomes) & set(requests[1:])
    assert executor.diary.count(3) == 4


def test_a_request_cancelled_during_the_step_that_ends_it_gets_no_reply():
    engine, _ = engine_of()
    inbox = Inbox()
    pair = []

    def reply(outcome):
        engine.cancel(pair)  # as a group does when one of its requests fails
        inbox.outcomes[pair[0]] = outcome

    pair = [Request([4, 5, EOS], LONG, reply), Request([4, 5, EOS], LONG, reply)]
    engine.submit(pair)
    exhaust(engine)
    assert len(inbox.outcomes) == 1
    assert engine.stats().answered == 1


def test_cancelling_an_answered_or_unknown_request_does_nothing():
    engine, _ = engine_of()
    inbox = Inbox()
    request = inbox.request()
    engine.submit([request])
    exhaust(engine)
    engine.cancel([request, inbox.request()])
    assert engine.stats().answered == 1


# --- faults


def test_a_failing_encoder_fails_only_its_batch(caplog):
    engine, (executor,) = engine_of()
    inbox = Inbox()
    first = inbox.request(options=LONG)
    engine.submit([first])
    turn(engine)
    executor.broken = {"encode"}
    lost = [inbox.request(), inbox.request()]
    engine.submit(lost)
    turn(engine)
    executor.broken = set()
    last = inbox.request([7, 8, EOS], LONG)
    engine.submit([last])
    exhaust(engine)
    for request in lost:
        assert isinstance(inbox.outcomes[request], ExecutorFailed)
        assert "encode is broken" in str(inbox.outcomes[request])
    for request in (first, last):
        assert_right(request, inbox.outcomes[request])
    assert engine.stats().waiting_tokens == 0
    assert "2 requests in flight" in caplog.text


@pytest.mark.parametrize("where", ["step", "move"])
def test_a_failing_step_fails_only_the_requests_in_flight_in_its_lane(where, caplog):
    engine, (narrow, wide) = engine_of((2, 1), (2, 4))
    inbox = Inbox()
    greedy = DecodeOptions(beam_size=1, min_length=13, max_length=13)
    other = inbox.request(options=greedy)
    short = DecodeOptions(beam_size=3, min_length=2, max_length=2)
    flying = [inbox.request(options=short), inbox.request(options=LONG)]
    waiting = [inbox.request([9, EOS], LONG)]
    engine.submit([other, *flying])
    wide.broken = {where}
    for _ in range(4):  # after the third step the first is done, and the second must move before the fourth
        turn(engine)
    wide.broken = set()
    engine.submit(waiting)
    exhaust(engine)
    failed = flying if where == "step" else flying[1:]
    assert [r for r, o in inbox.outcomes.items() if isinstance(o, ExecutorFailed)][: len(failed)] == failed
    assert where + " is broken" in str(inbox.outcomes[flying[1]])
    if where == "move":  # it was done before the fault
        assert_right(flying[0], inbox.outcomes[flying[0]])
    assert_right(waiting[0], inbox.outcomes[waiting[0]])
    assert_right(other, inbox.outcomes[other])
    assert inbox.twice == 0
    again = inbox.request([6, 5, EOS], LONG)
    engine.submit([again])
    exhaust(engine)
    assert_right(again, inbox.outcomes[again])
    assert len(inbox.outcomes) == 5


def test_an_error_while_dropping_fails_the_requests_of_the_lane_only():
    engine, (executor,) = engine_of((3, 4))
    inbox = Inbox()
    requests = [inbox.request([4 + i, EOS], LONG) for i in range(3)]
    engine.submit(requests)
    turn(engine)
    executor.broken = {"move"}
    engine.cancel(requests[:1])
    turn(engine)
    executor.broken = set()
    assert all(isinstance(inbox.outcomes[r], ExecutorFailed) for r in requests[1:])
    again = inbox.request()
    engine.submit([again])
    exhaust(engine)
    assert_right(again, inbox.outcomes[again])


def test_a_reply_that_raises_fails_no_other_request(caplog):
    engine, _ = engine_of()
    inbox = Inbox()

    def reply(outcome):
        raise RuntimeError("nobody at home")

    rude = [Request([4, 5, EOS], QUICK, reply), Request([4, EOS], QUICK, reply, deadline=PAST)]
    kind = [inbox.request(), inbox.request([7, EOS], LONG)]
    engine.submit([rude[0], kind[0], rude[1], kind[1]])
    exhaust(engine)
    for request in kind:
        assert_right(request, inbox.outcomes[request])
    assert sum("raised" in r.message for r in caplog.records) == 2
