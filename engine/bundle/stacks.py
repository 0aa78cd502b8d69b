"""Descriptions of one side (encoder or decoder) of a model, and of adaptive layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

ACTIVATIONS: Final = ("relu", "gelu", "gelu_sigmoid", "gelu_tanh", "sigmoid", "swish", "tanh")
GATES: Final = ("joint", "separate", "none")
SLICE_ATTENTION: Final = ("transformer", "inner_product", "none")
SLICE_SPACES: Final = 32  # rows of the table of target spaces
SLICE_TIMING: Final = 32  # channels that carry the timing signal


@dataclass(frozen=True, slots=True)
class StackConfig:
    """One side (encoder or decoder) of a residual model: each layer mixes positions, attends, feeds forward.

    kernel_sizes: how many positions each layer's mixer sees, 0 for all of them (self-attention, average,
        SSRU).
    """

    embed_dim: int
    conv_dim: int  # width inside the mixer
    ffn_dim: int
    heads: int
    kernel_sizes: tuple[int, ...]
    mixer: str = "dynamic"  # see MIXERS
    glu: bool = True
    weight_softmax: bool = True
    normalize_before: bool = False
    learned_positions: bool = False
    input_dim: int | None = None  # decoder only: width of the token embedding where it differs
    output_dim: int | None = None  # decoder only: width of the output projection where it differs
    conv_heads: int | None = None  # kernels of a light or dynamic convolution, where not as many as heads
    attention_dim: int | None = None  # width of all heads together, where not embed_dim
    relative_span: int = 0  # distances that a learned bias of self-attention tells apart; 0: no such bias
    biases: bool = True  # whether attention and feed-forward add biases
    ffn_gate: bool = False  # the activation of a second projection multiplies the first (Shazeer 2020)
    relative_positions: int = 0  # distances whose vectors self-attention adds (Shaw et al. 2018); 0: none
    activation: str = "relu"  # see ACTIVATIONS; gelu_sigmoid is x sigmoid(1.702 x)
    rms_norm: bool = False  # norms by the root of the mean square, without biases
    norm_eps: float = 1e-5
    embedding_norm: bool = False  # a layer norm on the embeddings
    final_norm: bool = True  # with normalize_before: a layer norm after the last layer
    # decoder only: an alignment is the mean of some heads of a layer
    alignment_heads: int = 0  # the first ones; 0: all
    alignment_layer: int | None = None  # None: the last
    # of an averaged attention: a feed-forward of `average_depth` hidden layers (width 0: none), and a gate
    average_ffn: int = 0
    average_depth: int = 1
    average_activation: str = "relu"
    average_projection: bool = True  # back to embed_dim after the hidden layers
    average_norm: bool = True  # with normalize_before: of the average
    gate: str = "joint"  # joint: both gates see input and average | separate: each its own | none

    @property
    def layers(self) -> int:
        return len(self.kernel_sizes)

    @property
    def token_dim(self) -> int:
        return self.embed_dim if self.input_dim is None else self.input_dim

    @property
    def feature_dim(self) -> int:
        return self.embed_dim if self.output_dim is None else self.output_dim

    @property
    def attention_width(self) -> int:
        """Width of all heads together."""
        return self.embed_dim if self.attention_dim is None else self.attention_dim

    @property
    def kernels(self) -> int:
        """Kernels of a light or dynamic convolution."""
        return self.heads if self.conv_heads is None else self.conv_heads

    def problems(self, side: str) -> Iterator[str]:
        sizes = (self.embed_dim, self.conv_dim, self.ffn_dim, self.heads, self.token_dim, self.feature_dim)
        if min(*sizes, self.kernels, self.attention_width) < 1:
            yield "all widths must be positive"
            return
        convolves = self.mixer in ("dynamic", "lightweight")
        if convolves and self.conv_dim % self.kernels:
            field = "heads" if self.conv_heads is None else "conv_heads"
            yield f"conv_dim {self.conv_dim} is not a multiple of {field} {self.kernels}"
        if self.attention_width % self.heads:
            field = "embed_dim" if self.attention_dim is None else "attention_dim"
            yield f"{field} {self.attention_width} is not a multiple of heads {self.heads}"
        yield from self._transformer_problems()
        least, most = {"attention": (0, None), "average": (0, 0), "ssru": (0, 0)}.get(self.mixer, (1, None))
        if not self.kernel_sizes or min(self.kernel_sizes) < least:
            yield f"kernel_sizes must name one {'width' if not least else 'positive width'} per layer"
        elif most is not None and max(self.kernel_sizes) > most:
            yield f"kernel_sizes of the mixer {self.mixer} must be 0: it sees all positions"
        elif side == "encoder" and any(k and k % 2 == 0 for k in self.kernel_sizes):
            yield "kernel widths must be odd (a centred window)"
        named: tuple[tuple[str, str, tuple[str, ...]], ...] = (
            ("activation", self.activation, ACTIVATIONS),
            ("average_activation", self.average_activation, ACTIVATIONS),
            ("gate", self.gate, GATES),
        )
        for name, value, allowed in named:
            if value not in allowed:
                yield f"{name} {value!r} is none of {', '.join(allowed)}"
        if self.average_ffn < 0 or self.average_depth < 1:
            yield "average_ffn must not be negative, and average_depth must be positive"
        if self.average_ffn not in (0, self.embed_dim) and not self.average_projection:
            yield f"without average_projection average_ffn must be embed_dim {self.embed_dim}"
        if self.relative_positions < 0 or (self.relative_positions and self.mixer != "attention"):
            yield "relative_positions belong to attention, and must not be negative"
        elif self.relative_positions and (not all(self.kernel_sizes)) == (side == "decoder"):
            yield "relative_positions need kernel_sizes in the decoder, and none in the encoder"
        if not 0 < self.norm_eps < 1:
            yield "norm_eps must be between 0 and 1"
        if not 0 <= self.alignment_heads <= self.heads:
            yield f"alignment_heads must be between 0 and heads {self.heads}"
        if self.alignment_layer is not None and not 0 <= self.alignment_layer < self.layers:
            yield f"alignment_layer must be one of the {self.layers} layers, counted from 0"
        if side == "encoder" and (self.alignment_heads or self.alignment_layer is not None):
            yield "alignment_heads and alignment_layer belong to the decoder"
        if side == "encoder" and not (self.input_dim is self.output_dim is None):
            yield "input_dim and output_dim belong to the decoder"

    def _transformer_problems(self) -> Iterator[str]:
        if self.rms_norm and not self.normalize_before:
            yield "rms_norm needs normalize_before"
        if self.relative_span < 0:
            yield "relative_span must not be negative"
        own = self.relative_span or self.attention_dim is not None or not self.biases
        if own and (self.mixer != "attention" or any(self.kernel_sizes)):
            yield "relative_span, attention_dim and biases are of attention without a window"


@dataclass(frozen=True, slots=True)
class ConvStack:
    """One side of ConvS2S: gated convolutions of any widths, each with a residual (Gehring et al. 2017).

    widths: channels that each layer makes.
    residuals: how many layers back each layer's residual begins: 1 at its own input, 0 none.
    attention: numbers of the decoder layers that attend to the source.
    """

    embed_dim: int
    widths: tuple[int, ...]
    kernel_sizes: tuple[int, ...]
    residuals: tuple[int, ...]
    attention: tuple[int, ...] = ()
    output_dim: int | None = None  # decoder only: width of the output projection where it differs
    learned_positions: bool = True

    @property
    def layers(self) -> int:
        return len(self.widths)

    @property
    def token_dim(self) -> int:
        return self.embed_dim

    @property
    def feature_dim(self) -> int:
        return self.embed_dim if self.output_dim is None else self.output_dim

    @property
    def inputs(self) -> tuple[int, ...]:
        """Channels that each layer reads; the first one's are projected to its own width."""
        return (self.widths[0], *self.widths[:-1])

    @property
    def residual_widths(self) -> tuple[int, ...]:
        """Channels of what each layer's residual brings; 0 where there is none."""
        outputs = (self.widths[0], *self.widths)
        return tuple(outputs[i + 1 - back] if back else 0 for i, back in enumerate(self.residuals))

    def problems(self, side: str) -> Iterator[str]:
        if not self.widths or min(self.embed_dim, self.feature_dim, *self.widths) < 1:
            yield "all widths must be positive, and there must be one per layer"
        if len(self.kernel_sizes) != self.layers or min(self.kernel_sizes, default=1) < 1:
            yield "kernel_sizes must name one positive width per layer"
        if len(self.residuals) != self.layers or any(
            not 0 <= back <= i + 1 for i, back in enumerate(self.residuals)
        ):
            yield "residuals must say for each layer how many layers back, no further than there are"
        if side == "encoder" and (self.attention or self.output_dim is not None):
            yield "attention and output_dim belong to the decoder"
        if side == "decoder" and (
            not self.attention
            or list(self.attention) != sorted(set(self.attention))
            or not 0 <= self.attention[0] <= self.attention[-1] < self.layers
        ):
            yield "attention must name at least one layer, each once and in order"


@dataclass(frozen=True, slots=True)
class SliceStack:
    """One side of SliceNet: layers of the same convolutions (Kaiser et al. 2017; SLICENET.md).

    kernel_sizes, dilations: of each convolution of a layer, two of the first residual, the rest of the
        second.
    separability: 0 separable; n > 0 sub-separable in n groups; -n super-separable, in n groups for the last
        convolution of a residual and in one more for each before it.
    """

    embed_dim: int
    layers: int
    kernel_sizes: tuple[int, ...] = (3, 7, 15, 31)
    dilations: tuple[int, ...] = (1, 1, 1, 1)
    separability: int = -2
    norm_eps: float = 1e-6
    attention: str = "none"  # decoder only: transformer | inner_product (section 3.2) | none
    heads: int = 1  # of the attention "transformer"
    target_space: int = 0  # decoder only: row of the table of target spaces that starts a target

    @property
    def token_dim(self) -> int:
        return self.embed_dim

    @property
    def feature_dim(self) -> int:
        return self.embed_dim

    def separabilities(self, convolutions: int) -> tuple[int, ...]:
        """List the separability of each of so many convolutions in a row."""
        step = 1 if self.separability < 0 else 0
        return tuple(self.separability - step * i for i in reversed(range(convolutions)))

    def problems(self, side: str) -> Iterator[str]:
        if self.embed_dim < SLICE_TIMING or self.embed_dim % 4 or self.layers < 1:
            yield f"embed_dim must be a multiple of 4, {SLICE_TIMING} or more, and layers positive"
        shape = len(self.kernel_sizes), len(self.dilations)
        if shape[0] < 3 or shape[0] != shape[1] or min(*self.kernel_sizes, *self.dilations) < 1:
            yield "kernel_sizes and dilations must be positive, one each for three or more convolutions"
        elif side == "encoder" and any(k % 2 == 0 for k in self.kernel_sizes):
            yield "kernel widths must be odd (a centred window)"
        groups = {abs(s) for n in (2, len(self.kernel_sizes) - 2) for s in self.separabilities(n)} - {0}
        if any(self.embed_dim % n for n in groups):
            yield f"embed_dim {self.embed_dim} is not a multiple of each number of groups {sorted(groups)}"
        if not 0 < self.norm_eps < 1:
            yield "norm_eps must be between 0 and 1"
        if side == "encoder" and (self.attention != "none" or self.heads != 1 or self.target_space):
            yield "attention, heads and target_space belong to the decoder"
        if self.attention not in SLICE_ATTENTION:
            yield f"attention {self.attention!r} is none of {', '.join(SLICE_ATTENTION)}"
        elif self.attention != "transformer" and self.heads != 1:
            yield "heads belong to the attention 'transformer'"
        elif self.heads < 1 or self.embed_dim % self.heads:
            yield f"embed_dim {self.embed_dim} is not a multiple of heads {self.heads}"
        if not 0 <= self.target_space < SLICE_SPACES:
            yield f"target_space must be between 0 and {SLICE_SPACES - 1}"


Stack = StackConfig | ConvStack | SliceStack


@dataclass(frozen=True, slots=True)
class Bands:
    """A vocabulary sorted by frequency, cut into bands; each is `factor` times narrower than the one before.

    cutoffs: the id at which each band after the first begins.
    """

    cutoffs: tuple[int, ...]
    factor: float = 4.0

    def begins(self, vocab: int) -> list[tuple[int, int]]:
        """List the first id of each band, and the one after its last."""
        edges = (0, *self.cutoffs, vocab)
        return list(zip(edges, edges[1:], strict=False))

    def width(self, dim: int, band: int) -> int:
        """Compute the width of a band's rows, where those of the first are `dim` wide."""
        return int(dim // self.factor**band)

    def problems(self, vocab: int, dim: int) -> Iterator[str]:
        edges = (0, *self.cutoffs, vocab)
        if len(edges) < 3 or any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
            yield f"cutoffs {self.cutoffs} must rise, between 0 and the {vocab} tokens, one at least"
        elif not 0 < self.factor < float("inf") or self.width(dim, len(self.cutoffs)) < 1:
            yield f"factor {self.factor} leaves the last band no width"


@dataclass(frozen=True, slots=True)
class AdaptiveConfig:
    """Adaptive softmax (Grave et al. 2017) and adaptive input (Baevski and Auli 2019); REFERENCE.md 3.

    softmax, input: None is an ordinary table.
    tie_weights: the rows of a token are the same on both sides.
    tie_projections: so are the projections of the bands after the first.
    """

    softmax: Bands | None = None
    input: Bands | None = None
    tie_weights: bool = False
    tie_projections: bool = False

    def problems(self, vocab: int, stack: StackConfig) -> Iterator[str]:
        """Yield the faults of these settings.

        vocab: of both sides.
        stack: the decoder.
        """
        for name, bands, dim in (
            ("softmax", self.softmax, stack.feature_dim),
            ("input", self.input, stack.token_dim),
        ):
            if bands is not None:
                yield from (f"adaptive {name}: {problem}" for problem in bands.problems(vocab, dim))
        if self.softmax is self.input is None:
            yield "adaptive needs bands of softmax or input"
        if self.tie_weights and (self.softmax is None or self.softmax != self.input):
            yield "tie_weights needs the same bands for input and softmax"
        if self.tie_weights and not stack.token_dim == stack.embed_dim == stack.feature_dim:
            yield "tie_weights needs input_dim == embed_dim == output_dim"
        if self.tie_projections and not self.tie_weights:
            yield "tie_projections needs tie_weights"
