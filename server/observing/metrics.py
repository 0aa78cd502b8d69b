"""Metrics for Prometheus: requests and decoding. `figures` has the polled metrics.

Labels are models, lanes, routes, outcomes and error codes, so that their number is small; the number of pairs
of languages and of keys is limited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from engine.api import Cancelled, ModelRoute, Observer, TextResult, TextScore, slowest
from server.observing.context import CANCELLED, FAILED, OK, ModelWork, current, route_of
from server.observing.figures import Figures, Sources
from server.observing.instruments import Instruments

LATENCY_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
PART_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
FILE_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
STEP_SECONDS: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0)
SLOT_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKEN_COUNTS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)
MOST_LABELS: Final = 500  # pairs of languages, and keys, that a process counts by themselves
OTHER: Final = "other"  # label of all further ones
FINISH_REASONS: Final = ("stop", "length")
NO_KEY: Final = "none"


class Metrics:
    """The metrics of a server.

    folder: folder of `share` for several processes; None for one process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._instruments = instruments = Instruments(folder)
        counter, histogram = instruments.counter, instruments.histogram
        self.latency = histogram(
            "convoy_request_duration_seconds",
            "From the request's head to the response's end.",
            LATENCY_SECONDS,
            *("route", "model", "outcome"),
        )
        self.in_flight = instruments.gauge("convoy_requests_in_flight", "Requests not yet answered.")
        self._rejections = counter(
            "convoy_rejected", "Requests refused or failed, by error code.", "reason", "model", "route"
        )
        self.hits = counter("convoy_cache_hits", "Texts answered from the cache.", "model")
        self.misses = counter("convoy_cache_misses", "Texts that were not in the cache.", "model")
        self.step = histogram("convoy_step_duration_seconds", "One decoding step of one lane.", STEP_SECONDS)
        self.encode = histogram(
            "convoy_encode_duration_seconds", "One batch of sources encoded and placed.", STEP_SECONDS
        )
        self.step_slots = histogram("convoy_step_slots", "Slots used by a step.", SLOT_COUNTS)
        self.tokens = counter(
            "convoy_tokens", "Tokens encoded (source) and answered (target).", "model", "kind"
        )
        self.restarts = counter("convoy_process_restarts", "Restarts of a process that had ended.", "process")
        self._answers = _Answers(instruments)
        self._streams = _Streams(instruments)
        self._keys = _Keys(instruments)
        self._files = _Files(instruments)
        self._figures = Figures(instruments, self.tokens)

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics of this process."""
        return self._instruments.registry

    def seconds(self, *names: str) -> Mapping[tuple[str, str], float]:
        """Return the sums of histograms of all processes together, by the name and the model.

        names: names of histograms whose only label is the model.
        """
        return self._instruments.sums(*names)

    def observer(self, model: str) -> Observer:
        return _ModelObserver(self, model)

    def watch(self, sources: Sources) -> None:
        """Copy the server's own figures at each `refresh`."""
        self._figures.sources = sources

    def refresh(self) -> None:
        """Copy the polled figures of the engines, the devices and the process."""
        self._figures.refresh()

    def record_work(
        self, route: ModelRoute, characters: int, results: Sequence[TextResult | TextScore]
    ) -> None:
        """Record the work of one model, or two, for the current request.

        route: model, in the direction of the texts.
        characters: number of characters of the texts.
        results: results of the texts.
        """
        timings = slowest([result.timings for result in results])
        self._answers.record(route, characters, timings.queue, timings.decode, results)
        if context := current.get():
            languages = f"{route.legs[0].source}-{route.legs[-1].target}"
            work = ModelWork(route.models, languages, timings, len(results), time.time_ns())
            context.work.append(work)

    def record_rejection(self, code: str, scope: Any) -> None:
        """Count an error of the current request.

        code: code of the error.
        scope: scope of the request.
        """
        context = current.get()
        self._rejections.labels(code, context.model if context else OTHER, route_of(scope)).inc()

    def record_key(self, key: str, outcome: str, characters: int) -> None:
        """Count a request of a key.

        key: id of the key; "": the request has none.
        outcome: outcome of the request.
        characters: number of characters charged for it.
        """
        self._keys.record(key or NO_KEY, outcome, characters)

    def stream_listener(self, model: str) -> Callable[[], None]:
        """Return a function to call at each part of the current request's stream.

        model: label of the model.
        """
        return self._streams.listener(model)

    @contextmanager
    def translating_file(self, ending: str) -> Iterator[None]:
        """Count a file that is translated within the context, and measure its time.

        ending: ending of the file's name, of a known format.
        """
        with self._files.translating(ending):
            yield

    def text(self) -> bytes:
        """Return the metrics in Prometheus' exposition format, of all processes together."""
        self.refresh()
        return self._instruments.text()


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


@dataclass(frozen=True, slots=True)
class _ModelAnswers:
    """The series of one model; `finished` by reason."""

    queue: Histogram
    decode: Histogram
    source: Histogram
    target: Histogram
    forced: Counter
    truncated: Counter
    finished: Mapping[str, Counter]


class _Answers:
    """Answers of models: their times, lengths, ends and languages."""

    def __init__(self, instruments: Instruments) -> None:
        counter, histogram = instruments.counter, instruments.histogram
        self._queue = histogram(
            "convoy_queue_duration_seconds", "A request's longest wait in the queue.", LATENCY_SECONDS
        )
        self._decode = histogram(
            "convoy_decode_duration_seconds", "A request's longest decoding.", LATENCY_SECONDS
        )
        self._source = histogram("convoy_request_source_tokens", "Tokens read for a request.", TOKEN_COUNTS)
        self._target = histogram(
            "convoy_request_target_tokens", "Tokens written for a request.", TOKEN_COUNTS
        )
        self._finished = counter(
            "convoy_texts_finished", "Texts answered, by the reason of the answer's end.", "model", "reason"
        )
        self._truncated = counter(
            "convoy_texts_truncated", "Texts of which only the beginning was read.", "model"
        )
        self._forced = counter(
            "convoy_phrases_forced",
            "Phrases and marks that a model had lost and that were restored.",
            "model",
        )
        self._replaced = counter(
            "convoy_texts_replaced", "Texts that a local model answered in the place of an upstream.", "model"
        )
        self._doubtful = counter(
            "convoy_texts_doubtful", "Texts with a faulty answer of an upstream, which is marked.", "model"
        )
        self._requests = counter(
            "convoy_language_requests", "Requests answered by a model, by languages.", "source", "target"
        )
        self._characters = counter(
            "convoy_language_characters", "Characters of the answered texts.", "source", "target"
        )
        self._sentences = counter(
            "convoy_routed_sentences",
            "Sentences of a model with a second one: sure, or in doubt and answered by the second model "
            "(second), or not, for its budget or a failure (budget, failed).",
            *("model", "outcome"),
        )
        self._models: dict[str, _ModelAnswers] = {}
        self._pairs: dict[tuple[str, str], tuple[Counter, Counter]] = {}

    def record(
        self,
        route: ModelRoute,
        characters: int,
        queue: float,
        decode: float,
        results: Sequence[TextResult | TextScore],
    ) -> None:
        """Record the answers to a request.

        route: model, in the direction of the texts.
        characters: number of characters of the texts.
        queue, decode: longest times of its sentences, in seconds.
        results: results of the texts.
        """
        model = route.models
        of_model = self._models.get(model) or self._add_model(model)
        of_model.queue.observe(queue)
        of_model.decode.observe(decode)
        requests, read = self._pair(route.legs[0].source, route.legs[-1].target)
        requests.inc()
        read.inc(characters)
        source, target, forced, truncated = 0, 0, 0, 0
        for result in results:
            if isinstance(result, TextResult):
                source += result.source_tokens
                target += result.target_tokens
                forced += result.forced
                truncated += result.truncated
                of_model.finished[result.finish].inc()
                if result.instead_of:
                    self._replaced.labels(model).inc()
                if result.doubtful:
                    self._doubtful.labels(model).inc()
                for sentence in result.sentences:
                    outcome = sentence.refused or ("second" if sentence.doubt else "sure")
                    self._sentences.labels(model, outcome).inc()
        if source:  # scores and fixed answers read nothing
            of_model.source.observe(source)
            of_model.target.observe(target)
        if forced:
            of_model.forced.inc(forced)
        if truncated:
            of_model.truncated.inc(truncated)

    def _add_model(self, model: str) -> _ModelAnswers:
        """Make the series of a model, once: finding a series by its labels costs more than counting."""
        self._models[model] = made = _ModelAnswers(
            queue=self._queue.labels(model),
            decode=self._decode.labels(model),
            source=self._source.labels(model),
            target=self._target.labels(model),
            forced=self._forced.labels(model),
            truncated=self._truncated.labels(model),
            finished={reason: self._finished.labels(model, reason) for reason in FINISH_REASONS},
        )
        return made

    def _pair(self, source: str, target: str) -> tuple[Counter, Counter]:
        """Return the counters of requests and characters of a pair of languages, or of all further pairs."""
        found = self._pairs.get((source, target))
        if found is None:
            pair = (source, target) if len(self._pairs) < MOST_LABELS else (OTHER, OTHER)
            found = self._pairs[source, target] = self._requests.labels(*pair), self._characters.labels(*pair)
        return found


class _Streams:
    """Times of the parts of streams."""

    def __init__(self, instruments: Instruments) -> None:
        self._first = instruments.histogram(
            "convoy_time_to_first_token_seconds",
            "From the request's head to the first words of its stream.",
            LATENCY_SECONDS,
        )
        self._next = instruments.histogram(
            "convoy_inter_token_latency_seconds",
            "Between two parts of a stream, each of one word or several.",
            PART_SECONDS,
        )

    def listener(self, model: str) -> Callable[[], None]:
        """Return a function to call at each part of the current request's stream."""
        first, following = self._first.labels(model), self._next.labels(model)
        context = current.get()
        begun = context.started if context else time.monotonic()
        last: float | None = None

        def on_part() -> None:
            nonlocal last
            now = time.monotonic()
            if last is None:
                first.observe(now - begun)
            else:
                following.observe(now - last)
            last = now

        return on_part


class _Keys:
    """Requests and characters by key."""

    def __init__(self, instruments: Instruments) -> None:
        counter = instruments.counter
        self._requests = counter("convoy_key_requests", "Requests by id of the key.", "key", "outcome")
        self._characters = counter("convoy_key_characters", "Characters charged, by id of the key.", "key")
        self._known: set[str] = set()

    def record(self, key: str, outcome: str, characters: int) -> None:
        if key not in self._known:
            if len(self._known) < MOST_LABELS:
                self._known.add(key)
            else:
                key = OTHER
        self._requests.labels(key, outcome).inc()
        self._characters.labels(key).inc(characters)


class _Files:
    """Files that are translated."""

    def __init__(self, instruments: Instruments) -> None:
        self._running = instruments.gauge("convoy_files_running", "Files that are translated now.")
        self._seconds = instruments.histogram(
            "convoy_file_duration_seconds",
            "Translation of a file: queue, decoding and writing, without its upload.",
            FILE_SECONDS,
            *("format", "outcome"),
        )

    @contextmanager
    def translating(self, ending: str) -> Iterator[None]:
        """Count and measure the translation of a file."""
        begun, outcome = time.monotonic(), FAILED
        self._running.inc()
        try:
            yield
            outcome = OK
        except (Cancelled, asyncio.CancelledError):
            outcome = CANCELLED
            raise
        finally:
            self._running.dec()
            self._seconds.labels(ending.removeprefix("."), outcome).observe(time.monotonic() - begun)
