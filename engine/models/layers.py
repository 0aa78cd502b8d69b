"""Building blocks shared by the architectures. All tensors are batch first."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.tables import sinusoids


class Positions(nn.Module):
    """Position embedding; `weight` [positions + pad + 1, dim] is learned or a sinusoidal constant."""

    def __init__(self, positions: int, dim: int, pad: int, *, learned: bool) -> None:
        super().__init__()
        self.first = pad + 1
        rows = positions + pad + 1
        if learned:
            self.weight = nn.Parameter(torch.empty(rows, dim))
        else:
            self.register_buffer("weight", torch.from_numpy(sinusoids(rows, dim, pad)), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """positions: int, 0 for the first token; any shape. Returns that shape + [dim]."""
        return F.embedding(positions + self.first, self.weight)


class Attention(nn.Module):
    """Multi-head attention over the encoder's output, with keys and values projected once per source."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def memory(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """encoded: [batch, source, dim]. Returns keys [batch, heads, width, source] and values
        [batch, heads, source, width], laid out as the two products below want them."""
        keys = self.k_proj(encoded).unflatten(2, (self.heads, self.width))
        values = self.v_proj(encoded).unflatten(2, (self.heads, self.width))
        return keys.permute(0, 2, 3, 1), values.transpose(1, 2)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """x: [batch, queries, dim]; mask: [batch, source], 0 or -inf, added to the logits.

        Queries are target positions in training and beams in a decoding step: both read the same memory.
        Returns [batch, queries, dim] and the weights, mean over heads, [batch, queries, source].
        """
        q = (self.q_proj(x) * self.width**-0.5).unflatten(2, (self.heads, self.width)).transpose(1, 2)
        logits = torch.matmul(q, keys) + mask[:, None, None, :]
        weights = F.softmax(logits, dim=-1)  # [batch, heads, queries, source]
        context = torch.matmul(weights, values).transpose(1, 2).flatten(2)
        return self.out_proj(context), weights.mean(1)
