"""Counters, gauges and histograms of one process, or of several that write to files of one folder.

The process that answers `/metrics` adds the files up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"  # variable in which prometheus_client expects the folder


class Instruments:
    """The metrics of a server, in a registry of their own, so that a process may hold several servers."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: folder of `share` for several processes; None for one process."""
        self._folder = folder
        self.registry = CollectorRegistry()

    def counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)

    def gauge(self, name: str, help_text: str, *labels: str, kind: Any = "livesum") -> Gauge:
        """Return a gauge.

        name: name of the metric.
        help_text: meaning, for the page.
        labels: names of its labels.
        kind: rule that combines the values of several processes, of prometheus_client.
        """
        return Gauge(name, help_text, labels, registry=self.registry, multiprocess_mode=kind)

    def histogram(self, name: str, help_text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, help_text, labels or ["model"], registry=self.registry, buckets=buckets)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' exposition format, of all processes together."""
        return generate_latest(self._together())

    def sums(self, *names: str) -> dict[tuple[str, str], float]:
        """Return the sums of histograms of all processes together, by the name and the model.

        names: names of histograms whose only label is the model.
        """
        wanted = {f"{name}_sum": name for name in names}
        return {
            (wanted[sample.name], sample.labels["model"]): sample.value
            for metric in self._together().collect()
            if metric.name in names
            for sample in metric.samples
            if sample.name in wanted
        }

    def _together(self) -> CollectorRegistry:
        """Return a registry with the metrics of all processes."""
        if self._folder is None:
            return self.registry
        together = CollectorRegistry()
        together.register(WrittenFiles(self._folder))
        return together


def share(folder: Path, number: int) -> None:
    """Store the figures of this process in a folder. Call it once, before the first Instruments.

    folder: folder of the figures of all processes.
    number: number of this process. A process that restarts under its number continues its counts.
    """
    os.environ[FOLDER_VARIABLE] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: number)


def forget(folder: Path, number: int) -> None:
    """Remove the gauges of a process that has ended; its counters stay."""
    mark_process_dead(number, str(folder))


class WrittenFiles(Collector):
    """Collects the figures of all processes, and skips files that a new process has not written yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        files = [str(file) for file in self._folder.glob("*.db") if _is_written(file)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)
        return merged


def _is_written(file: Path) -> bool:
    """Return whether a process has written its file of metrics."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:  # its process has ended
        return False
