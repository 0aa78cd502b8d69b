"""`ModelConfig`: one description for all architectures, and the specs by which executors know a model.

Nothing here knows numpy or torch. Unknown keys are refused, so that a bundle of a later version is not
half understood.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Final

from engine.errors import ConfigError

SOURCE: Final = -1  # in MemorySpec.shape: the axis that grows with the source


@dataclass(frozen=True, slots=True)
class StateSpec:
    """Decoder state that one layer keeps of each hypothesis: its last `window` inputs of `dim` values.

    An executor holds it as a ring [slots, window, beams, dim] and reorders beams through an ancestor index
    only; the ring itself is never permuted. A model's step returns the new column [slots, beams, dim].
    """

    name: str
    window: int
    dim: int


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
    """One side (encoder or decoder) of a convolutional model."""

    embed_dim: int
    conv_dim: int
    ffn_dim: int
    heads: int
    kernel_sizes: tuple[int, ...]
    conv_type: str = "dynamic"  # dynamic | lightweight
    glu: bool = True
    weight_softmax: bool = True
    normalize_before: bool = False
    learned_positions: bool = False
    input_dim: int | None = None  # decoder only: width of the token embedding where it differs
    output_dim: int | None = None  # decoder only: width of the output projection where it differs

    @property
    def layers(self) -> int:
        return len(self.kernel_sizes)

    @property
    def token_dim(self) -> int:
        return self.embed_dim if self.input_dim is None else self.input_dim

    @property
    def feature_dim(self) -> int:
        return self.embed_dim if self.output_dim is None else self.output_dim


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that fixes the arithmetic of a model; weights apart.

    `max_source` and `max_target` count positions including end-of-sentence, so the longest source has
    `max_source - 1` tokens and the longest target `max_target - 1`.
    """

    architecture: str
    source_vocab: int
    target_vocab: int
    encoder: StackConfig
    decoder: StackConfig
    share_embeddings: bool = False  # one table for source and target tokens
    share_output: bool = False  # the output projection is the target embedding
    token_positions: bool = True
    max_source: int = 1024
    max_target: int = 1024
    bos: int = 0
    pad: int = 1
    eos: int = 2
    unk: int = 3

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise ConfigError("impossible model configuration: " + "; ".join(problems))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelConfig:
        """Raises ConfigError on unknown or missing keys, wrong types or impossible values."""
        values = _checked(cls, data, "config")
        for side in ("encoder", "decoder"):
            stack = _checked(StackConfig, values[side], side)
            stack["kernel_sizes"] = tuple(stack["kernel_sizes"])
            values[side] = StackConfig(**stack)
        return cls(**values)


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "tuple[int, ...]": (list, tuple),
    "StackConfig": (dict,),
}


def _checked(kind: type, data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must be an object, not {type(data).__name__}")
    known = {f.name: f for f in fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ConfigError(f"{where} has unknown keys {unknown}: was it written by a newer Convoy?")
    for name, field in known.items():
        if name not in data:
            if field.default is MISSING:
                raise ConfigError(f"{where} lacks the key {name!r}")
            continue
        allowed = _TYPES[str(field.type)]
        value = data[name]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            wanted = "object" if field.type == "StackConfig" else field.type
            raise ConfigError(f"{where}.{name} must be of type {wanted}, not {value!r}")
        if isinstance(value, (list, tuple)) and not all(type(v) is int for v in value):
            raise ConfigError(f"{where}.{name} must hold whole numbers, not {value!r}")
    return dict(data)


def _problems(config: ModelConfig) -> list[str]:
    found = []
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        sizes = (stack.embed_dim, stack.conv_dim, stack.ffn_dim, stack.heads, stack.token_dim)
        if min(sizes) < 1 or stack.feature_dim < 1:
            found.append(f"{side}: all widths must be positive")
            continue
        if stack.conv_dim % stack.heads:
            found.append(f"{side}: conv_dim {stack.conv_dim} is not a multiple of heads {stack.heads}")
        if stack.embed_dim % stack.heads:
            found.append(f"{side}: embed_dim {stack.embed_dim} is not a multiple of heads {stack.heads}")
        if not stack.kernel_sizes or min(stack.kernel_sizes) < 1:
            found.append(f"{side}: kernel_sizes must name one positive width per layer")
        if stack.conv_type not in ("dynamic", "lightweight"):
            found.append(f"{side}: conv_type {stack.conv_type!r} is neither 'dynamic' nor 'lightweight'")
    if any(k % 2 == 0 for k in config.encoder.kernel_sizes):
        found.append("encoder: kernel widths must be odd (a centred window)")
    if config.encoder.embed_dim != config.decoder.embed_dim:
        found.append("encoder and decoder must have the same embed_dim (cross-attention has no other width)")
    if config.encoder.input_dim is not None or config.encoder.output_dim is not None:
        found.append("encoder: input_dim and output_dim belong to the decoder")
    if config.share_embeddings and config.source_vocab != config.target_vocab:
        found.append("share_embeddings needs equal vocabularies")
    if config.share_embeddings and config.encoder.embed_dim != config.decoder.token_dim:
        found.append("share_embeddings needs equal embedding widths")
    if config.share_output and config.decoder.token_dim != config.decoder.feature_dim:
        found.append("share_output needs input_dim == output_dim")
    if min(config.max_source, config.max_target) < 2:
        found.append("max_source and max_target must be at least 2")
    specials = (config.bos, config.pad, config.eos, config.unk)
    vocabulary = min(config.source_vocab, config.target_vocab)
    if len(set(specials)) != 4 or min(specials) < 0 or max(specials) >= vocabulary:
        found.append(f"special ids {specials} must be four different ids below {vocabulary}")
    return found
