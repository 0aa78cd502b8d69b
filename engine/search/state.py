"""State of a search: plain arrays, one row per slot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

import numpy as np
from array_api_compat import to_device
from numpy.typing import NDArray

from engine.search import penalties
from engine.search.executor import LaneNumbers
from engine.types import CANDIDATES, QUOTAS, DecodeOptions

FINITE: Final = 1e30  # options are clipped to this, so that float32 arithmetic stays finite


@dataclass(slots=True)
class SearchState:
    """State of a search, one row per slot. C columns: the initial token, the target, its end.

    tokens, scores and trail are [slots, C, B] and never reordered: each step writes one column. Row b of
    column c holds the token of beam b at that step, its cumulative score, and the row of column c - 1 that it
    continues; `trace` follows a hypothesis back. The pool of finished hypotheses [slots, B] holds the last
    entry of each: row `kept_trail` of column `kept_steps`, the step of its final token.
    """

    tokens: Any
    scores: Any
    trail: Any
    history: Any  # [slots, B, C]: tokens of each beam in order, kept only while a step reads them
    kept_scores: Any  # cumulative score, the end included
    kept_trail: Any
    kept_steps: Any
    kept_count: Any  # [slots], like all later fields unless noted
    done: Any
    step: Any
    current: Any  # [slots, B]: the token to feed next
    parents: Any  # [slots, B]: the slot-local beam that each row continues
    total: Any  # [slots, B]: cumulative score, -inf for a beam that may not continue
    plan: Any  # [slots, C]: the token forced at each step, or -1
    free: Any  # number of first steps at which forced tokens cost nothing
    width: Any
    shortest: Any  # tests may change it between steps (docs/reference.md 6.3)
    longest: Any
    ngram: Any
    counted: Any  # [slots, QUOTAS]: tokens with a limited count, filled up with pad
    quotas: Any  # [slots, QUOTAS]: limits of those tokens
    temperature: Any
    unk_penalty: Any
    lm_weight: Any
    word_reward: Any
    exponent: Any  # power of the length that divides scores; 0 for plain sums
    wu: Any
    coverage: Any  # weight of the coverage penalty
    stepwise: Any
    narrowing: Any  # whether each finished hypothesis narrows the beam, as in Marian
    words: Any  # source positions without end-of-sentence
    attended: Any  # [slots, B, source]: attention each source position has received
    kept_coverage: Any  # [slots, B]: `penalties.log_coverage` of the finished hypotheses
    sampling: Any
    top_k: Any
    top_p: Any
    seed: Any
    groups: Any
    strength: Any
    discount: Any
    overlap: Any  # [slots, B, B], as in `engine.search.diverse.Groups`

    def move(self, source: Any, target: Any) -> None:
        """Copy a slot over another one; an int64 array names several."""
        for name in FIELDS:
            array = getattr(self, name)
            array[target, ...] = array[source, ...]

    def write_numbers(self, slot: int, options: DecodeOptions) -> None:
        """Write the numeric options of a slot, clipped so that float32 arithmetic stays finite."""
        self.width[slot], self.groups[slot] = options.beam_size, options.diverse_groups
        self.ngram[slot] = options.no_repeat_ngram_size
        self.strength[slot] = min(options.diverse_strength, FINITE)
        self.discount[slot] = options.diverse_discount
        self.temperature[slot] = min(max(options.temperature, 1 / FINITE), FINITE)
        penalty = options.unk_penalty
        self.unk_penalty[slot] = penalty if penalty == math.inf else _finite(penalty)
        self.lm_weight[slot] = options.lm_weight
        narrowing = options.beam_rule == penalties.MARIAN
        self.narrowing[slot] = narrowing
        # hypotheses compete by it at each step, except Marian's, where it counts only at the end
        self.word_reward[slot] = 0.0 if narrowing else _finite(options.word_reward)
        self.exponent[slot] = _finite(penalties.exponent(options))
        self.wu[slot] = options.length_normalization == penalties.WU
        self.coverage[slot] = min(options.coverage_penalty, FINITE)
        self.stepwise[slot] = options.stepwise_penalty
        self.sampling[slot], self.seed[slot] = options.sampling, options.seed
        self.top_k[slot] = options.top_k or CANDIDATES
        self.top_p[slot] = options.top_p if options.top_p < 1 else math.inf  # so that rounding cuts nothing


FIELDS: Final = tuple(field.name for field in fields(SearchState))
# fields of a SearchState from which answers and their certain tokens are read
SNAPSHOT: Final = (
    "tokens",
    "scores",
    "trail",
    "kept_scores",
    "kept_trail",
    "kept_steps",
    "kept_count",
    "kept_coverage",
    "step",
    "total",
    "width",
    "longest",
    "word_reward",
)


def _finite(number: float) -> float:
    return min(max(number, -FINITE), FINITE)


def blank(xp: Any, lane: LaneNumbers, columns: int) -> SearchState:
    """Return the state of idle slots.

    xp: array namespace of the lane.
    lane: sizes of the lane.
    columns: number of columns of tables with a column for each step.
    """
    beams = lane.beams
    ints, floats = partial(_filled, xp, lane, xp.int64), partial(_filled, xp, lane, xp.float32)
    # float64, so that differences of sums of hundreds are exact to 1e-4
    doubles = partial(_filled, xp, lane, xp.float64)
    flags = partial(_filled, xp, lane, xp.bool)
    return SearchState(
        tokens=ints(columns, beams),
        scores=doubles(columns, beams),
        trail=ints(columns, beams),
        history=ints(beams, columns),
        kept_scores=doubles(beams),
        kept_trail=ints(beams),
        kept_steps=ints(beams),
        kept_count=ints(),
        done=flags(),
        step=ints(),
        current=ints(beams),
        parents=ints(beams),
        total=doubles(beams),
        plan=ints(columns),
        free=ints(),
        width=ints(fill=1),
        shortest=ints(),
        longest=ints(),
        ngram=ints(),
        counted=ints(QUOTAS, fill=lane.pad),
        quotas=ints(QUOTAS),
        temperature=floats() + 1.0,  # idle slots are stepped too, and must not make NaN
        unk_penalty=floats(),
        lm_weight=floats(),
        word_reward=floats(),
        exponent=floats(),
        wu=flags(),
        coverage=floats(),
        stepwise=flags(),
        narrowing=flags(),
        words=ints(),
        attended=floats(beams, lane.limits.source),
        kept_coverage=floats(beams),
        sampling=flags(),
        top_k=ints(),
        top_p=doubles(),
        seed=ints(),
        groups=ints(fill=1),
        strength=floats(),
        discount=floats(),
        overlap=floats(beams, beams),
    )


def _filled(xp: Any, lane: LaneNumbers, dtype: Any, *shape: int, fill: int = 0) -> Any:
    """Return an array [slots, *shape]."""
    shape = (lane.slots, *shape)
    if not fill:  # the CPU maps a page of zeros only when it is written
        return xp.zeros(shape, dtype=dtype, device=lane.device)
    return xp.full(shape, fill, dtype=dtype, device=lane.device)


def take(slots: Any, table: Any, index: Any) -> Any:
    """Return rows of each slot's table, [n, k, ...]. Several times faster on numpy than take_along_axis.

    slots: int64 [n, 1], 0..n-1.
    table: [n, C, ...].
    index: int64 [n, k], rows of each table.
    """
    return table[slots, index]


def to_numpy(array: Any) -> NDArray[Any]:
    """Return an array of any device as numpy array."""
    return array if isinstance(array, np.ndarray) else np.asarray(to_device(array, "cpu"))


def trace(trail: Sequence[Sequence[int]], row: int, column: int, stop: int = 0) -> list[int]:
    """Return the row of a hypothesis in each of the columns `stop` to `column`, on the host.

    trail: trail [C, B] of one slot.
    row: row of the hypothesis in its last column.
    column: number of that column.
    stop: first column to return.
    """
    rows = [row]
    # trail[at] maps each row of column `at` to its row of the column before
    for at in range(column, stop, -1):
        rows.append(trail[at][rows[-1]])
    return rows[::-1]
