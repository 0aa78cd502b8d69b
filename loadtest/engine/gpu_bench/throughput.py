"""Many sentences at once: newstest2013 through a real engine, requests joining and leaving in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from loadtest.gpu_bench import models
from loadtest.gpu_bench.book import Desk
from loadtest.gpu_bench.clock import Rules, Turns, alternate, forgive, summary
from loadtest.gpu_bench.contenders import Flow, all_lengths_given, all_opened, asked, excused
from loadtest.gpu_bench.cost import Cost, cost
from loadtest.gpu_bench.peer import Batch, Peer, peers
from loadtest.gpu_bench.sentences import Sentence, lengths, sentences
from loadtest.gpu_bench.setting import Setting

# those of one line are compared with one another, in turn; the others come after, for the memory's sake
TOGETHER = ((models.SIX, models.ATTENTION), (models.IWSLT,), (models.GLU,))


@dataclass(slots=True)
class Field:
    """Contenders that take turns: what runs each, and how many sentences it is given."""

    runs: dict[str, Callable[[], float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    work: dict[str, list[Sentence]] = field(default_factory=dict)

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
    """Rows: model, backend, sentences a second at `slots` in flight, from the first request to the last
    answer; the floor of the operations of its matrix products and the share reached. A slow contender
    translates fewer of the sentences, a fair sample of them, and its row says how many."""
    scale = setting.scale
    said, pairs = lengths(setting.corpora, scale.sentences)
    found: dict[str, Any] = {"lengths": said, "beam": scale.beam, "slots": scale.slots}
    found |= {"rows": [], "not_run": {}}
    for i, names in enumerate(TOGETHER):
        left = until - time.monotonic()
        if i and left < 0:
            found["not_run"] |= dict.fromkeys(names, "no time was left")
            continue
        end = time.monotonic() + (0.6 * left if i == 0 else left / (len(TOGETHER) - i))
        before = list(found["rows"])
        with ExitStack() as stack:
            entered = _field(stack, setting, names, pairs, (desk, found["not_run"]))
            entered.size(
                desk, scale.slots, (end - time.monotonic()) / max(1, len(entered.runs) * (scale.turns + 1))
            )

            def report(turns: Turns, entered: Field = entered, before: list[dict[str, Any]] = before) -> None:
                rows = [_row(key, v, entered, (scale.beam, floors)) for key, v in turns.values.items()]
                found["rows"] = before + rows
                desk.tell(found)

            turns = alternate(entered.runs, Rules(scale.turns, end, desk, report))
        found["not_run"] |= turns.not_run
        report(turns)
    return found


def _field(
    stack: ExitStack,
    setting: Setting,
    names: Sequence[str],
    pairs: list[tuple[int, int]],
    out: tuple[Desk, dict[str, str]],
) -> Field:
    """These models, on all backends that open."""
    scale, found = setting.scale, Field()
    for name in names:
        bundle = models.bundle_of(setting.folder, name, tiny=scale.tiny)
        found.work[name] = sentences(bundle.config, pairs)
        found.costs[name] = cost(bundle.config)
        for contender, (executor,) in all_opened(setting, bundle, [(scale.beam, scale.slots)], out):
            key = f"{name}, {contender}"
            with excused(key, out[1]):
                flow = Flow(executor, scale.beam)
                stack.callback(flow.stop)
                found.counts[key] = len(pairs)
                found.runs[key] = _ours(flow, found, name, key)
        if name == models.SIX:
            for key, peer in peers(stack, setting, name, bundle.config, out).items():
                found.counts[key] = len(pairs)
                found.runs[key] = _theirs(peer, found, name, (key, scale.slots, scale.beam))
    return found


def _ours(flow: Flow, entered: Field, name: str, key: str) -> Callable[[], float]:
    def run() -> float:
        chosen = entered.work[name][: entered.counts[key]]
        requests, answers = asked(chosen, flow.beam)
        began = time.perf_counter()
        flow.submit(requests)
        results = answers.results()
        taken = time.perf_counter() - began
        all_lengths_given(chosen, results)
        return len(chosen) / taken

    return run


def _theirs(peer: Peer, entered: Field, name: str, given: tuple[str, int, int]) -> Callable[[], float]:
    key, slots, beam = given

    def run() -> float:
        chosen = entered.work[name][: entered.counts[key]]
        return len(chosen) / peer.seconds(in_batches(chosen, slots), beam)

    return run


def in_batches(work: Sequence[Sentence], size: int) -> list[Batch]:
    """As fairseq batches them: of like lengths, sorted. All answers of a batch get its mean length,
    because its search has one limit for a batch; so there are as many tokens, and none waits for a longer
    one."""
    ordered = sorted(work, key=lambda s: (s.target, len(s.source)))
    found = []
    for first in range(0, len(ordered), size):
        batch = ordered[first : first + size]
        found.append(([len(s.source) for s in batch], round(sum(s.target for s in batch) / len(batch))))
    return found


def _row(key: str, values: list[float], entered: Field, given: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    beam, floors = given
    name, _, contender = key.partition(", ")
    backend, _, precision = contender.rpartition(" ")
    work = entered.work[name][: entered.counts[key]]
    operations = entered.costs[name].operations(work, beam) / len(work)
    row: dict[str, Any] = {"model": name, "backend": backend, "precision": precision, "unit": "sentences/s"}
    row |= {"sentences": len(work), "operations": operations} | summary(values)
    if rate := floors["matrix"].get(precision):
        row |= {"floor": rate / operations, "share": row["median"] * operations / rate}
    return row
