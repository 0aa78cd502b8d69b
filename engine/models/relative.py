"""Self-attention that knows distances (Shaw, Uszkoreit and Vaswani 2018), as OpenNMT and CTranslate2 do it.

A vector for each distance up to a largest one, the same for all heads, is added to keys and to values;
further tokens share the vector of the largest distance.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.layers import Attention


class RelativeAttention(Attention):
    """Multi-head self-attention; `relative_keys` and `relative_values` [2 * reach + 1, width] hold the
    vectors of the distances -reach to reach."""

    def __init__(self, dim: int, heads: int, reach: int, dropout: float = 0.0) -> None:
        super().__init__(dim, heads, dropout=dropout)
        self.reach = reach
        self.relative_keys = nn.Parameter(torch.empty(2 * reach + 1, self.width))
        self.relative_values = nn.Parameter(torch.empty(2 * reach + 1, self.width))

    def whole(self, x: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """Attend from every position of x [batch, time, dim].

        mask: [batch or 1, time or 1, time], 0 or -inf.
        places: float [batch or 1, time], the number of each token.

        Returns the shape of x.
        """
        far = (places[:, None] - places[:, :, None]).to(torch.int64)
        row = far.clamp(min=-self.reach).clamp_max(self.reach) + self.reach  # [batch, time, time]
        near_keys, near_values = (
            F.embedding(row, table)[:, None] for table in (self.relative_keys, self.relative_values)
        )
        keys, values = self.memory(x)
        q = self.queries(x)
        beside = torch.matmul(q[:, :, :, None], near_keys.transpose(3, 4)).squeeze(3)
        weights = self.drop_weights(F.softmax(torch.matmul(q, keys) + beside + mask[:, None], dim=-1))
        context = torch.matmul(weights, values) + torch.matmul(weights[:, :, :, None], near_values).squeeze(3)
        y: Tensor = self.out_proj(context.transpose(1, 2).flatten(2))
        return y

    def attend_window(
        self, x: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor], index: Tensor, mask: Tensor
    ) -> Tensor:
        """Attend from one position x [slots, beams, dim] with its own key and value.

        past, index, mask: as for `engine.models.transformer.SelfAttention.attend_window`; entries are oldest
            first, so the distance of each is known.
        """
        heads, window = (self.heads, self.width), index.shape[2]
        before = (F.embedding(index, ring.flatten(0, 2)) for ring in past)
        q = self.queries(x).transpose(1, 2)[:, :, :, None]  # [slots, beams, heads, 1, width]
        keys, values = (
            torch.cat([old, new[:, :, None]], 2).unflatten(3, heads).transpose(2, 3)
            for old, new in zip(before, (k, v), strict=True)
        )
        everything = torch.cat([mask, torch.zeros_like(mask[..., :1])], -1)[:, :, None, None]
        near = min(self.reach, window)  # entries that have a vector each; all before them share one
        rows = slice(self.reach - near, self.reach + 1)
        near_keys, near_values = self.relative_keys[rows], self.relative_values[rows]
        begin = window + 1 - near
        logits, beside = torch.matmul(q, keys.transpose(3, 4)), torch.matmul(q, near_keys.transpose(0, 1))
        far = logits[..., :begin] + beside[..., :1]
        logits = torch.cat([far, logits[..., begin:] + beside[..., 1:]], -1) + everything
        weights = F.softmax(logits, dim=-1)
        shares = torch.cat([weights[..., :begin].sum(-1)[..., None], weights[..., begin:]], -1)
        context = torch.matmul(weights, values) + torch.matmul(shares, near_values)
        y: Tensor = self.out_proj(context.squeeze(3).flatten(2))
        return y
