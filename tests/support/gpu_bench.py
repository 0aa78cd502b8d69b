"""Tiny settings of the GPU benchmark."""

import time
from dataclasses import replace
from pathlib import Path

from loadtest.engine.gpu_bench.setting import TINY, BenchRecord, PartRun

ROOT = Path(__file__).parents[2]


SHIPPED = ROOT / "models" / "tatoeba-en-de"


SMALLEST = replace(TINY, turns=1, singles=1, sentences=6, requests=6, checked=2, steps=2, slots=4)


ENGLISH = ["Yes.", "It rains, again.", "He's there."] * 8


GERMAN = ["Ja.", "Es regnet schon wieder, leider.", "Er ist dort, sagt man."] * 8


def far():
    return time.monotonic() + 600


def part_run(setting, tmp_path, until=None, part="single"):
    return PartRun(BenchRecord(tmp_path / "gpu.json"), part, setting, {}, far() if until is None else until)
