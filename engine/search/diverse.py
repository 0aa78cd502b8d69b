"""Diverse beam search: groups of beams that avoid each other's tokens (Vijayakumar et al. 2016).

Equal to DiverseBeamSearch of fairseq main: group g has the beams g, g + G, ...; groups choose in order, each
B / G candidates; a candidate keeps its penalised score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.search.state import take

NEG = float("-inf")


class Candidates(NamedTuple):
    """Continuations of each slot, best first: float64, int64, int64 [n, 2B]."""

    scores: Any
    tokens: Any
    parents: Any


class Groups(NamedTuple):
    """Settings of each slot, [n], and `overlap` float32 [n, B, B]: how often two groups chose equal tokens,
    discounted at each step."""

    count: Any
    width: Any
    strength: Any
    discount: Any
    overlap: Any


def top(xp: Any, slots: Any, scores: Any, ids: Any, size: int, ranking: Any = None) -> Candidates:
    """Return the best continuations of all rows of each slot. Ties go to the earlier row, then rank.

    xp: array namespace.
    slots: int64 [n, 1], 0..n-1.
    scores: [n, B, k] cumulative scores.
    ids: int64 [n, B, k] tokens.
    size: number of continuations.
    ranking: [n, B, k] numbers to rank by instead of the scores.
    """
    n, beams, k = scores.shape
    ranking = xp.reshape(scores if ranking is None else ranking, (n, beams * k))
    scores, ids = xp.reshape(scores, (n, beams * k)), xp.reshape(ids, (n, beams * k))
    # index i is candidate i % k of row i // k
    order = xp.argsort(-ranking, axis=1, stable=True)[:, :size]
    return Candidates(take(slots, scores, order), take(slots, ids, order), order // k)


def diverse(
    xp: Any, total: Any, scores: Any, ids: Any, groups: Groups, largest: int
) -> tuple[Candidates, Any]:
    """Return the candidates of all groups, interleaved, and the new overlap.

    xp: array namespace.
    total: [n, B] cumulative scores.
    scores: [n, B, k] log-probabilities of each row's best tokens; k = 2B is provably enough, because earlier
        groups hold fewer than 2B tokens.
    ids: int64 [n, B, k], the best tokens.
    groups: settings and overlap of the slots.
    largest: largest number of groups of a slot.

    Each use of a token by an earlier group costs strength * (1 + overlap of the two groups). Overlap counts,
    rank by rank, the equal tokens that two groups chose in earlier steps, discounted at each step.
    """
    n, beams, k = scores.shape
    ranks = xp.arange(2 * beams, dtype=xp.int64, device=scores.device)[None, :]
    slots = xp.arange(n, dtype=xp.int64, device=scores.device)[:, None]
    count, quota = groups.count[:, None], (groups.width // groups.count)[:, None]
    group = ranks[:, :beams] % count
    picked: list[Candidates] = []
    uses: list[Any] = []  # by group, float32 [n, B, k]: how often the group's candidates hold this token
    for g in range(largest):
        usage = xp.zeros_like(scores)
        for earlier, counts in enumerate(uses):
            usage = usage + (1 + groups.overlap[:, g, earlier])[:, None, None] * counts
        penalised = total[:, :, None] + (scores - groups.strength[:, None, None] * usage)
        penalised = xp.where(penalised == penalised, penalised, NEG)  # NaN never wins
        best = top(xp, slots, xp.where((group == g)[:, :, None], penalised, NEG), ids, 2 * beams)
        inside_quota = (ranks < quota) & (best.scores > NEG)
        # a place without a candidate gets a negative token, which equals no token of another group
        best = Candidates(
            xp.where(inside_quota, best.scores, NEG),
            xp.where(inside_quota, best.tokens, -1 - g),
            best.parents,
        )
        picked.append(best)
        same = ids[:, :, :, None] == best.tokens[:, None, None, :]
        uses.append(xp.sum(xp.astype(same, scores.dtype), axis=3))
    tokens = xp.stack([best.tokens for best in picked], axis=1)  # [n, G, 2B], -1 - g for no token
    alike = xp.astype(tokens[:, :, None, :] == tokens[:, None, :, :], scores.dtype)
    overlap = xp.zeros_like(groups.overlap)
    overlap[:, :largest, :largest] = groups.overlap[:, :largest, :largest] + xp.sum(alike, axis=3)
    # interleaved: rank r is candidate r // count of group r % count
    place = (ranks % count) * (2 * beams) + ranks // count
    parts = (xp.concat(part, axis=1) for part in zip(*picked, strict=True))
    interleaved = Candidates(*(take(slots, part, place) for part in parts))
    inside = ranks < groups.width[:, None]
    scores_out = xp.where(inside, interleaved.scores, NEG)
    tokens_out = xp.where(interleaved.tokens >= 0, interleaved.tokens, 0)
    return Candidates(scores_out, tokens_out, interleaved.parents), overlap * groups.discount[:, None, None]
