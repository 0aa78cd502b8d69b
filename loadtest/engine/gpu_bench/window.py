"""A window batcher over the same executor and search as the engine that it is compared with."""

from __future__ import annotations

from engine.errors import ExecutorFailed
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from engine.types import Outcome, Request
from loadtest import window


class LaneBatcher(window.WindowBatcher[Request]):
    """With a lane of its own."""

    def __init__(self, executor: Executor, window: float, batch: int) -> None:
        """window: seconds that the first of a batch waits for others.
        batch: requests of one, at most.
        """
        self._done: list[tuple[Request, Outcome]] = []
        self._lane = Lane(executor, lambda request, outcome: self._done.append((request, outcome)))
        super().__init__(self._translate, window, batch)
        self.tune(window, batch)

    def tune(self, window: float, batch: int) -> None:
        """Use other settings from the next batch on.

        Raises ValueError for a batch that the lane can't hold.
        """
        if not 1 <= batch <= self._lane.executor.slots or window < 0:
            raise ValueError(f"a batch of {batch} in a lane of {self._lane.executor.slots}, {window} seconds")
        self.window, self.batch = window, batch

    def _translate(self, batch: list[Request]) -> None:
        self._done = []
        try:
            self._lane.drain(batch)
        except Exception as error:
            self._lane.clear()
            answered = {request for request, _ in self._done}
            failed = ExecutorFailed(f"the backend failed: {type(error).__name__}: {error}")
            self._done += [(request, failed) for request in batch if request not in answered]
        for request, outcome in self._done:
            request.reply(outcome)
