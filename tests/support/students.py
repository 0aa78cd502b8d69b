"""The student of tests/golden/students, marian-decoder's answers, and quantised random students."""

from __future__ import annotations

import gzip
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.backends import LaneSize, Placement
from engine.bundle.bundle import Bundle
from engine.executors import open_executors
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions, Hypothesis
from tests.support.lanes import lane_of, outcomes_of

GOLDEN = Path(__file__).parents[1] / "golden" / "students"
WHOLE = Path(__file__).resolve().parents[3] / "shared" / "students" / "golden"
LINE = re.compile(r"(\d+) \|\|\| ?(.*?) \|\|\| (?:WordScores.*? \|\|\| )?F0.*? \|\|\| (\S+)")


@dataclass(frozen=True)
class Agreement:
    """Agreement of our answers with a file of marian-decoder's.

    lines: number of compared lines.
    best: number of lines with equal best answers.
    entries: number of entries of Marian's n-best lists.
    common: number of these entries that are also in ours.
    score: largest difference of the scores of common entries.
    """

    lines: int
    best: int
    entries: int
    common: int
    score: float


def entries(path: Path) -> dict[int, list[tuple[tuple[str, ...], float]]]:
    """Return pieces and normalised score of each entry of an n-best list, by line."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: dict[int, list[tuple[tuple[str, ...], float]]] = {}
    for line in data.decode().splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        found.setdefault(int(match[1]), []).append((tuple(match[2].split()), float(match[3])))
    return found


def answers(
    bundle: Bundle,
    placement: Placement,
    sources: list[list[int]],
    options: DecodeOptions,
    *,
    together: int = 8,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, `together` decoded at a time."""
    lanes = (LaneSize(options.beam_size, together),)
    (executor,) = open_executors(bundle, replace(placement, lanes=lanes, threads=1))
    outcomes = outcomes_of(lane_of(executor), [(source, options) for source in sources])
    return [outcome.hypotheses for outcome in outcomes]


def agreement(
    bundle: Bundle,
    placement: Placement,
    path: Path,
    texts: list[str],
    beam: int,
    *,
    only: Collection[int] | None = None,
    **changes: float,
) -> Agreement:
    """Compare a bundle's answers with marian-decoder's, an n-best list of `beam` entries for each line.

    bundle: the bundle.
    placement: backend and precision.
    path: file of marian-decoder's answers.
    texts: source lines.
    beam: beam size.
    only: numbers of the lines to compare; None: all lines of the file.
    changes: changed decoding options.
    """
    tokenizer, golden = open_tokenizer(bundle), entries(path)
    lines = [i for i in golden if tokenizer.encode(texts[i]) and (only is None or i in only)]
    options = replace(bundle.options, **{"beam_size": beam, "n_best": beam, "max_length_a": 3.0, **changes})
    sources = [[*tokenizer.encode(texts[i]), bundle.config.eos] for i in lines]
    best = count = common = 0
    worst = 0.0
    for i, hypotheses in zip(lines, answers(bundle, placement, sources, options), strict=True):
        ours = {}
        for h in hypotheses:
            end = () if h.finish == "length" else ("</s>",)
            ours[(*tokenizer.pieces(h.tokens, target=True), *end)] = h.score
        best += next(iter(ours)) == golden[i][0][0]
        for pieces, score in golden[i]:
            count += 1
            if pieces in ours:
                common += 1
                worst = max(worst, abs(ours[pieces] - score))
    return Agreement(len(lines), best, count, common, worst)


def alignment_agreement(bundle: Bundle, placement: Placement, path: Path, texts: list[str]) -> Agreement:
    """Compare attention with Marian's soft alignment, on lines with equal greedy answers."""
    tokenizer, lines = open_tokenizer(bundle), gzip.decompress(path.read_bytes()).decode().splitlines()
    numbers = [i for i, text in enumerate(texts[: len(lines)]) if tokenizer.encode(text)]
    sources = [[*tokenizer.encode(texts[i]), bundle.config.eos] for i in numbers]
    options = replace(bundle.options, beam_size=1, n_best=1, max_length_a=3.0, alignment=True)
    worst, same = 0.0, 0
    for i, (h, *_) in zip(numbers, answers(bundle, placement, sources, options), strict=True):
        pieces, _, rows = lines[i].partition(" ||| ")
        end = () if h.finish == "length" else ("</s>",)
        if pieces.split() == [*tokenizer.pieces(h.tokens, target=True), *end]:
            wanted = np.array([[float(cell) for cell in row.split(",")] for row in rows.split()])
            worst, same = max(worst, np.abs(h.attention[: len(wanted)] - wanted).max()), same + 1
    return Agreement(same, same, 0, 0, worst)


def quantised(arrays: dict, alpha: float | None = 127 / 6) -> dict:
    """Quantise float arrays like marian-conv: pairs of int8 and their multiplier, and alphas unless None."""
    items: dict = {}
    for name, value in arrays.items():
        if "Wemb" not in name and not re.search(r"_W.?$", name):
            items[name] = value
            continue
        multiplier = np.float32(127) / np.abs(value).max()
        items[name] = np.clip(np.rint(value * multiplier), -127, 127).astype(np.int8), multiplier
        if alpha is not None:
            items[f"{name}_QuantMultA"] = np.array([[alpha]], np.float32)
    return items
