"""Greedy search: every slot keeps one hypothesis, so nothing is ranked."""

from __future__ import annotations

import math
from typing import Any

from engine.search.executor import TopK
from engine.search.state import SearchState


def greedy(xp: Any, state: SearchState, topk: TopK, n: int, at: tuple[Any, int], *, histories: bool) -> None:
    """Continue each of the first n slots with its best candidate, or finish it; for lanes of one beam.

    xp: array namespace.
    state: state of the search.
    topk: candidates of the step.
    n: number of active slots.
    at: int64 [n] numbers of the slots, and the end-of-sentence token.
    histories: whether later steps read the earlier tokens.

    Reads values back from the device.
    """
    slots, eos = at
    step, done = state.step[:n], state.done[:n]
    tokens, column = topk.ids[:, 0, 0], step + 1
    total = state.total[:n, 0] + topk.scores[:, 0, 0]
    total = xp.where(total == total, total, -math.inf)  # NaN never wins
    state.tokens[slots, column, 0], state.scores[slots, column, 0] = tokens, total
    state.current[:n, 0], state.total[:n, 0] = tokens, total
    if histories:
        state.history[slots, 0, column] = tokens
    ends = (tokens == eos) & (total > -math.inf) & ~done
    if bool(xp.any(ends)):
        state.kept_scores[:n, 0] = xp.where(ends, total, state.kept_scores[:n, 0])
        state.kept_steps[:n, 0] = xp.where(ends, step, state.kept_steps[:n, 0])
        state.kept_count[:n] = xp.where(ends, 1, state.kept_count[:n])
    done = done | ends | (step >= state.longest[:n])
    state.done[:n] = done
    state.step[:n] = step + ~done
