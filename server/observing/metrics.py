"""Prometheus metrics. Labels are models, lanes, routes, outcomes and error codes only, so that their number
is small.

Several processes keep their figures in files of one folder (`share`); the process that answers `/metrics`
adds them up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from engine.api import (
    DeviceMemory,
    Observer,
    RepositoryEntry,
    State,
    Stats,
    TextResult,
    TextScore,
    Workers,
    slice_figures,
    slowest,
)
from server.observing.context import ModelWork, current

LATENCY_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
STEP_SECONDS: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0)
SLOT_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# how a gauge combines the values of several processes
PROCESS_GAUGES: Final = {
    "process_virtual_memory_bytes": "livesum",
    "process_resident_memory_bytes": "livesum",
    "process_start_time_seconds": "livemin",
    "process_open_fds": "livesum",
    "process_max_fds": "livesum",
}
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"  # variable in which prometheus_client expects the folder


def share(folder: Path, number: int) -> None:
    """Store the figures of this process in a folder. Call it once, before the first Metrics.

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


@dataclass(frozen=True, slots=True)
class Sources:
    """Functions that return a process' own figures. The default functions return 0 or an empty mapping."""

    ready: Callable[[], bool]
    cached: Callable[[], int] = int
    lag: Callable[[], float] = float
    stats: Callable[[], Mapping[str, Stats]] = dict
    memory: Callable[[], Mapping[str, DeviceMemory]] = dict
    stored: Callable[[], Mapping[str, RepositoryEntry]] = dict
    workers: Workers | None = None


class Metrics:
    """The metrics of a server, in a registry of their own, so that a process may hold several servers.

    folder: folder of `share` for several processes; None for one process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.registry = registry = CollectorRegistry()
        self.latency = Histogram(
            "convoy_request_duration_seconds",
            "From the request's head to the response's end.",
            ["route", "model", "outcome"],
            registry=registry,
            buckets=LATENCY_SECONDS,
        )
        self.in_flight = self._gauge("convoy_requests_in_flight", "Requests not yet answered.")
        self.rejections = self._counter(
            "convoy_rejected", "Requests refused or failed, by error code.", "reason"
        )
        self.hits = self._counter("convoy_cache_hits", "Texts answered from the cache.", "model")
        self.misses = self._counter("convoy_cache_misses", "Texts that were not in the cache.", "model")
        self.queue = self._seconds(
            "convoy_queue_duration_seconds", "A request's longest wait in the queue.", LATENCY_SECONDS
        )
        self.decode = self._seconds(
            "convoy_decode_duration_seconds", "A request's longest decoding.", LATENCY_SECONDS
        )
        self.step = self._seconds(
            "convoy_step_duration_seconds", "One decoding step of one lane.", STEP_SECONDS
        )
        self.encode = self._seconds(
            "convoy_encode_duration_seconds", "One batch of sources encoded and placed.", STEP_SECONDS
        )
        self.step_slots = Histogram(
            "convoy_step_slots", "Slots used by a step.", ["model"], registry=registry, buckets=SLOT_COUNTS
        )
        self.tokens = self._counter(
            "convoy_tokens", "Tokens encoded (source) and answered (target).", "model", "kind"
        )
        self.forced = self._counter(
            "convoy_phrases_forced",
            "Phrases and marks that a model had lost and that were restored.",
            "model",
        )
        self._figures = _Figures(self)

    def observer(self, model: str) -> Observer:
        return _ModelObserver(self, model)

    def watch(self, sources: Sources) -> None:
        """Copy the server's own figures at each `refresh`."""
        self._figures.sources = sources

    def refresh(self) -> None:
        """Copy the figures that are polled: those of the engines, the devices and the process."""
        self._figures.refresh()

    def record_work(self, model: str, results: Sequence[TextResult | TextScore]) -> None:
        """Record the times of one request's work with one model."""
        timings = slowest([result.timings for result in results])
        self.queue.labels(model).observe(timings.queue)
        self.decode.labels(model).observe(timings.decode)
        self.forced.labels(model).inc(sum(r.forced for r in results if isinstance(r, TextResult)))
        if context := current.get():
            context.work.append(ModelWork(model, timings, len(results), time.time_ns()))

    def text(self) -> bytes:
        """Return the metrics in Prometheus' exposition format, of all processes together."""
        self.refresh()
        if self._folder is None:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        together.register(WrittenFiles(self._folder))
        return generate_latest(together)

    def _seconds(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, help_text, ["model"], registry=self.registry, buckets=buckets)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str, kind: Any = "livesum") -> Gauge:
        """kind: rule that combines the values of several processes, of prometheus_client."""
        return Gauge(name, help_text, labels, registry=self.registry, multiprocess_mode=kind)


class _ModelObserver:
    """Records steps and encodings of a model, in the engine's thread. The metrics are safe in any thread."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._step = metrics.step.labels(model)
        self._slots = metrics.step_slots.labels(model)
        self._encode = metrics.encode.labels(model)
        self._read = metrics.tokens.labels(model, "source")

    def on_step(self, seconds: float, slots: int) -> None:
        self._step.observe(seconds)
        self._slots.observe(slots)

    def on_encode(self, seconds: float, requests: int, tokens: int) -> None:
        self._encode.observe(seconds)
        self._read.inc(tokens)


class _Figures:
    """Figures that `refresh` copies from their sources."""

    def __init__(self, metrics: Metrics) -> None:
        gauge, counter = metrics._gauge, metrics._counter
        self.sources: Sources | None = None
        self._ready = gauge("convoy_ready", "1 if /health/ready answers 200, otherwise 0.", kind="livemin")
        self._lag = gauge(
            "convoy_event_loop_lag_seconds",
            "Longest time of the last minute in which no request was served.",
            kind="livemax",
        )
        self._cached = gauge("convoy_cache_bytes", "Answers in the cache.")
        self._depth = gauge("convoy_queue_depth", "Sentences in the queue.", "model")
        self._waiting = gauge("convoy_queue_tokens", "Source tokens in the queue.", "model")
        self._used = gauge("convoy_slots_active", "Slots in use.", "model", "lane")
        self._slots = gauge("convoy_slots", "Number of slots.", "model", "lane")
        self._memory = gauge(
            "convoy_gpu_memory_used_bytes", "Memory in use on a GPU.", "device", kind="livemax"
        )
        self._room = gauge("convoy_gpu_memory_bytes", "Memory of a GPU.", "device", kind="livemax")
        self._load = gauge("convoy_model_load_seconds", "Duration of the last load.", "model", kind="livemax")
        self._loaded = gauge("convoy_model_loaded", "Processes in which a model is in memory.", "model")
        self._bytes = gauge("convoy_model_bytes", "Memory of a loaded model, estimated.", "model")
        self._loads = counter("convoy_model_loads", "Successful loads.", "model")
        self._unloads = counter(
            "convoy_model_unloads", "Unloads, evictions for other models included.", "model"
        )
        self._no_loads = counter("convoy_model_load_failures", "Loads that failed.", "model")
        self._steps = counter("convoy_steps", "Decoding steps of all lanes.", "model")
        self._answered = counter("convoy_sentences_answered", "Sentences answered.", "model")
        self._failed = counter("convoy_sentences_failed", "Sentences failed, late or stopped.", "model")
        self._tokens = metrics.tokens
        self._text_waiting = gauge("convoy_text_work_waiting", "Works on texts that wait for their turn.")
        self._text_workers = gauge("convoy_text_workers", "Processes for the work on long texts.")
        self._text_oldest = gauge(
            "convoy_text_work_oldest_seconds", "Time since the start of the oldest work.", kind="livemax"
        )
        self._text_longest = gauge(
            "convoy_text_work_longest_seconds", "Most processor time of a work in a process.", kind="livemax"
        )
        self._slice_longest = gauge(
            "convoy_slice_longest_seconds", "Most processor time of a slice of work.", kind="livemax"
        )
        self._killed = counter("convoy_text_workers_killed", "Processes killed, by reason.", "reason")
        self._process = ProcessCollector(registry=None)
        self._own = {
            name: gauge(name, f"{name.removeprefix('process_')} of the process.", kind=kind)
            for name, kind in PROCESS_GAUGES.items()
        }
        self._cpu = counter("process_cpu_seconds", "Processor time, of user and system.")
        self._last_totals: dict[tuple[str, ...], float] = {}
        self._lanes: set[tuple[str, str]] = set()
        PlatformCollector(registry=metrics.registry)

    def refresh(self) -> None:
        """Copy the state of the process, the engines and the models to the metrics."""
        for metric in self._process.collect():
            for sample in metric.samples:
                if sample.name in self._own:
                    self._own[sample.name].set(sample.value)
                else:
                    self._count_up_to(self._cpu, ("cpu",), sample.value)
        if self.sources is None:
            return
        self._ready.set(self.sources.ready())
        self._cached.set(self.sources.cached())
        self._lag.set(self.sources.lag())
        self._refresh_text_work(self.sources.workers)
        for device, memory in self.sources.memory().items():
            self._memory.labels(device).set(memory.used)
            self._room.labels(device).set(memory.total)
        self._refresh_engines(self.sources.stats())
        for model, entry in self.sources.stored().items():
            loaded = entry.state is State.LOADED
            self._loaded.labels(model).set(loaded)
            self._bytes.labels(model).set(entry.cost if loaded else 0)
            self._load.labels(model).set(entry.load_seconds)
            self._count_up_to(self._loads.labels(model), ("loads", model), entry.loads)
            self._count_up_to(self._unloads.labels(model), ("unloads", model), entry.evictions)
            self._count_up_to(self._no_loads.labels(model), ("load failures", model), entry.failures)

    def _refresh_text_work(self, workers: Workers | None) -> None:
        """Copy the figures of the thread for slices and of the workers to the metrics."""
        slices, waiting, oldest = slice_figures(), 0, 0.0
        if workers:
            waiting, oldest = workers.figures.waiting, workers.oldest()
            self._text_workers.set(workers.count)
            self._text_longest.set(workers.figures.longest)
            for reason, total in workers.figures.killed.items():
                self._count_up_to(self._killed.labels(reason), ("killed", reason), total)
        self._text_waiting.set(slices.waiting + waiting)
        self._text_oldest.set(max(slices.stalled, oldest))
        self._slice_longest.set(slices.longest)

    def _refresh_engines(self, stats: Mapping[str, Stats]) -> None:
        """Copy the statistics of engines to the metrics, by model and lane."""
        previous_lanes = self._lanes
        self._lanes = set()
        for model, figures in stats.items():
            self._depth.labels(model).set(figures.waiting_requests)
            self._waiting.labels(model).set(figures.waiting_tokens)
            self._count_up_to(self._steps.labels(model), ("steps", model), figures.steps)
            self._count_up_to(self._answered.labels(model), ("answered", model), figures.answered)
            self._count_up_to(self._failed.labels(model), ("failed", model), figures.failed)
            self._count_up_to(self._tokens.labels(model, "target"), ("tokens", model), figures.tokens)
            for number, (active, slots) in enumerate(zip(figures.active, figures.slots, strict=True)):
                lane = model, str(number)
                self._lanes.add(lane)
                self._used.labels(*lane).set(active)
                self._slots.labels(*lane).set(slots)
        for lane in previous_lanes - self._lanes:  # a file keeps its series, so they are set to 0
            self._used.labels(*lane).set(0)
            self._slots.labels(*lane).set(0)
            if lane[0] not in stats:
                self._depth.labels(lane[0]).set(0)
                self._waiting.labels(lane[0]).set(0)

    def _count_up_to(self, counter: Counter, key: tuple[str, ...], total: float) -> None:
        """Add the growth since the last call to a counter. The total of a model that was loaded again starts
        at 0."""
        last = self._last_totals.get(key, 0.0)
        counter.inc(total - last if total >= last else total)
        self._last_totals[key] = total
