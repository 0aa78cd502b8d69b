"""Ranks the finished hypotheses of slots, and follows them back to their first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem, sub
from typing import Any, Final

import numpy as np

from engine.search import penalties
from engine.search.executor import SlotRequest
from engine.search.state import SearchState, to_numpy, trace
from engine.types import DecodeOptions, Hypothesis

# fields of a SearchState by which hypotheses are ranked
POOL_FIELDS: Final = ("kept_scores", "kept_steps", "kept_coverage", "kept_count", "longest", "word_reward")


def best_ends(
    totals: Sequence[float],
    steps: Sequence[int],
    uncovered: Sequence[float],
    longest: int,
    options: DecodeOptions,
) -> list[tuple[float, int]]:
    """Return score and index of the n_best finished hypotheses of a slot, best first.

    totals: sum of the log-probabilities of each hypothesis, the end included.
    steps: step of each hypothesis's last token.
    uncovered: `engine.search.penalties.log_coverage` of each hypothesis.
    longest: tokens of the longest target.
    options: options of the request.
    """
    # Marian cuts at its limit, where no end was scored
    cut = longest if options.beam_rule == penalties.MARIAN else -1
    scores = penalties.scorer(options).scores(totals, steps, uncovered, cut)
    if scores and options.n_best == 1:
        best = max(scores)
        return [(best, scores.index(best))]
    order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    return [(scores[index], index) for index in order[: options.n_best]]


def finished_hypotheses(
    state: SearchState, slots: Sequence[int], finished: Sequence[SlotRequest]
) -> list[list[Hypothesis]]:
    """Return the n_best finished hypotheses of each slot, best first; possibly none.

    state: state of the search, or a copy of some of its slots.
    slots: rows of the state.
    finished: requests of these slots.
    """
    if not slots:
        return []
    rows = [*slots]
    fields = [to_numpy(getattr(state, name)[rows]).tolist() for name in POOL_FIELDS]
    pools = zip(*fields, strict=True)
    return [_hypotheses(state, *slot) for slot in zip(slots, finished, pools, strict=True)]


def _hypotheses(
    state: SearchState, slot: int, request: SlotRequest, pool: tuple[Any, ...]
) -> list[Hypothesis]:
    """Return the hypotheses of a slot; `pool` is its values of `POOL_FIELDS`."""
    totals, steps, uncovered, count, longest, end_price = pool
    # the price of ending counts only while hypotheses compete
    totals = [total + end_price for total in totals[:count]]
    best = best_ends(totals, steps[:count], uncovered[:count], longest, request.options)
    # number of columns up to the last token of all
    reached = max([steps[index] for _, index in best], default=0) + 1
    tables = (state.tokens, state.scores, state.trail)
    tokens, scores, trail = [to_numpy(table[slot, :reached]).tolist() for table in tables]
    begins, hypotheses, attention = to_numpy(state.kept_trail[slot]).tolist(), [], request.attention
    for score, index in best:
        step = steps[index]
        rows = trace(trail, begins[index], step)
        # cumulative scores; the score of a token is the difference of two neighbours
        sums = [0.0, *map(getitem, scores[1 : step + 1], rows[1:]), totals[index]]
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
    """Return the attention of a hypothesis, float32 [steps, S].

    attention: attention [B, S] of each step.
    rows: row of the hypothesis at each of its steps.
    """
    return np.stack([attention[at][row] for at, row in enumerate(rows)])
