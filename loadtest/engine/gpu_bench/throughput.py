"""Many sentences at once: newstest2013 through a real engine, requests joining and leaving in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from engine.backends import LaneSize
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.book import Desk
from loadtest.engine.gpu_bench.clock import TurnRules, Turns, alternate, forgive, summary
from loadtest.engine.gpu_bench.contenders import Flow, check_lengths, make_requests, open_all, record_failure
from loadtest.engine.gpu_bench.cost import Cost, cost
from loadtest.engine.gpu_bench.peer import Batch, Peer, peers
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import Setting

STEADY: Final = 4  # times the slots: fewer sentences would be all ramp
# those of one line are compared with one another, in turn; the others come after, for the memory's sake
TOGETHER = ((models.SIX, models.ATTENTION), (models.IWSLT,), (models.GLU,))


@dataclass(slots=True)
class Field:
    """Contenders that take turns: what runs each, and how many sentences it is given."""

    runs: dict[str, Callable[[], float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    work: dict[str, list[SizedSentence]] = field(default_factory=dict)

    def size(self, desk: Desk, least: int, seconds: float) -> None:
        """Give each as many sentences as it translates in `seconds`, by a first run of the least."""
        for key, most in list(self.counts.items()):
            self.counts[key] = min(least, most)
            desk.enter(key.rpartition(", ")[2])
            try:
                rate = self.runs[key]()
            except Exception as error:  # it fails again, with its reason, where all take turns
                forgive(error)
                continue
            self.counts[key] = max(min(least, most), min(most, int(rate * seconds)))


def throughput(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """Measure many sentences at once. Rows: model, backend, sentences a second at `slots` in flight, while
    all are in use; the floor of the operations of its matrix products and the share reached. A slow contender
    translates fewer of the sentences, a fair sample of them, and its row says how many."""
    scale = setting.scale
    origin, pairs = lengths(setting.corpora, scale.sentences)
    record: dict[str, Any] = {"lengths": origin, "beam": scale.beam, "slots": scale.slots}
    record |= {"rows": [], "not_run": {}}
    for i, names in enumerate(TOGETHER):
        budget = until - time.monotonic()
        if i and budget < 0:
            record["not_run"] |= dict.fromkeys(names, "no time was left")
            continue
        end = time.monotonic() + (0.6 * budget if i == 0 else budget / (len(TOGETHER) - i))
        before = list(record["rows"])
        with ExitStack() as stack:
            entered = _field(stack, setting, names, pairs, (desk, record["not_run"]))
            entered.size(
                desk,
                STEADY * scale.slots,
                (end - time.monotonic()) / max(1, len(entered.runs) * (scale.turns + 1)),
            )

            def report(turns: Turns, entered: Field = entered, before: list[dict[str, Any]] = before) -> None:
                rows = [_row(key, v, entered, (scale.beam, floors)) for key, v in turns.values.items()]
                record["rows"] = before + rows
                desk.tell(record)

            turns = alternate(entered.runs, TurnRules(scale.turns, end, desk, report))
        record["not_run"] |= turns.not_run
        report(turns)
    return record


def _field(
    stack: ExitStack,
    setting: Setting,
    names: Sequence[str],
    pairs: list[tuple[int, int]],
    out: tuple[Desk, dict[str, str]],
) -> Field:
    """These models, on all backends that open."""
    scale, table = setting.scale, Field()
    for name in names:
        bundle = models.bundle_of(setting.folder, name, tiny=scale.tiny)
        table.work[name] = sentences(bundle.config, pairs)
        table.costs[name] = cost(bundle.config)
        for contender, (executor,) in open_all(setting, bundle, [LaneSize(scale.beam, scale.slots)], out):
            key = f"{name}, {contender}"
            with record_failure(key, out[1]):
                flow = Flow(executor, scale.beam)
                stack.callback(flow.stop)
                table.counts[key] = len(pairs)
                table.runs[key] = _ours(flow, table, name, (key, scale.slots))
        if name == models.SIX:
            for key, peer in peers(stack, setting, name, bundle.config, out).items():
                table.counts[key] = len(pairs)
                table.runs[key] = _theirs(peer, table, name, (key, scale.slots, scale.beam))
    return table


def _ours(flow: Flow, entered: Field, name: str, setup: tuple[str, int]) -> Callable[[], float]:
    key, slots = setup

    def run() -> float:
        sample = entered.work[name][: entered.counts[key]]
        requests, answers = make_requests(sample, flow.beam)
        began = time.monotonic()
        flow.submit(requests)
        results = answers.results()
        check_lengths(sample, results)
        return steady([end - began for end in answers.ended], slots)

    return run


def steady(ended: Sequence[float], slots: int) -> float:
    """Compute the answers a second while all slots were in use: without the first answers, before which slots
    filled, and the last, while they emptied.

    ended: seconds from the start. Of too few answers it is all of them.
    """
    ended = sorted(ended)
    if len(ended) < STEADY * slots:
        return len(ended) / ended[-1]
    first, last = slots - 1, len(ended) - slots - 1
    return (last - first) / (ended[last] - ended[first])


def _theirs(peer: Peer, entered: Field, name: str, setup: tuple[str, int, int]) -> Callable[[], float]:
    key, slots, beam = setup

    def run() -> float:
        sample = entered.work[name][: entered.counts[key]]
        return len(sample) / peer.seconds(in_batches(sample, slots), beam)

    return run


def in_batches(work: Sequence[SizedSentence], size: int) -> list[Batch]:
    """Group sentences as fairseq batches them: of like lengths, sorted. All answers of a batch get its mean
    length, because its search has one limit for a batch; so there are as many tokens, and none waits for a
    longer one."""
    ordered = sorted(work, key=lambda s: (s.target, len(s.source)))
    batches = []
    for first in range(0, len(ordered), size):
        batch = ordered[first : first + size]
        batches.append(([len(s.source) for s in batch], round(sum(s.target for s in batch) / len(batch))))
    return batches


def _row(key: str, values: list[float], entered: Field, setup: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    beam, floors = setup
    name, _, contender = key.partition(", ")
    backend, _, precision = contender.rpartition(" ")
    work = entered.work[name][: entered.counts[key]]
    operations = entered.costs[name].operations(work, beam) / len(work)
    row: dict[str, Any] = {"model": name, "backend": backend, "precision": precision, "unit": "sentences/s"}
    row |= {"sentences": len(work), "operations": operations} | summary(values)
    if rate := floors["matrix"].get(precision):
        row |= {"floor": rate / operations, "share": row["median"] * operations / rate}
    return row
