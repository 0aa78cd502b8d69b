"""Progress of all processes of a job: a bar on a terminal, otherwise JSON lines; Prometheus metrics."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tqdm import tqdm

from corpus.folder import JobFolder
from corpus.leases import Leases
from corpus.plan import ShardPlan

BAR_SECONDS: Final = 1.0
JSON_SECONDS: Final = 10.0
RATE_SECONDS: Final = 60.0  # a speed is the mean of the last minute
HOUR: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Progress of a job, summed over all its processes.

    lines, words: translated lines and words, with those of unfinished shards.
    job_lines: number of lines of the job.
    shards: number of finished shards.
    job_shards: number of shards of the job.
    lines_per_second, words_per_second: speed in about the last minute.
    statuses: number of lines of finished shards by status.
    """

    lines: int
    words: int
    job_lines: int
    shards: int
    job_shards: int
    lines_per_second: float
    words_per_second: float
    statuses: Counter[str]

    @property
    def seconds_left(self) -> float | None:
        return (self.job_lines - self.lines) / self.lines_per_second if self.lines_per_second else None

    def words_per_dollar(self, price: float | None) -> float | None:
        """Return the number of words translated for a dollar at this speed, or None without a price.

        price: dollars an hour for all machines together.
        """
        return self.words_per_second * HOUR / price if price else None

    def as_json(self, price: float | None) -> dict[str, Any]:
        """Return the progress as a JSON object, with the words a dollar if a price is known."""
        left, dollar = self.seconds_left, self.words_per_dollar(price)
        return {
            "lines": self.lines,
            "of": self.job_lines,
            "shards": self.shards,
            "of_shards": self.job_shards,
            "lines_per_second": round(self.lines_per_second, 2),
            "words_per_second": round(self.words_per_second, 2),
            "seconds_left": None if left is None else round(left),
            **({} if dollar is None else {"words_per_dollar": round(dollar)}),
            "statuses": dict(sorted(self.statuses.items())),
        }


@dataclass(slots=True)
class Progress:
    """Reads the progress of a job from its folder regularly, and reports it.

    folder: output folder, with the counts of finished shards.
    plan: the job and its shards.
    leases: leases of all processes, which hold the progress in unfinished shards.
    price: dollars an hour for all machines together.
    metrics_port: TCP port on which Prometheus reads metrics; None: no metrics.
    before_report: called before each report.
    """

    folder: JobFolder
    plan: ShardPlan
    leases: Leases
    price: float | None = None
    metrics_port: int | None = None
    before_report: Callable[[], object] = lambda: None
    _known: set[int] = field(default_factory=set)
    _sums: Counter[str] = field(default_factory=Counter)
    _statuses: Counter[str] = field(default_factory=Counter)
    _past: deque[tuple[float, int, int]] = field(default_factory=deque)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    latest: JobProgress | None = None

    def __enter__(self) -> Progress:
        self.read()
        if self.metrics_port is not None:
            _serve_metrics(self, self.metrics_port)
        self._thread = threading.Thread(target=self._run, name="convoy-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread
        self._thread.join()

    def read(self) -> JobProgress:
        """Read the folder, and return the progress. Raises OSError."""
        for number in self.folder.done() - self._known:
            tally = self.folder.tally(number)
            self._known.add(number)
            self._sums.update(lines=tally.lines, words=tally.words)
            self._statuses.update(tally.statuses)
        lines, words = self._sums["lines"], self._sums["words"]
        for more_lines, more_words in self.leases.progress():
            lines, words = lines + more_lines, words + more_words
        now = time.monotonic()
        self._past.append((now, lines, words))
        while len(self._past) > 2 and now - self._past[1][0] > RATE_SECONDS:
            self._past.popleft()
        then, lines_then, words_then = self._past[0]  # the beginning of the interval of the rate
        seconds = max(now - then, 1e-9)
        self.latest = JobProgress(
            lines,
            words,
            self.plan.lines,
            len(self._known),
            len(self.plan.shards),
            max(0.0, (lines - lines_then) / seconds),
            max(0.0, (words - words_then) / seconds),
            Counter(self._statuses),
        )
        return self.latest

    def _run(self) -> None:
        """Report to standard error at intervals until the end, and once more then."""
        terminal = sys.stderr.isatty()
        bar = tqdm(total=self.plan.lines, unit="line", disable=not terminal, smoothing=0)
        with bar:
            while not self._over.wait(BAR_SECONDS if terminal else JSON_SECONDS):
                self.before_report()
                self._report(bar if terminal else None)
            self._report(bar if terminal else None)

    def _report(self, bar: Any) -> None:
        with suppress(OSError):  # the file system may be unreachable for a moment
            self._write(self.read(), bar)

    def _write(self, snapshot: JobProgress, bar: Any) -> None:
        """Update the bar; None: print a line of JSON."""
        if bar is None:
            print(json.dumps(snapshot.as_json(self.price)), file=sys.stderr, flush=True)
            return
        dollar = snapshot.words_per_dollar(self.price)
        bar.set_postfix_str(
            f"{snapshot.words_per_second:,.0f} words/s" + (f", {dollar:,.0f} words/$" if dollar else "")
        )
        bar.n = snapshot.lines
        bar.refresh()


def _serve_metrics(progress: Progress, port: int) -> None:
    """Serve metrics on all interfaces. Raises OSError if the port is taken."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

    class Collector:
        """Exports the progress of the last report."""

        def collect(self) -> Iterator[Metric]:
            snapshot = progress.latest
            assert snapshot
            for name, help_text, value in (
                ("lines_done", "Lines translated, of all processes.", snapshot.lines),
                ("lines", "Lines of the job.", snapshot.job_lines),
                ("shards_done", "Shards written.", snapshot.shards),
                ("shards", "Shards of the job.", snapshot.job_shards),
                ("words_done", "Words translated.", snapshot.words),
                ("lines_per_second", "Lines a second, of all processes.", snapshot.lines_per_second),
                ("words_per_second", "Words a second, of all processes.", snapshot.words_per_second),
            ):
                yield GaugeMetricFamily(f"convoy_corpus_{name}", help_text, value=value)
            family = CounterMetricFamily(
                "convoy_corpus_statuses", "Lines of finished shards by status.", labels=["status"]
            )
            for status, count in sorted(snapshot.statuses.items()):
                family.add_metric([status], count)
            yield family

    registry = CollectorRegistry()
    registry.register(Collector())
    start_http_server(port, registry=registry)
