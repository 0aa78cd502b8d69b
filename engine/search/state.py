"""The state of a search: plain arrays, one row per slot."""

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
from engine.search.executor import Executor
from engine.types import CANDIDATES, QUOTAS, DecodeOptions

FINITE: Final = 1e30  # the largest number of an option in float32 arithmetic


@dataclass(slots=True)
class SearchState:
    """The state of a search, one row per slot. C columns: the initial token, the target, its end.

    tokens, scores and trail are [slots, C, B] and never reordered: a step writes its column. Row b of column
    c says which token row b took then, its cumulative score, and which row of column c - 1 it continues:
    `trace` follows a hypothesis back. The pool of finished ones [slots, B] holds where each begins:
    row `kept_trail` of column `kept_steps`, the step of the final token.
    """

    tokens: Any
    scores: Any
    trail: Any
    history: Any  # [slots, B, C]: the tokens of each row in order, kept up only where it is looked at
    kept_scores: Any  # cumulative, the end included
    kept_trail: Any
    kept_steps: Any
    kept_count: Any  # [slots], like all that follow but where noted
    done: Any
    step: Any
    current: Any  # [slots, B]: the token to feed next
    parents: Any  # [slots, B]: the slot-local beam that it continues
    total: Any  # [slots, B]: cumulative score, -inf for a beam that may not go on
    plan: Any  # [slots, C]: token forced at each step, or -1
    free: Any  # steps whose forced tokens cost nothing
    width: Any
    shortest: Any  # a test may change it between steps (docs/reference.md 6.3)
    longest: Any
    ngram: Any
    counted: Any  # [slots, QUOTAS]: tokens that may come so often only, filled up with pad,
    quotas: Any  # and how often
    temperature: Any
    unk_penalty: Any
    lm_weight: Any
    word_reward: Any
    exponent: Any  # of the length that scores are divided by; 0 where they are not
    wu: Any
    coverage: Any  # weight of the coverage penalty
    stepwise: Any
    narrowing: Any  # whether each finished hypothesis narrows the beam, as Marian's do
    words: Any  # source positions but end-of-sentence
    attended: Any  # [slots, B, source]: attention each source position has received
    kept_coverage: Any  # [slots, B]: what the hypotheses of the pool left uncovered
    sampling: Any
    top_k: Any
    top_p: Any
    seed: Any
    groups: Any
    strength: Any
    discount: Any
    overlap: Any  # [slots, B, B]: how alike two diverse groups have been

    def move(self, source: Any, target: Any) -> None:
        """Copy one slot over another, or several, each named by an int64 array."""
        for name in FIELDS:
            array = getattr(self, name)
            array[target, ...] = array[source, ...]

    def write_numbers(self, slot: int, options: DecodeOptions) -> None:
        """Write the options of a slot that are plain numbers, clipped where float32 would not stay finite."""
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
        # words compete by it at each step; Marian's counts in the end only
        self.word_reward[slot] = 0.0 if narrowing else _finite(options.word_reward)
        self.exponent[slot] = _finite(penalties.exponent(options))
        self.wu[slot] = options.length_normalization == penalties.WU
        self.coverage[slot] = min(options.coverage_penalty, FINITE)
        self.stepwise[slot] = options.stepwise_penalty
        self.sampling[slot], self.seed[slot] = options.sampling, options.seed
        self.top_k[slot] = options.top_k or CANDIDATES
        self.top_p[slot] = options.top_p if options.top_p < 1 else math.inf  # no cut by a rounding error


FIELDS: Final = tuple(field.name for field in fields(SearchState))
# of a SearchState: what an answer is made of, and what is certain of one
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


def blank(xp: Any, executor: Executor, columns: int) -> SearchState:
    """Make the state of idle slots.

    xp: the executor's array namespace.
    executor: whose slots, beams and device are taken.
    columns: of tables with a column for each step.
    """
    beams = executor.beams
    whole, real = partial(_filled, xp, executor, xp.int64), partial(_filled, xp, executor, xp.float32)
    # of sums of hundreds even differences are good to 1e-4
    exact = partial(_filled, xp, executor, xp.float64)
    flag = partial(_filled, xp, executor, xp.bool)
    return SearchState(
        tokens=whole(columns, beams),
        scores=exact(columns, beams),
        trail=whole(columns, beams),
        history=whole(beams, columns),
        kept_scores=exact(beams),
        kept_trail=whole(beams),
        kept_steps=whole(beams),
        kept_count=whole(),
        done=flag(),
        step=whole(),
        current=whole(beams),
        parents=whole(beams),
        total=exact(beams),
        plan=whole(columns),
        free=whole(),
        width=whole(fill=1),
        shortest=whole(),
        longest=whole(),
        ngram=whole(),
        counted=whole(QUOTAS, fill=executor.pad),
        quotas=whole(QUOTAS),
        temperature=real() + 1.0,  # an idle slot is stepped with the others, and must not make NaN
        unk_penalty=real(),
        lm_weight=real(),
        word_reward=real(),
        exponent=real(),
        wu=flag(),
        coverage=real(),
        stepwise=flag(),
        narrowing=flag(),
        words=whole(),
        attended=real(beams, executor.limits.source),
        kept_coverage=real(beams),
        sampling=flag(),
        top_k=whole(),
        top_p=exact(),
        seed=whole(),
        groups=whole(fill=1),
        strength=real(),
        discount=real(),
        overlap=real(beams, beams),
    )


def _filled(xp: Any, executor: Executor, dtype: Any, *shape: int, fill: int = 0) -> Any:
    """An array [slots, *shape]."""
    shape = (executor.slots, *shape)
    if not fill:  # of zeros the CPU has no page before somebody writes there
        return xp.zeros(shape, dtype=dtype, device=executor.device)
    return xp.full(shape, fill, dtype=dtype, device=executor.device)


def take(slots: Any, table: Any, index: Any) -> Any:
    """Take rows of each slot's table: [n, k, ...]. Several times faster on numpy than take_along_axis.

    slots: int64 [n, 1], 0..n-1.
    table: [n, C, ...].
    index: int64 [n, k], rows of each table.
    """
    return table[slots, index]


def host(array: Any) -> NDArray[Any]:
    """Bring an array of any device to numpy."""
    return array if isinstance(array, np.ndarray) else np.asarray(to_device(array, "cpu"))


def trace(trail: Sequence[Sequence[int]], row: int, column: int, stop: int = 0) -> list[int]:
    """Follow a hypothesis back through the rows that it has been in, on the host.

    trail: [C, B] of one slot.
    row: of the hypothesis in its last column.
    column: the last one.
    stop: the first column that is asked for.

    Returns the rows of columns `stop` to `column`.
    """
    rows = [row]
    for at in range(column, stop, -1):
        rows.append(trail[at][rows[-1]])
    return rows[::-1]
