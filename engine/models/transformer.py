"""The Transformer, the papers' self-attention baseline (Vaswani et al. 2017), as fairseq computes it.

REFERENCE.md section 5. A kernel width limits self-attention to a window of that many positions: Table 3 of
"Pay Less Attention". Without one the decoder keeps everything since the first token in caches; with one, its
state is as small as a convolution's.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.layers import Attention
from engine.models.model import Past
from engine.models.stack import DecoderLayer, EncoderDecoder, EncoderLayer, Where
from engine.specs import StateSpec


class SelfAttention(Attention):
    """Multi-head self-attention over a whole sequence or one step of it."""

    def whole(self, x: Tensor, mask: Tensor) -> Tensor:
        """x: [batch, time, dim]; mask: [batch or 1, time or 1, time], 0 or -inf. Returns the shape of x."""
        keys, values = self.memory(x)
        weights = F.softmax(torch.matmul(self.queries(x), keys) + mask[:, None], dim=-1)
        y: Tensor = self.out_proj(torch.matmul(self.dropped(weights), values).transpose(1, 2).flatten(2))
        return y

    def cached(self, x: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor], lineage: Tensor) -> Tensor:
        """One position x [slots, beams, dim] with its own key and value (same shape).

        past: cached keys and values [slots, heads, columns, beams, width]. Every beam's query meets every
        beam's entries and `lineage` [slots, beams, columns * beams] leaves it its own: nothing is gathered.
        """
        heads = (self.heads, self.width)
        q = self.queries(x)  # [slots, heads, beams, width]
        k, v = (y.unflatten(2, heads).transpose(1, 2) for y in (k, v))
        keys, values = (y.flatten(2, 3) for y in past)
        before = torch.matmul(q, keys.transpose(2, 3)) + lineage[:, None]
        now = (q * k).sum(-1)[..., None]
        weights = F.softmax(torch.cat([before, now], -1), dim=-1)
        context = torch.matmul(weights[..., :-1], values) + weights[..., -1:] * v
        y: Tensor = self.out_proj(context.transpose(1, 2).flatten(2))
        return y

    def windowed(self, x: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """One position x [slots, beams, dim] with its own key and value.

        past: keys and values of each hypothesis's last positions [slots, beams, window, dim]; mask: [slots,
        1, window], -inf before its first token.
        """
        heads = (self.heads, self.width)
        q = self.queries(x).transpose(1, 2)[:, :, :, None]  # [slots, beams, heads, 1, width]
        keys, values = (
            torch.cat([old, new[:, :, None]], 2).unflatten(3, heads).transpose(2, 3)
            for old, new in zip(past, (k, v), strict=True)
        )
        everything = torch.cat([mask, torch.zeros_like(mask[..., :1])], -1)[:, :, None, None]
        logits = torch.matmul(q, keys.transpose(3, 4)) + everything
        context = torch.matmul(F.softmax(logits, dim=-1), values)
        y: Tensor = self.out_proj(context.squeeze(3).flatten(2))
        return y


class AttentionEncoderLayer(EncoderLayer):
    def __init__(self, where: Where) -> None:
        super().__init__(where)
        self.reach = where.width // 2 if where.width else None
        stack = where.stack
        self.self_attn = SelfAttention(stack.embed_dim, stack.heads, dropout=where.dropout.attention)

    def mix(self, x: Tensor, real: Tensor) -> Tensor:
        mask = torch.where(real > 0, 0.0, -torch.inf)[:, None]
        if self.reach is not None:
            # counts tokens, so padding on any side changes nothing; padding at the left sees the first token
            place = real.cumsum(1).clamp(min=1)
            far = (place[:, :, None] - place[:, None]).abs() > self.reach
            mask = torch.where(far, -torch.inf, mask)
        return self.self_attn.whole(x, mask)


class AttentionDecoderLayer(DecoderLayer):
    def __init__(self, where: Where) -> None:
        super().__init__(where)
        stack, number = where.stack, where.number
        self.width = where.width
        self.self_attn = SelfAttention(stack.embed_dim, stack.heads, dropout=where.dropout.attention)
        window, heads = (self.width - 1, 0) if self.width else (where.config.max_target - 1, stack.heads)
        if window:
            self.states = [
                StateSpec(f"self_{part}.{number}", window, stack.embed_dim, heads)
                for part in ("keys", "values")
            ]

    def mix(self, x: Tensor) -> Tensor:
        time = torch.arange(x.shape[1], device=x.device)
        ago = time[:, None] - time[None]
        seen = (ago >= 0) & (ago < self.width) if self.width else ago >= 0
        return self.self_attn.whole(x, torch.where(seen, 0.0, -torch.inf)[None])

    def mix_step(self, x: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, dict[str, Tensor]]:
        k, v = self.self_attn.k_proj(x), self.self_attn.v_proj(x)
        if not self.states:  # it sees itself only
            return self.self_attn.out_proj(v), {}
        keys, values = (spec.name for spec in self.states)
        if self.width:
            window = self.states[0].window
            ages = torch.arange(window, 0, -1, device=x.device)
            mask = torch.where(positions >= ages, 0.0, -torch.inf)[:, None]  # [slots, 1, window]
            before = past.window(self.states[0]), past.window(self.states[1])
            y = self.self_attn.windowed(x, k, v, before, mask)
        else:
            assert past.lineage is not None
            y = self.self_attn.cached(x, k, v, (past.caches[keys], past.caches[values]), past.lineage)
        return y, {keys: k, values: v}


class Transformer(EncoderDecoder):
    ENCODERS: ClassVar = {"attention": AttentionEncoderLayer}
    DECODERS: ClassVar = {"attention": AttentionDecoderLayer}
