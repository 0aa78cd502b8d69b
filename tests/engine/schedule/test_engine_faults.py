"""The engine when things end early: deadlines, cancellation, faults, stopping."""

import threading
import time

import numpy as np
import pytest

from engine.errors import DeadlineExceeded, DeviceLost, ExecutorFailed, Overloaded, Stopping
from engine.executors.device_errors import is_device_lost
from engine.schedule.engine import Engine
from engine.types import DecodeOptions, Request
from tests.support import cases
from tests.support.fake import EOS, FakeExecutor
from tests.support.rig import LONG, MODEL, PAST, QUICK, Inbox, assert_right, engine_of, exhaust, turn
from tests.support.served import until

# --- deadlines and cancellation


def test_expired_requests_are_answered_and_free_the_middle_of_the_queue():
    engine, (executor,) = engine_of((1, 4), queue_tokens=30)
    inbox = Inbox()
    alive = [inbox.request(options=LONG) for _ in range(4)]
    late = [inbox.request(deadline=PAST) for _ in range(6)]
    engine.submit([*alive[:2], *late, *alive[2:]])
    engine.submit([inbox.request() for _ in range(6)])  # fits: the expired hold no space
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


def test_a_deadline_that_passes_in_the_queue_behind_busy_slots_is_honoured():
    engine, _ = engine_of((1, 4))
    later = 0.0
    engine._clock = lambda: time.monotonic() + later
    inbox = Inbox()
    busy, waits = inbox.request(options=LONG), inbox.request(deadline=time.monotonic() + 60)
    engine.submit([busy])
    engine.submit([waits])  # nothing is known yet of how long it takes
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
    requests[3].cancelled = True  # by its flag: free as soon as the space is wanted
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


def test_cancelling_what_is_answered_or_unknown_does_nothing():
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


def test_a_fault_while_dropping_fails_the_lane_and_the_engine_goes_on():
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


def test_a_reply_that_raises_harms_nobody(caplog):
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


# --- a device that is lost

TORCH = """CUDA error: an illegal memory access was encountered
Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
CUDA kernel errors might be asynchronously reported at some other API call."""
STICKY = [
    TORCH,
    "CUDA error: device-side assert triggered",
    "CUDA error: unspecified launch failure",
    "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=x ; file=y ; expr=z;",
    "launching attend: CUDA error 719 (CUDA_ERROR_LAUNCH_FAILED)",
    "CUDA error 716 (CUDA_ERROR_MISALIGNED_ADDRESS)",
]
PASSING = [
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com",
    "CUDA error: invalid argument",
    "CUDA failure 2: out of memory ; GPU=0",
    "launching attend: CUDA error 1 (CUDA_ERROR_INVALID_VALUE)",
    "an illegal memory access was encountered",  # of whom?
    "step is broken",
]


@pytest.mark.parametrize("text", STICKY)
def test_errors_after_which_a_device_is_of_no_use_are_known(text):
    assert is_device_lost(RuntimeError(text))
    later = ValueError("while decoding")
    later.__cause__ = RuntimeError(text)
    assert is_device_lost(later)


@pytest.mark.parametrize("text", PASSING)
def test_other_errors_lose_no_device(text):
    assert not is_device_lost(RuntimeError(text))


@pytest.mark.parametrize("where", ["encode", "step", "move"])
def test_a_lost_device_fails_everything_at_once_and_takes_nothing_more(running, where):
    engine, (executor,) = engine_of((2, 4))
    inbox = Inbox()
    short = DecodeOptions(beam_size=3, min_length=2, max_length=2)
    requests = [inbox.request(options=short), *(inbox.request(options=LONG) for _ in range(5))]
    for request in requests:
        engine.submit([request])
    executor.broken, executor.message = {where}, TORCH
    running(engine)
    engine.stop(drain=True, timeout=10)
    assert engine.device_lost
    assert not engine.healthy
    answered = [r for r, o in inbox.outcomes.items() if not isinstance(o, DeviceLost)]
    # others took the slots of those that were done, until nobody else came and the last one had to move
    assert answered == (requests[:5] if where == "move" else [])
    assert set(inbox.outcomes) == set(requests)
    assert inbox.twice == 0
    with pytest.raises(DeviceLost, match="elsewhere or later"):
        engine.submit([inbox.request()])


# --- the thread


@pytest.fixture
def running():
    """Starts engines and ends them."""
    started = []

    def run(engine):
        engine.start()
        started.append(engine)
        return engine

    yield run
    for engine in started:
        engine.stop(drain=False, timeout=10)
        assert not engine.healthy


def test_draining_finishes_everything_accepted_and_takes_nothing_more(running):
    engine = running(engine_of()[0])
    assert engine.healthy
    inbox = Inbox()
    requests = [inbox.request([4 + i % 9, EOS], LONG) for i in range(20)]
    engine.submit(requests)
    engine.stop(drain=True, timeout=30)
    assert set(inbox.outcomes) == set(requests)
    for request in requests:
        assert_right(request, inbox.outcomes[request])
    with pytest.raises(Stopping):
        engine.submit([inbox.request()])
    assert not engine.healthy


def test_stopping_without_draining_answers_everybody_with_stopping(running):
    engine, (executor,) = engine_of((2, 4))
    executor.gate.clear()
    running(engine)
    inbox = Inbox()
    requests = [inbox.request(options=LONG) for _ in range(5)]
    engine.submit(requests)
    assert executor.entered.wait(10)
    engine.stop(drain=True, timeout=0)
    assert not inbox.outcomes
    engine.stop(drain=False, timeout=0)
    executor.gate.set()
    engine.stop(drain=False, timeout=10)
    assert set(inbox.outcomes) == set(requests)
    assert all(isinstance(o, Stopping) for o in inbox.outcomes.values())
    assert executor.diary.count("step") == 1
    assert engine.stats().waiting_tokens == 0


def test_an_engine_that_never_started_answers_when_it_is_stopped():
    engine, _ = engine_of()
    inbox = Inbox()
    late, fine = inbox.request(deadline=PAST), inbox.request()
    engine.submit([late, fine])
    assert not engine.healthy
    engine.stop()
    assert all(isinstance(inbox.outcomes[r], Stopping) for r in (late, fine))


class Counting(Engine):
    """Counts its turns."""

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
        assert answered.wait(10)


def test_a_turn_that_does_not_end_shows_as_a_stall_and_waiting_for_work_does_not(running):
    engine, (executor,) = engine_of((2, 4))
    moment = 100.0
    engine._clock = lambda: moment
    running(engine)
    assert engine.stall_seconds == 0
    executor.gate.clear()
    inbox = Inbox()
    engine.submit([inbox.request(options=QUICK)])
    assert executor.entered.wait(10)
    moment = 130.0
    assert engine.stall_seconds == 30
    executor.gate.set()
    until(lambda: inbox.outcomes and engine.stall_seconds == 0)
    moment = 1000.0
    assert engine.stall_seconds == 0


def test_a_thread_that_a_bug_has_ended_stalls_for_ever():
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
    """Fails outside its fault boundary, as only a bug of ours could."""

    def turn(self):
        while not self._queue.requests:
            time.sleep(0.001)
        raise ZeroDivisionError("a bug")


def test_a_thread_that_dies_leaves_nobody_waiting(caplog):
    engine = Buggy([FakeExecutor(MODEL)])
    engine.start()
    inbox = Inbox()
    request = inbox.request()
    engine.submit([request])
    engine.stop(timeout=10)
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
    engine.stop(drain=True, timeout=30)
    assert len(inbox.outcomes) == 180
    for request, outcome in inbox.outcomes.items():
        assert_right(request, outcome)
