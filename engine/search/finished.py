"""The finished hypotheses of a slot, read back from the search's arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import penalties
from engine.slots import State, host, trace
from engine.types import DecodeOptions, Hypothesis


def finished(
    state: State, slot: int, options: DecodeOptions, attention: Sequence[Any] | None = None
) -> list[Hypothesis]:
    """The n_best finished hypotheses of a slot, best first; maybe none.

    state: the search's, or a copy of some of its slots. attention: a host array [B, S] of each step so far;
    each hypothesis gets its rows by its trail.
    """
    count, longest = int(state.kept_count[slot]), int(state.longest[slot])
    kept = (state.kept_steps, state.kept_scores, state.kept_trail, state.kept_coverage)
    price = float(state.word_reward[slot])  # of ending: it was for the race only
    ends = []
    for step, total, row, uncovered in zip(*(host(x[slot, :count]).tolist() for x in kept), strict=True):
        score = penalties.score(total + price, step + 1, options, uncovered)
        ends.append((score, step, total + price, row))
    ends = sorted(ends, key=lambda end: -end[0])[: options.n_best]
    columns = max((step for _, step, *_ in ends), default=0) + 1
    tables = (state.tokens, state.scores, state.trail)
    tokens, scores, trail = (host(table[slot, :columns, :]).tolist() for table in tables)
    found = []
    for score, step, total, row in ends:
        rows = trace(trail, row, step)
        sums = [0.0, *(scores[at][row] for at, row in enumerate(rows[1:], 1)), total]
        weights = None if attention is None else np.stack([attention[at][row] for at, row in enumerate(rows)])
        found.append(
            Hypothesis(
                tokens=[tokens[at][row] for at, row in enumerate(rows[1:], 1)],
                score=score,
                token_scores=[after - before for before, after in itertools.pairwise(sums)],
                finish="length" if step == longest else "stop",
                attention=weights,
            )
        )
    return found
