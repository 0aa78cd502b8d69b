"""What is already certain of an answer while it is searched for: the prefix of every hypothesis that can win.

A hypothesis can win when it is live, or the best of those that are finished: the pool only grows, and the
best of it wins. A live one is out of the race when even the best score that it could reach is below that.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from array_api_compat import to_device

from engine.penalties import score
from engine.slots import State
from engine.types import DecodeOptions

# options under which a score is the sum of log-probabilities, none above 0, and its normalisation
BOUNDED: Final = frozenset(
    {
        "beam_size",
        "n_best",
        "length_penalty",
        "length_normalization",
        "beam_rule",
        "normalize_scores",
        "min_length",
        "min_length_a",
        "max_length",
        "max_length_a",
        "max_length_b",
        "no_repeat_ngram_size",
        "unk_penalty",
        "temperature",
        "prefix",
        "sampling",
        "top_k",
        "top_p",
        "seed",
        "diverse_groups",
        "diverse_strength",
        "diverse_discount",
        "alignment",
    }
)
PLAIN: Final = DecodeOptions()
SLACK: Final = 1e-4  # a sum of float32 log-probabilities may exceed the exact one by about that share


def certain(state: State, slot: int, options: DecodeOptions, known: int = 0) -> list[int]:
    """Target tokens that the winning hypothesis of a slot begins with, whatever the search still does.

    known: how many were certain before; they are not compared again. Later calls never retract a token.
    Reads values back from the device.
    """
    step, count = int(state.step[slot]), int(state.kept_count[slot])
    width = int(state.width[slot])
    total = _host(state.total[slot, :width])
    live = np.flatnonzero(total > -np.inf)
    rows = _host(state.tokens[slot, :width, 1 : step + 1])[live]
    ended: list[Any] = []
    if count:
        ended, rows = _race(state, slot, options, rows, total[live])
    candidates = [*rows, *ended]
    if not candidates:
        return []
    length = min(len(row) for row in candidates)
    known = min(known, length)
    first, equal = candidates[0], np.ones(length - known, bool)
    for row in candidates[1:]:
        equal &= row[known:length] == first[known:length]
    same = known + (length - known if equal.all() else int(equal.argmin()))
    return [int(token) for token in first[:same]]


def _race(state: State, slot: int, options: DecodeOptions, rows: Any, total: Any) -> tuple[list[Any], Any]:
    """Finished hypotheses that may still win, and the `rows` that may."""
    count = int(state.kept_count[slot])
    steps = _host(state.kept_steps[slot, :count]).tolist()
    tokens = _host(state.kept_tokens[slot, :count, :])
    ended = [tokens[i, 1 : step + 1] for i, step in enumerate(steps)]
    if not _bounded(options):
        return ended, rows
    sums = _host(state.kept_scores[slot, :count, :])
    final = [score(float(sums[i, step + 1]), step + 1, options) for i, step in enumerate(steps)]
    leader = int(np.argmax(final))
    step, longest = int(state.step[slot]), int(state.longest[slot])
    best = np.array([_ceiling(float(t), step + 1, longest + 1, options) for t in total])
    return [ended[leader]], rows[best >= final[leader]]


def _ceiling(total: float, shortest: int, longest: int, options: DecodeOptions) -> float:
    """The best score that a live hypothesis can reach; lengths include end-of-sentence.

    Its sum can only fall. Below 0, dividing by a power of the length is best done at one of the two ends.
    """
    total += SLACK * (1 - total)
    if total >= 0:
        return math.inf
    return max(score(total, shortest, options), score(total, longest, options))


def _bounded(options: DecodeOptions) -> bool:
    """Whether the ceiling holds; any option that this module does not know keeps every hypothesis in."""
    known = {name: getattr(PLAIN, name) for name in BOUNDED}
    return options.unk_penalty >= 0 and replace(options, **known) == PLAIN


def _host(array: Any) -> Any:
    return np.asarray(to_device(array, "cpu"))
