"""What the maps of fairseq's families to ours have in common: reading options, and renaming weights.

A family is a module with `ARCHITECTURES`, `options`, `model_config` and `model_weights` (see `Family`).
Nothing is ever guessed: every function returns what it found and everything that is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.bundle.config import ModelConfig
from engine.bundle.presets import preset
from engine.bundle.weights import Later
from engine.errors import ConfigError
from engine.models import build, misfits, weight_shapes

Weights = dict[str, NDArray[np.float32]]

LARGEST: Final = 65_536  # of any width or number of positions; tables of positions are made for every model
DEEPEST: Final = 1_000
CHECKED: Final = 4096  # rows of a weight that are looked at together
PLAIN: Final = re.compile(r"\.(embed_positions|relative)\.weight$")  # tables that int8 graphs read as floats
JOINT: Final = re.compile(r"\.in_proj_(weight|bias)$")
# options that only some builds of fairseq have, and that change the arithmetic of every family
UNUSUAL: Final[dict[str, tuple[Any, ...]]] = {
    "task": (None, "translation"),
    **dict.fromkeys(
        (
            "adaptive_input",
            "base_layers",
            "char_inputs",
            "character_embeddings",
            "cross_self_attention",
            "decoder_layers_to_keep",
            "encoder_layers_to_keep",
            "merge_src_tgt_embed",
            "no_cross_attention",
            "quant_noise_pq",
            "quant_noise_scalar",
            "tie_adaptive_proj",
            "tie_adaptive_weights",
        ),
        (None, False, 0, ""),
    ),
    "adaptive_softmax_cutoff": (None,),
}

SIDES: Final = ("encoder", "decoder")
# options that stacks of every family have, and where presets hold their values
SHARING: Final[dict[str, Any]] = {
    "share_decoder_input_output_embed": False,
    "share_all_embeddings": False,
    "no_token_positional_embeddings": False,  # nosec B105 # an option of fairseq
}
STACK_FIELDS: Final = {
    "encoder_embed_dim": "encoder.embed_dim",
    "encoder_ffn_embed_dim": "encoder.ffn_dim",
    "max_source_positions": "max_source",
    "max_target_positions": "max_target",
    **{f"{side}_layers": f"{side}.layers" for side in SIDES},
    **{f"{side}_attention_heads": f"{side}.heads" for side in SIDES},
    **{f"{side}_normalize_before": f"{side}.normalize_before" for side in SIDES},
    **{f"{side}_learned_pos": f"{side}.learned_positions" for side in SIDES},
}
DECODER_WIDTHS: Final = {"decoder_embed_dim": "decoder.embed_dim", "decoder_ffn_embed_dim": "decoder.ffn_dim"}

ANY: Final = 4  # tokens: as few as a vocabulary can have


class Family(Protocol):
    """The map of one of fairseq's model families. A module fits."""

    @property
    def ARCHITECTURES(self) -> Collection[str]:  # noqa: N802, the name of a module's constant
        """Names of fairseq's architectures (`arch`) that this map reads."""

    def options(self, arguments: Mapping[str, Any], /) -> tuple[dict[str, Any], list[str]]:
        """Return all options of the model, and what is wrong with them.

        Options that are absent take their architecture's defaults.
        """

    def model_config(
        self, arguments: Mapping[str, Any], source_vocab: int, target_vocab: int, /
    ) -> tuple[ModelConfig | None, list[str]]:
        """Return our configuration of a checkpoint's options.

        Where there is none, return None and all the reasons why.
        """

    def model_weights(self, state: Mapping[str, Tensor], config: ModelConfig, /) -> tuple[Weights, list[str]]:
        """Return the state dictionary under our names, and every weight that does not fit."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a family's checkpoints may say.

    base: defaults of the options that matter, each of the option's type.
    inherited: an option that is absent takes the value of another.
    architectures: what differs from `base` under each name.
    neutral: options that change the arithmetic and are not carried over, with their harmless values.
    """

    base: Mapping[str, Any]
    inherited: Mapping[str, str]
    architectures: Mapping[str, Mapping[str, Any]]
    neutral: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Names:
    """How a family's weights are called in files of all eras.

    dropped: weights without a use.
    """

    renamed: tuple[tuple[re.Pattern[str], str], ...]
    dropped: re.Pattern[str]


def read_options(arguments: Mapping[str, Any], options: Options) -> tuple[dict[str, Any], list[str]]:
    """Return all options by their architecture's defaults, and what is wrong with them.

    The value of an option is None where it is not understood.
    """
    defaults = {**options.base, **options.architectures[arguments["arch"]]}
    problems = [
        f"{name} = {arguments[name]!r} is not supported"
        for name, harmless in options.neutral.items()
        if name in arguments and arguments[name] not in harmless
    ]
    values: dict[str, Any] = {}
    for name, default in defaults.items():
        setting = arguments.get(name)
        values[name] = default if setting is None else _like(default, setting)
    for name, other in options.inherited.items():
        if name in values:  # the architecture has a default of its own
            continue
        setting = arguments.get(name)
        values[name] = values[other] if setting is None else _like(defaults.get(other, 0), setting)
    for name, value in values.items():
        if value is None and arguments.get(name) is not None:
            problems.append(f"{name} = {arguments[name]!r} is not understood")
        most = DEEPEST if name.endswith("_layers") else LARGEST
        if type(value) is int and not 0 < value <= most:
            problems.append(f"{name} = {value} is beyond 1 to {most}")
    return values, problems


def defaults(name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a preset (`engine.bundle.presets`).

    fields: where our configuration has each option.
    """
    config = preset(name, ANY, ANY)
    values = {option: attrgetter(path)(config) for option, path in fields.items()}
    return {option: list(v) if isinstance(v, tuple) else v for option, v in values.items()}


def equal_kernels(values: dict[str, Any], sides: Iterable[str]) -> list[str]:
    """Repeat a single kernel width for every layer of a side; what is wrong where there are several."""
    problems = []
    for side in sides:
        kernels, layers = values[f"{side}_kernel_size_list"], values[f"{side}_layers"]
        if kernels and layers and len(kernels) == 1:
            values[f"{side}_kernel_size_list"] = kernels * layers
        elif kernels and layers and len(kernels) != layers:
            problems.append(f"{side}_kernel_size_list has {len(kernels)} widths for {layers} layers")
    return problems


def make_config(
    options: tuple[dict[str, Any], list[str]], make: Callable[[dict[str, Any]], ModelConfig]
) -> tuple[ModelConfig | None, list[str]]:
    """Return what `make` makes of a checkpoint's options, or None and all the reasons why there is none."""
    values, problems = options
    if problems:
        return None, problems
    try:
        return make(values), []
    except ConfigError as error:
        return None, [str(error)]


def of_both_sides(values: Mapping[str, Any], source_vocab: int, target_vocab: int) -> dict[str, Any]:
    """Return what the options of residual encoder-decoders say of a whole model."""
    tied = bool(values["share_all_embeddings"])
    return {
        "source_vocab": source_vocab,
        "target_vocab": target_vocab,
        "share_embeddings": tied,
        "share_output": tied or values["share_decoder_input_output_embed"],
        "token_positions": not values["no_token_positional_embeddings"],
        "max_source": values["max_source_positions"],
        "max_target": values["max_target_positions"],
    }


def of_convolutions(values: Mapping[str, Any], side: str) -> dict[str, Any]:
    """Return what the options say of a stack of light or dynamic convolutions."""
    embed = values[f"{side}_embed_dim"]
    widths = [values[f"decoder_{part}_dim"] if side == "decoder" else embed for part in ("input", "output")]
    return {
        "embed_dim": embed,
        "conv_dim": values[f"{side}_conv_dim"],
        "ffn_dim": values[f"{side}_ffn_embed_dim"],
        "heads": values[f"{side}_attention_heads"],
        "kernel_sizes": tuple(values[f"{side}_kernel_size_list"]),
        "mixer": values[f"{side}_conv_type"],
        "glu": values[f"{side}_glu"],
        "weight_softmax": values["weight_softmax"],
        "learned_positions": values[f"{side}_learned_pos"],
        "input_dim": widths[0] if widths[0] != embed else None,
        "output_dim": widths[1] if widths[1] != embed else None,
    }


def positions(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return `arguments` with the two limits that files before fairseq 0.5 hold as one."""
    old = arguments.get("max_positions")
    return {"max_source_positions": old, "max_target_positions": old, **arguments} if old else dict(arguments)


def read_weights(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    names: Names,
    ties: Iterable[tuple[str, str]] = (),
) -> tuple[Weights, list[str]]:
    """Return the state dictionary of any era under our names, and every weight that is missing, left over,
    of another shape, not finite, or said to be shared but different.

    ties: pairs (copy, original); a file may leave the copy out (release era) or keep both (main).
    """
    named, problems = rename(state, names)
    pairs = list(ties)
    for copy, original in pairs:
        if copy in named and original in named and not _same(named[copy], named[original]):
            problems.append(f"{copy} differs from {original}, although the options say they are shared")
    for copy, original in pairs:
        if original in named:
            named.pop(copy, None)
    return fit_weights(named, config, problems)


def fit_weights(
    named: Mapping[str, Tensor], config: ModelConfig, problems: list[str]
) -> tuple[Weights, list[str]]:
    """Return weights under our names as arrays, and `problems` with every one that does not fit the model."""
    problems = [*problems, *_shape_problems(named, config), *_value_problems(named)]
    return {name: weight.detach().to(torch.float32).numpy() for name, weight in named.items()}, problems


def fitted_later(
    named: Mapping[str, Tensor], config: ModelConfig, problems: list[str]
) -> tuple[dict[str, Later], list[str]]:
    """Do as `fit_weights`, for large models.

    Arrays are made one by one, in int8 where the configuration says so.
    """
    problems = [*problems, *_shape_problems(named, config), *_value_problems(named)]
    return {name: _later(name, weight, config) for name, weight in named.items()}, problems


def _later(name: str, weight: Tensor, config: ModelConfig) -> Later:
    """Matrices that are multiplied with, and tables of tokens, may be int8; tables of positions are not."""
    whole = config.quantization == "rows" and weight.dim() == 2 and not PLAIN.search(name)
    narrow = weight.dtype in (torch.float16, torch.float32)

    def make() -> NDArray[Any]:
        values: NDArray[Any] = weight.detach().to(weight.dtype if narrow else torch.float32).numpy()
        return values

    return Later(tuple(weight.shape), make, whole)


def _value_problems(named: Mapping[str, Tensor]) -> list[str]:
    problems = [f"{n} holds {w.dtype}, no floats" for n, w in named.items() if not w.is_floating_point()]
    return problems + [
        f"{name} holds values that are not finite"
        for name, weight in named.items()
        if not all(bool(piece.isfinite().all()) for piece in torch.atleast_1d(weight).split(CHECKED))
    ]


def _shape_problems(named: Mapping[str, Tensor], config: ModelConfig) -> list[str]:
    with torch.device("meta"):
        shapes = weight_shapes(build(config))
    return misfits(shapes, {name: tuple(weight.shape) for name, weight in named.items()})


def rename(state: Mapping[str, Tensor], names: Names) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights that matter under their newest names, and those that came under two."""
    named: dict[str, Tensor] = {}
    problems = []
    for old, weight in state.items():
        if names.dropped.search(old):
            continue
        new = old
        for pattern, replacement in names.renamed:
            new = pattern.sub(replacement, new)
        for name, part in _split_joint(new, weight):
            if name in named:
                problems.append(f"{name} occurs under two names")
            named[name] = part
    return named, problems


def tied_embeddings(config: ModelConfig) -> list[tuple[str, str]]:
    """List the pairs (copy, original) of a residual encoder-decoder's shared tables."""
    table = "decoder.embed_tokens.weight"
    ties = [("decoder.output_projection.weight", table)] if config.share_output else []
    return [*ties, (table, "encoder.embed_tokens.weight")] if config.share_embeddings else ties


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.float(), b.float())


def _split_joint(name: str, weight: Tensor) -> list[tuple[str, Tensor]]:
    """Before fairseq 0.9 the projections of attention were one weight, rows q | k | v."""
    match = JOINT.search(name)
    if not match or not weight.dim() or weight.shape[0] % 3:
        return [(name, weight)]
    base = name[: match.start()]
    parts = zip("qkv", weight.chunk(3), strict=True)
    return [(f"{base}.{letter}_proj.{match[1]}", part.contiguous()) for letter, part in parts]


def _like(example: Any, value: Any) -> Any:
    """The value when it is of the example's type, else None. Some files hold booleans or numbers as text."""
    if isinstance(example, bool):
        return {"True": True, "False": False}.get(str(value))
    if isinstance(example, list):
        fine = isinstance(value, list) and value and all(type(v) is int for v in value)
        return value if fine else None
    if type(example) is int and isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if type(value) is type(example) else None
