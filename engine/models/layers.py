"""Building blocks shared by the architectures. All tensors are batch first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.config import ModelConfig
from engine.tables import sinusoids


def activation(name: str) -> Callable[[Tensor], Tensor]:
    table: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}
    return table[name]


class Positions(nn.Module):
    """Position embedding; `weight` [rows, dim] is learned or a sinusoidal constant. The first token has row
    `config.first_position`, by default the one after pad (REFERENCE.md 1)."""

    def __init__(self, config: ModelConfig, positions: int, stack: Any) -> None:
        """stack: the side's description, of which `embed_dim` and `learned_positions` count."""
        super().__init__()
        given = config.first_position
        self.first = config.pad + 1 if given is None else given
        rows = positions + self.first
        # a row that stands for padding is zero in the reference; where rows begin at 0 there is none
        self.zero_row = config.pad if given is None else None
        if stack.learned_positions:
            self.weight = nn.Parameter(torch.empty(rows, stack.embed_dim))
        else:
            table = torch.from_numpy(sinusoids(rows, stack.embed_dim, self.zero_row))
            self.register_buffer("weight", table, persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """positions: int, 0 for the first token; any shape. Returns that shape + [dim]."""
        return F.embedding(positions + self.first if self.first else positions, self.weight)


class Attention(nn.Module):
    """Multi-head attention over the encoder's output, with keys and values projected once per source."""

    def __init__(self, dim: int, heads: int, source_dim: int | None = None) -> None:
        """source_dim: width of what is attended to, where it differs."""
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(source_dim or dim, dim)
        self.v_proj = nn.Linear(source_dim or dim, dim)
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
        q = self.queries(x)
        logits = torch.matmul(q, keys) + mask[:, None, None, :]
        weights = F.softmax(logits, dim=-1)  # [batch, heads, queries, source]
        context = torch.matmul(weights, values).transpose(1, 2).flatten(2)
        return self.out_proj(context), weights.mean(1)

    def queries(self, x: Tensor) -> Tensor:
        """Scaled queries [batch, heads, queries, width] of x [batch, queries, dim]."""
        q: Tensor = (self.q_proj(x) * self.width**-0.5).unflatten(2, (self.heads, self.width))
        return q.transpose(1, 2)
