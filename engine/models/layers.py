"""Building blocks shared by the architectures. All tensors are batch first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.config import ModelConfig
from engine.bundle.tables import sinusoids, timing
from engine.kernels.reference import attend


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return the function of a name of `engine.bundle.stacks.ACTIVATIONS`."""
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_sigmoid": lambda x: x * torch.sigmoid(x * 1.702),  # Marian's
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # T5's
        "sigmoid": torch.sigmoid,
        "swish": F.silu,
        "tanh": torch.tanh,
    }
    return table[name]


def neighbours(x: Tensor, width: int, left: int, dilation: int = 1) -> Tensor:
    """Put each column of x [batch, time, dim] beside others around it.

    There are `width` in all, `dilation` apart, the first `left` before it.

    x: [batch, time, dim].
    width: number of columns put together.
    left: how many of them lie before the column itself.
    dilation: distance from one to the next.

    Returns them side by side, oldest first, [batch, time, width * dim]; zeros lie beyond the edges. A
    convolution is a projection of that.
    """
    if width == 1:
        return x
    reach = (width - 1) * dilation
    zeros = torch.zeros_like(x[:, :1])
    padded = torch.cat([zeros] * left + [x] + [zeros] * (reach - left), 1)
    begins = range(0, reach + 1, dilation)
    return torch.cat([padded[:, k : k - reach if k < reach else None] for k in begins], -1)


class Positions(nn.Module):
    """Position embedding; `weight` [rows, dim] is learned or a sinusoidal constant. The first token has row
    `config.first_position`, by default the one after pad (docs/reference.md 1)."""

    def __init__(self, config: ModelConfig, positions: int, stack: Any) -> None:
        """stack: the side's description, of which `embed_dim` and `learned_positions` count."""
        super().__init__()
        first = config.first_position
        self.first = config.pad + 1 if first is None else first
        rows = positions + self.first
        # a row that stands for padding is zero in the reference; where rows begin at 0 there is none
        self.zero_row = config.pad if first is None else None
        if stack.learned_positions:
            self.weight = nn.Parameter(torch.empty(rows, stack.embed_dim))
        else:
            self.table = rows, stack.embed_dim, self.zero_row, *([True] if config.paper_sinusoids else [])
            self.register_buffer("weight", torch.from_numpy(sinusoids(*self.table)), persistent=False)

    @property
    def recipe(self) -> dict[str, Any]:
        """Name what makes the constant again, for graphs without weights."""
        return {"sinusoids": list(self.table)}

    def forward(self, positions: Tensor) -> Tensor:
        """Embed positions, int of any shape, 0 for the first token; return that shape + [dim]."""
        return F.embedding(positions + self.first if self.first else positions, self.weight)


class Timing(nn.Module):
    """SliceNet's timing signal, a constant [positions, dim] (`engine.bundle.tables.timing`)."""

    weight: Tensor

    def __init__(self, positions: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(timing(positions, dim)), persistent=False)

    @property
    def recipe(self) -> dict[str, Any]:
        """Name what makes the constant again, for graphs without weights."""
        return {"timing": list(self.weight.shape)}

    def forward(self, positions: Tensor) -> Tensor:
        """Embed positions, int of any shape, 0 for the first token; return that shape + [dim]."""
        return F.embedding(positions, self.weight)


class RelativeBias(nn.Module):
    """What attention adds to a logit by head and distance (Raffel et al. 2020).

    weight: [distances, heads], a row for each distance from `least` to `most`; those beyond count as the
        nearest.

    T5 shares a number among neighbouring distances, its buckets; here each distance has a row of its own.
    """

    def __init__(self, heads: int, least: int, most: int) -> None:
        super().__init__()
        self.least, self.most = least, most
        self.weight = nn.Parameter(torch.empty(most - least + 1, heads))

    def forward(self, distances: Tensor) -> Tensor:
        """Look up the bias by distances, int, of the query after the key; return their shape + [heads]."""
        row = distances.clamp(min=self.least).clamp_max(self.most) - self.least
        return F.embedding(row, self.weight)


class Attention(nn.Module):
    """Multi-head attention over the encoder's output, with keys and values projected once per source."""

    def __init__(
        self,
        dim: int,
        heads: int,
        source_dim: int | None = None,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        inner: int | None = None,
    ) -> None:
        """source_dim: width of what is attended to, where it differs.
        dropout: of the weights, in training.
        bias: of the projections.
        inner: width of all heads together, where it differs.
        """
        super().__init__()
        inner = inner or dim
        self.heads, self.width, self.dropout = heads, inner // heads, dropout
        self.shown = 0  # heads, the first ones, whose weights are told; 0: all
        self.q_proj = nn.Linear(dim, inner, bias=bias)
        self.k_proj = nn.Linear(source_dim or dim, inner, bias=bias)
        self.v_proj = nn.Linear(source_dim or dim, inner, bias=bias)
        self.out_proj = nn.Linear(inner, dim, bias=bias)

    def memory(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Project what is attended to, encoded [batch, source, dim], to keys and values.

        Keys are [batch, heads, width, source] and values [batch, heads, source, width], laid out as the two
        products below want them.
        """
        keys = self.k_proj(encoded).unflatten(2, (self.heads, self.width))
        values = self.v_proj(encoded).unflatten(2, (self.heads, self.width))
        return keys.permute(0, 2, 3, 1), values.transpose(1, 2)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from x [batch, queries, dim].

        x: [batch, queries, dim].
        keys: of the source, [batch, heads, width, source].
        values: of the source, [batch, heads, source, width].
        mask: [batch, source], 0 or -inf, added to the logits.

        Queries are target positions in training and beams in a decoding step: both read the same memory.
        Returns [batch, queries, dim] and the weights, mean over heads that are shown, [batch, queries,
        source].
        """
        q = self.q_proj(x) * self.width**-0.5
        context, weights = attend(q, keys, values, mask, self.dropout if self.training else 0.0, self.shown)
        return self.out_proj(context), weights

    def drop_weights(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout) if self.training and self.dropout else weights

    def queries(self, x: Tensor) -> Tensor:
        """Return scaled queries [batch, heads, queries, width] of x [batch, queries, dim]."""
        q: Tensor = (self.q_proj(x) * self.width**-0.5).unflatten(2, (self.heads, self.width))
        return q.transpose(1, 2)
