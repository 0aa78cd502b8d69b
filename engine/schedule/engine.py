"""The engine: one thread that takes requests from a queue, drops late ones, admits and steps the others."""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from engine.errors import (
    ConfigError,
    ConvoyError,
    DeadlineExceeded,
    DeviceLost,
    ExecutorFailed,
    InvalidRequest,
    Overloaded,
    Stopping,
    TooLarge,
)
from engine.schedule.forecast import Forecast, LaneWork
from engine.schedule.lane import Lane
from engine.schedule.queue import FairQueue, LaneRoom
from engine.schedule.stats import Observer, Stats
from engine.search.executor import Executor
from engine.types import DecodeOptions, Limits, Outcome, Request, Result

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.002  # longest time for which a lane steps without a check of the queue


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits and name of an engine.

    queue_tokens: largest number of source tokens in the queue.
    encode_tokens: largest number of source tokens encoded between two decoding steps; a single longer source
        is allowed.
    name: name of the thread, for logs.
    """

    queue_tokens: int = 65_536
    encode_tokens: int = 2_048
    name: str = "engine"

    def __post_init__(self) -> None:
        if min(self.queue_tokens, self.encode_tokens) < 1:
            raise ConfigError("queue_tokens and encode_tokens must be at least 1")

    def check_size(self, tokens: int) -> None:
        """Raise TooLarge if a group has more source tokens than the queue can ever hold."""
        if tokens > self.queue_tokens:
            raise TooLarge(
                f"{tokens} source tokens in one request; at most {self.queue_tokens} fit: send fewer texts"
            )


class Engine:
    """Decodes requests of one bundle. Any thread may call `submit` and `cancel`, also before `start`."""

    def __init__(
        self,
        executors: Sequence[Executor],
        settings: EngineSettings | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an engine, not started.

        executors: one executor for each lane. A request takes the narrowest lane that fits its beam size, and
            of several lanes of that width (one on each device) the one with the most room.
        settings: limits and name.
        observer: observer of steps and encodings.
        clock: monotonic clock in seconds.
        """
        self.settings = settings or EngineSettings()
        ordered = sorted(executors, key=lambda e: e.beams)
        if not ordered:
            raise ConfigError("an engine needs at least one executor")
        self.lanes = [Lane(executor, self._reply, self._report) for executor in ordered]
        self.eos, self.pad = ordered[0].eos, ordered[0].pad
        self.limits = replace(
            ordered[0].limits,
            beams=ordered[-1].beams,
            source=min(e.limits.source for e in ordered),
            target=min(e.limits.target for e in ordered),
        )
        self._check_options = lru_cache(1024)(partial(_check_options, self.limits, self.eos, self.pad))
        self._observer, self._clock = observer, clock
        self._widths = sorted({executor.beams for executor in ordered})
        self._lanes = [[lane for lane in self.lanes if lane.executor.beams == b] for b in self._widths]
        self._queue = FairQueue(len(self._widths))
        self._wake = threading.Condition()  # guards the queue, `_late` and the two flags
        self._late: list[Request] = []  # expired requests, removed from the queue and not answered yet
        self._stopping = self._aborting = False
        self.device_lost = False  # whether this process can never use its device again
        self.after_step: Callable[[], None] = lambda: None  # called after the replies of each step
        self._replied: list[tuple[Request, Outcome]] = []  # replies of this turn
        self._began = math.inf  # start of the current turn; inf while waiting
        shapes = [(sum(e.slots for e in ordered if e.beams == beams), beams) for beams in self._widths]
        self._forecast = Forecast(self._queue, shapes, self.limits)
        self._turns = self._steps = self._encoded = self._tokens = self._answered = self._failed = 0
        self._step_seconds = self._encode_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name=self.settings.name, daemon=True)

    @property
    def healthy(self) -> bool:
        """Whether the thread runs and accepts requests."""
        return self._thread.is_alive() and not self._stopping

    @property
    def stall_seconds(self) -> float:
        """Seconds since the start of the current turn, or of the turn in which a bug ended the thread."""
        return max(0.0, self._clock() - self._began)

    def start(self) -> None:
        self._thread.start()

    def submit(self, group: Sequence[Request], *, follow_up: bool = False) -> None:
        """Accept all requests of a group or none. Never blocks.

        group: requests, each with its own options.
        follow_up: the group continues accepted work. It goes first, and is not refused because of the load.

        Raises InvalidRequest or TooLarge for requests that can never be served, Overloaded if the queue is
        full, WouldBeLate if the answer would come after its deadline, and Stopping or DeviceLost if the
        engine accepts no requests any more.
        """
        for request in group:
            self._check_source(request)
            self._check_options(request.options)
        lanes = [self._width_of(request.options.beam_size) for request in group]
        tokens, capacity = sum(len(r.source) for r in group), self.settings.queue_tokens
        self.settings.check_size(tokens)
        with self._wake:
            if self._stopping:
                raise self._closing_error()
            now = self._clock()
            if self._queue.tokens + tokens > capacity:
                self._queue.sweep()
                self._late += self._queue.pop_expired(now)
            excess_tokens = self._queue.tokens + tokens - capacity
            if excess_tokens > 0 and not follow_up:
                wait = self._forecast.retry_after(now, excess_tokens)
                raise Overloaded("the queue is full: try again later", wait)
            for request, lane in zip(group, lanes, strict=True):
                self._forecast.set_expected_steps(request, lane)
            if not follow_up:
                self._forecast.check(now, group, lanes)
            self._queue.add(zip(group, lanes, strict=True), first=follow_up)
            self._wake.notify()

    def cancel(self, requests: Iterable[Request]) -> None:
        """Cancel requests: queue space is free at once, a slot within a few steps. They get no reply."""
        with self._wake:
            for request in requests:
                request.cancelled = True
                self._queue.remove(request)
            self._wake.notify()

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Accept no more requests, and wait for the thread to end.

        drain: accepted requests are finished; otherwise they are answered with Stopping after the current
            step. A drain that takes too long may be followed by stop(drain=False).
        timeout: longest wait in seconds.
        """
        with self._wake:
            self._stopping = True
            self._aborting = self._aborting or not drain
            self._wake.notify()
        if self._thread.ident is None:  # never started, so that the thread answers nothing
            self._abandon()
        else:
            self._thread.join(timeout)

    def release(self) -> None:
        """After the thread has ended, drop the lanes: the cycle of references would keep their memory."""
        self.lanes.clear()
        self._lanes.clear()

    def stats(self) -> Stats:
        with self._wake:
            waiting, tokens = self._queue.requests, self._queue.tokens
        return Stats(
            waiting_requests=waiting,
            waiting_tokens=tokens,
            active=tuple(lane.in_use for lane in self.lanes),
            slots=tuple(lane.executor.slots for lane in self.lanes),
            steps=self._steps,
            step_seconds=self._step_seconds,
            encoded_requests=self._encoded,
            encode_seconds=self._encode_seconds,
            tokens=self._tokens,
            answered=self._answered,
            failed=self._failed,
        )

    def turn(self) -> bool:
        """Run one turn: take, drop, admit, step. Blocks while there is no work; returns False after a stop.

        For the engine's thread only, or for a caller that has not started it.
        """
        # 1. take: late requests leave the queue
        with self._wake:
            while not (self._stopping or self._late or self._queue.requests or self._busy()):
                self._began = math.inf
                self._wake.wait()
            self._began = now = self._clock()
            self._forecast.begin_turn(now)
            late, self._late = self._late + self._queue.pop_expired(now), []
            stopped = self._aborting or (self._stopping and not self._queue.requests and not self._busy())
        for request in late:
            self._reply(request, DeadlineExceeded("the deadline passed in the queue"))
        if stopped:
            self._began = math.inf
            return False
        # 2. drop cancelled and late requests from slots, and admit waiting requests to free slots
        for lane in self.lanes:
            self._drop(lane)
        self._admit()
        # 3. step every lane, and send the answers that a step has finished
        for lane in self.lanes:
            self._step(lane)
            self._safely(self.after_step)
        work_by_width = [self._work_of(width) for width in range(len(self._widths))]
        with self._wake:
            now = self._clock()
            self._forecast.note_replies(self._replied, self._width_of, now)
            self._forecast.end_turn(now, work_by_width)
        self._replied.clear()
        return True

    def _run(self) -> None:
        try:
            while self.turn():
                pass
        except Exception:
            logger.exception("the engine's thread ends: this is a bug")
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Answer all requests that are left, so that no caller waits forever."""
        with self._wake:
            self._stopping = True
            requests, self._late = self._late + self._queue.clear(), []
        for lane in self.lanes:
            requests += lane.clear()
        for request in requests:
            self._reply(request, self._closing_error())
        self._safely(self.after_step)

    def _closing_error(self) -> ConvoyError:
        """Return the error of an engine that accepts no requests any more."""
        return DeviceLost() if self.device_lost else Stopping()

    def _busy(self) -> bool:
        return any(lane.in_use for lane in self.lanes)

    def _drop(self, lane: Lane) -> None:
        """Answer late requests of a lane, and free the slots of late and cancelled ones."""
        try:
            for flight in lane.overdue(self._clock()):
                self._reply(flight.request, DeadlineExceeded("the deadline passed during decoding"))
                lane.drop(flight)
        except Exception as error:
            self._fail(lane, lane.clear(), error)

    def _admit(self) -> None:
        """Admit waiting requests to free slots. Each turn starts with the next width, for fairness."""
        budget, first = self.settings.encode_tokens, True
        self._turns += 1
        for i in range(len(self._widths)):
            index = (self._turns + i) % len(self._widths)
            lanes = self._lanes[index]
            free = sum([lane.free for lane in lanes])
            if not (free and self._queue.rounds[index].requests):
                continue
            room = LaneRoom(sum([lane.executor.slots for lane in lanes]), free, lanes[0].slots_by_group)
            for lane in lanes[1:]:
                room.used = Counter(room.used) + Counter(lane.slots_by_group)
            with self._wake:
                requests, now = self._queue.take(index, room, budget, first=first), self._clock()
                late = self._forecast.too_late(requests, index, now)
                batch = [r for r in requests if r not in late] if late else requests
                self._forecast.note_admission(index, batch)
            for request in late:
                self._reply(request, DeadlineExceeded("its turn came too late for its deadline"))
            if not batch:
                continue
            first = False
            budget -= sum(len(r.source) for r in batch)
            for lane, share in _distribute(lanes, batch):
                self._encode(lane, share)

    def _encode(self, lane: Lane, batch: list[Request]) -> None:
        """Encode a batch for a lane; if that fails, answer the batch with an error."""
        try:
            seconds = lane.admit(batch)
        except Exception as error:
            self._fail(lane, batch, error)
            return
        self._encode_seconds += seconds
        self._forecast.note_encoding(seconds)
        self._encoded += len(batch)
        if self._observer:
            self._safely(self._observer.on_encode, seconds, len(batch), sum(len(r.source) for r in batch))

    def _step(self, lane: Lane) -> None:
        """Step a lane that has requests; if that fails, answer all of them with an error."""
        if not lane.in_use:
            return
        slots, steps, began = lane.in_use, 1, time.monotonic()
        is_alone = not self._queue.requests and not any(o.in_use for o in self.lanes if o is not lane)
        try:
            steps = lane.step(PATIENCE_SECONDS if is_alone else 0.0)
        except Exception as error:
            self._fail(lane, lane.clear(), error)
        self._forecast.note_step(self._width_of(lane.executor.beams), slots, steps)
        self._steps += steps
        self._step_seconds += (seconds := time.monotonic() - began)
        if self._observer:
            for _ in range(steps):
                self._safely(self._observer.on_step, seconds / steps, slots)

    def _fail(self, lane: Lane, requests: list[Request], error: Exception) -> None:
        """Answer requests after an error of the executor. The engine stops if the device is lost."""
        logger.error("the backend failed with %d requests in flight", len(requests), exc_info=error)
        if lane.executor.is_device_lost(error):
            with self._wake:
                self.device_lost = self._stopping = self._aborting = True
        for request in requests:
            failure = ExecutorFailed(f"the backend failed: {type(error).__name__}: {error}")
            self._reply(request, self._closing_error() if self.device_lost else failure)

    def _reply(self, request: Request, outcome: Outcome) -> None:
        """Answer a request and count the outcome, unless the request was cancelled."""
        if request.cancelled:
            return
        if isinstance(outcome, Result):
            self._answered += 1
            self._tokens += len(outcome.hypotheses[0].token_scores)
        else:
            self._failed += 1
        self._replied.append((request, outcome))
        self._safely(request.reply, outcome)

    def _report(self, request: Request, tokens: list[int]) -> None:
        if request.progress and not request.cancelled:
            self._safely(request.progress, tokens)

    def _safely(self, call: Callable[..., None], *values: object) -> None:
        """Call a callback (reply, progress, observer) and log its errors: they must not end the thread."""
        try:
            call(*values)
        except Exception:
            logger.exception("%r raised", call)

    def _check_source(self, request: Request) -> None:
        source, limit = request.source, self.limits.source
        if not source:
            raise InvalidRequest("the source is empty")
        if source[-1] != self.eos:
            raise InvalidRequest("the source must end with end-of-sentence")
        if len(source) > 1 and not self.limits.attention:
            raise InvalidRequest("a language model's source is end-of-sentence alone: text is its prefix")
        if len(source) > limit:
            raise TooLarge(f"the source has {len(source)} tokens; this model takes at most {limit}: split it")

    def _width_of(self, beams: int) -> int:
        """Return the index of the narrowest width that fits a beam size."""
        return bisect_left(self._widths, beams)

    def _work_of(self, width: int) -> LaneWork:
        lanes = self._lanes[width]
        return LaneWork(sum([lane.requests for lane in lanes]), [lane.steps_left for lane in lanes])


def _check_options(limits: Limits, eos: int, pad: int, options: DecodeOptions) -> None:
    options.check(limits)  # `answers.options.resolve` checks texts only, not scores and other processes
    if eos in options.prefix or pad in options.prefix:
        raise InvalidRequest("prefix must not hold end-of-sentence or padding")


def _distribute(lanes: Sequence[Lane], batch: Sequence[Request]) -> list[tuple[Lane, list[Request]]]:
    """Distribute requests one by one, each to the lane with the most room."""
    shares: list[list[Request]] = [[] for _ in lanes]
    free = [lane.free for lane in lanes]
    for request in batch:
        best = max(range(len(lanes)), key=lambda i: free[i])
        shares[best].append(request)
        free[best] -= 1
    return [(lane, share) for lane, share in zip(lanes, shares, strict=True) if share]
