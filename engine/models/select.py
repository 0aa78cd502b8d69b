"""From log-probabilities to the best allowed tokens of each row: the end of every decoding step."""

from __future__ import annotations

import torch
from torch import Tensor


def select(
    scores: Tensor, forced: Tensor, banned: Tensor, unk_penalty: Tensor, unk: int | None, k: int
) -> tuple[Tensor, Tensor]:
    """The k best tokens of each row (REFERENCE.md 6, steps 1 to 4).

    scores: log-probabilities [slots, beams, vocab]. forced: int [slots, beams], the only
    token allowed or -1. banned: int [slots, beams, M]. unk_penalty: float [slots];
    unk None: the vocabulary has no such token.
    Returns log-probabilities, descending, and token ids, both [slots, beams, k]. Bans and forced tokens never
    renormalise; NaN counts as impossible.
    """
    if unk is not None:
        at_unk = torch.full_like(banned[..., :1], unk)
        scores = scores.scatter(2, at_unk, scores[..., unk : unk + 1] - unk_penalty[:, None, None])
    only = scores.gather(2, forced.clamp(min=0)[..., None])  # [slots, beams, 1]
    best, ids = torch.topk(scores.scatter(2, banned, -torch.inf), k, dim=-1)
    is_forced = (forced >= 0)[..., None]
    first = torch.full_like(ids, 1).cumsum(-1) == 1
    best = torch.where(is_forced, torch.where(first, only, -torch.inf), best)
    ids = torch.where(is_forced, forced[..., None], ids)
    return torch.where(torch.isnan(best), -torch.inf, best), ids
