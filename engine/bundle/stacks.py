"""Configuration of one side (encoder or decoder) of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

ACTIVATIONS: Final = ("relu", "gelu", "gelu_sigmoid", "gelu_tanh", "relu6", "sigmoid", "swish", "tanh")
RUNNING_SUMS: Final = ("average", "ssru")  # mixers whose state is one running sum
GATES: Final = ("joint", "separate", "none")
SLICE_ATTENTION: Final = ("transformer", "inner_product", "none")
SLICE_SPACES: Final = 32  # rows of the table of target spaces
SLICE_TIMING: Final = 32  # channels that carry the timing signal


@dataclass(frozen=True, kw_only=True)
class ConvolutionFields:
    """Settings of light and dynamic convolutions.

    glu: gated linear units before the convolution.
    weight_softmax: normalise each kernel by a softmax over its width.
    conv_heads: number of kernels; None: as many as heads.
    """

    glu: bool = True
    weight_softmax: bool = True
    conv_heads: int | None = None


@dataclass(frozen=True, kw_only=True)
class AttentionFields:
    """Settings of self-attention.

    attention_dim: width of all heads together; None: embed_dim.
    relative_span: number of distances with a learned bias of their own; 0: no such bias.
    relative_each: each layer has its own bias, instead of one for all layers of a side.
    biases: attention and feed-forward layers have biases.
    relative_positions: number of distances whose learned vectors are added (Shaw et al. 2018); 0: none.
    """

    attention_dim: int | None = None
    relative_span: int = 0
    relative_each: bool = False
    biases: bool = True
    relative_positions: int = 0

    def attention_problems(self, mixer: str, kernel_sizes: Sequence[int], side: str) -> Iterator[str]:
        """Yield the errors of these settings.

        mixer: mixer of the side.
        kernel_sizes: number of positions that each layer sees, 0 for all.
        side: "encoder" or "decoder".
        """
        if self.relative_span < 0:
            yield "relative_span must not be negative"
        without_window = self.relative_span or self.attention_dim is not None or not self.biases
        if without_window and (mixer != "attention" or (any(kernel_sizes) and not self.relative_positions)):
            yield "relative_span, attention_dim and biases need the mixer attention with kernel_sizes of 0"
        elif self.relative_positions and (self.relative_span or not self.biases):
            yield "relative_positions need biases, and exclude relative_span"
        if self.relative_positions < 0 or (self.relative_positions and mixer != "attention"):
            yield "relative_positions need the mixer attention, and must not be negative"
        elif self.relative_positions and (not all(kernel_sizes)) == (side == "decoder"):
            yield "relative_positions need positive kernel_sizes in the decoder, and 0 in the encoder"


@dataclass(frozen=True, kw_only=True)
class AverageFields:
    """Settings of averaged attention: a feed-forward after the average, and a gate.

    average_ffn: width of the hidden layers of the feed-forward; 0: no feed-forward.
    average_depth: number of hidden layers.
    average_activation: activation, one of ACTIVATIONS.
    average_projection: project back to embed_dim after the hidden layers.
    average_norm: normalise the average, with normalize_before.
    gate: "joint" (both gates read input and average), "separate" (each gate reads one of them) or "none".
    """

    average_ffn: int = 0
    average_depth: int = 1
    average_activation: str = "relu"
    average_projection: bool = True
    average_norm: bool = True
    gate: str = "joint"

    def average_problems(self, embed_dim: int) -> Iterator[str]:
        """Yield the errors of these settings."""
        yield from _choice_problems("average_activation", self.average_activation, ACTIVATIONS)
        yield from _choice_problems("gate", self.gate, GATES)
        if self.average_ffn < 0 or self.average_depth < 1:
            yield "average_ffn must not be negative, and average_depth must be positive"
        if self.average_ffn not in (0, embed_dim) and not self.average_projection:
            yield f"without average_projection average_ffn must be embed_dim {embed_dim}"


@dataclass(frozen=True, kw_only=True)
class NormFields:
    """Position and kind of the norms.

    normalize_before: normalise before each sub-block instead of after it.
    rms_norm: divide by the root of the mean square, without biases.
    norm_eps: constant added to the variance.
    embedding_norm: a layer norm on the embeddings.
    final_norm: a norm after the last layer, with normalize_before.
    """

    normalize_before: bool = False
    rms_norm: bool = False
    norm_eps: float = 1e-5
    embedding_norm: bool = False
    final_norm: bool = True

    def norm_problems(self) -> Iterator[str]:
        """Yield the errors of these settings."""
        if not 0 < self.norm_eps < 1:
            yield "norm_eps must be between 0 and 1"


@dataclass(frozen=True, kw_only=True)
class DecoderFields:
    """Settings of a decoder only. An alignment is the mean of some heads of one layer.

    input_dim: width of the token embedding; None: embed_dim.
    output_dim: width of the output projection; None: embed_dim.
    alignment_heads: number of heads, from the first; 0: all.
    alignment_layer: number of the layer; None: the last.
    """

    input_dim: int | None = None
    output_dim: int | None = None
    alignment_heads: int = 0
    alignment_layer: int | None = None

    def decoder_problems(self, side: str, heads: int, layers: int) -> Iterator[str]:
        """Yield the errors of these settings.

        side: "encoder" or "decoder".
        heads: number of attention heads.
        layers: number of layers of the side.
        """
        if not 0 <= self.alignment_heads <= heads:
            yield f"alignment_heads must be between 0 and heads {heads}"
        if self.alignment_layer is not None and not 0 <= self.alignment_layer < layers:
            yield f"alignment_layer must be one of the {layers} layers, counted from 0"
        if side == "encoder" and (self.alignment_heads or self.alignment_layer is not None):
            yield "alignment_heads and alignment_layer belong to the decoder"
        if side == "encoder" and not (self.input_dim is self.output_dim is None):
            yield "input_dim and output_dim belong to the decoder"


@dataclass(frozen=True)
class StackConfig(DecoderFields, NormFields, AverageFields, AttentionFields, ConvolutionFields):
    """One side (encoder or decoder) of a residual model: each layer mixes positions, attends, feeds forward.

    conv_dim: width inside the mixer.
    kernel_sizes: number of positions that each layer's mixer sees; 0: all of them (self-attention, average,
        SSRU).
    mixer: mixer of all layers, see MIXERS in `engine.bundle.config`.
    ffn_gate: the activation of a second projection multiplies the first (Shazeer 2020).
    activation: activation, one of ACTIVATIONS; gelu_sigmoid is x sigmoid(1.702 x).
    """

    embed_dim: int
    conv_dim: int
    ffn_dim: int
    heads: int
    kernel_sizes: tuple[int, ...]
    mixer: str = "dynamic"
    learned_positions: bool = False
    ffn_gate: bool = False
    activation: str = "relu"

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
        """Number of kernels of a light or dynamic convolution."""
        return self.heads if self.conv_heads is None else self.conv_heads

    @property
    def keeps_sums(self) -> bool:
        """Whether a decoder keeps a running sum or a cell: one column for any length of the target."""
        return self.mixer in RUNNING_SUMS

    def state_size(self, target_tokens: int) -> int:
        """Return the number of values that a decoder keeps for a hypothesis of `target_tokens` tokens."""
        # columns of a layer that sees all positions: one sum, or a key and a value for each token
        whole = 1 if self.keeps_sums else 2 * target_tokens
        return sum(kernel or whole for kernel in self.kernel_sizes) * self.embed_dim

    def problems(self, side: str) -> Iterator[str]:
        """Yield the errors of the configuration of an encoder or a decoder."""
        sizes = (self.embed_dim, self.conv_dim, self.ffn_dim, self.heads, self.token_dim, self.feature_dim)
        if min(*sizes, self.kernels, self.attention_width) < 1:
            yield "all widths must be positive"
            return
        if self.mixer in ("dynamic", "lightweight") and self.conv_dim % self.kernels:
            field = "heads" if self.conv_heads is None else "conv_heads"
            yield f"conv_dim {self.conv_dim} is not a multiple of {field} {self.kernels}"
        if self.attention_width % self.heads:
            field = "embed_dim" if self.attention_dim is None else "attention_dim"
            yield f"{field} {self.attention_width} is not a multiple of heads {self.heads}"
        yield from self._kernel_problems(side)
        yield from _choice_problems("activation", self.activation, ACTIVATIONS)
        yield from self.norm_problems()
        yield from self.attention_problems(self.mixer, self.kernel_sizes, side)
        yield from self.average_problems(self.embed_dim)
        yield from self.decoder_problems(side, self.heads, self.layers)

    def _kernel_problems(self, side: str) -> Iterator[str]:
        """Yield the errors of the kernel sizes of the mixer on a side."""
        # allowed sizes; None: no maximum
        least, most = {"attention": (0, None), "average": (0, 0), "ssru": (0, 0)}.get(self.mixer, (1, None))
        if not self.kernel_sizes or min(self.kernel_sizes) < least:
            yield f"kernel_sizes must have one {'width' if not least else 'positive width'} per layer"
        elif most is not None and max(self.kernel_sizes) > most:
            yield f"kernel_sizes of the mixer {self.mixer} must be 0: it sees all positions"
        elif side == "encoder" and any(k and k % 2 == 0 for k in self.kernel_sizes):
            yield "kernel widths must be odd (a centred window)"


def _choice_problems(name: str, value: str, allowed: Sequence[str]) -> Iterator[str]:
    if value not in allowed:
        yield f"{name} {value!r} is none of {', '.join(allowed)}"


# the fields of a `StackConfig` in their order in config.json
STACK_KEYS: Final = (
    *("embed_dim", "conv_dim", "ffn_dim", "heads", "kernel_sizes", "mixer", "glu", "weight_softmax"),
    *("normalize_before", "learned_positions", "input_dim", "output_dim", "conv_heads", "attention_dim"),
    *(
        "relative_span",
        "relative_each",
        "biases",
        "ffn_gate",
        "relative_positions",
        "activation",
        "rms_norm",
        "norm_eps",
    ),
    *("embedding_norm", "final_norm", "alignment_heads", "alignment_layer", "average_ffn", "average_depth"),
    *("average_activation", "average_projection", "average_norm", "gate"),
)


@dataclass(frozen=True, slots=True)
class ConvStack:
    """One side of ConvS2S: gated convolutions of any widths, each with a residual (Gehring et al. 2017).

    widths: number of output channels of each layer.
    residuals: number of layers back to the start of each layer's residual; 1: the layer's own input, 0: none.
    attention: numbers of the decoder layers that attend to the source.
    """

    embed_dim: int
    widths: tuple[int, ...]
    kernel_sizes: tuple[int, ...]
    residuals: tuple[int, ...]
    attention: tuple[int, ...] = ()
    output_dim: int | None = None  # decoder only: width of the output projection; None: embed_dim
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
        """Number of input channels of each layer; the embeddings are projected to the width of the first."""
        return (self.widths[0], *self.widths[:-1])

    @property
    def residual_widths(self) -> tuple[int, ...]:
        """Number of channels of each layer's residual; 0: no residual."""
        # outputs[0] is the width of the projected embeddings, outputs[i + 1] that of layer i
        outputs = (self.widths[0], *self.widths)
        return tuple(outputs[i + 1 - back] if back else 0 for i, back in enumerate(self.residuals))

    def state_size(self, target_tokens: int) -> int:
        """Return the number of values that a decoder keeps for a hypothesis of any length."""
        return sum(self.kernel_sizes) * self.embed_dim

    def problems(self, side: str) -> Iterator[str]:
        """Yield the errors of the configuration of an encoder or a decoder."""
        if not self.widths or min(self.embed_dim, self.feature_dim, *self.widths) < 1:
            yield "all widths must be positive, and there must be one per layer"
        if len(self.kernel_sizes) != self.layers or min(self.kernel_sizes, default=1) < 1:
            yield "kernel_sizes must have one positive width per layer"
        if len(self.residuals) != self.layers or any(
            not 0 <= back <= i + 1 for i, back in enumerate(self.residuals)
        ):
            yield "residuals must have one number per layer, from 0 to the number of earlier outputs"
        if side == "encoder" and (self.attention or self.output_dim is not None):
            yield "attention and output_dim belong to the decoder"
        if side == "decoder" and (
            not self.attention
            or list(self.attention) != sorted(set(self.attention))
            or not 0 <= self.attention[0] <= self.attention[-1] < self.layers
        ):
            yield "attention must list at least one layer, ascending"


@dataclass(frozen=True, slots=True)
class SliceStack:
    """One side of SliceNet: layers of the same convolutions (Kaiser et al. 2017; docs/models-slicenet.md).

    kernel_sizes, dilations: one value for each convolution of a layer; two belong to the first residual, the
        rest to the second.
    separability: 0 separable; n > 0 sub-separable in n groups; -n super-separable, in n groups for the last
        convolution of a residual and in one more for each convolution before it.
    """

    embed_dim: int
    layers: int
    kernel_sizes: tuple[int, ...] = (3, 7, 15, 31)
    dilations: tuple[int, ...] = (1, 1, 1, 1)
    separability: int = -2
    norm_eps: float = 1e-6
    attention: str = "none"  # decoder only: transformer | inner_product (section 3.2) | none
    heads: int = 1  # heads of the attention "transformer"
    target_space: int = 0  # decoder only: row of the table of target spaces that starts a target

    @property
    def token_dim(self) -> int:
        return self.embed_dim

    @property
    def feature_dim(self) -> int:
        return self.embed_dim

    def separabilities(self, convolutions: int) -> tuple[int, ...]:
        """Return the separability of each of `convolutions` convolutions in a row."""
        # super-separable: one group more for each convolution before the last
        step = 1 if self.separability < 0 else 0
        return tuple(self.separability - step * i for i in reversed(range(convolutions)))

    def state_size(self, target_tokens: int) -> int:
        """Return the number of values that a decoder keeps for a hypothesis of any length."""
        return self.layers * sum(self.kernel_sizes) * self.embed_dim

    def problems(self, side: str) -> Iterator[str]:
        """Yield the errors of the configuration of an encoder or a decoder."""
        if self.embed_dim < SLICE_TIMING or self.embed_dim % 4 or self.layers < 1:
            yield f"embed_dim must be a multiple of 4, {SLICE_TIMING} or more, and layers positive"
        yield from self._convolution_problems(side)
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

    def _convolution_problems(self, side: str) -> Iterator[str]:
        """Yield the errors of kernel sizes, dilations and groups."""
        shape = len(self.kernel_sizes), len(self.dilations)
        if shape[0] < 3 or shape[0] != shape[1] or min(*self.kernel_sizes, *self.dilations) < 1:
            yield "kernel_sizes and dilations must be equally many positive numbers, at least three"
        elif side == "encoder" and any(k % 2 == 0 for k in self.kernel_sizes):
            yield "kernel widths must be odd (a centred window)"
        # numbers of groups in the two residuals of a layer
        groups = {abs(s) for n in (2, len(self.kernel_sizes) - 2) for s in self.separabilities(n)} - {0}
        if any(self.embed_dim % n for n in groups):
            yield f"embed_dim {self.embed_dim} is not a multiple of each number of groups {sorted(groups)}"


Stack = StackConfig | ConvStack | SliceStack
