"""Curves: the losses of a training in a file of its run, and drawings as SVG without a library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Final

CURVE: Final = "curve.jsonl"  # in the folder of a run
WIDTH: Final = 720
HEIGHT: Final = 420
LEFT: Final = 70
BOTTOM: Final = 50
TOP: Final = 40
RIGHT: Final = 20
COLOURS: Final = ("#1b6ca8", "#d1495b", "#2e933c", "#8e5aa8", "#c98a1b", "#555555")
TICKS: Final = 5

Points = Sequence[tuple[float, float]]


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


def svg(lines: Mapping[str, Points], x: str, y: str) -> str:
    """Return a drawing of named lines with axes from 0.

    lines: points by the line's name.
    x, y: labels of the axes.
    """
    points = [point for line in lines.values() for point in line]
    wide = max((p[0] for p in points), default=1.0) or 1.0
    high = max((p[1] for p in points), default=1.0) or 1.0

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = LEFT + point[0] / wide * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - point[1] / high * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in range(TICKS + 1):
        share = tick / TICKS
        across, up = place((share * wide, share * high))
        low = HEIGHT - BOTTOM
        parts += [
            f'<path d="M{LEFT} {up:.1f}H{WIDTH - RIGHT}M{across:.1f} {TOP}V{low}" stroke="#ddd"/>',
            f'<text x="{LEFT - 6}" y="{up + 4:.1f}" text-anchor="end">{share * high:.3g}</text>',
            f'<text x="{across:.1f}" y="{low + 16}" text-anchor="middle">{share * wide:.3g}</text>',
        ]
    parts += [
        f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x)}</text>',
        f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y)}</text>',
    ]
    room = (WIDTH - LEFT - RIGHT) / max(1, len(lines))  # width of each name
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(place, line))
        parts += [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{LEFT + 10 + number * room:.0f}" y="{TOP - 14}" fill="{colour}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
