"""Answers of every backend beside those of the CPU's reference, and of each alone beside those of a batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from engine.backends import LaneSize, Placement
from engine.executors import open_executors
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from engine.types import DecodeOptions, Request, Result
from loadtest.engine.gpu_bench.book import Desk
from loadtest.engine.gpu_bench.clock import forgive
from loadtest.engine.gpu_bench.contenders import Answers, open_all, straight, through
from loadtest.engine.gpu_bench.models import copy_bundle
from loadtest.engine.gpu_bench.real import real_sources
from loadtest.engine.gpu_bench.setting import Setting

LEAST: Final = 0.97  # share of equal answers that fp32 must reach: two orders of summing may part a near-tie
LONGEST: Final = 64  # target tokens: the check is of tokens, not of patience
SLOTS: Final = 32


def checks(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """Check the answers of every backend that opens. Rows: backend, share of answers equal to torch's in fp32
    on the CPU, share of their tokens that agree from the left, the largest difference of scores of equal
    answers, and the share of answers that are the same alone as in a batch. ok: every fp32 row has enough
    that are equal, and no backend that opens failed."""
    bundle = copy_bundle(setting.folder, setting.shipped)
    options = replace(bundle.options, max_length=min(LONGEST, bundle.config.max_target - 1))
    origin, sources = real_sources(setting, bundle, setting.scale.checked)
    place = Placement("torch", "cpu", "fp32", None, (LaneSize(options.beam_size, SLOTS),))
    baseline = _answers(open_executors(bundle, place)[0], sources, options)
    record: dict[str, Any] = {"model": bundle.name, "text": origin, "sentences": len(sources), "rows": []}
    record |= {"not_run": {}, "failed": {}, "ok": False}
    lanes = [LaneSize(options.beam_size, SLOTS), LaneSize(options.beam_size, 1)]
    for contender, (wide, narrow) in open_all(setting, bundle, lanes, (desk, record["not_run"])):
        if time.monotonic() > until and record["rows"]:
            record["not_run"][f"{bundle.name}, {contender}"] = "no time was left"
            continue
        try:
            many = _answers(wide, sources, options)
            row = {"backend": contender.backend, "precision": contender.precision} | agreement(baseline, many)
            alone = _answers(narrow, sources[: SLOTS // 2], options)
            row["alone"] = agreement(many[: len(alone)], alone)["equal"]
            record["rows"].append(row)
        except Exception as error:
            record["failed"][str(contender)] = forgive(error)
        desk.tell(record)
    record["ok"] = not record["failed"] and all(
        row["equal"] >= LEAST for row in record["rows"] if row["precision"] == "fp32"
    )
    record["tolerance"] = {
        "fp32": f"{LEAST:.0%} of the answers must be equal",
        "others": "stated, not judged",
    }
    return record


def agreement(baseline: Sequence[Result], answers: Sequence[Result]) -> dict[str, float]:
    """Compare the best answers: return the share that is equal, the share of tokens before the first that
    differs, and the largest difference of scores (natural log, by length) of those that are equal."""
    equal, same, tokens, score = 0, 0, 0, 0.0
    for a, b in zip(baseline, answers, strict=True):
        one, other = a.hypotheses[0], b.hypotheses[0]
        tokens += len(one.tokens) + 1
        if one.tokens == other.tokens:
            equal += 1
            same += len(one.tokens) + 1
            score = max(score, abs(one.score - other.score))
            continue
        pairs = zip([*one.tokens, -1], [*other.tokens, -1], strict=False)
        same += next(i for i, (x, y) in enumerate(pairs) if x != y)
    return {"equal": equal / len(baseline), "tokens": same / tokens, "score_difference": score}


def _answers(executor: Executor, sources: Sequence[list[int]], options: DecodeOptions) -> list[Result]:
    answers = Answers.empty(len(sources))
    requests = [
        Request(list(source), options, lambda outcome, i=i: answers.take(i, outcome))  # type: ignore[misc]
        for i, source in enumerate(sources)
    ]
    through(Lane(executor, straight), requests)
    return answers.results(0.0)
