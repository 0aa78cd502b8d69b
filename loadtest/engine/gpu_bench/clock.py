"""Timing of an asynchronous device, and alternating runs of contenders."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from loadtest.engine.gpu_bench.setting import PartRun


class ContextLost(Exception):
    """The CUDA context does not work any more, so this process can measure no other contender."""


def seconds(device: str, call: Callable[[], object]) -> float:
    """Return the seconds of a call, including the wait for the device before and after it."""
    wait(device)
    began = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - began


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def forgive(error: Exception) -> str:
    """Return a contender's error as one line. Raises ContextLost if the error made the device unusable."""
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            raise ContextLost(reason(error)) from error
    return reason(error)


def reason(error: BaseException) -> str:
    """Return an error as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}"


@dataclass(slots=True)
class Turns:
    """Figures of each contender in the order of its runs, and the reasons of contenders without figures."""

    values: dict[str, list[float]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)


def alternate(
    contenders: Mapping[str, Callable[[], float]],
    run: PartRun,
    report: Callable[[Turns], object] = lambda _: None,
) -> Turns:
    """Run each contender once to warm up, then all in turn, so that a noisy minute affects every contender.

    The part's scale sets the number of turns. A contender misses a turn after the part's end, or if it has a
    figure and has used its share of the time; no contender is measured without a warm-up. A contender that
    raises is left out afterwards, with its reason. Raises ContextLost.

    contenders: run of each contender, which returns its figure; keys are "model, backend precision".
    run: part that measures them.
    report: function called after every turn.
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
            except Exception as error:  # an error of one backend must not stop the others
                turns.not_run[key] = forgive(error)
                turns.values.pop(key, None)
                continue
            spent[key] += time.monotonic() - began
            if key in warm and turn:  # the first run of a contender only warms up
                turns.values.setdefault(key, []).append(value)
            warm.add(key)
        report(turns)
    return turns


def summary(values: list[float]) -> dict[str, Any]:
    """Return the median and all runs."""
    return {"median": statistics.median(values), "runs": values}


def figure(key: str, values: list[float], unit: str) -> dict[str, Any]:
    """Return the row of a contender: model, backend, precision, and its runs with their median.

    key: "model, backend precision".
    values: figure of each run.
    unit: unit of the figures, which names them in the row.
    """
    name, _, contender = key.partition(", ")
    backend, _, precision = contender.rpartition(" ")
    return {"model": name, "backend": backend, "precision": precision, unit: summary(values)}
