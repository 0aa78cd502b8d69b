"""Many sentences at once through an engine with in-flight batching.

`throughput` uses random weights and lengths of newstest2013; `real` a shipped model and text of newstest2013
with its own tokenizer, defaults and lengths.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.backends import LaneSize
from engine.bundle.bundle import Bundle
from engine.types import Request
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.clock import Turns, alternate, figure, forgive
from loadtest.engine.gpu_bench.contenders import (
    Answers,
    Flow,
    check_lengths,
    make_requests,
    open_all,
    record_failure,
)
from loadtest.engine.gpu_bench.floors import Cost, cost
from loadtest.engine.gpu_bench.models import copy_bundle
from loadtest.engine.gpu_bench.peer import Batch, Peer, peers
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, real_sources, sentences
from loadtest.engine.gpu_bench.setting import PartRun, Scale

STEADY: Final = 4  # least number of sentences for each slot
# models of a group are compared in turn; the next group starts when their memory is free
TOGETHER = ((models.SIX, models.ATTENTION), (models.IWSLT,), (models.GLU,))


@dataclass(slots=True)
class Entrants:
    """Runs of contenders and their numbers of sentences, by "model, contender"."""

    runs: dict[str, Callable[[], float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def fit(self, run: PartRun) -> None:
        """Limit the sentences of each contender to its share of the time, estimated by a short run."""
        scale = run.setting.scale
        least = STEADY * scale.slots
        seconds = (run.until - time.monotonic()) / max(1, len(self.runs) * (scale.turns + 1))
        for key, most in list(self.counts.items()):
            self.counts[key] = min(least, most)
            run.measuring(key.rpartition(", ")[2])
            try:
                rate = self.runs[key]()
            except Exception as error:  # the error is recorded when the contender runs again
                forgive(error)
                continue
            self.counts[key] = max(min(least, most), min(most, int(rate * seconds)))


@dataclass(frozen=True, slots=True)
class SizedModel:
    """A model with random weights, its sentences, and their needs."""

    bundle: Bundle
    work: list[SizedSentence]
    cost: Cost


def throughput(run: PartRun) -> dict[str, Any]:
    """Measure many sentences at once.

    A row has model, backend, sentences a second while all slots are in use, the floor of the matrix products,
    the share of it, and the number of sentences: a slow contender translates a sample.
    """
    setting, scale = run.setting, run.setting.scale
    origin, pairs = lengths(setting.corpora, scale.sentences)
    findings: dict[str, Any] = {"lengths": origin, "beam": scale.beam, "slots": scale.slots}
    findings |= {"rows": [], "not_run": {}}
    for i, names in enumerate(TOGETHER):
        budget = run.until - time.monotonic()
        if i and budget < 0:
            findings["not_run"] |= dict.fromkeys(names, "no time was left")
            continue
        # the first group has most contenders; the others share the rest equally
        share = replace(run, until=time.monotonic() + budget * (0.6 if i == 0 else 1 / (len(TOGETHER) - i)))
        before = list(findings["rows"])
        with ExitStack() as stack:
            sized = {}
            for name in names:
                bundle = models.bundle_of(setting.folder, name, tiny=scale.tiny)
                sized[name] = SizedModel(bundle, sentences(bundle.config, pairs), cost(bundle.config))
            entrants = _enter(stack, share, sized.values(), findings["not_run"])
            entrants.fit(share)

            def report(
                turns: Turns,
                entrants: Entrants = entrants,
                sized: dict[str, SizedModel] = sized,
                before: list[dict[str, Any]] = before,
            ) -> None:
                """Save the rows of this group of models after those of earlier groups."""
                findings["rows"] = before + [
                    figure(key, values, "sentences/s")
                    | _floor_of(key, values, sized[key.partition(", ")[0]], entrants.counts[key], run)
                    for key, values in turns.values.items()
                ]
                run.save(findings)

            turns = alternate(entrants.runs, share, report)
        findings["not_run"] |= turns.not_run
        report(turns)
    return findings


def _enter(stack: ExitStack, run: PartRun, sized: Iterable[SizedModel], not_run: dict[str, str]) -> Entrants:
    """Return runs of the models on all backends that open, and of fairseq."""
    scale, entrants = run.setting.scale, Entrants()
    for model in sized:
        lanes = [LaneSize(scale.beam, scale.slots)]
        for contender, (executor,) in open_all(run, model.bundle, lanes, not_run):
            key = f"{model.bundle.name}, {contender}"
            with record_failure(key, not_run):
                flow = Flow(executor, scale.beam)
                stack.callback(flow.stop)
                entrants.counts[key] = len(model.work)
                entrants.runs[key] = _engine_run(flow, model.work, entrants.counts, (key, scale.slots))
        if model.bundle.name == models.SIX:
            for key, peer in peers(stack, run, model.bundle, not_run).items():
                entrants.counts[key] = len(model.work)
                entrants.runs[key] = _fairseq_run(peer, model.work, entrants.counts, key, scale)
    return entrants


def _engine_run(
    flow: Flow, work: list[SizedSentence], counts: dict[str, int], setup: tuple[str, int]
) -> Callable[[], float]:
    """Return a function that returns the engine's sentences a second with all slots in use."""
    key, slots = setup

    def measure() -> float:
        sample = work[: counts[key]]
        requests, answers = make_requests(sample, flow.beam)
        began = time.monotonic()
        flow.submit(requests)
        results = answers.results()
        check_lengths(sample, results)
        return steady([end - began for end in answers.ended], slots)

    return measure


def _fairseq_run(
    peer: Peer, work: list[SizedSentence], counts: dict[str, int], key: str, scale: Scale
) -> Callable[[], float]:
    """Return a function that returns fairseq's sentences a second."""

    def measure() -> float:
        sample = work[: counts[key]]
        return len(sample) / peer.seconds(in_batches(sample, scale.slots), scale.beam)

    return measure


def _floor_of(key: str, values: list[float], model: SizedModel, count: int, run: PartRun) -> dict[str, Any]:
    """Return the number of sentences, the operations of their products, and the least time for these."""
    operations = model.cost.operations(model.work[:count], run.setting.scale.beam) / count
    row: dict[str, Any] = {"sentences": count, "operations": operations}
    if rate := run.floors["matrix"].get(key.rpartition(" ")[2]):
        row |= {"floor": rate / operations, "share": statistics.median(values) * operations / rate}
    return row


def real(run: PartRun) -> dict[str, Any]:
    """Measure real text. Rows: backend, lines a second from token ids to token ids, without text
    processing."""
    setting, scale = run.setting, run.setting.scale
    bundle = copy_bundle(setting.folder, setting.shipped)
    origin, sources = real_sources(setting, bundle, scale.sentences)
    beam, entrants = bundle.options.beam_size, Entrants()
    findings: dict[str, Any] = {"model": bundle.name, "text": origin, "beam": beam, "slots": scale.slots}
    findings |= {"rows": [], "not_run": {}}
    with ExitStack() as stack:
        for contender, (executor,) in open_all(
            run, bundle, [LaneSize(beam, scale.slots)], findings["not_run"]
        ):
            key = f"{bundle.name}, {contender}"
            with record_failure(key, findings["not_run"]):
                flow = Flow(executor, beam)
                stack.callback(flow.stop)
                entrants.counts[key] = len(sources)
                entrants.runs[key] = _real_run(flow, bundle, sources, (entrants.counts, key))
        entrants.fit(run)

        def report(turns: Turns) -> None:
            findings["rows"] = [
                figure(key, values, "lines/s") | {"lines": entrants.counts[key]}
                for key, values in turns.values.items()
            ]
            run.save(findings)

        turns = alternate(entrants.runs, run, report)
    findings["not_run"] |= turns.not_run
    report(turns)
    return findings


def _real_run(
    flow: Flow, bundle: Bundle, sources: list[list[int]], entry: tuple[dict[str, int], str]
) -> Callable[[], float]:
    """Return a function that returns the engine's lines of real text a second."""
    counts, key = entry

    def measure() -> float:
        sample = sources[: counts[key]]
        answers = Answers.empty(len(sample))
        requests = [
            Request(list(source), bundle.options, lambda outcome, i=i: answers.take(i, outcome))  # type: ignore[misc]
            for i, source in enumerate(sample)
        ]
        began = time.perf_counter()
        flow.submit(requests)
        answers.results()
        return len(sample) / (time.perf_counter() - began)

    return measure


def steady(ended: Sequence[float], slots: int) -> float:
    """Return the answers a second while all slots were in use, without filling and emptying; for few answers
    the rate of all.

    ended: end of each answer in seconds from the start.
    slots: number of slots.
    """
    ended = sorted(ended)
    if len(ended) < STEADY * slots:
        return len(ended) / ended[-1]
    first, last = slots - 1, len(ended) - slots - 1
    return (last - first) / (ended[last] - ended[first])


def in_batches(work: Sequence[SizedSentence], size: int) -> list[Batch]:
    """Return batches as fairseq makes them: sorted by length.

    All answers of a batch get their mean length, because fairseq has one limit for a batch; so the number of
    tokens is unchanged and no answer waits for a longer one.
    """
    ordered = sorted(work, key=lambda s: (s.target, len(s.source)))
    batches = []
    for first in range(0, len(ordered), size):
        batch = ordered[first : first + size]
        batches.append(([len(s.source) for s in batch], round(sum(s.target for s in batch) / len(batch))))
    return batches
