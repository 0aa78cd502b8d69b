"""Figures that are copied from their sources at each scrape: engines, models, devices, the process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, PlatformCollector, ProcessCollector

from engine.api import (
    DeviceFigures,
    RepositoryEntry,
    State,
    Stats,
    UpstreamStats,
    Workers,
    program_version,
    slice_figures,
)
from server.observing.instruments import Instruments

# how a gauge combines the values of several processes
PROCESS_GAUGES: Final = {
    "process_virtual_memory_bytes": "livesum",
    "process_resident_memory_bytes": "livesum",
    "process_start_time_seconds": "livemin",
    "process_open_fds": "livesum",
    "process_max_fds": "livesum",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Functions that return a process' own figures. The default functions return 0 or an empty mapping."""

    ready: Callable[[], bool]
    cached: Callable[[], int] = int
    lag: Callable[[], float] = float
    stats: Callable[[], Mapping[str, Stats]] = dict
    devices: Callable[[], Mapping[str, DeviceFigures]] = dict
    stored: Callable[[], Mapping[str, RepositoryEntry]] = dict
    workers: Workers | None = None
    waiting_files: Callable[[], int] = int


class Figures:
    """Figures that `refresh` copies from their sources."""

    def __init__(self, instruments: Instruments, tokens: Counter) -> None:
        """Make the figures.

        instruments: instruments of this process.
        tokens: counter of tokens, by model and kind; its kind "target" is copied here.
        """
        gauge, counter = instruments.gauge, instruments.counter
        self.sources: Sources | None = None
        self._ready = gauge("convoy_ready", "1 if /health/ready answers 200, otherwise 0.", kind="livemin")
        self._lag = gauge(
            "convoy_event_loop_lag_seconds",
            "Longest time of the last minute in which no request was served.",
            kind="livemax",
        )
        self._waiting_files = gauge("convoy_files_waiting", "Files that wait for a process.")
        self._cached = gauge("convoy_cache_bytes", "Answers in the cache.")
        self._depth = gauge("convoy_queue_depth", "Sentences in the queue.", "model")
        self._waiting = gauge("convoy_queue_tokens", "Source tokens in the queue.", "model")
        self._used = gauge("convoy_slots_active", "Slots in use.", "model", "lane")
        self._slots = gauge("convoy_slots", "Number of slots.", "model", "lane")
        self._memory = gauge(
            "convoy_gpu_memory_used_bytes", "Memory in use on a GPU.", "device", kind="livemax"
        )
        self._room = gauge("convoy_gpu_memory_bytes", "Memory of a GPU.", "device", kind="livemax")
        self._utilization = gauge(
            "convoy_gpu_utilization_ratio", "Share of the time in which a GPU ran.", "device", kind="livemax"
        )
        self._power = gauge("convoy_gpu_power_watts", "Power that a GPU draws.", "device", kind="livemax")
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
        self._tokens = tokens
        self._upstream = _Upstreams(instruments, self._count_up_to)
        self._make_text_work(instruments)
        self._process = ProcessCollector(registry=None)
        self._own = {
            name: gauge(name, f"{name.removeprefix('process_')} of the process.", kind=kind)
            for name, kind in PROCESS_GAUGES.items()
        }
        self._cpu = counter("process_cpu_seconds", "Processor time, of user and system.")
        self._last_totals: dict[tuple[str, ...], float] = {}
        self._lanes: set[tuple[str, str]] = set()
        PlatformCollector(registry=instruments.registry)
        build = gauge(
            "convoy_build_info", "1; the labels name what runs.", "version", "python", kind="livemax"
        )
        build.labels(program_version(), platform.python_version()).set(1)

    def _make_text_work(self, instruments: Instruments) -> None:
        """Make the figures of the work on texts."""
        gauge, counter = instruments.gauge, instruments.counter
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
        self._waiting_files.set(self.sources.waiting_files())
        self._refresh_text_work(self.sources.workers)
        for device, state in self.sources.devices().items():
            self._memory.labels(device).set(state.used)
            self._room.labels(device).set(state.total)
            if state.utilization is not None:
                self._utilization.labels(device).set(state.utilization)
            if state.watts is not None:
                self._power.labels(device).set(state.watts)
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
            if figures.upstream:
                self._upstream.refresh(model, figures.upstream)
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


class _Upstreams:
    """Figures of models on other servers."""

    def __init__(
        self, instruments: Instruments, count_up_to: Callable[[Counter, tuple[str, ...], float], None]
    ) -> None:
        self._count_up_to = count_up_to
        counter = instruments.counter
        self._answers = counter(
            "convoy_upstream_answers",
            "Answers of an upstream: ok, error, or the fault of the answer.",
            "model",
            "outcome",
        )
        self._tokens = counter(
            "convoy_upstream_tokens", "Tokens by the count of an upstream.", "model", "kind"
        )
        self._price = counter("convoy_upstream_price", "Price of these tokens, by the settings.", "model")
        self._paused = instruments.gauge(
            "convoy_upstream_paused", "1 while an upstream pauses after failures.", "model", kind="livemax"
        )

    def refresh(self, model: str, figures: UpstreamStats) -> None:
        """Copy the figures of an upstream to the metrics."""
        for outcome, total in figures.outcomes:
            counter = self._answers.labels(model, outcome)
            self._count_up_to(counter, ("upstream answers", model, outcome), total)
        tokens = {"prompt": figures.prompt_tokens, "answer": figures.answer_tokens}
        for kind, total in tokens.items():
            self._count_up_to(self._tokens.labels(model, kind), ("upstream tokens", model, kind), total)
        self._count_up_to(self._price.labels(model), ("upstream price", model), figures.price)
        self._paused.labels(model).set(figures.paused)
