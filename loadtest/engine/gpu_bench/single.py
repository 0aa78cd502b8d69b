"""One sentence at a time, beam 1: tokens a second of whole translations, and what a step takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from engine.backends import LaneSize
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.book import Desk
from loadtest.engine.gpu_bench.clock import TurnRules, Turns, alternate, summary, wait
from loadtest.engine.gpu_bench.contenders import (
    check_lengths,
    make_requests,
    open_all,
    record_failure,
    straight,
)
from loadtest.engine.gpu_bench.cost import cost
from loadtest.engine.gpu_bench.peer import Peer, peers
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import Setting

NAMES = (models.SIX, models.ONE, models.ATTENTION, models.GLU)


def single(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """Measure one sentence at a time. Rows: model, backend, tokens a second over the same sentences (median
    of alternating runs, encoder included, end-of-sentence counted), seconds of a step, the floor of its
    weights and the share reached."""
    scale = setting.scale
    origin, pairs = lengths(setting.corpora, scale.singles)
    record: dict[str, Any] = {
        "lengths": origin,
        "sentences": len(pairs),
        "beam": 1,
        "rows": [],
        "not_run": {},
    }
    runs: dict[str, Callable[[], float]] = {}
    steps: dict[str, list[float]] = {}
    costs = {}
    half = time.monotonic() + (until - time.monotonic()) / 2
    with ExitStack() as stack:
        for name in NAMES:
            if time.monotonic() > half and runs:
                record["not_run"][name] = "no time was left to open it"
                continue
            bundle = models.bundle_of(setting.folder, name, tiny=scale.tiny)
            work = sentences(bundle.config, pairs)
            costs[name] = cost(bundle.config)
            for contender, (executor,) in open_all(
                setting, bundle, [LaneSize(1, 1)], (desk, record["not_run"])
            ):
                key = f"{name}, {contender}"
                with record_failure(key, record["not_run"]):
                    runs[key] = _runner(setting.device, executor, work, steps.setdefault(key, []))
            if name in (models.SIX, models.ONE):
                for key, peer in peers(
                    stack, setting, name, bundle.config, (desk, record["not_run"])
                ).items():
                    runs[key] = _theirs(peer, work)

        def report(turns: Turns) -> None:
            record["rows"] = [
                _row(key, values, steps.get(key, []), costs, floors) for key, values in turns.values.items()
            ]
            desk.tell(record)

        turns = alternate(runs, TurnRules(scale.turns, until, desk, report))
    record["not_run"] |= turns.not_run
    report(turns)
    return record


def _runner(
    device: str, executor: Executor, work: Sequence[SizedSentence], steps: list[float]
) -> Callable[[], float]:
    """Translates one by one; returns tokens a second and notes the seconds of a step. The first run, to warm
    up, is noted too: see `_row`."""
    lane = Lane(executor, straight)

    def run() -> float:
        tokens, seconds, decoding, count = 0, 0.0, 0.0, 0
        for sentence in work:
            (request,), answers = make_requests([sentence], 1)
            wait(device)
            began = time.perf_counter()
            lane.admit([request])
            wait(device)
            admitted = time.perf_counter()
            count += lane.drain()
            wait(device)
            ended = time.perf_counter()
            check_lengths([sentence], answers.results(0.0))
            tokens += sentence.target + 1
            seconds += ended - began
            decoding += ended - admitted
        steps.append(decoding / count)
        return tokens / seconds

    return run


def _theirs(peer: Peer, work: Sequence[SizedSentence]) -> Callable[[], float]:
    batches = [([len(s.source)], s.target) for s in work]
    tokens = sum(s.target + 1 for s in work)
    return lambda: tokens / peer.seconds(batches, 1)


def _row(
    key: str, values: list[float], steps: list[float], costs: dict[str, Any], floors: dict[str, Any]
) -> dict[str, Any]:
    name, _, contender = key.partition(", ")
    backend, _, precision = contender.rpartition(" ")
    row = {"model": name, "backend": backend, "precision": precision, "unit": "tokens/s", **summary(values)}
    floor = costs[name].step_seconds(precision, floors["bandwidth"])
    row |= {"weights": costs[name].weights, "floor_step": floor, "floor": 1 / floor}
    row["share"] = row["median"] * floor
    if len(steps) > 1:
        row["step"] = summary(steps[1:])
        row["step_share"] = floor / row["step"]["median"]
    return row
