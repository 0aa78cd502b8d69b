"""The CUDA graphs of a lane, by key: captured when they have been wanted often enough, least used
forgotten."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from engine.executors.cuda.streams import LaneStreams, Replay
from engine.executors.device_errors import is_device_lost

logger = logging.getLogger(__name__)

REFUSED: Final = "a step runs without its CUDA graph, slower and as right: the capture failed (%s: %s)"


class Graphs:
    """What one stream of work replays. A key whose capture failed is run as it is, from then on."""

    def __init__(self, work: LaneStreams, most: int) -> None:
        """most: graphs that are held at once."""
        self.work, self.most = work, most
        self._replays: dict[Any, Replay] = {}  # least lately used first
        self._uses: dict[Any, int] = {}
        self._refused: set[Any] = set()

    def __len__(self) -> int:
        return len(self._replays)

    def run(self, key: Any, step: Callable[[], None], after: int, times: int = 1) -> None:
        """Replay the graph of a key. While there is none, do the step as it is, which readies all that a
        capture can't, and capture it once the key has come often enough.

        key: of the graph.
        step: the work; the same for a key each time.
        after: number of runs after which it is captured.
        times: that it is run now.

        Raises whatever the step does, and what a capture raises when the device is lost.
        """
        replay = self._replays.pop(key, None)
        if replay is not None:
            self._replays[key] = replay
            for _ in range(times):
                replay()
        elif times:
            self._run_as_it_is(key, step, after)
            self.run(key, step, after, times - 1)

    def _run_as_it_is(self, key: Any, step: Callable[[], None], after: int) -> None:
        step()
        self._uses[key] = self._uses.get(key, 0) + 1
        if self._uses[key] < after or key in self._refused:
            return
        self._forget(len(self._replays) + 1 - self.most)
        try:
            self._replays[key] = self.work.capture(step)
        except RuntimeError as error:
            if is_device_lost(error):
                raise
            self._refused.add(key)
            logger.warning(REFUSED, type(error).__name__, error)

    def clear(self) -> None:
        """Forget all: what they were captured on has moved, and a capture that failed may succeed there."""
        self._forget(len(self._replays))
        self._refused.clear()

    def _forget(self, count: int) -> None:
        if count <= 0 or not self._replays:
            return
        self.work.mark().synchronize()  # their memory may be another's at once
        for key in [*self._replays][:count]:
            del self._replays[key]
        if not self._replays:
            self.work.renew()
