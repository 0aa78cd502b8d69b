"""A cache of CUDA graphs by key: a graph is captured once its key has run often enough, and the least
recently used one is dropped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from engine.executors.cuda.streams import LaneStreams, Replay
from engine.executors.device_errors import is_device_lost

logger = logging.getLogger(__name__)

CAPTURE_FAILED: Final = "a step runs without its CUDA graph, slower but correct: the capture failed (%s: %s)"


class Graphs:
    """The graphs of one stream. After a failed capture, a step runs without a graph."""

    def __init__(self, streams: LaneStreams, max_graphs: int) -> None:
        """Make an empty cache of at most `max_graphs` graphs."""
        self.streams, self.max_graphs = streams, max_graphs
        self._replays: dict[Any, Replay] = {}  # least recently used first
        self._uses: dict[Any, int] = {}
        self._failed: set[Any] = set()

    def __len__(self) -> int:
        return len(self._replays)

    def run(self, key: Any, step: Callable[[], None], after: int, times: int = 1) -> None:
        """Run a step: replay its graph, or run the step itself, and capture it after enough runs. The first
        runs also prepare all that a capture can't do, such as allocations.

        key: key of the graph.
        step: work to run; the same for each use of a key.
        after: number of runs after which the step is captured.
        times: number of times to run it now.

        Raises the errors of the step, and those of a capture if the device is lost.
        """
        replay = self._replays.pop(key, None)
        if replay is not None:
            self._replays[key] = replay
            for _ in range(times):
                replay()
        elif times:
            self._run_uncaptured(key, step, after)
            # the other runs replay the graph, if that run captured it
            self.run(key, step, after, times - 1)

    def _run_uncaptured(self, key: Any, step: Callable[[], None], after: int) -> None:
        """Run a step without a graph, and capture it if that was run number `after` or later."""
        step()
        self._uses[key] = self._uses.get(key, 0) + 1
        if self._uses[key] < after or key in self._failed:
            return
        self._drop(len(self._replays) + 1 - self.max_graphs)
        try:
            self._replays[key] = self.streams.capture(step)
        except RuntimeError as error:
            if is_device_lost(error):
                raise
            self._failed.add(key)
            logger.warning(CAPTURE_FAILED, type(error).__name__, error)

    def clear(self) -> None:
        """Drop all graphs, because their arrays have moved, and let failed captures be tried again."""
        self._drop(len(self._replays))
        self._failed.clear()

    def _drop(self, count: int) -> None:
        """Drop the `count` graphs that have not been used for longest."""
        if count <= 0 or not self._replays:
            return
        self.streams.mark().synchronize()  # their memory may be reused immediately
        for key in [*self._replays][:count]:
            del self._replays[key]
        if not self._replays:
            self.streams.renew()
