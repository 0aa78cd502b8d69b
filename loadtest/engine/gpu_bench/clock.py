"""Time on a device that works on its own, and contenders that take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from loadtest.engine.gpu_bench.record import PartRun


class ContextLost(Exception):
    """The CUDA context does not work any more: nobody else can be measured in this process."""


def seconds(device: str, call: Callable[[], object]) -> float:
    """Measure the seconds of a call, from an idle device to an idle device again."""
    wait(device)
    began = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - began


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def forgive(error: Exception) -> str:
    """Return a contender's error as a line, when the others can go on. Raises ContextLost when they can't."""
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            raise ContextLost(reason(error)) from error
    return reason(error)


def reason(error: BaseException) -> str:
    """Return an error in a line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}"


@dataclass(slots=True)
class Turns:
    """What each contender measured, in the order of its runs; why those without figures have none."""

    values: dict[str, list[float]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)


def alternate(
    contenders: Mapping[str, Callable[[], float]],
    run: PartRun,
    report: Callable[[Turns], object] = lambda _: None,
) -> Turns:
    """Run each contender once to warm up, then in turn with all others, so that a noisy minute meets every
    one.

    The part's scale says how often. A contender whose turn comes after the part's end is left out of that
    turn, and so is one that has a figure and has used up its share of the time; none is measured without
    having warmed up. A contender that raises is left out from then on, with its reason. Raises ContextLost.

    contenders: a run of each that returns its figure; keys are "model, backend precision".
    run: the part that measures them.
    report: called after every turn.
    """
    turns, warm = Turns(), set[str]()
    share = (run.until - time.monotonic()) / max(1, len(contenders))
    spent = dict.fromkeys(contenders, 0.0)
    for turn in range(run.setting.scale.turns + 1):
        for key, measure in contenders.items():
            if key in turns.not_run:
                continue
            began = time.monotonic()
            if began > run.until or (key in turns.values and spent[key] > share):
                if key not in turns.values:
                    turns.not_run[key] = "no time was left"
                continue
            run.measuring(key.rpartition(", ")[2])
            try:
                value = measure()
            except Exception as error:  # a backend's own fault is a result, not the end of the others
                turns.not_run[key] = forgive(error)
                turns.values.pop(key, None)
                continue
            spent[key] += time.monotonic() - began
            if key in warm and turn:
                turns.values.setdefault(key, []).append(value)
            warm.add(key)
        report(turns)
    return turns


def summary(values: list[float]) -> dict[str, Any]:
    """Return the median and the runs."""
    return {"median": statistics.median(values), "runs": values}


def figure(key: str, values: list[float], unit: str) -> dict[str, Any]:
    """Return the row of a contender: model, backend, precision, and its runs with their median.

    key: "model, backend precision".
    values: a figure of each run.
    unit: what the figures count; their name in the row.
    """
    name, _, contender = key.partition(", ")
    backend, _, precision = contender.rpartition(" ")
    return {"model": name, "backend": backend, "precision": precision, unit: summary(values)}
