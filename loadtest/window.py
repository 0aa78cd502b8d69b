"""A window batcher, the usual alternative to in-flight batching.

A request waits until the window closes or the batch is full. Then the batch runs to its end, and all requests
are answered when the longest is done. Requests that arrive meanwhile wait for the next batch.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class WindowBatcher(Generic[Item]):
    """One thread, one batch at a time. `submit` may be called from any thread."""

    def __init__(self, run: Callable[[list[Item]], None], window: float, batch: int) -> None:
        """run: function that answers all requests of a batch; it must not raise.
        window: seconds that the first request of a batch waits for others.
        batch: largest number of requests of a batch.
        """
        self._batch = run
        self._waiting: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self.window, self.batch = window, batch
        self._thread = threading.Thread(target=self._run_batches, name="window", daemon=True)
        self._thread.start()

    def submit(self, group: Sequence[Item]) -> None:
        for item in group:
            self._waiting.put(item)

    def stop(self) -> None:
        """Stop after the queued requests."""
        self._waiting.put(None)
        self._thread.join(30.0)

    def _run_batches(self) -> None:
        """Collect and run batches until the batcher stops."""
        while (first := self._waiting.get()) is not None:
            batch, more = self._collect(first)
            self._batch(batch)
            if not more:
                return

    def _collect(self, first: Item) -> tuple[list[Item], bool]:
        """Return a batch, and whether more may come. Queued requests are taken even after the window has
        closed."""
        batch, end = [first], time.monotonic() + self.window
        while len(batch) < self.batch:
            timeout = end - time.monotonic()
            try:
                item = self._waiting.get(timeout=timeout) if timeout > 0 else self._waiting.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return batch, False
            batch.append(item)
        return batch, True
