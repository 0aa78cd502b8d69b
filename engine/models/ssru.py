"""Encoder-decoders with simpler simple recurrent units (Kim et al. 2019, "From Research to Production and
Back").

The decoder of Marian's students (Firefox Translations, Bergamot) has one cell for each layer and hypothesis,
with a forget gate that depends only on the input: c = f * c' + (1 - f) * (W x), f = sigmoid(Wf x + bf).
relu(c) is added to x. As in Marian's rnn/cells.h there is no projection after it, and W has no bias. The
encoder is a Transformer's.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.specs import StateSpec
from engine.kernels.reference import ssru_step
from engine.models.model import Past
from engine.models.residual import DecoderLayer, LayerContext
from engine.models.stack import EncoderDecoder
from engine.models.transformer import AttentionDecoderLayer, AttentionEncoderLayer


class RecurrentDecoderLayer(DecoderLayer):
    """A layer with an SSRU cell, which stays float32 because a step adds little while the gate is open."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        dim = context.stack.embed_dim
        self.candidate = nn.Linear(dim, dim, bias=False)
        self.forget_gate = nn.Linear(dim, dim)
        self.spec = StateSpec(f"cell.{context.number}", 1, dim, exact=True)
        self.states = [self.spec]

    def mix(self, x: Tensor) -> Tensor:
        """Run the cell over whole targets [batch, time, dim], beginning with zeros."""
        candidates, forget = self.candidate(x), torch.sigmoid(self.forget_gate(x))
        cell, cells = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            cell = forget[:, t] * cell + (1.0 - forget[:, t]) * candidates[:, t]
            cells.append(cell)
        return F.relu(torch.stack(cells, 1))

    def mix_step(self, x: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, dict[str, Tensor]]:
        ring, rows = past.rings[self.spec.name], past.rows[self.spec.window]
        cell, output = ssru_step(self.candidate(x), self.forget_gate(x), ring, rows)
        return output, {self.spec.name: cell}


class SimplerRecurrent(EncoderDecoder):
    """A Transformer encoder with an SSRU decoder; the presets `ssru_*` have the sizes of Firefox's models."""

    ENCODERS: ClassVar = {"attention": AttentionEncoderLayer}
    DECODERS: ClassVar = {"ssru": RecurrentDecoderLayer, "attention": AttentionDecoderLayer}
