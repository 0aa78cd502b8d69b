"""ConvS2S ("Convolutional Sequence to Sequence Learning", Gehring et al. 2017): fairseq's `fconv`.

docs/reference.md 4 defines the arithmetic: layers of convolution and gated linear unit (the paper's section
3.2) with residuals scaled by the square root of a half; each decoder layer may attend (3.3). The import folds
weight normalisation, so weights here are plain. Parameters have fairseq's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.config import ModelConfig
from engine.bundle.specs import SOURCE, MemorySpec, StateSpec
from engine.bundle.stacks import ConvStack
from engine.models.layers import Positions, neighbours
from engine.models.model import Dropout, Past, ProjectionModel, Step

HALF: Final = 0.5**0.5  # keeps the variance of a sum of two terms (section 3.4)


class Projection(nn.Linear):
    """A linear layer with bias.

    keep_rate: share of the inputs that dropout keeps in training.
    """

    def __init__(self, dim: int, width: int, rate: float = 0.0, *, bias: bool = True) -> None:
        super().__init__(dim, width, bias=bias)
        self.keep_rate = 1.0 - rate


class Convolution(nn.Module):
    """A convolution over time with a gated linear unit, as one product of weight [2 * width, K * dim] with K
    concatenated neighbouring columns, oldest first."""

    def __init__(self, dim: int, width: int, kernel: int, rate: float) -> None:
        super().__init__()
        self.kernel, self.keep_rate = kernel, 1.0 - rate
        self.weight = nn.Parameter(torch.empty(2 * width, kernel * dim))
        self.bias = nn.Parameter(torch.empty(2 * width))

    def forward(self, columns: Tensor) -> Tensor:
        """Convolve and gate columns [..., K * dim]; return [..., width]."""
        return F.glu(F.linear(columns, self.weight, self.bias), dim=-1)


class ConvS2SAttention(nn.Module):
    """One layer's attention (section 3.3, equations 1 and 2)."""

    def __init__(self, width: int, embed_dim: int) -> None:
        super().__init__()
        self.in_projection = Projection(width, embed_dim)
        self.out_projection = Projection(embed_dim, width)

    def forward(
        self, x: Tensor, embedded: Tensor, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend to the source.

        x: [batch, queries, width].
        embedded: embedded target tokens [batch, queries, embed_dim].
        memory: tensors by the names of `memory_spec`.
        mask: [batch, source], 0 or -inf.

        Returns the shape of x and the weights [batch, queries, source].
        """
        query = (self.in_projection(x) + embedded) * HALF
        weights = F.softmax(torch.matmul(query, memory["keys"]) + mask[:, None], dim=-1)
        context = torch.matmul(weights, memory["values"])
        return (self.out_projection(context) + x) * HALF, weights


class Side(nn.Module):
    """Base of encoder and decoder: embeddings, projections to and from the widths of layers, residuals."""

    def __init__(
        self, config: ModelConfig, stack: ConvStack, table: nn.Embedding, positions: int, rate: float
    ) -> None:
        super().__init__()
        self.rate, self.residuals = rate, stack.residuals
        self.embed_tokens = table
        self.embed_positions = Positions(config, positions, stack) if config.token_positions else None
        self.fc1 = Projection(stack.embed_dim, stack.widths[0], rate)
        # keys are layer numbers; only a residual of another width has a projection
        self.projections = nn.ModuleDict(
            {
                str(i): Projection(residual_width, width)
                for i, (residual_width, width) in enumerate(
                    zip(stack.residual_widths, stack.widths, strict=True)
                )
                if residual_width not in (0, width)
            }
        )
        shapes = zip(stack.inputs, stack.widths, stack.kernel_sizes, strict=True)
        self.convolutions = nn.ModuleList(Convolution(*shape, rate) for shape in shapes)
        self.fc2 = Projection(stack.widths[-1], stack.feature_dim)

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = F.embedding(tokens, self.embed_tokens.weight)
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions)
        return self.drop(x)

    def convolution(self, layer: int) -> Convolution:
        convolution = self.convolutions[layer]
        assert isinstance(convolution, Convolution)
        return convolution

    def layers(self, embedded: Tensor, convolve: Callable[[int, Tensor], Tensor]) -> Tensor:
        """Run all layers with their residuals.

        embedded: [..., embed_dim].
        convolve: function that runs a layer, given its number and its input, without the residual.

        Returns [..., feature_dim].
        """
        outputs = [self.fc1(embedded)]
        for i, layers_back in enumerate(self.residuals):
            y = convolve(i, self.drop(outputs[-1]))
            if layers_back:  # 0: no residual connection
                residual, name = outputs[-layers_back], str(i)
                y = (y + (self.projections[name](residual) if name in self.projections else residual)) * HALF
            outputs.append(y)
        features: Tensor = self.fc2(outputs[-1])
        return features

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate) if self.training and self.rate else x


class ConvS2SEncoder(Side):
    def __init__(self, config: ModelConfig, stack: ConvStack, attentions: int, rate: float) -> None:
        table = nn.Embedding(config.source_vocab, stack.embed_dim)
        super().__init__(config, stack, table, config.max_source, rate)
        self.attentions = attentions

    def forward(self, tokens: Tensor, positions: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Encode sources.

        tokens: int [batch, source].
        positions: int [source].
        real: float [batch, source], 1 for tokens and 0 for padding.

        Returns keys (zero at padding) and values, both [batch, source, embed_dim]: the last layer, and the
        scaled sum of the last layer and the embeddings (section 3.3).
        """
        embedded, is_token = self.embed(tokens, positions), real[:, :, None]

        def convolve(i: int, x: Tensor) -> Tensor:
            conv = self.convolution(i)
            # zeros at padding act like zeros beyond the edges; an even window extends further to the right
            y: Tensor = conv(neighbours(x * is_token, conv.kernel, (conv.kernel - 1) // 2))
            return y

        x = self.layers(embedded, convolve) * is_token
        if self.training:  # section 3.4 scales these gradients, but not the embeddings' gradients
            x = torch.lerp(x.detach(), x, 1.0 / (2 * self.attentions))
        return x, (x + embedded) * HALF


class ConvS2SDecoder(Side):
    def __init__(
        self, config: ModelConfig, stack: ConvStack, shared: nn.Embedding | None, rate: float
    ) -> None:
        table = shared or nn.Embedding(config.target_vocab, stack.embed_dim)
        super().__init__(config, stack, table, config.max_target, rate)
        self.attention = nn.ModuleDict(
            {str(i): ConvS2SAttention(stack.widths[i], stack.embed_dim) for i in stack.attention}
        )
        self.fc3 = Projection(stack.feature_dim, config.target_vocab, rate, bias=config.output_bias)
        if config.share_output:
            self.fc3.weight = self.embed_tokens.weight

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        memory: Mapping[str, Tensor],
        mask: Tensor,
        convolve: Callable[[int, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Run the layers.

        tokens: int [batch, queries].
        positions: int, broadcastable to the tokens.
        memory: tensors by the names of `memory_spec`.
        mask: [batch, source], 0 or -inf.
        convolve: function that runs the convolution of a layer, given the layer's number and its input.

        Returns features [batch, queries, dim] and the attention [batch, queries, source]: as in the
        reference, the sum over layers divided by the number of all layers.
        """
        embedded = self.embed(tokens, positions)
        attentions: list[Tensor] = []

        def layer(i: int, x: Tensor) -> Tensor:
            """Run a layer's convolution and its attention, if it has one."""
            y = convolve(i, x)
            if str(i) in self.attention:
                y, weights = self.attention[str(i)](y, embedded, memory, mask)
                attentions.append(weights)
            return y

        features = self.drop(self.layers(embedded, layer))
        total = attentions[0]
        for weights in attentions[1:]:
            total = total + weights
        return features, total * (1.0 / len(self.residuals))


class ConvS2S(ProjectionModel):
    """ConvS2S. A decoder layer of kernel width K keeps its last K - 1 inputs."""

    def __init__(self, config: ModelConfig, dropout: Dropout | None = None) -> None:
        super().__init__()
        self.config = config
        rate = (dropout or Dropout()).residual
        encoder, decoder = config.encoder, config.decoder
        assert isinstance(encoder, ConvStack)
        assert isinstance(decoder, ConvStack)
        self.encoder = ConvS2SEncoder(config, encoder, len(decoder.attention), rate)
        shared = self.encoder.embed_tokens if config.share_embeddings else None
        self.decoder = ConvS2SDecoder(config, decoder, shared, rate)
        dim = encoder.embed_dim
        self.memory_spec = [MemorySpec("keys", (dim, SOURCE)), MemorySpec("values", (SOURCE, dim))]
        self.states = {
            i: StateSpec(f"conv.{i}", kernel - 1, width)
            for i, (kernel, width) in enumerate(zip(decoder.kernel_sizes, decoder.inputs, strict=True))
            if kernel > 1
        }
        self.state_spec = list(self.states.values())

    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        # return keys [batch, dim, source] and values [batch, source, dim], shared by all layers
        keys, values = self.encoder(tokens, positions, real)
        # section 3.4 multiplies the attended mean by the square root of the source length; values include it
        length = torch.sqrt(real.sum(1))[:, None, None]
        return {"keys": keys.transpose(1, 2), "values": values * length}

    def step(
        self, tokens: Tensor, positions: Tensor, memory: Mapping[str, Tensor], mask: Tensor, past: Past
    ) -> Step:
        columns: dict[str, Tensor] = {}

        def convolve(i: int, x: Tensor) -> Tensor:
            spec = self.states.get(i)
            if spec is not None:
                columns[spec.name] = x
                x = torch.cat([past.window(spec).flatten(2), x], -1)
            y: Tensor = self.decoder.convolution(i)(x)
            return y

        features, attention = self.decoder(tokens, positions, memory, mask, convolve)
        return Step(features, columns, attention)

    def decode(
        self, tokens: Tensor, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        def convolve(i: int, x: Tensor) -> Tensor:
            conv = self.decoder.convolution(i)
            y: Tensor = conv(neighbours(x, conv.kernel, conv.kernel - 1))
            return y

        positions = torch.arange(tokens.shape[1], device=tokens.device)
        decoded: tuple[Tensor, Tensor | None] = self.decoder(tokens, positions, memory, mask, convolve)
        return decoded

    @property
    def output(self) -> tuple[Tensor, Tensor | None]:
        return self.decoder.fc3.weight, self.decoder.fc3.bias

    def initialise_module(self, module: nn.Module) -> None:
        """Initialise weights as in section 3.5, so that activations keep the scale of the inputs."""
        if isinstance(module, Convolution):
            nn.init.normal_(module.weight, std=(4.0 * module.keep_rate / module.weight.shape[1]) ** 0.5)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Projection):
            if not (self.config.share_output and module is self.decoder.fc3):
                nn.init.normal_(module.weight, std=(module.keep_rate / module.in_features) ** 0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.1)
            with torch.no_grad():
                module.weight[self.config.pad].zero_()
        elif isinstance(module, Positions) and isinstance(module.weight, nn.Parameter):
            nn.init.normal_(module.weight, std=0.1)
