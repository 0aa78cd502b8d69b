"""The finished hypotheses of a slot, read back from the search's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem, itemgetter, sub
from typing import Any

import numpy as np

from engine.search import penalties
from engine.search.state import SearchState, host, trace
from engine.types import DecodeOptions, Hypothesis


def finished_hypotheses(
    state: SearchState, slot: int, options: DecodeOptions, attention: Sequence[Any] | None = None
) -> list[Hypothesis]:
    """List the n_best finished hypotheses of a slot, best first; maybe none.

    state: the search's, or a copy of some of its slots.
    slot: row of the state.
    options: of the slot's request.
    attention: a host array [B, S] of each step so far; each hypothesis gets its rows by its trail.
    """
    count, longest = int(state.kept_count[slot]), int(state.longest[slot])
    pool = (state.kept_steps, state.kept_scores, state.kept_trail, state.kept_coverage)
    price = float(state.word_reward[slot])  # of ending: it was for the race only
    # Marian cuts at its limit: no end was scored there
    cut = longest if options.beam_rule == penalties.MARIAN else -1
    ends = []
    for step, total, row, uncovered in zip(*[host(x[slot, :count]).tolist() for x in pool], strict=True):
        score = penalties.score(total + price, step + (step != cut), options, uncovered)
        ends.append((score, step, total + price, row))
    ends.sort(key=itemgetter(0), reverse=True)
    del ends[options.n_best :]
    columns = max([step for _, step, *_ in ends], default=0) + 1
    tables = (state.tokens, state.scores, state.trail)
    tokens, scores, trail = [host(table[slot, :columns]).tolist() for table in tables]
    hypotheses = []
    for score, step, total, row in ends:
        rows = trace(trail, row, step)
        sums = [0.0, *map(getitem, scores[1 : step + 1], rows[1:]), total]
        weights = None if attention is None else np.stack([attention[at][row] for at, row in enumerate(rows)])
        hypotheses.append(
            Hypothesis(
                tokens=[*map(getitem, tokens[1 : step + 1], rows[1:])],
                score=score,
                token_scores=[*map(sub, sums[1:], sums)],
                finish="length" if step == longest else "stop",
                attention=weights,
            )
        )
    return hypotheses
