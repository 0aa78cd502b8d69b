"""How long a queue takes, from how fast requests have left it while others had to wait."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from engine.queue import FairQueue

SAMPLES: Final = 64  # admissions that a lane remembers
LONGEST: Final = 60.0  # seconds after which it is worth trying again, whatever the forecast


class Pace:
    """Source tokens per second that one lane takes when it has more than it can take.

    Times are time.monotonic(). An idle lane says nothing of its pace, so time without a queue does not count.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)  # seconds, tokens
        self._since: float | None = None  # when the last admission left others waiting

    def took(self, now: float, tokens: int, *, waiting: bool) -> None:
        """So many tokens, maybe none, were admitted; waiting: whether others had to stay."""
        if tokens and self._since is not None:
            self._samples.append((now - self._since, tokens))
        if tokens or not waiting or self._since is None:
            self._since = now if waiting else None

    def seconds(self, now: float, tokens: int) -> float:
        """How long so many tokens will take; 0 while nothing has been measured."""
        if not self._samples:
            return 0.0
        elapsed = sum(seconds for seconds, _ in self._samples)
        if self._since is not None:
            elapsed += max(0.0, now - self._since - elapsed / len(self._samples))  # slower than it was
        return tokens * elapsed / sum(taken for _, taken in self._samples)


class Forecast:
    """The paces of a queue's lanes, and what follows for newcomers. Not safe for threads by itself."""

    def __init__(self, queue: FairQueue, lanes: int) -> None:
        self._queue = queue
        self._paces = [Pace() for _ in range(lanes)]

    def took(self, lane: int, now: float, tokens: int) -> None:
        """So many source tokens, maybe none, have just left the queue for a lane."""
        self._paces[lane].took(now, tokens, waiting=self._queue.waits(lane))

    def retry_after(self, now: float, tokens: int) -> float:
        """Seconds, 1 to 60, until so many source tokens have left the queue, whatever the lane."""
        return min(max([1.0, *(pace.seconds(now, tokens) for pace in self._paces)]), LONGEST)

    def wait(self, now: float, lanes: Iterable[int], enough: float) -> float:
        """Seconds until the last of a new group has its turn; lanes: of each request. Groups take turns, so a
        long one delays a newcomer little. Not looked at closely when even the whole queue takes no longer
        than `enough`."""
        longest = 0.0
        for lane, requests in Counter(lanes).items():
            pace = self._paces[lane]
            if pace.seconds(now, self._queue.tokens) > enough:
                longest = max(longest, pace.seconds(now, self._queue.ahead(lane, requests)))
        return longest
