"""The finished hypotheses of slots, read back from the search's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import getitem, itemgetter, sub
from typing import Any, Final, NamedTuple

import numpy as np

from engine.search import penalties
from engine.search.state import SearchState, host, trace
from engine.types import DecodeOptions, Hypothesis

# of a SearchState: what is read of all slots at once
POOL_FIELDS: Final = ("kept_steps", "kept_scores", "kept_trail", "kept_coverage")
SLOT_FIELDS: Final = ("kept_count", "longest", "word_reward")


class Ended(NamedTuple):
    """What a slot that is done was asked for.

    options: of its request.
    attention: a host array [B, S] of each step so far, or none; each hypothesis gets its rows by its trail.
    """

    options: DecodeOptions
    attention: Sequence[Any] | None = None


class End(NamedTuple):
    """The end of a hypothesis: its score, the column and row of its last token, and the sum there."""

    score: float
    step: int
    total: float
    row: int


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
    fields = [host(getattr(state, name)[rows]).tolist() for name in POOL_FIELDS + SLOT_FIELDS]
    pools = zip(*fields, strict=True)
    return [
        _hypotheses(state, slot, of, _best(pool, of.options), pool[-2])
        for slot, of, pool in zip(slots, ended, pools, strict=True)
    ]


def _best(pool: tuple[Any, ...], options: DecodeOptions) -> list[End]:
    """The ends of the n_best hypotheses of a slot."""
    *columns, count, longest, price = pool  # price: of ending, which was for the race only
    # Marian cuts at its limit: no end was scored there
    cut = longest if options.beam_rule == penalties.MARIAN else -1
    ends = [
        End(
            penalties.score(total + price, step + (step != cut), options, uncovered), step, total + price, row
        )
        for step, total, row, uncovered in islice(zip(*columns, strict=True), count)
    ]
    ends.sort(key=itemgetter(0), reverse=True)
    return ends[: options.n_best]


def _hypotheses(
    state: SearchState, slot: int, ended: Ended, ends: Sequence[End], longest: int
) -> list[Hypothesis]:
    columns = max([end.step for end in ends], default=0) + 1
    tables = (state.tokens, state.scores, state.trail)
    tokens, scores, trail = [host(table[slot, :columns]).tolist() for table in tables]
    hypotheses, attention = [], ended.attention
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
