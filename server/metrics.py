"""Prometheus metrics. Labels are models, lanes, routes and error codes only: all of them few and known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.api import Observer, Stats, TextResult

Figures = tuple[tuple[str, str, Callable[[Stats], int]], ...]
LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
STEP: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0)
SLOTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GAUGES: Final[Figures] = (
    ("convoy_waiting_requests", "Sentences in the queue.", lambda s: s.waiting_requests),
    ("convoy_waiting_tokens", "Source tokens in the queue.", lambda s: s.waiting_tokens),
)
COUNTERS: Final[Figures] = (
    ("convoy_steps", "Decoding steps of all lanes.", lambda s: s.steps),
    ("convoy_target_tokens", "Target tokens answered, end-of-sentence included.", lambda s: s.tokens),
    ("convoy_sentences_answered", "Sentences answered.", lambda s: s.answered),
    ("convoy_sentences_failed", "Sentences failed, late or stopped.", lambda s: s.failed),
)


class Metrics:
    """One registry of its own, so that several servers may live in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.latency = Histogram(
            "convoy_http_request_duration_seconds",
            "From the request's head to the response's end.",
            ["method", "route", "status"],
            registry=registry,
            buckets=LATENCY,
        )
        self.in_flight = Gauge(
            "convoy_http_requests_in_flight", "Requests not yet answered.", registry=registry
        )
        self.rejections = Counter(
            "convoy_rejections", "Requests refused or failed, by error code.", ["reason"], registry=registry
        )
        self.queue = self._seconds(
            "convoy_request_queue_seconds", "A request's longest wait in the queue.", LATENCY
        )
        self.decode = self._seconds("convoy_request_decode_seconds", "A request's longest decoding.", LATENCY)
        self.step = self._seconds("convoy_step_seconds", "One decoding step of one lane.", STEP)
        self.encode = self._seconds("convoy_encode_seconds", "One batch of sources encoded and placed.", STEP)
        self.step_slots = Histogram(
            "convoy_step_slots", "Slots used by a step.", ["model"], registry=registry, buckets=SLOTS
        )
        self.source_tokens = Counter(
            "convoy_source_tokens", "Source tokens encoded.", ["model"], registry=registry
        )

    def observer(self, model: str) -> Observer:
        return _ModelObserver(self, model)

    def watch(self, stats: Callable[[], Mapping[str, Stats]]) -> None:
        """Read the engines' own figures at each scrape."""
        self.registry.register(_StatsCollector(stats))

    def answered(self, model: str, results: Iterable[TextResult]) -> None:
        """Note the times of one request."""
        timings = [result.timings for result in results]
        self.queue.labels(model).observe(max((t.queue for t in timings), default=0.0))
        self.decode.labels(model).observe(max((t.decode for t in timings), default=0.0))

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
        self._tokens = metrics.source_tokens.labels(model)

    def on_step(self, seconds: float, slots: int) -> None:
        self._step.observe(seconds)
        self._slots.observe(slots)

    def on_encode(self, seconds: float, requests: int, tokens: int) -> None:
        self._encode.observe(seconds)
        self._tokens.inc(tokens)


class _StatsCollector(Collector):
    def __init__(self, stats: Callable[[], Mapping[str, Stats]]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        for name, text, read in GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["model"])
            for model, found in stats.items():
                gauge.add_metric([model], read(found))
            yield gauge
        for name, text, read in COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["model"])
            for model, found in stats.items():
                counter.add_metric([model], read(found))
            yield counter
        used = GaugeMetricFamily("convoy_slots_used", "Slots in use.", labels=["model", "lane"])
        slots = GaugeMetricFamily("convoy_slots", "Slots there are.", labels=["model", "lane"])
        for model, found in stats.items():
            for lane, (active, there) in enumerate(zip(found.active, found.slots, strict=True)):
                used.add_metric([model, str(lane)], active)
                slots.add_metric([model, str(lane)], there)
        yield used
        yield slots
