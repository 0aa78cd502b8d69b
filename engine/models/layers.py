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
    """Return an activation function by its name in `engine.bundle.stacks.ACTIVATIONS`."""
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_sigmoid": lambda x: x * torch.sigmoid(x * 1.702),  # Marian's
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # T5's
        "relu6": lambda x: F.relu(x).clamp_max(6),
        "sigmoid": torch.sigmoid,
        "swish": F.silu,
        "tanh": torch.tanh,
    }
    return table[name]


def neighbours(x: Tensor, width: int, left: int, dilation: int = 1) -> Tensor:
    """Concatenate each column with its neighbours, oldest first; a convolution is a projection of the result.

    x: [batch, time, dim].
    width: number of columns to concatenate.
    left: number of positions from the first of these columns to the current one.
    dilation: distance between two neighbours.

    Returns [batch, time, width * dim], with zeros beyond the edges.
    """
    if width == 1:
        return x
    reach = (width - 1) * dilation
    zeros = torch.zeros_like(x[:, :1])
    padded = torch.cat([zeros] * left + [x] + [zeros] * (reach - left), 1)
    # slice k has the neighbour k - left positions away from each column
    begins = range(0, reach + 1, dilation)
    return torch.cat([padded[:, k : k - reach if k < reach else None] for k in begins], -1)


class Positions(nn.Module):
    """Position embedding; `weight` [rows, dim] is learned or a constant table of sinusoids.

    The first token has row `config.first_position`, by default the row after pad (docs/reference.md 1).
    """

    def __init__(self, config: ModelConfig, positions: int, stack: Any) -> None:
        """config: configuration of the model.
        positions: number of positions.
        stack: configuration of the side, with `embed_dim` and `learned_positions`.
        """
        super().__init__()
        first = config.first_position
        self.first = config.pad + 1 if first is None else first
        rows = positions + self.first
        # the reference has a row of zeros for padding, unless positions start at row 0
        self.zero_row = config.pad if first is None else None
        if stack.learned_positions:
            self.weight = nn.Parameter(torch.empty(rows, stack.embed_dim))
        else:
            self.table = rows, stack.embed_dim, self.zero_row, *([True] if config.paper_sinusoids else [])
            self.register_buffer("weight", torch.from_numpy(sinusoids(*self.table)), persistent=False)

    @property
    def recipe(self) -> dict[str, Any]:
        """Recipe that computes the constant again, for graphs without weights (`engine.bundle.recipes`)."""
        return {"sinusoids": list(self.table)}

    def forward(self, positions: Tensor) -> Tensor:
        """Return embeddings [..., dim] of positions, int [...], 0 for the first token."""
        return F.embedding(positions + self.first if self.first else positions, self.weight)


class Timing(nn.Module):
    """SliceNet's timing signal, a constant [positions, dim] (`engine.bundle.tables.timing`)."""

    weight: Tensor

    def __init__(self, positions: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(timing(positions, dim)), persistent=False)

    @property
    def recipe(self) -> dict[str, Any]:
        """Recipe that computes the constant again, for graphs without weights (`engine.bundle.recipes`)."""
        return {"timing": list(self.weight.shape)}

    def forward(self, positions: Tensor) -> Tensor:
        """Return embeddings [..., dim] of positions, int [...], 0 for the first token."""
        return F.embedding(positions, self.weight)


class RelativeBias(nn.Module):
    """Bias that attention adds to logits by head and distance (Raffel et al. 2020).

    weight: [distances, heads], a row for each distance from `least` to `most`; larger distances use the
        nearest row. T5's buckets are expanded to one row for each distance.
    """

    def __init__(self, heads: int, least: int, most: int) -> None:
        super().__init__()
        self.least, self.most = least, most
        self.weight = nn.Parameter(torch.empty(most - least + 1, heads))

    def forward(self, distances: Tensor) -> Tensor:
        """Return the bias [..., heads] of distances, int [...]: query position minus key position."""
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
        """dim: width of inputs and outputs.
        heads: number of heads.
        source_dim: width of the encoder's output; None: dim.
        dropout: dropout rate of the weights in training.
        bias: add biases in the projections.
        inner: width of all heads together; None: dim.
        """
        super().__init__()
        inner = inner or dim
        self.heads, self.width, self.dropout = heads, inner // heads, dropout
        self.mean_heads = 0  # number of heads, from the first, in the returned weights; 0: all
        self.q_proj = nn.Linear(dim, inner, bias=bias)
        self.k_proj = nn.Linear(source_dim or dim, inner, bias=bias)
        self.v_proj = nn.Linear(source_dim or dim, inner, bias=bias)
        self.out_proj = nn.Linear(inner, dim, bias=bias)

    def memory(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys [batch, heads, width, source] and values [batch, heads, source, width] of a source.

        The layouts are those of the two matrix products of attention.

        encoded: output of the encoder [batch, source, dim].
        """
        keys = self.k_proj(encoded).unflatten(2, (self.heads, self.width))
        values = self.v_proj(encoded).unflatten(2, (self.heads, self.width))
        return keys.permute(0, 2, 3, 1), values.transpose(1, 2)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to the source. Queries are target positions in training and beams in a decoding step.

        x: [batch, queries, dim].
        keys: keys of the source [batch, heads, width, source].
        values: values of the source [batch, heads, source, width].
        mask: [batch, source], 0 or -inf, added to the logits.

        Returns [batch, queries, dim] and the weights [batch, queries, source], averaged over `mean_heads`.
        """
        q = self.q_proj(x) * self.width**-0.5
        context, weights = attend(
            q, keys, values, mask, self.dropout if self.training else 0.0, self.mean_heads
        )
        return self.out_proj(context), weights

    def drop_weights(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout) if self.training and self.dropout else weights

    def queries(self, x: Tensor) -> Tensor:
        """Return scaled queries [batch, heads, queries, width] of x [batch, queries, dim]."""
        q: Tensor = (self.q_proj(x) * self.width**-0.5).unflatten(2, (self.heads, self.width))
        return q.transpose(1, 2)
