"""SliceNet ("Depthwise Separable Convolutions for Neural Machine Translation", Kaiser et al. 2017).

docs/models-slicenet.md defines the arithmetic: tensor2tensor's model with its attention "transformer", or
with the attention of the paper, "inner_product". Unlike tensor2tensor, attention masks the padding of a
source, so that an answer never depends on its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.config import ModelConfig
from engine.bundle.specs import SOURCE, MemorySpec, StateSpec
from engine.bundle.stacks import SLICE_SPACES, SliceStack
from engine.models.layers import Attention, Timing
from engine.models.model import Dropout, Past, ProjectionModel, Step
from engine.models.separable import Block, ConvolutionShape, ConvStep, SuperSeparable
from engine.models.transformer import SelfAttention

MERGED: Final = 4  # number of groups of the sub-separable convolution that merges source and target
TARGETS_TIME: Final = (5, 5), (1, 4)  # widths and dilations of the convolutions before an attention


class TimeAxis(Protocol):
    """The positions [time] or [slots, 1] to compute, and access to the earlier ones."""

    @property
    def positions(self) -> Tensor: ...

    def convolve(self, step: ConvStep, x: Tensor) -> Tensor:
        """Apply ReLU, convolution and norm (section 3.1, ConvStep).

        x: [batch, time, channels].
        """

    def attend(self, attention: CausalSelfAttention, x: Tensor) -> Tensor:
        """Attend from each position to the same and all earlier positions of the target.

        attention: self-attention of the layer.
        x: [batch, time, dim].

        Returns the context, of the shape of x.
        """


class WholeSequences(NamedTuple):
    """Whole sequences.

    real: [batch, time], 1 for tokens, for centred convolutions; None: causal convolutions.
    """

    positions: Tensor
    real: Tensor | None = None

    def convolve(self, step: ConvStep, x: Tensor) -> Tensor:
        """Apply ReLU, convolution and norm; a centred convolution also zeroes the padding."""
        x, left = F.relu(x), step.kernel.reach
        if self.real is not None:
            x, left = x * self.real[:, :, None], left // 2
        y: Tensor = step.norm(step.conv.whole(x, left))
        return y

    def attend(self, attention: CausalSelfAttention, x: Tensor) -> Tensor:
        causal = self.positions[:, None] >= self.positions
        return attention.whole(x, torch.where(causal, 0.0, -torch.inf)[None])


class NewestPosition(NamedTuple):
    """One new position of each hypothesis.

    positions: int [slots, 1].
    past: states of the hypotheses at the earlier positions.
    columns: receives the new column of each state, by the name of the state.
    """

    positions: Tensor
    past: Past
    columns: dict[str, Tensor]

    def convolve(self, step: ConvStep, x: Tensor) -> Tensor:
        """Apply ReLU, convolution and norm to x and the earlier inputs; store the ReLU of x in `columns`."""
        x, before = F.relu(x), None
        if step.state is not None:
            self.columns[step.state.name] = x
            before = self.past.window(step.state, step.kernel.dilation)
        y: Tensor = step.norm(step.conv.newest(x, before))
        return y

    def attend(self, attention: CausalSelfAttention, x: Tensor) -> Tensor:
        """Attend from the new position to the same and all cached positions; store key and value of x in
        `columns`."""
        # names of the two states
        keys, values = (state.name for state in attention.states)
        k, v = attention.k_proj(x), attention.v_proj(x)
        self.columns[keys], self.columns[values] = k, v
        # masks the cached entries of other hypotheses; never None, because both states have heads
        assert self.past.lineage is not None
        return attention.attend_cached(
            x, k, v, (self.past.caches[keys], self.past.caches[values]), self.past.lineage
        )


class CausalSelfAttention(SelfAttention):
    """Causal self-attention over all positions since the first token, with caches."""

    def __init__(self, stack: SliceStack, name: str, longest: int, rate: float) -> None:
        super().__init__(stack.embed_dim, stack.heads, dropout=rate, bias=False)
        self.states = [
            StateSpec(f"{name}.{part}", longest, stack.embed_dim, stack.heads) for part in ("keys", "values")
        ]


class InnerProduct(nn.Module):
    """Attend(source, target) of section 3.2: softmax of the scaled similarities, no projections.

    The printed formula has its factor before the softmax, but the text and the authors' code of 2017
    (`simple_attention`) scale the similarities; otherwise the softmax is almost one-hot at the beginning.
    """

    def memory(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys [batch, dim, source] and values [batch, source, dim] of `encoded`."""
        return encoded.transpose(1, 2), encoded

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to the source; returns the context, of the shape of x, and the weights.

        x: [batch, queries, dim].
        keys: keys of the source [batch, width, source].
        values: values of the source [batch, source, width].
        mask: [batch, source], 0 or -inf.
        """
        logits = torch.matmul(x * float(x.shape[-1] ** -0.5), keys) + mask[:, None]
        weights = F.softmax(logits, dim=-1)
        return torch.matmul(weights, values), weights


class AttentionModule(nn.Module):
    """Section 3.2, attention(source, target): timing, two convolutions, self-attention (only with
    "transformer"), attention over the source."""

    def __init__(self, config: ModelConfig, stack: SliceStack, number: int, rate: float) -> None:
        super().__init__()
        name, projects = f"attention.{number}", stack.attention == "transformer"
        self.targets_time = Block(_kernels(stack, *TARGETS_TIME), stack.norm_eps, f"{name}.time")
        self.encoder_attn: Attention | InnerProduct
        self.self_attn: CausalSelfAttention | None = None
        if projects:
            self.self_attn = CausalSelfAttention(stack, name, config.max_target - 1, rate)
            self.encoder_attn = Attention(stack.embed_dim, stack.heads, dropout=rate, bias=False)
        else:
            self.encoder_attn = InnerProduct()
        # number of the module with the memory of this one: without projections all share one memory
        self.source = number if projects else 0

    def forward(
        self, x: Tensor, timing: Tensor, time: TimeAxis, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend to the source.

        x: [batch, queries, dim].
        timing: timing signal of the positions, added to x.
        time: positions and access to the past.
        memory: tensors by the names of `memory_spec`.
        mask: [batch, source].

        Returns the context, of the shape of x, and the weights over the source.
        """
        x = self.targets_time(x + timing, time.convolve)
        if self.self_attn is not None:
            x = time.attend(self.self_attn, x)
        keys, values = memory[f"keys.{self.source}"], memory[f"values.{self.source}"]
        context, weights = self.encoder_attn(x, keys, values, mask)
        return context, weights


class ConvModule(nn.Module):
    """Convolutions with two residual connections (section 3.1), in sequence as in tensor2tensor: with y =
    x + residual1(x) the result is y + residual2(y)."""

    def __init__(self, stack: SliceStack, name: str | None) -> None:
        super().__init__()
        # residual1 has the first two kernels, residual2 the others
        self.residual1, self.residual2 = (
            Block(
                _kernels(stack, stack.kernel_sizes[part], stack.dilations[part]),
                stack.norm_eps,
                name and f"{name}.{number}",
            )
            for number, part in enumerate((slice(2), slice(2, None)), 1)
        )

    def forward(self, x: Tensor, time: TimeAxis) -> Tensor:
        x = x + self.residual1(x, time.convolve)
        y: Tensor = x + self.residual2(x, time.convolve)
        return y


class SliceEncoder(nn.Module):
    """InputEncoder of section 3.3."""

    def __init__(self, config: ModelConfig, stack: SliceStack, dropout: Dropout) -> None:
        super().__init__()
        self.dropout, self.scale = dropout, _scale(config, stack)
        self.embed_tokens = nn.Embedding(config.source_vocab, stack.embed_dim)
        self.timing = Timing(config.max_source, stack.embed_dim)
        self.layers = nn.ModuleList(ConvModule(stack, None) for _ in range(stack.layers))

    def forward(self, tokens: Tensor, positions: Tensor, real: Tensor) -> Tensor:
        """Encode sources. Returns [batch, source, dim], zero at padding.

        tokens: int [batch, source].
        positions: int [source].
        real: float [batch, source], 0 at padding.
        """
        if self.training and self.dropout.symbols:  # a dropped token counts as padding in the whole encoder
            real = real * (torch.rand_like(real) >= self.dropout.symbols)
        is_token, time = real[:, :, None], WholeSequences(positions, real)
        x = F.embedding(tokens, self.embed_tokens.weight) * self.scale * is_token + self.timing(positions)
        for layer in self.layers:
            x = layer(x, time) * is_token
        return F.dropout(x, self.dropout.residual) if self.training else x


class SliceDecoder(nn.Module):
    """IOMixer and Decoder of section 3.3."""

    def __init__(
        self, config: ModelConfig, stack: SliceStack, dropout: Dropout, shared: nn.Embedding | None
    ) -> None:
        super().__init__()
        dim, self.pad, self.space = stack.embed_dim, config.pad, stack.target_space
        self.dropout, self.scale = dropout, _scale(config, stack)
        self.embed_tokens = shared or nn.Embedding(config.target_vocab, dim)
        self.target_space = nn.Embedding(SLICE_SPACES, dim)
        self.timing = Timing(config.max_target, dim)
        attends = range(stack.layers + 1) if stack.attention != "none" else range(0)
        self.attentions = nn.ModuleList(AttentionModule(config, stack, i, dropout.attention) for i in attends)
        self.merge = Block([ConvolutionShape(2 * dim, dim, 3, 1, MERGED)], stack.norm_eps, "merge")
        self.layers = nn.ModuleList(ConvModule(stack, f"layer.{i}") for i in range(stack.layers))
        if not config.share_output:
            self.output_projection = nn.Linear(dim, config.target_vocab, bias=False)

    def forward(
        self, tokens: Tensor, time: TimeAxis, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Run the decoder.

        tokens: int [batch, queries].
        time: positions and access to the past.
        memory: tensors by the names of `memory_spec`.
        mask: [batch, source], 0 or -inf.

        Returns features [batch, queries, dim] and the last layer's attention.
        """
        x, timing = self.embed(tokens, time.positions), self.timing(time.positions)
        mixed, weights = torch.zeros_like(x), None
        if self.attentions:
            mixed, weights = self.attentions[0](x, timing, time, memory, mask)
        x = self.merge(torch.cat([mixed, x], -1), time.convolve)
        for i, layer in enumerate(self.layers, 1):
            x = layer(x, time)
            if self.attentions:
                context, weights = self.attentions[i](x, timing, time, memory, mask)
                x = x + context
        return F.dropout(x, self.dropout.residual) if self.training else x, weights

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return embeddings [..., dim]: zeros for padding; at position 0 that of the target space."""
        if self.training and self.dropout.symbols:
            dropped = torch.rand(tokens.shape, device=tokens.device) < self.dropout.symbols
            tokens = tokens.masked_fill(dropped, self.pad)
        x = F.embedding(tokens, self.embed_tokens.weight) * self.scale
        x = torch.where((tokens == self.pad)[..., None], 0.0, x)
        return torch.where(
            (positions > 0)[..., None], x, self.target_space.weight[self.space : self.space + 1]
        )


class SliceNet(ProjectionModel):
    """SliceNet. Without attention it is a language model without an encoder."""

    def __init__(self, config: ModelConfig, dropout: Dropout | None = None) -> None:
        super().__init__()
        self.config = config
        rates, stack = dropout or Dropout(), config.decoder
        assert isinstance(stack, SliceStack)
        shared = None
        self.encoder: SliceEncoder | None = None
        if config.encoder is not None:
            assert isinstance(config.encoder, SliceStack)
            self.encoder = SliceEncoder(config, config.encoder, rates)
            shared = self.encoder.embed_tokens if config.share_embeddings else None
        self.decoder = SliceDecoder(config, stack, rates, shared)
        self.state_spec = self._states()
        self.memory_spec = self._memories(stack)

    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        # return keys and values of each attention module with projections, or those that all share
        memory: dict[str, Tensor] = {}
        if self.encoder is None:
            return memory
        encoded = self.encoder(tokens, positions, real)
        for module in self._sources():
            keys, values = module.encoder_attn.memory(encoded)
            memory |= {f"keys.{module.source}": keys, f"values.{module.source}": values}
        return memory

    def step(
        self, tokens: Tensor, positions: Tensor, memory: Mapping[str, Tensor], mask: Tensor, past: Past
    ) -> Step:
        columns: dict[str, Tensor] = {}
        features, attention = self.decoder(tokens, NewestPosition(positions, past, columns), memory, mask)
        return Step(features, columns, attention)

    def decode(
        self, tokens: Tensor, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        time = WholeSequences(torch.arange(tokens.shape[1], device=tokens.device))
        decoded: tuple[Tensor, Tensor | None] = self.decoder(tokens, time, memory, mask)
        return decoded

    @property
    def output(self) -> tuple[Tensor, Tensor | None]:
        tied = self.config.share_output
        return (self.decoder.embed_tokens if tied else self.decoder.output_projection).weight, None

    def initialise_module(self, module: nn.Module) -> None:
        """Initialise tables and depthwise kernels in the authors' way, other modules as in `Model`."""
        is_output = module is getattr(self.decoder, "output_projection", None)
        if (
            isinstance(module, nn.Embedding) or is_output
        ):  # padding too: its row may be shared with the output projection
            assert isinstance(module, nn.Embedding | nn.Linear)
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
            return
        super().initialise_module(module)
        if isinstance(module, SuperSeparable):  # keeps the variance, like unit scaling in the authors' code
            limit = (3 / module.kernel.width) ** 0.5
            nn.init.uniform_(module.depthwise, -limit, limit)

    def _states(self) -> list[StateSpec]:
        """Return the specs of the convolutions' windows, then of the self-attentions' caches."""
        steps = (m.state for m in self.decoder.modules() if isinstance(m, ConvStep))
        caches = (m.states for m in self.decoder.modules() if isinstance(m, CausalSelfAttention))
        return [s for s in steps if s is not None] + [s for pair in caches for s in pair]

    def _memories(self, stack: SliceStack) -> list[MemorySpec]:
        """Return the specs of keys and values of each module in `_sources`."""
        width = stack.embed_dim // stack.heads
        heads = (stack.heads,) if stack.attention == "transformer" else ()
        return [
            MemorySpec(f"{part}.{module.source}", (*heads, *shape))
            for module in self._sources()
            for part, shape in (("keys", (width, SOURCE)), ("values", (SOURCE, width)))
        ]

    def _sources(self) -> list[AttentionModule]:
        """Return the modules with a memory of their own: all with projections, otherwise only the first."""
        modules = [m for m in self.decoder.attentions if isinstance(m, AttentionModule)]
        return [m for i, m in enumerate(modules) if m.source == i]


def _kernels(stack: SliceStack, widths: Sequence[int], dilations: Sequence[int]) -> list[ConvolutionShape]:
    """Return the shapes of successive convolutions with embed_dim input and output channels."""
    dim, separabilities = stack.embed_dim, stack.separabilities(len(widths))
    shapes = zip(widths, dilations, separabilities, strict=True)
    return [
        ConvolutionShape(dim, dim, width, dilation, separability) for width, dilation, separability in shapes
    ]


def _scale(config: ModelConfig, stack: SliceStack) -> float:
    """Return the factor of the embeddings."""
    return stack.embed_dim**0.5 if config.scale_embeddings else 1.0
