"""The end of every decoding step: select the best allowed tokens of each row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function


class SelectionRules(NamedTuple):
    """Constraints of the search on a selection.

    forced: int [slots, beams], the only allowed token, or -1.
    banned: int [slots, beams, M], tokens that must not be selected.
    unk_penalty, eos_penalty: float [slots], subtracted from the log-probability of the token.
    """

    forced: Tensor
    banned: Tensor
    unk_penalty: Tensor
    eos_penalty: Tensor


def select(scores: Tensor, rules: SelectionRules, unk: int | None, eos: int, k: int) -> tuple[Tensor, Tensor]:
    """Select the k best tokens of each row (docs/reference.md 6, steps 1 to 4).

    scores: log-probabilities [slots, beams, vocab].
    rules: bans, forced tokens and penalties of each row.
    unk: id of the unknown token, or None.
    eos: id of end-of-sentence.
    k: number of tokens.

    Returns log-probabilities, descending, and token ids, both [slots, beams, k]. Bans and forced tokens never
    renormalise; NaN counts as impossible.
    """
    if has_torch_function((scores,)):
        exported: tuple[Tensor, Tensor] = handle_torch_function(select, (scores,), scores, rules, unk, eos, k)
        return exported
    return select_plainly(scores, rules, unk, eos, k)


def select_plainly(
    scores: Tensor, rules: SelectionRules, unk: int | None, eos: int, k: int
) -> tuple[Tensor, Tensor]:
    """Compute `select` with standard operators, for executors without a kernel of their own.

    scores: log-probabilities [slots, beams, vocab].
    rules: bans, forced tokens and penalties of each row.
    unk: id of the unknown token, or None.
    eos: id of end-of-sentence.
    k: number of tokens.
    """
    forced, banned = rules.forced, rules.banned
    penalties = [(eos, rules.eos_penalty), *([] if unk is None else [(unk, rules.unk_penalty)])]
    # overwrite the scores of end-of-sentence and unknown by the penalised ones
    columns = [torch.full_like(banned[..., :1], token) for token, _ in penalties]
    penalised_scores = [
        scores[..., token : token + 1] - penalty[:, None, None] for token, penalty in penalties
    ]
    scores = scores.scatter(2, torch.cat(columns, -1), torch.cat(penalised_scores, -1))
    # read before the bans, which do not apply to forced tokens; -1 reads token 0, which `is_forced` drops
    forced_scores = scores.gather(2, forced.clamp(min=0)[..., None])  # [slots, beams, 1]
    best, ids = torch.topk(scores.scatter(2, banned, -torch.inf), k, dim=-1)
    is_forced = (forced >= 0)[..., None]
    first = torch.full_like(ids, 1).cumsum(-1) == 1  # a forced token is the only candidate of its row
    best = torch.where(is_forced, torch.where(first, forced_scores, -torch.inf), best)
    ids = torch.where(is_forced, forced[..., None], ids)
    return torch.where(torch.isnan(best), -torch.inf, best), ids
