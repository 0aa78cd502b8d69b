"""The Transformer (Vaswani et al. 2017) as fairseq computes it (docs/reference.md 5).

A kernel width limits self-attention to a window of that many positions: Table 3 of
"Pay Less Attention". Without one the decoder keeps everything since the first token in caches; with one, its
state is as small as a convolution's.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.specs import StateSpec
from engine.kernels.reference import QKV, attend_cached, attend_whole, attend_window
from engine.models.layers import Attention, RelativeBias
from engine.models.model import Past
from engine.models.residual import DecoderLayer, EncoderLayer, LayerContext
from engine.models.stack import EncoderDecoder


class SelfAttention(Attention):
    """Multi-head self-attention over whole sequences or in one step.

    relative: bias by distance, which layers may share, or None.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        inner: int | None = None,
        relative: RelativeBias | None = None,
    ) -> None:
        super().__init__(dim, heads, dropout=dropout, bias=bias, inner=inner)
        self.relative = relative

    @classmethod
    def of(cls, context: LayerContext) -> SelfAttention:
        """Return the self-attention of a layer."""
        stack = context.stack
        return cls(
            stack.embed_dim,
            stack.heads,
            context.dropout.attention,
            bias=stack.biases,
            inner=stack.attention_width,
            relative=context.relative,
        )

    def whole(self, x: Tensor, mask: Tensor) -> Tensor:
        """Attend from every position to the whole sequence; returns the shape of x.

        x: [batch, time, dim].
        mask: [batch or 1, time or 1, time], 0 or -inf.
        """
        keys, values, bias = self.k_proj(x), self.v_proj(x), None
        qkv = QKV(self.q_proj(x) * self.width**-0.5, keys, values)
        if self.relative is not None:
            # 1, 2, ...: only differences of positions matter
            position = torch.full_like(mask[:1, :1], 1.0).cumsum(2).to(torch.int64).squeeze(0)  # [1, time]
            bias = self.relative(position.transpose(0, 1) - position).permute(2, 0, 1)
        dropout = self.dropout if self.training else 0.0
        y: Tensor = self.out_proj(attend_whole(qkv, mask, self.heads, bias, dropout))
        return y

    def attend_cached(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        past: tuple[Tensor, Tensor],
        lineage: Tensor,
        bias: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Attend from the new position of each hypothesis to the same position and to all cached ones.

        The query of each beam is multiplied with the entries of all beams, and `lineage` masks those of other
        hypotheses, so that no entry is copied.

        x: [slots, beams, dim].
        k, v: key and value of the new position, of the shape of x.
        past: cached keys and values [slots, heads, columns, beams, width].
        lineage: [slots, beams, columns * beams], 0 at the entries of the hypothesis and -inf elsewhere.
        bias: bias by distance for the cached entries and for the new position (`bias`), or None.
        """
        q = self.q_proj(x) * self.width**-0.5
        y: Tensor = self.out_proj(attend_cached(QKV(q, k, v), past, lineage, bias))
        return y

    def bias(self, positions: Tensor, cached: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the bias of the cached entries [slots, heads, 1, columns * beams] and of the new position
        [slots, heads, 1, 1]; None without a bias by distance.

        positions: int [slots, 1].
        cached: cached keys (`attend_cached`).
        """
        if self.relative is None:
            return None
        # 1, 2, ...: column i holds the key of position i - 1
        column = torch.full_like(cached[:, :1, :, :, :1].squeeze(4).squeeze(1), 1.0).cumsum(1).to(torch.int64)
        before = self.relative(positions[..., None] + 1 - column).permute(0, 3, 1, 2).flatten(2)
        now = self.relative(torch.zeros_like(positions)).transpose(1, 2)
        return before[:, :, None], now[:, :, None]

    def attend_window(
        self, x: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor], index: Tensor, mask: Tensor
    ) -> Tensor:
        """Attend from a new position to itself and to the window before it.

        x: [slots, beams, dim].
        k, v: key and value of the new position, of the shape of x.
        past: rings of keys and values [slots, window, beams, dim].
        index: rows of the rings with the last positions of each hypothesis [slots, beams, window].
        mask: [slots, 1, window], -inf before the first token.
        """
        q = self.q_proj(x) * self.width**-0.5
        y: Tensor = self.out_proj(attend_window(QKV(q, k, v), past, index, mask, self.heads))
        return y


class RelativeAttention(Attention):
    """Multi-head self-attention with relative positions (Shaw, Uszkoreit and Vaswani 2018) as in OpenNMT and
    CTranslate2: a vector for each distance is added to keys and to values. All heads share the vectors, and
    all distances above `reach` share the last one.

    `relative_keys` and `relative_values` [2 * reach + 1, width] hold the vectors of the distances -reach to
    reach.
    """

    def __init__(
        self, dim: int, heads: int, reach: int, dropout: float = 0.0, *, inner: int | None = None
    ) -> None:
        super().__init__(dim, heads, dropout=dropout, inner=inner)
        self.reach = reach
        self.relative_keys = nn.Parameter(torch.empty(2 * reach + 1, self.width))
        self.relative_values = nn.Parameter(torch.empty(2 * reach + 1, self.width))

    def whole(self, x: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Attend from every position to the whole sequence; returns the shape of x.

        x: [batch, time, dim].
        mask: [batch or 1, time or 1, time], 0 or -inf.
        positions: float [batch or 1, time], position of each token.
        """
        distance = (positions[:, None] - positions[:, :, None]).to(torch.int64)
        row = distance.clamp(min=-self.reach).clamp_max(self.reach) + self.reach  # [batch, time, time]
        near_keys, near_values = (
            F.embedding(row, table)[:, None] for table in (self.relative_keys, self.relative_values)
        )
        keys, values = self.memory(x)
        q = self.queries(x)
        by_distance = torch.matmul(q[:, :, :, None], near_keys.transpose(3, 4)).squeeze(3)
        weights = self.drop_weights(F.softmax(torch.matmul(q, keys) + by_distance + mask[:, None], dim=-1))
        context = torch.matmul(weights, values) + torch.matmul(weights[:, :, :, None], near_values).squeeze(3)
        y: Tensor = self.out_proj(context.transpose(1, 2).flatten(2))
        return y

    def attend_window(
        self, x: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor], index: Tensor, mask: Tensor
    ) -> Tensor:
        """Attend from a new position to itself and to the window before it.

        x: [slots, beams, dim].
        k, v: key and value of the new position, of the shape of x.
        past, index, mask: arguments of `SelfAttention.attend_window`; entries are ordered from the oldest to
            the newest, which gives their distances.
        """
        heads, window = (self.heads, self.width), index.shape[2]
        before = (F.embedding(index, ring.flatten(0, 2)) for ring in past)
        q = self.queries(x).transpose(1, 2)[:, :, :, None]  # [slots, beams, heads, 1, width]
        keys, values = (
            torch.cat([old, new[:, :, None]], 2).unflatten(3, heads).transpose(2, 3)
            for old, new in zip(before, (k, v), strict=True)
        )
        full_mask = torch.cat([mask, torch.zeros_like(mask[..., :1])], -1)[:, :, None, None]
        # the `near` newest entries have a vector each; the `begin` earlier ones share the first vector
        near = min(self.reach, window)
        rows = slice(self.reach - near, self.reach + 1)
        near_keys, near_values = self.relative_keys[rows], self.relative_values[rows]
        begin = window + 1 - near
        logits, by_distance = (
            torch.matmul(q, keys.transpose(3, 4)),
            torch.matmul(q, near_keys.transpose(0, 1)),
        )
        far = logits[..., :begin] + by_distance[..., :1]
        logits = torch.cat([far, logits[..., begin:] + by_distance[..., 1:]], -1) + full_mask
        weights = F.softmax(logits, dim=-1)
        shares = torch.cat([weights[..., :begin].sum(-1)[..., None], weights[..., begin:]], -1)
        context = torch.matmul(weights, values) + torch.matmul(shares, near_values)
        y: Tensor = self.out_proj(context.squeeze(3).flatten(2))
        return y


class AttentionEncoderLayer(EncoderLayer):
    """Self-attention of a source; `reach`: largest distance to a visible position, or None."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.reach = context.width // 2 if context.width else None
        self.self_attn = _self_attention(context)

    @property
    def packs(self) -> bool:
        plain = isinstance(self.self_attn, SelfAttention) and self.self_attn.relative is None
        return plain and self.reach is None

    def mix(self, x: Tensor, real: Tensor) -> Tensor:
        """Attend from each token to the tokens, or to those within `reach` positions."""
        mask = torch.where(real > 0, 0.0, -torch.inf)[:, None]
        if isinstance(self.self_attn, RelativeAttention):
            return self.self_attn.whole(x, mask, real.cumsum(1))
        if self.reach is not None:
            # positions count tokens only, so padding changes nothing on any side; left padding has position 1
            position = real.cumsum(1).clamp(min=1)
            far = (position[:, :, None] - position[:, None]).abs() > self.reach
            mask = torch.where(far, -torch.inf, mask)
        return self.self_attn.whole(x, mask)


class AttentionDecoderLayer(DecoderLayer):
    """Causal self-attention; `width`: number of visible positions, or 0 for all."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        stack, number = context.stack, context.number
        self.width = context.width
        self.self_attn = _self_attention(context)
        window, heads = (self.width - 1, 0) if self.width else (context.config.max_target - 1, stack.heads)
        if window:
            self.states = [
                StateSpec(f"self_{part}.{number}", window, stack.attention_width, heads)
                for part in ("keys", "values")
            ]

    def mix(self, x: Tensor) -> Tensor:
        """Attend from each position to itself and the earlier ones, at most `width` in all if it is not 0."""
        time = torch.arange(x.shape[1], device=x.device)
        age = time[:, None] - time[None]  # steps from a column back to each earlier one
        visible = (age >= 0) & (age < self.width) if self.width else age >= 0
        mask = torch.where(visible, 0.0, -torch.inf)[None]
        if isinstance(self.self_attn, RelativeAttention):
            return self.self_attn.whole(x, mask, time[None].to(x.dtype))
        return self.self_attn.whole(x, mask)

    def mix_step(self, x: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, dict[str, Tensor]]:
        # attend to the rings of a window or to the caches; return key and value as new columns
        k, v = self.self_attn.k_proj(x), self.self_attn.v_proj(x)
        if not self.states:  # a window of one position has the weight 1
            return self.self_attn.out_proj(v), {}
        keys, values = (spec.name for spec in self.states)
        if self.width:
            window = self.states[0].window
            ages = torch.arange(window, 0, -1, device=x.device)
            mask = torch.where(positions >= ages, 0.0, -torch.inf)[:, None]  # [slots, 1, window]
            rings = past.rings[keys], past.rings[values]
            y = self.self_attn.attend_window(x, k, v, rings, past.rows[window], mask)
        else:
            # states with heads have a lineage, and relative positions need a window (`AttentionFields`)
            assert past.lineage is not None
            assert isinstance(self.self_attn, SelfAttention)
            caches = past.caches[keys], past.caches[values]
            bias = self.self_attn.bias(positions, caches[0])
            y = self.self_attn.attend_cached(x, k, v, caches, past.lineage, bias)
        return y, {keys: k, values: v}


def _self_attention(context: LayerContext) -> SelfAttention | RelativeAttention:
    """Return the self-attention of a layer: with vectors by distance, with a bias by distance, or plain."""
    stack, rate = context.stack, context.dropout.attention
    if stack.relative_positions:
        reach, inner = stack.relative_positions, stack.attention_width
        return RelativeAttention(stack.embed_dim, stack.heads, reach, rate, inner=inner)
    return SelfAttention.of(context)


class Transformer(EncoderDecoder):
    ENCODERS: ClassVar = {"attention": AttentionEncoderLayer}
    DECODERS: ClassVar = {"attention": AttentionDecoderLayer}

    def initialise_module(self, module: nn.Module) -> None:
        super().initialise_module(module)
        if isinstance(module, RelativeAttention):
            nn.init.xavier_uniform_(module.relative_keys)
            nn.init.xavier_uniform_(module.relative_values)
