"""What to force or ban at each step, and which candidate a sample takes. Pure functions of arrays.

Written against the array API (numpy, or torch on any device): fixed shapes, no boolean indexing, no
integer-array assignment. n slots, B beams, C history columns, K candidates.
"""

from __future__ import annotations

from typing import Any, Final

# splitmix64 (Steele, Lea and Flood 2014), its odd constants as signed 64-bit numbers
_GAMMA: Final = 0x9E3779B97F4A7C15 - 2**64
_MIX: Final = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def repeats(xp: Any, history: Any, step: Any, sizes: Any, *, largest: int, pad: int) -> Any:
    """Find the tokens that would repeat an n-gram (docs/reference.md 6, item 4, and 6.1: the fixed rule).

    xp: the array namespace.
    history: int64 [n, B, C], column 0 the initial end-of-sentence (it counts as history), columns up to
        `step` the tokens so far, anything beyond.
    step: int64 [n], of each slot.
    sizes: int64 [n], 0 for off.
    largest: the largest size.
    pad: the token that stands for none.

    Returns int64 [n, B, C]: the token at each column that ended an earlier n-gram of the same beginning, pad
    elsewhere. Of size 1 every token generated so far is banned, end-of-sentence never.
    """
    n, beams, columns = history.shape
    here, size = step[:, None, None], sizes[:, None, None]
    column = xp.arange(columns, dtype=xp.int64, device=history.device)[None, None, :]
    inside = (column <= here) & (column >= size - 1) & (column >= 1) & (size > 0)  # [n, 1, C]
    hit = xp.broadcast_to(inside, history.shape)
    for back in range(1, min(largest, columns)):
        at = xp.broadcast_to(xp.where(here + 1 > back, here + 1 - back, 0), (n, beams, 1))
        tail = xp.take_along_axis(history, at, axis=2)
        shifted = xp.concat([xp.full_like(history[:, :, :back], -1), history[:, :, :-back]], axis=2)
        hit = hit & ((shifted == tail) | (size <= back))
    return xp.where(hit, history, xp.full_like(history, pad))


def exhausted(xp: Any, history: Any, step: Any, tokens: Any, most: Any, *, pad: int) -> Any:
    """Find the limited tokens that have come as often as they may.

    xp: the array namespace.
    history: as of `repeats`; the initial token counts as none.
    step: int64 [n], of each slot.
    tokens: int64 [n, P], filled up with pad.
    most: int64 [n, P], how many times each token may come.
    pad: the token that stands for none.

    Returns int64 [n, B, P]: the token where it has come so often, pad elsewhere.
    """
    column = xp.arange(history.shape[2], dtype=xp.int64, device=history.device)[None, None, :, None]
    inside = (column <= step[:, None, None, None]) & (column >= 1)
    hits = (history[:, :, :, None] == tokens[:, None, None, :]) & inside
    count = xp.sum(xp.astype(hits, xp.int64), axis=2)  # [n, B, P]
    tokens = xp.broadcast_to(tokens[:, None, :], count.shape)
    return xp.where(count < most[:, None, :], xp.full_like(tokens, pad), tokens)


def tighten(xp: Any, banned: Any, pad: int) -> Any:
    """Move bans into as few columns as the fullest row needs. Reads values.

    xp: the array namespace.
    banned: int64 [n, B, M], pad among the tokens of each row.
    pad: the token that stands for none.

    Returns int64 [n, B, columns].
    """
    unused = xp.astype(banned == pad, xp.int8)
    width = banned.shape[2] - int(xp.min(xp.sum(unused, axis=2, dtype=xp.int64)))
    order = xp.argsort(unused, axis=2, stable=True)[:, :, : width + 1]
    return xp.take_along_axis(banned, order, axis=2)


def uniform(xp: Any, seed: Any, beam: Any, position: Any) -> Any:
    """Draw numbers in [0, 1), float64, by int64 counters that are broadcast together: the number depends on
    them alone, never on slot or batch.

    xp: the array namespace.
    seed: of each request.
    beam: row of each slot.
    position: step of each slot.
    """
    word = _scramble(seed + _GAMMA)
    word = _scramble((word ^ beam) + _GAMMA)
    word = _scramble((word ^ position) + _GAMMA)
    return xp.astype((word >> 11) & (2**53 - 1), xp.float64) * 2.0**-53


def _scramble(word: Any) -> Any:
    word = (word ^ ((word >> 30) & (2**34 - 1))) * _MIX[0]  # masks make the arithmetic shift a logical one
    word = (word ^ ((word >> 27) & (2**37 - 1))) * _MIX[1]
    return word ^ ((word >> 31) & (2**33 - 1))


def draw(xp: Any, scores: Any, top_k: Any, top_p: Any, uniforms: Any) -> Any:
    """Find the index of the candidate that each row takes, by inverse CDF. Returns int64 [n, B].

    xp: the array namespace.
    scores: [n, B, K] log-probabilities, descending. A row without any finite score takes index 0.
    top_k: int64 [n], number of best candidates that are eligible.
    top_p: [n], probability at which the smallest set of best candidates is cut; the crossing one is included.
    uniforms: [n, B], numbers in [0, 1).

    The probabilities of eligible candidates are renormalised.
    """
    scores = xp.astype(scores, xp.float64)
    rank = xp.arange(scores.shape[2], dtype=xp.int64, device=scores.device)[None, None, :]
    mass = xp.exp(scores)
    before = xp.cumulative_sum(mass, axis=2) - mass
    eligible = (rank < top_k[:, None, None]) & (before < top_p[:, None, None]) & (scores > -xp.inf)
    best = xp.where(scores[:, :, :1] > -xp.inf, scores[:, :, :1], 0.0)
    # relative to the best: no row underflows to nothing
    weight = xp.where(eligible, xp.exp(scores - best), 0.0)
    reached = xp.cumulative_sum(weight, axis=2)
    whole = reached[:, :, -1:]
    below = (reached <= uniforms[:, :, None] * whole) & (reached < whole)
    index = xp.sum(xp.astype(below, xp.int64), axis=2)
    return xp.where(whole[:, :, 0] > 0, index, 0)
