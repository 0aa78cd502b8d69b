"""The finished hypotheses of slots: ranked, and followed back to their first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import getitem, sub
from typing import Any, Final, NamedTuple

import numpy as np

from engine.search import penalties
from engine.search.executor import Ended
from engine.search.state import SearchState, host, trace
from engine.types import DecodeOptions, Hypothesis

# of a SearchState: what hypotheses are ranked by
POOL_FIELDS: Final = ("kept_scores", "kept_steps", "kept_coverage", "kept_count", "longest", "word_reward")


class End(NamedTuple):
    """The end of a hypothesis.

    total: sum of its log-probabilities, the end included.
    step: of its last token.
    uncovered: what it left uncovered.
    """

    total: float
    step: int
    uncovered: float


def best_ends(
    ends: Sequence[tuple[float, int, float]], longest: int, options: DecodeOptions
) -> list[tuple[float, int]]:
    """Rank the finished hypotheses of a slot.

    ends: an `End` of each.
    longest: tokens of the longest target.
    options: of the request.

    Returns score and place of the n_best, best first.
    """
    # Marian cuts at its limit: no end was scored there
    cut = longest if options.beam_rule == penalties.MARIAN else -1
    scores = penalties.scorer(options).scores(ends, cut)
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
    *columns, count, longest, price = pool  # price: of ending, which was for the race only
    ends = [End(total + price, *rest) for total, *rest in islice(zip(*columns, strict=True), count)]
    best = best_ends(ends, longest, ended.options)
    reached = max([ends[place].step for _, place in best], default=0) + 1
    tables = (state.tokens, state.scores, state.trail)
    tokens, scores, trail = [host(table[slot, :reached]).tolist() for table in tables]
    begins, hypotheses, attention = host(state.kept_trail[slot]).tolist(), [], ended.attention
    for score, place in best:
        total, step, _ = ends[place]
        rows = trace(trail, begins[place], step)
        sums = [0.0, *map(getitem, scores[1 : step + 1], rows[1:]), total]
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
