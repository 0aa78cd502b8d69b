"""The finished hypotheses of slots: ranked, and followed back to their first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem, sub
from typing import Any, Final

import numpy as np

from engine.search import penalties
from engine.search.executor import Ended
from engine.search.state import SearchState, host, trace
from engine.types import DecodeOptions, Hypothesis

# of a SearchState: what hypotheses are ranked by
POOL_FIELDS: Final = ("kept_scores", "kept_steps", "kept_coverage", "kept_count", "longest", "word_reward")


def best_ends(
    totals: Sequence[float],
    steps: Sequence[int],
    uncovered: Sequence[float],
    longest: int,
    options: DecodeOptions,
) -> list[tuple[float, int]]:
    """Rank the finished hypotheses of a slot.

    totals: of each the sum of its log-probabilities, the end included.
    steps: of each that of its last token.
    uncovered: of each what it left uncovered.
    longest: tokens of the longest target.
    options: of the request.

    Returns score and place of the n_best, best first.
    """
    # Marian cuts at its limit: no end was scored there
    cut = longest if options.beam_rule == penalties.MARIAN else -1
    scores = penalties.scorer(options).scores(totals, steps, uncovered, cut)
    if scores and options.n_best == 1:
        best = max(scores)
        return [(best, scores.index(best))]
    order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    return [(scores[place], place) for place in order[: options.n_best]]


def finished_hypotheses(
    state: SearchState, slots: Sequence[int], ended: Sequence[Ended]
) -> list[list[Hypothesis]]:
    """List the n_best finished hypotheses of slots, best first; maybe none.

    state: the search's, or a copy of some of its slots.
    slots: rows of the state.
    ended: what each of them was asked for.
    """
    if not slots:
        return []
    rows = [*slots]
    fields = [host(getattr(state, name)[rows]).tolist() for name in POOL_FIELDS]
    return [_hypotheses(state, *one) for one in zip(slots, ended, zip(*fields, strict=True), strict=True)]


def _hypotheses(state: SearchState, slot: int, ended: Ended, pool: tuple[Any, ...]) -> list[Hypothesis]:
    """pool: of `POOL_FIELDS`."""
    totals, steps, uncovered, count, longest, price = pool  # price: of ending, which was for the race only
    totals = [total + price for total in totals[:count]]
    best = best_ends(totals, steps[:count], uncovered[:count], longest, ended.options)
    reached = max([steps[place] for _, place in best], default=0) + 1
    tables = (state.tokens, state.scores, state.trail)
    tokens, scores, trail = [host(table[slot, :reached]).tolist() for table in tables]
    begins, hypotheses, attention = host(state.kept_trail[slot]).tolist(), [], ended.attention
    for score, place in best:
        step = steps[place]
        rows = trace(trail, begins[place], step)
        sums = [0.0, *map(getitem, scores[1 : step + 1], rows[1:]), totals[place]]
        hypotheses.append(
            Hypothesis(
                tokens=[*map(getitem, tokens[1 : step + 1], rows[1:])],
                score=score,
                token_scores=[*map(sub, sums[1:], sums)],
                finish="length" if step == longest else "stop",
                attention=None if attention is None else attention_of(attention, rows),
            )
        )
    return hypotheses


def attention_of(attention: Sequence[Any], rows: Sequence[int]) -> Any:
    """Gather the attention of a hypothesis, float32 [steps, S].

    attention: [B, S] of each step.
    rows: the hypothesis's row at each of its steps.
    """
    return np.stack([attention[at][row] for at, row in enumerate(rows)])
