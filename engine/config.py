"""`ModelConfig`: one description for all architectures, and the specs by which executors know a model.

Nothing here knows numpy or torch. Unknown keys are refused, so that a bundle of a later version is not
half understood.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Final

from engine.errors import ConfigError

SOURCE: Final = -1  # in MemorySpec.shape: the axis that grows with the source


@dataclass(frozen=True, slots=True)
class StateSpec:
    """Decoder state that one layer keeps of each hypothesis: its last `window` inputs of `dim` values.

    heads 0: a ring [slots, window, beams, dim], read through an index of ancestors; zero before the first
    token. heads > 0: a cache of everything since the first token, [slots, heads, columns, beams, dim / heads],
    with a column at least for each token of the longest hypothesis in flight; the lineage says which entries
    are a hypothesis's own (`engine.executors.history`). Neither is ever permuted when beams are reordered.
    A model's step returns the new column [slots, beams, dim] of each.
    """

    name: str
    window: int
    dim: int
    heads: int = 0


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """What the encoder leaves for the decoder, once per slot, shared by its beams.

    `shape` excludes the slot axis; exactly one entry is SOURCE, the padded source length.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def source_axis(self) -> int:
        """Axis of the source length, counted without the slot axis."""
        return self.shape.index(SOURCE)


@dataclass(frozen=True, slots=True)
class StackConfig:
    """One side (encoder or decoder) of a residual model: each layer mixes positions, attends, feeds forward.

    kernel_sizes: how many positions each layer's mixer sees, 0 for all of them (self-attention, average).
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
    activation: str = "relu"  # relu | gelu | swish
    norm_eps: float = 1e-5
    embedding_norm: bool = False  # a layer norm on the embeddings
    final_norm: bool = True  # with normalize_before: a layer norm after the last layer
    average_ffn: int = 0  # width of the feed-forward inside an averaged attention; 0: none
    gate: str = "joint"  # of an averaged attention: joint | separate | none

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
    def kernels(self) -> int:
        """Kernels of a light or dynamic convolution."""
        return self.heads if self.conv_heads is None else self.conv_heads

    def problems(self, side: str) -> Iterator[str]:
        sizes = (self.embed_dim, self.conv_dim, self.ffn_dim, self.heads, self.token_dim, self.feature_dim)
        if min(*sizes, self.kernels) < 1:
            yield "all widths must be positive"
            return
        convolves = self.mixer in ("dynamic", "lightweight")
        if convolves and self.conv_dim % self.kernels:
            named = "heads" if self.conv_heads is None else "conv_heads"
            yield f"conv_dim {self.conv_dim} is not a multiple of {named} {self.kernels}"
        if self.embed_dim % self.heads:
            yield f"embed_dim {self.embed_dim} is not a multiple of heads {self.heads}"
        least, most = {"attention": (0, None), "average": (0, 0)}.get(self.mixer, (1, None))
        if not self.kernel_sizes or min(self.kernel_sizes) < least:
            yield f"kernel_sizes must name one {'width' if not least else 'positive width'} per layer"
        elif most is not None and max(self.kernel_sizes) > most:
            yield "kernel_sizes of an average must be 0: it sees all positions"
        elif side == "encoder" and any(k and k % 2 == 0 for k in self.kernel_sizes):
            yield "kernel widths must be odd (a centred window)"
        named: tuple[tuple[str, str, tuple[str, ...]], ...] = (
            ("activation", self.activation, ACTIVATIONS),
            ("gate", self.gate, GATES),
        )
        for name, value, allowed in named:
            if value not in allowed:
                yield f"{name} {value!r} is none of {', '.join(allowed)}"
        if not 0 < self.norm_eps < 1:
            yield "norm_eps must be between 0 and 1"
        if side == "encoder" and not (self.input_dim is self.output_dim is None):
            yield "input_dim and output_dim belong to the decoder"


Stack = StackConfig


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that fixes the arithmetic of a model; weights apart.

    `max_source` and `max_target` count positions including end-of-sentence, so the longest source has
    `max_source - 1` tokens and the longest target `max_target - 1`. encoder None: a language model. decoder
    None: an ensemble of `members`, which fix everything else.
    """

    architecture: str
    source_vocab: int
    target_vocab: int
    encoder: Stack | None
    decoder: Stack | None
    share_embeddings: bool = False  # one table for source and target tokens
    share_output: bool = False  # the output projection is the target embedding
    output_bias: bool = False
    token_positions: bool = True
    scale_embeddings: bool = True  # by the square root of embed_dim
    first_position: int | None = None  # row of the first token in the table of positions; None: pad + 1
    source_bias: bool = False  # a learned vector added to every source embedding
    zero_start: bool = False  # the decoder's first input is zeros, not a token's embedding
    max_source: int = 1024
    max_target: int = 1024
    bos: int | None = 0
    pad: int = 1
    eos: int = 2
    unk: int | None = 3
    members: tuple[ModelConfig, ...] = ()

    def __post_init__(self) -> None:
        if self.architecture not in STACKS:
            raise ConfigError(
                f"unknown architecture {self.architecture!r}; known are {sorted(STACKS)}. Was it written by a "
                "newer Convoy?"
            )
        problems = list(_problems(self))
        if problems:
            raise ConfigError("impossible model configuration: " + "; ".join(problems))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> ModelConfig:
        """Raises ConfigError on unknown or missing keys, wrong types or impossible values."""
        values = _checked(cls, data, "config")
        kind = STACKS.get(values["architecture"], StackConfig)
        for side in ("encoder", "decoder"):
            if values[side] is not None:
                values[side] = kind(**_checked(kind, values[side], side))
        values["members"] = tuple(cls.from_dict(member) for member in values.get("members", ()))
        return cls(**values)


ACTIVATIONS: Final = ("relu", "gelu", "swish")
GATES: Final = ("joint", "separate", "none")
# architecture: what describes each of its sides
STACKS: Final[dict[str, type[Stack]]] = {
    "aan": StackConfig,
    "cnn": StackConfig,
    "dynamicconv": StackConfig,
    "ensemble": StackConfig,
    "transformer": StackConfig,
}
# architecture of residual stacks: the mixers its layers may have
MIXERS: Final[dict[str, tuple[str, ...]]] = {
    "aan": ("average", "attention"),
    "cnn": ("convolution",),
    "dynamicconv": ("dynamic", "lightweight"),
    "transformer": ("attention",),
}

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (float, int),
    "int | None": (int, type(None)),
    "tuple[int, ...]": (list, tuple),
    "tuple[ModelConfig, ...]": (list, tuple),
    "Stack | None": (dict, type(None)),
}


def _checked(kind: type, data: Any, where: str) -> dict[str, Any]:
    """The keys of a dataclass as JSON gave them, lists of numbers as tuples."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must be an object, not {type(data).__name__}")
    known = {f.name: f for f in fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ConfigError(f"{where} has unknown keys {unknown}: was it written by a newer Convoy?")
    values = dict(data)
    for name, field in known.items():
        if name not in data:
            if field.default is MISSING:
                raise ConfigError(f"{where} lacks the key {name!r}")
            continue
        allowed = _TYPES[str(field.type)]
        value = data[name]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            wanted = "object" if dict in allowed else field.type
            raise ConfigError(f"{where}.{name} must be of type {wanted}, not {value!r}")
        if field.type == "tuple[int, ...]":
            if not all(type(v) is int for v in value):
                raise ConfigError(f"{where}.{name} must hold whole numbers, not {value!r}")
            values[name] = tuple(value)
    return values


def _problems(config: ModelConfig) -> Iterator[str]:
    if config.architecture == "ensemble":
        yield from _ensemble_problems(config)
        return
    if config.decoder is None or config.members:
        yield "only an ensemble has members and no decoder"
        return
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        if stack is not None:
            yield from (f"{side}: {problem}" for problem in stack.problems(side))
            mixers = MIXERS.get(config.architecture, ())
            if mixers and stack.mixer not in mixers:
                yield f"{side}: mixer {stack.mixer!r} is none of {', '.join(map(repr, mixers))}"
    if config.encoder is None:
        yield f"{config.architecture} needs an encoder"
    else:
        yield from _pair_problems(config, config.encoder, config.decoder)
    if config.share_output and config.decoder.token_dim != config.decoder.feature_dim:
        yield "share_output needs input_dim == output_dim"
    if min(config.max_source, config.max_target) < 2:
        yield "max_source and max_target must be at least 2"
    specials = [i for i in (config.bos, config.pad, config.eos, config.unk) if i is not None]
    vocabulary = min(config.source_vocab, config.target_vocab)
    if len(set(specials)) != len(specials) or min(specials) < 0 or max(specials) >= vocabulary:
        yield f"special ids {specials} must be different ids below {vocabulary}"
    if config.first_position is not None and config.first_position < 0:
        yield "first_position must not be negative"


def _pair_problems(config: ModelConfig, encoder: Stack, decoder: Stack) -> Iterator[str]:
    if encoder.embed_dim != decoder.embed_dim and config.architecture != "transformer":
        yield "encoder and decoder must have the same embed_dim (cross-attention has no other width)"
    if config.share_embeddings and config.source_vocab != config.target_vocab:
        yield "share_embeddings needs equal vocabularies"
    if config.share_embeddings and encoder.embed_dim != decoder.token_dim:
        yield "share_embeddings needs equal embedding widths"


def _ensemble_problems(config: ModelConfig) -> Iterator[str]:
    if config.encoder is not None or config.decoder is not None or len(config.members) < 2:
        yield "an ensemble has no stacks of its own, and at least two members"
        return
    for i, member in enumerate(config.members):
        for name in ("source_vocab", "target_vocab", "bos", "pad", "eos", "unk"):
            if getattr(member, name) != getattr(config, name):
                yield f"member {i} has another {name} than the ensemble"
        if member.max_source < config.max_source or member.max_target < config.max_target:
            yield f"member {i} has fewer positions than the ensemble"
        if member.architecture == "ensemble":
            yield f"member {i} is an ensemble itself"
