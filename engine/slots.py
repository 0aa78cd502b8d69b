"""What the search knows of each slot: plain arrays, one row per slot."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from engine.executor import Executor


@dataclass(slots=True)
class State:
    """What the search knows of each slot. C columns: the initial end-of-sentence, the target, its end.

    Histories are [slots, B, C]; `trail` is the slot-local beam row whose step produced the token. The pool
    of finished hypotheses (`kept...`) has the same form; `kept_steps` is the step of the final token.
    """

    tokens: Any
    scores: Any  # cumulative
    trail: Any
    kept_tokens: Any
    kept_scores: Any
    kept_trail: Any
    kept_steps: Any  # [slots, B]
    kept_count: Any  # [slots], like all that follow but where noted
    done: Any
    step: Any
    current: Any  # [slots, B]: the token to feed next
    parents: Any  # [slots, B]: the slot-local beam that it continues
    total: Any  # [slots, B]: cumulative score, -inf for a beam that may not go on
    plan: Any  # [slots, C]: token forced at each step, or -1
    width: Any
    shortest: Any  # a test may change it between steps (REFERENCE.md 6.3)
    longest: Any
    ngram: Any
    temperature: Any
    unk_penalty: Any
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

    def move(self, source: int, target: int) -> None:
        """Copy one slot over another."""
        for field in fields(self):
            array = getattr(self, field.name)
            array[target, ...] = array[source, ...]


def blank(xp: Any, executor: Executor, columns: int) -> State:
    """State of idle slots, in the executor's namespace and on its device."""
    slots, beams, device = executor.slots, executor.beams, executor.device

    def whole(*shape: int, fill: int = 0) -> Any:
        return xp.full((slots, *shape), fill, dtype=xp.int64, device=device)

    def real(*shape: int) -> Any:
        return xp.zeros((slots, *shape), dtype=xp.float32, device=device)

    def exact(*shape: int) -> Any:
        # sums of hundreds of log-probabilities, of which the differences must still be good to 1e-4
        return xp.zeros((slots, *shape), dtype=xp.float64, device=device)

    def flag() -> Any:
        return xp.zeros(slots, dtype=xp.bool, device=device)

    return State(
        tokens=whole(beams, columns, fill=executor.eos),
        scores=exact(beams, columns),
        trail=whole(beams, columns),
        kept_tokens=whole(beams, columns, fill=executor.eos),
        kept_scores=exact(beams, columns),
        kept_trail=whole(beams, columns),
        kept_steps=whole(beams),
        kept_count=whole(),
        done=flag(),
        step=whole(),
        current=whole(beams),
        parents=whole(beams),
        total=exact(beams),
        plan=whole(columns),
        width=whole(fill=1),
        shortest=whole(),
        longest=whole(),
        ngram=whole(),
        temperature=real(),
        unk_penalty=real(),
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


def take(xp: Any, table: Any, index: Any) -> Any:
    """What index [n, k] names in each slot of a table [n, C, ...]: [n, k, ...]. Several times faster on numpy
    than take_along_axis, which a step calls a dozen times."""
    slot = xp.arange(index.shape[0], dtype=xp.int64, device=index.device)
    return table[slot[:, None], index]
