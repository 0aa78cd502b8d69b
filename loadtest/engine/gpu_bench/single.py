"""One sentence at a time, beam 1: tokens a second of whole translations, and seconds of a step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from engine.backends import LaneSize
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.clock import Turns, alternate, figure, summary, wait
from loadtest.engine.gpu_bench.contenders import (
    check_lengths,
    make_requests,
    open_all,
    record_failure,
    straight,
)
from loadtest.engine.gpu_bench.floors import cost
from loadtest.engine.gpu_bench.peer import Peer, peers
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import PartRun

MODEL_NAMES = (models.SIX, models.ONE, models.ATTENTION, models.GLU)


def single(run: PartRun) -> dict[str, Any]:
    """Measure one sentence at a time.

    Rows: model, backend, tokens a second over the same sentences (median of alternating runs, with encoder
    and end-of-sentence), seconds of a step, the time to read its weights and the share reached.
    """
    setting, scale = run.setting, run.setting.scale
    origin, pairs = lengths(setting.corpora, scale.singles)
    findings: dict[str, Any] = {"lengths": origin, "sentences": len(pairs), "beam": 1}
    findings |= {"rows": [], "not_run": {}}
    runs: dict[str, Callable[[], float]] = {}
    steps: dict[str, list[float]] = {}
    costs = {}
    half = time.monotonic() + (run.until - time.monotonic()) / 2
    with ExitStack() as stack:
        for name in MODEL_NAMES:
            if time.monotonic() > half and runs:
                findings["not_run"][name] = "no time was left to open it"
                continue
            bundle = models.bundle_of(setting.folder, name, tiny=scale.tiny)
            work = sentences(bundle.config, pairs)
            costs[name] = cost(bundle.config)
            for contender, (executor,) in open_all(run, bundle, [LaneSize(1, 1)], findings["not_run"]):
                key = f"{name}, {contender}"
                with record_failure(key, findings["not_run"]):
                    runs[key] = _runner(setting.device, executor, work, steps.setdefault(key, []))
            if name in (models.SIX, models.ONE):
                for key, peer in peers(stack, run, bundle, findings["not_run"]).items():
                    runs[key] = _fairseq_run(peer, work)

        def floor_of(key: str, values: list[float], seconds: list[float]) -> dict[str, Any]:
            """Return the floor of a step by bandwidth, and the share of it that was reached."""
            name, precision = key.partition(", ")[0], key.rpartition(" ")[2]
            floor = costs[name].step_seconds(precision, run.floors["bandwidth"])
            row: dict[str, Any] = {"weights": costs[name].weights, "floor_step": floor, "floor": 1 / floor}
            row["share"] = statistics.median(values) * floor
            if len(seconds) > 1:  # the first run warms up
                row["step"] = summary(seconds[1:])
                row["step_share"] = floor / row["step"]["median"]
            return row

        def report(turns: Turns) -> None:
            findings["rows"] = [
                figure(key, values, "tokens/s") | floor_of(key, values, steps.get(key, []))
                for key, values in turns.values.items()
            ]
            run.save(findings)

        turns = alternate(runs, run, report)
    findings["not_run"] |= turns.not_run
    report(turns)
    return findings


def _runner(
    device: str, executor: Executor, work: Sequence[SizedSentence], steps: list[float]
) -> Callable[[], float]:
    """Return a run that translates one by one, returns tokens a second and appends the seconds of a step."""
    lane = Lane(executor, straight)

    def run() -> float:
        """Translate the sentences one by one; return tokens a second, and append the seconds of a step."""
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


def _fairseq_run(peer: Peer, work: Sequence[SizedSentence]) -> Callable[[], float]:
    """Return a function that returns fairseq's tokens a second, one sentence at a time."""
    batches = [([len(s.source)], s.target) for s in work]
    tokens = sum(s.target + 1 for s in work)
    return lambda: tokens / peer.seconds(batches, 1)
