"""Prometheus metrics. Labels are models, lanes, routes, outcomes and error codes only: few and known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.api import Memory, Observer, Stats, TextResult, TextScore, slowest
from server.notes import Work, current

Figures = tuple[tuple[str, str, Callable[[Stats], int]], ...]
LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
STEP: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0)
SLOTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GAUGES: Final[Figures] = (
    ("convoy_queue_depth", "Sentences in the queue.", lambda s: s.waiting_requests),
    ("convoy_queue_tokens", "Source tokens in the queue.", lambda s: s.waiting_tokens),
)
COUNTERS: Final[Figures] = (
    ("convoy_steps", "Decoding steps of all lanes.", lambda s: s.steps),
    ("convoy_sentences_answered", "Sentences answered.", lambda s: s.answered),
    ("convoy_sentences_failed", "Sentences failed, late or stopped.", lambda s: s.failed),
)


class Metrics:
    """One registry of its own, so that several servers may live in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.latency = Histogram(
            "convoy_request_duration_seconds",
            "From the request's head to the response's end.",
            ["route", "model", "outcome"],
            registry=registry,
            buckets=LATENCY,
        )
        self.in_flight = Gauge("convoy_requests_in_flight", "Requests not yet answered.", registry=registry)
        self.ready = Gauge("convoy_ready", "1 when /health/ready says so, else 0.", registry=registry)
        self.rejections = Counter(
            "convoy_rejected", "Requests refused or failed, by error code.", ["reason"], registry=registry
        )
        self.load = Gauge(
            "convoy_model_load_seconds", "Seconds a model took to load.", ["model"], registry=registry
        )
        self.queue = self._seconds(
            "convoy_queue_duration_seconds", "A request's longest wait in the queue.", LATENCY
        )
        self.decode = self._seconds(
            "convoy_decode_duration_seconds", "A request's longest decoding.", LATENCY
        )
        self.step = self._seconds("convoy_step_duration_seconds", "One decoding step of one lane.", STEP)
        self.encode = self._seconds(
            "convoy_encode_duration_seconds", "One batch of sources encoded and placed.", STEP
        )
        self.step_slots = Histogram(
            "convoy_step_slots", "Slots used by a step.", ["model"], registry=registry, buckets=SLOTS
        )
        self.read: dict[str, int] = {}  # source tokens, by model
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def observer(self, model: str) -> Observer:
        return _ModelObserver(self, model)

    def watch(
        self, stats: Callable[[], Mapping[str, Stats]], memory: Callable[[], Mapping[str, Memory]]
    ) -> None:
        """Read the engines' and the devices' own figures at each scrape."""
        self.registry.register(_StatsCollector(stats, memory, self.read))

    def answered(self, model: str, results: Sequence[TextResult | TextScore]) -> None:
        """Note the times of one request's work with one model."""
        timings = slowest([result.timings for result in results])
        self.queue.labels(model).observe(timings.queue)
        self.decode.labels(model).observe(timings.decode)
        if note := current.get():
            note.work.append(Work(model, timings, len(results), time.time_ns()))

    def text(self) -> bytes:
        """The exposition format of Prometheus."""
        return generate_latest(self.registry)

    def _seconds(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, help_text, ["model"], registry=self.registry, buckets=buckets)


class _ModelObserver:
    """Called from the engine's thread; the metrics are safe to use from any."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._step = metrics.step.labels(model)
        self._slots = metrics.step_slots.labels(model)
        self._encode = metrics.encode.labels(model)
        self._model, self._read = model, metrics.read
        self._read.setdefault(model, 0)

    def on_step(self, seconds: float, slots: int) -> None:
        self._step.observe(seconds)
        self._slots.observe(slots)

    def on_encode(self, seconds: float, requests: int, tokens: int) -> None:
        self._encode.observe(seconds)
        self._read[self._model] += tokens  # the one thread that writes it


class _StatsCollector(Collector):
    def __init__(
        self,
        stats: Callable[[], Mapping[str, Stats]],
        memory: Callable[[], Mapping[str, Memory]],
        read: Mapping[str, int],
    ) -> None:
        self._stats, self._memory, self._read = stats, memory, read

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        for name, text, figure in GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["model"])
            for model, found in stats.items():
                gauge.add_metric([model], figure(found))
            yield gauge
        for name, text, figure in COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["model"])
            for model, found in stats.items():
                counter.add_metric([model], figure(found))
            yield counter
        tokens = CounterMetricFamily(
            "convoy_tokens", "Tokens encoded (source) and answered (target).", labels=["model", "kind"]
        )
        for model, found in stats.items():
            tokens.add_metric([model, "source"], self._read.get(model, 0))
            tokens.add_metric([model, "target"], found.tokens)
        yield tokens
        used = GaugeMetricFamily("convoy_slots_active", "Slots in use.", labels=["model", "lane"])
        slots = GaugeMetricFamily("convoy_slots", "Slots there are.", labels=["model", "lane"])
        for model, found in stats.items():
            for lane, (active, there) in enumerate(zip(found.active, found.slots, strict=True)):
                used.add_metric([model, str(lane)], active)
                slots.add_metric([model, str(lane)], there)
        yield used
        yield slots
        yield from self._devices()

    def _devices(self) -> Iterator[Metric]:
        used = GaugeMetricFamily("convoy_gpu_memory_used_bytes", "In use on a GPU.", labels=["device"])
        total = GaugeMetricFamily("convoy_gpu_memory_bytes", "Memory of a GPU.", labels=["device"])
        for device, memory in self._memory().items():
            used.add_metric([device], memory.used)
            total.add_metric([device], memory.total)
        yield used
        yield total
