"""The training curve of a run: its losses at every checkpoint, in a file of the run's folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from training.plot import svg

CURVE: Final = "curve.jsonl"  # in the folder of a run


@dataclass(frozen=True, slots=True)
class Point:
    """A checkpoint.

    update: number of updates so far.
    tokens: number of target tokens so far, without padding.
    train: training loss (nats per token, with dropout) since the previous point.
    valid: loss of each validation set, by the name of its corpus.
    """

    update: int
    tokens: int
    train: float
    valid: dict[str, float]


def append(folder: Path, point: Point) -> None:
    """Append a point to the curve of the run in `folder`."""
    with (folder / CURVE).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(point)) + "\n")


def read(folder: Path) -> list[Point]:
    """Return the points of a run in the order of updates; the newest if a killed run repeated an update."""
    if not (folder / CURVE).exists():
        return []
    lines = (folder / CURVE).read_text(encoding="utf-8").splitlines()
    points = {point.update: point for point in (Point(**json.loads(line)) for line in lines)}
    return [points[update] for update in sorted(points)]


def draw(points: Sequence[Point]) -> str:
    """Return the curve as SVG: losses over training tokens."""
    lines = {"training": [(point.tokens / 1e6, point.train) for point in points]}
    for name in points[-1].valid if points else ():
        lines[f"validation, {name}"] = [(point.tokens / 1e6, point.valid[name]) for point in points]
    return svg(lines, "million target tokens", "nats a token")
