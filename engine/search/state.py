"""What the search knows of each slot: plain arrays, one row per slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

import numpy as np
from array_api_compat import to_device
from numpy.typing import NDArray

from engine.search.executor import Executor
from engine.types import QUOTAS


@dataclass(slots=True)
class SearchState:
    """What the search knows of each slot. C columns: the initial token, the target, its end.

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
    shortest: Any  # a test may change it between steps (REFERENCE.md 6.3)
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


def blank(xp: Any, executor: Executor, columns: int) -> SearchState:
    """Make a SearchState of idle slots, in the executor's namespace and on its device."""
    slots, beams, device = executor.slots, executor.beams, executor.device

    def whole(*shape: int, fill: int = 0) -> Any:
        if not fill:  # of zeros the CPU has no page before somebody writes there
            return xp.zeros((slots, *shape), dtype=xp.int64, device=device)
        return xp.full((slots, *shape), fill, dtype=xp.int64, device=device)

    def real(*shape: int, dtype: Any = xp.float32) -> Any:
        return xp.zeros((slots, *shape), dtype=dtype, device=device)

    exact = partial(real, dtype=xp.float64)  # of sums of hundreds even differences are good to 1e-4

    def flag() -> Any:
        return xp.zeros(slots, dtype=xp.bool, device=device)

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
        top_p=xp.zeros(slots, dtype=xp.float64, device=device),
        seed=whole(),
        groups=whole(fill=1),
        strength=real(),
        discount=real(),
        overlap=real(beams, beams),
    )


def take(slots: Any, table: Any, index: Any) -> Any:
    """Take what index [n, k] names in each slot of a table [n, C, ...]: [n, k, ...].

    slots: 0..n-1 as [n, 1].

    Several times faster on numpy than take_along_axis, which a step calls a dozen times.
    """
    return table[slots, index]


def host(array: Any) -> NDArray[Any]:
    """Bring an array of any device to numpy."""
    return array if isinstance(array, np.ndarray) else np.asarray(to_device(array, "cpu"))


def trace(trail: Sequence[Sequence[int]], row: int, column: int, stop: int = 0) -> list[int]:
    """Follow the rows that the hypothesis in a row of a column has been in, on the host: of each column from
    `stop` to `column`.

    trail: [C, B] of one slot.
    """
    rows = [row]
    for at in range(column, stop, -1):
        rows.append(trail[at][rows[-1]])
    return rows[::-1]
