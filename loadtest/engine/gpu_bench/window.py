"""The peer of in-flight batching: a window batcher over the same executor and search.

A request waits until the window closes or the batch is full; then the batch is decoded to its end, and all
of it is answered when its longest is done. Requests that come meanwhile wait for the next batch. (As in
`loadtest/compare/peer.py`, where the engine is another.)
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from engine.errors import ExecutorFailed
from engine.executor import Executor
from engine.lane import Lane
from engine.types import Outcome, Request


class WindowBatcher:
    """One thread, one lane, one batch at a time. `submit` may be called from any thread."""

    def __init__(self, executor: Executor, window: float, batch: int) -> None:
        """window: seconds that the first of a batch waits for others. batch: requests of one, at most."""
        self._done: list[tuple[Request, Outcome]] = []
        self._lane = Lane(executor, lambda request, outcome: self._done.append((request, outcome)))
        self._waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.tune(window, batch)
        self._thread = threading.Thread(target=self._run, name="window", daemon=True)
        self._thread.start()

    def tune(self, window: float, batch: int) -> None:
        """Other settings from the next batch on. Raises ValueError for a batch that the lane can't hold."""
        if not 1 <= batch <= self._lane.executor.slots or window < 0:
            raise ValueError(f"a batch of {batch} in a lane of {self._lane.executor.slots}, {window} seconds")
        self.window, self.batch = window, batch

    def submit(self, group: Sequence[Request]) -> None:
        for request in group:
            self._waiting.put(request)

    def stop(self) -> None:
        """After what is waiting."""
        self._waiting.put(None)
        self._thread.join(30.0)

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch, more = self._collect(first)
            self._translate(batch)
            if not more:
                return

    def _collect(self, first: Request) -> tuple[list[Request], bool]:
        """A batch, and whether more may come. What waits already is taken even when the window has closed."""
        batch, end = [first], time.monotonic() + self.window
        while len(batch) < self.batch:
            left = end - time.monotonic()
            try:
                request = self._waiting.get(timeout=left) if left > 0 else self._waiting.get_nowait()
            except queue.Empty:
                break
            if request is None:
                return batch, False
            batch.append(request)
        return batch, True

    def _translate(self, batch: list[Request]) -> None:
        self._done = []
        try:
            self._lane.admit(batch)
            while self._lane.active:
                self._lane.step()
        except Exception as error:
            self._lane.clear()
            answered = {request for request, _ in self._done}
            failed = ExecutorFailed(f"the backend failed: {type(error).__name__}: {error}")
            self._done += [(request, failed) for request in batch if request not in answered]
        for request, outcome in self._done:
            request.reply(outcome)
