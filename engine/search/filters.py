"""Tokens to ban at each step, and the draw of a sample. Pure functions of arrays.

Written against the array API (numpy, or torch on any device): fixed shapes, no boolean indexing, no
integer-array assignment. n slots, B beams, C history columns, K candidates.
"""

from __future__ import annotations

from typing import Any, Final

# splitmix64 (Steele, Lea and Flood 2014), its odd constants as signed 64-bit numbers
_GAMMA: Final = 0x9E3779B97F4A7C15 - 2**64
_MIX: Final = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def repeats(xp: Any, history: Any, step: Any, sizes: Any, *, largest: int, pad: int) -> Any:
    """Return the tokens that would repeat an n-gram (docs/reference.md 6, item 4, and 6.1: the fixed rule).

    xp: array namespace.
    history: int64 [n, B, C]; column 0 is the initial end-of-sentence (it counts as history), columns up to
        `step` are the tokens so far, later columns are ignored.
    step: int64 [n], step of each slot.
    sizes: int64 [n], size of the n-grams of each slot; 0 for off.
    largest: largest of the sizes.
    pad: token that stands for none.

    The result is int64 [n, B, C]: the token at each column that ended an earlier n-gram of the same
    beginning, pad elsewhere. Size 1 bans every token generated so far except end-of-sentence.
    """
    n, beams, columns = history.shape
    newest, size = step[:, None, None], sizes[:, None, None]
    column = xp.arange(columns, dtype=xp.int64, device=history.device)[None, None, :]
    inside = (column <= newest) & (column >= size - 1) & (column >= 1) & (size > 0)  # [n, 1, C]
    hit = xp.broadcast_to(inside, history.shape)
    for back in range(1, min(largest, columns)):
        # the token `back` columns before must equal the one `back` columns before the next token
        at = xp.broadcast_to(xp.where(newest + 1 > back, newest + 1 - back, 0), (n, beams, 1))
        tail = xp.take_along_axis(history, at, axis=2)
        shifted = xp.concat([xp.full_like(history[:, :, :back], -1), history[:, :, :-back]], axis=2)
        hit = hit & ((shifted == tail) | (size <= back))
    return xp.where(hit, history, xp.full_like(history, pad))


def exhausted(xp: Any, history: Any, step: Any, tokens: Any, limits: Any, *, pad: int) -> Any:
    """Return the limited tokens that have reached their limit.

    xp: array namespace.
    history: int64 [n, B, C], see `repeats`; the initial token is not counted.
    step: int64 [n], step of each slot.
    tokens: int64 [n, P], limited tokens of each slot, filled up with pad.
    limits: int64 [n, P], limit of each token.
    pad: token that stands for none.

    The result is int64 [n, B, P]: the token if it has reached its limit, otherwise pad.
    """
    column = xp.arange(history.shape[2], dtype=xp.int64, device=history.device)[None, None, :, None]
    inside = (column <= step[:, None, None, None]) & (column >= 1)
    hits = (history[:, :, :, None] == tokens[:, None, None, :]) & inside
    count = xp.sum(xp.astype(hits, xp.int64), axis=2)  # [n, B, P]
    tokens = xp.broadcast_to(tokens[:, None, :], count.shape)
    return xp.where(count < limits[:, None, :], xp.full_like(tokens, pad), tokens)


def tighten(xp: Any, banned: Any, pad: int) -> Any:
    """Return the bans in as few columns as the fullest row needs, int64 [n, B, columns]. Reads values back.

    xp: array namespace.
    banned: int64 [n, B, M], with pad among the tokens of each row.
    pad: token that stands for none.
    """
    unused = xp.astype(banned == pad, xp.int8)
    width = banned.shape[2] - int(xp.min(xp.sum(unused, axis=2, dtype=xp.int64)))
    # bans first; one more column keeps pad, which is always banned
    order = xp.argsort(unused, axis=2, stable=True)[:, :, : width + 1]
    return xp.take_along_axis(banned, order, axis=2)


def uniform(xp: Any, seed: Any, beam: Any, position: Any) -> Any:
    """Return random numbers in [0, 1), float64. They depend only on the int64 arguments, which are broadcast
    together, and never on slot or batch.

    xp: array namespace.
    seed: seed of each request.
    beam: row of each slot.
    position: step of each slot.
    """
    bits = _scramble(seed + _GAMMA)
    bits = _scramble((bits ^ beam) + _GAMMA)
    bits = _scramble((bits ^ position) + _GAMMA)
    return xp.astype((bits >> 11) & (2**53 - 1), xp.float64) * 2.0**-53


def _scramble(bits: Any) -> Any:
    """Return splitmix64's mix of 64 bits; the masks make arithmetic shifts logical ones."""
    bits = (bits ^ ((bits >> 30) & (2**34 - 1))) * _MIX[0]
    bits = (bits ^ ((bits >> 27) & (2**37 - 1))) * _MIX[1]
    return bits ^ ((bits >> 31) & (2**33 - 1))


def draw(xp: Any, scores: Any, top_k: Any, top_p: Any, uniforms: Any) -> Any:
    """Return the index of the candidate that each row draws, by inverse CDF: int64 [n, B].

    xp: array namespace.
    scores: [n, B, K] log-probabilities, descending. A row without a finite score draws index 0.
    top_k: int64 [n], number of best candidates that are eligible.
    top_p: [n], probability mass of the eligible candidates; the one that crosses it is included.
    uniforms: [n, B], numbers in [0, 1).

    The probabilities of eligible candidates are renormalised.
    """
    scores = xp.astype(scores, xp.float64)
    rank = xp.arange(scores.shape[2], dtype=xp.int64, device=scores.device)[None, None, :]
    mass = xp.exp(scores)
    before = xp.cumulative_sum(mass, axis=2) - mass
    eligible = (rank < top_k[:, None, None]) & (before < top_p[:, None, None]) & (scores > -xp.inf)
    best = xp.where(scores[:, :, :1] > -xp.inf, scores[:, :, :1], 0.0)
    # relative to the best candidate, so that no row underflows to zero
    weight = xp.where(eligible, xp.exp(scores - best), 0.0)
    reached = xp.cumulative_sum(weight, axis=2)
    total = reached[:, :, -1:]
    # the second condition keeps rounding from passing the last eligible candidate
    below = (reached <= uniforms[:, :, None] * total) & (reached < total)
    index = xp.sum(xp.astype(below, xp.int64), axis=2)
    return xp.where(total[:, :, 0] > 0, index, 0)
