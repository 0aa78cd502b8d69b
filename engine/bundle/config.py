"""`ModelConfig`: one configuration class for all architectures, independent of numpy and torch.

Unknown keys are refused, so that a bundle of a later version can't be read in part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from engine.bundle.adaptive import AdaptiveConfig
from engine.bundle.stacks import STACK_KEYS, ConvStack, SliceStack, Stack, StackConfig
from engine.bundle.strict import from_json
from engine.errors import ConfigError
from engine.types import Limits


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that determines the arithmetic of a model, except its weights.

    `max_source` and `max_target` count positions including end-of-sentence, so the longest source has
    `max_source - 1` tokens and the longest target `max_target - 1`. A language model has no encoder and reads
    no source. An ensemble has no decoder; its `members` are complete configurations. The scores of
    `language_model` are added to the model's, weighted by a request's `lm_weight`.
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
    scale_embeddings: bool = True  # multiply embeddings by the square root of embed_dim
    first_position: int | None = None  # row of the first token in the table of positions; None: pad + 1
    paper_sinusoids: bool = False  # frequencies 10000 ** (-2i / dim), not fairseq's, which end at 1 / 10000
    source_end: bool = True  # the model reads the end-of-sentence of the source
    source_bias: bool = False  # a learned vector is added to every source embedding
    zero_start: bool = False  # the decoder's first input is zeros, not a token's embedding
    start: int | None = None  # first token that the decoder reads; None: end-of-sentence
    max_source: int = 1024
    max_target: int = 1024
    bos: int | None = 0
    pad: int = 1
    eos: int = 2
    unk: int | None = 3
    members: tuple[ModelConfig, ...] = ()
    adaptive: AdaptiveConfig | None = None  # only for a language model
    quantization: str = "none"  # one of QUANTIZATIONS
    language_model: ModelConfig | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError with all errors of the configuration."""
        if self.architecture not in STACKS:
            raise ConfigError(
                f"unknown architecture {self.architecture!r}; known are {sorted(STACKS)}. Was it written by "
                "a newer Convoy?"
            )
        problems = list(_problems(self))
        if problems:
            raise ConfigError("impossible model configuration: " + "; ".join(problems))

    @property
    def reads_source(self) -> bool:
        """Whether the model has an encoder; a language model has none."""
        return self.encoder is not None or any(member.reads_source for member in self.members)

    @property
    def stack_configs(self) -> tuple[ModelConfig, ...]:
        """All single models: this one or the members of the ensemble, and the models of `language_model`."""
        models = self.members or (self,)
        return models if self.language_model is None else (*models, *self.language_model.stack_configs)

    @property
    def exceeds_fp16(self) -> bool:
        """Whether activations may be too large for fp16: T5's residual sums are, and no norm bounds them."""
        stacks = (stack for one in self.stack_configs for stack in (one.encoder, one.decoder))
        return any(isinstance(stack, StackConfig) and stack.rms_norm for stack in stacks)

    @property
    def first_token(self) -> int:
        """Token that the decoder reads first."""
        return self.eos if self.start is None else self.start

    def limits(self, beams: int, *, shortlisted: bool) -> Limits:
        """Return the limits of requests that this model can decode.

        beams: widest beam of its lanes.
        shortlisted: the model has a shortlist.
        """
        lm = self.language_model
        longest = self.max_target if lm is None else min(self.max_target, lm.max_target)
        return Limits(
            beams,
            self.max_source,
            longest - 1,
            self.target_vocab,
            attention=self.reads_source,
            shortlisted=shortlisted,
            language_model=lm is not None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as written to config.json."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for side in SIDES:
            stack = values[side] and asdict(values[side])
            if isinstance(values[side], StackConfig):  # in the order of config.json
                stack = {name: stack[name] for name in STACK_KEYS}
            values[side] = stack
        values["members"] = tuple(member.to_dict() for member in self.members)
        values["adaptive"] = self.adaptive and asdict(self.adaptive)
        values["language_model"] = self.language_model and self.language_model.to_dict()
        return values

    @classmethod
    def from_dict(cls, data: Any) -> ModelConfig:
        """Convert a dict of config.json to a configuration.

        Raises ConfigError on unknown or missing keys, wrong types or impossible values.
        """
        if not isinstance(data, dict):
            return from_json(cls, data, "config")
        kind = STACKS.get(str(data.get("architecture")), StackConfig)
        # converted first, because their class depends on the architecture
        sides = {
            side: from_json(kind, _renamed(data[side]), side)
            for side in SIDES
            if isinstance(data.get(side), dict)
        }
        return from_json(cls, data, "config", **sides)


def _renamed(stack: dict[str, Any]) -> dict[str, Any]:
    """Return an encoder or decoder with the present names of its keys."""
    return {EARLIER_KEYS.get(key, key): value for key, value in stack.items()}


EARLIER_KEYS: Final = {"conv_type": "mixer"}  # of release 0.1.0
# class of the encoder's and decoder's configuration, by architecture
STACKS: Final[dict[str, type[Stack]]] = {
    "aan": StackConfig,
    "cnn": StackConfig,
    "convs2s": ConvStack,
    "dynamicconv": StackConfig,
    "ensemble": StackConfig,
    "lightconv_lm": StackConfig,
    "slicenet": SliceStack,
    "ssru": StackConfig,
    "transformer": StackConfig,
}
# mixers that layers may have, by architecture of residual stacks
MIXERS: Final[dict[str, tuple[str, ...]]] = {
    "aan": ("average", "attention"),
    "cnn": ("convolution",),
    "dynamicconv": ("dynamic", "lightweight"),
    "lightconv_lm": ("dynamic", "lightweight"),
    "ssru": ("ssru", "attention"),
    "transformer": ("attention",),
}
# how the activations that int8 weights multiply are rounded: row by row, or by the alphas of the file
# (`engine.bundle.weights`); "none": the weights are floats
QUANTIZATIONS: Final = ("none", "rows", "alphas")
SIDES: Final = ("encoder", "decoder")
LANGUAGE_MODELS: Final = ("lightconv_lm",)  # architectures without an encoder


def _problems(config: ModelConfig) -> Iterator[str]:
    """Yield every error of a configuration."""
    if config.language_model is not None:
        yield from _fusion_problems(config, config.language_model)
    if config.architecture == "ensemble":
        yield from _ensemble_problems(config)
        return
    if config.decoder is None or config.members:
        yield "only an ensemble has members and no decoder"
        return
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        if stack is not None:
            yield from (f"{side}: {problem}" for problem in _side_problems(config, side, stack))
    if config.encoder is not None:
        yield from _pair_problems(config, config.encoder, config.decoder)
    elif config.architecture in LANGUAGE_MODELS or isinstance(config.decoder, SliceStack):
        yield from _language_model_problems(config, config.decoder)
    else:
        yield f"{config.architecture} needs an encoder"
    yield from _family_problems(config, config.decoder)
    yield from _vocabulary_problems(config)


def _side_problems(config: ModelConfig, side: str, stack: Stack) -> Iterator[str]:
    yield from stack.problems(side)
    mixers = MIXERS.get(config.architecture, ())
    if isinstance(stack, StackConfig) and mixers and stack.mixer not in mixers:
        yield f"mixer {stack.mixer!r} is none of {', '.join(map(repr, mixers))}"


def _family_problems(config: ModelConfig, decoder: Stack) -> Iterator[str]:
    """Yield an error for each setting that the decoder's class of stack does not support."""
    unsupported = config.source_bias or config.zero_start or config.scale_embeddings
    if isinstance(decoder, ConvStack) and unsupported:
        yield "this architecture does not support scale_embeddings, source_bias and zero_start"
    if isinstance(decoder, SliceStack):
        yield from _slice_problems(config, decoder)
    if config.share_output and decoder.token_dim != decoder.feature_dim:
        yield "share_output needs input_dim == output_dim"
    if config.quantization not in QUANTIZATIONS:
        yield f"quantization {config.quantization!r} is none of {', '.join(QUANTIZATIONS)}"


def _vocabulary_problems(config: ModelConfig) -> Iterator[str]:
    """Yield the errors of special tokens and positions."""
    if min(config.max_source, config.max_target) < 2:
        yield "max_source and max_target must be at least 2"
    specials = [i for i in (config.bos, config.pad, config.eos, config.unk) if i is not None]
    vocabulary = min(config.source_vocab, config.target_vocab)
    if len(set(specials)) != len(specials) or min(specials) < 0 or max(specials) >= vocabulary:
        yield f"special ids {specials} must be different ids below {vocabulary}"
    if config.start is not None and not 0 <= config.start < config.target_vocab:
        yield f"start {config.start} must be a token of the target vocabulary"
    if config.first_position is not None and config.first_position < 0:
        yield "first_position must not be negative"


def _slice_problems(config: ModelConfig, decoder: SliceStack) -> Iterator[str]:
    """Yield an error for each setting that SliceNet does not support."""
    if (decoder.attention == "none") != (config.encoder is None):
        yield "attention 'none' needs a model without an encoder, and such a model needs attention 'none'"
    for name, required in (
        ("output_bias", False),
        ("token_positions", True),
        ("first_position", None),
        ("source_bias", False),
        ("zero_start", False),
        ("paper_sinusoids", False),
    ):
        if getattr(config, name) != required:
            yield f"this architecture does not support {name}"


def _language_model_problems(config: ModelConfig, decoder: Stack) -> Iterator[str]:
    """Yield the errors of a model without an encoder."""
    if config.source_vocab != config.target_vocab:
        yield "a language model has one vocabulary: source_vocab and target_vocab must be equal"
    if config.share_embeddings or config.source_bias:
        yield "share_embeddings and source_bias need an encoder"
    if config.adaptive is None:
        return
    if not isinstance(decoder, StackConfig):
        yield f"{config.architecture} has neither adaptive softmax nor adaptive input"
        return
    yield from config.adaptive.problems(config.target_vocab, decoder)
    if config.share_output or (config.output_bias and config.adaptive.softmax):
        yield "share_output and output_bias belong to an ordinary softmax; see tie_weights"


def _pair_problems(config: ModelConfig, encoder: Stack, decoder: Stack) -> Iterator[str]:
    """Yield the errors of encoder and decoder together."""
    if config.architecture in LANGUAGE_MODELS:
        yield f"{config.architecture} has no encoder"
    if config.adaptive is not None:
        yield "adaptive softmax and input belong to language models"
    if encoder.embed_dim != decoder.embed_dim and config.architecture != "transformer":
        yield "encoder and decoder must have the same embed_dim, the width of cross-attention"
    if config.share_embeddings and config.source_vocab != config.target_vocab:
        yield "share_embeddings needs equal vocabularies"
    if config.share_embeddings and encoder.embed_dim != decoder.token_dim:
        yield "share_embeddings needs equal embedding widths"


def _fusion_problems(config: ModelConfig, language_model: ModelConfig) -> Iterator[str]:
    """Yield the errors of a model that has a language model."""
    if language_model.reads_source or language_model.language_model is not None:
        yield "language_model must have no source and no language_model of its own"
    if not config.reads_source:
        yield "a language model must not have a language_model"
    for name in ("target_vocab", "bos", "pad", "eos", "unk", "first_token"):
        if getattr(language_model, name) != getattr(config, name):
            yield f"language_model has another {name} than the model"
    if {config.quantization, language_model.quantization} != {"none"}:
        yield "models with a language_model, and that model, must have float weights (quantization none)"


def _ensemble_problems(config: ModelConfig) -> Iterator[str]:
    """Yield the errors of an ensemble and its members."""
    if config.encoder is not None or config.decoder is not None or len(config.members) < 2:
        yield "an ensemble needs at least two members, and must have no encoder or decoder"
        return
    for i, member in enumerate(config.members):
        for name in ("source_vocab", "target_vocab", "bos", "pad", "eos", "unk", "start"):
            if getattr(member, name) != getattr(config, name):
                yield f"member {i} has another {name} than the ensemble"
        if member.max_source < config.max_source or member.max_target < config.max_target:
            yield f"member {i} has fewer positions than the ensemble"
        if member.architecture == "ensemble" or member.language_model is not None:
            yield f"member {i} must be a single model, without members or a language_model"
        if member.reads_source != config.members[0].reads_source:
            yield f"member {i} is {'no' if member.reads_source else 'a'} language model, unlike member 0"
