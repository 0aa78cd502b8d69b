"""The progress of all downloads: one bar on a terminal, otherwise lines of JSON, on stderr."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

LINE_SECONDS: Final = 2.0  # least seconds between two lines of JSON about received bytes


class ProgressReport:
    """The progress of a command that fetches models."""

    def __init__(self, write: Callable[[str], object], *, terminal: bool) -> None:
        """Begin without any bytes.

        write: prints one line.
        terminal: whether to draw a bar; otherwise lines of JSON are printed.
        """
        self._write, self._terminal = write, terminal
        self._bar: Any = None
        self._lock = threading.Lock()
        self._received, self._total, self._model = 0, 0, ""
        self._began = self._said = time.monotonic()

    def expect(self, size: int) -> None:
        """Increase the total by the bytes of a model."""
        with self._lock:
            self._total += size
            if self._bar is not None:
                self._bar.total = self._total
                self._bar.refresh()

    def begin(self, model: str) -> None:
        """Name the model that is fetched now."""
        self._model = model
        if self._terminal and self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, unit="B", unit_scale=True, file=sys.stderr)
            self._bar.update(self._received)
        if self._bar is not None:
            self._bar.set_description(model)
        self.event("fetching")

    def add(self, count: int) -> None:
        """Count received bytes; a negative number takes back bytes of a discarded file."""
        with self._lock:
            self._received += count
            self._total = max(self._total, self._received)
            if self._bar is not None:
                self._bar.total = self._total
                self._bar.update(count)
            elif time.monotonic() - self._said >= LINE_SECONDS:
                self.event("fetching")

    def event(self, state: str, **more: Any) -> None:
        """Print a line of JSON about the current model, unless there is a bar.

        state: state of the model: "fetching", "importing", "ready" or "failed".
        more: further values.
        """
        if self._terminal:
            return
        self._said = time.monotonic()
        line = {"model": self._model, "state": state, "bytes": self._received, "total": self._total}
        rate = self._received / max(self._said - self._began, 1e-3)
        if state == "fetching" and rate:
            line["secondsLeft"] = round((self._total - self._received) / rate)
        self._write(json.dumps(line | more))

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@contextmanager
def progress_report(write: Callable[[str], object]) -> Iterator[ProgressReport]:
    """Yield the report of a command: a bar if stderr is a terminal."""
    report = ProgressReport(write, terminal=sys.stderr.isatty())
    try:
        yield report
    finally:
        report.close()
