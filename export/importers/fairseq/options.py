"""Options of fairseq's checkpoints, common to its families.

A family is a module that ends with its `Family`.
Functions never guess: they return their result and a list of all problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from engine.bundle.config import SIDES, ModelConfig
from engine.bundle.presets import preset
from engine.errors import ConfigError
from export.importers.weights import LARGEST_SIZE, MOST_LAYERS, Tensor, Weights

# options of some builds of fairseq that change the arithmetic of every family: the supported values
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

# options of every family, and the fields of a preset that hold their values
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

FEWEST_TOKENS: Final = 4  # smallest vocabulary: the special symbols


@dataclass(frozen=True, slots=True)
class Options:
    """Options that a family's checkpoints may have.

    base: defaults of the supported options; a value of another type is refused.
    inherited: option to the option whose value it has when absent.
    architectures: defaults that differ from `base`, by architecture.
    neutral: unsupported options that change the arithmetic, with the values that have no effect.
    """

    base: Mapping[str, Any]
    inherited: Mapping[str, str]
    architectures: Mapping[str, Mapping[str, Any]]
    neutral: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Family:
    """Conversion of one of fairseq's model families.

    table: options of its checkpoints.
    options: function from a checkpoint's arguments to all options of the model, and problems.
    model_config: function from arguments and the sizes of both vocabularies to our configuration or None,
        and problems.
    model_weights: function from a state dictionary and a configuration to our weights, and problems.
    """

    table: Options
    options: Callable[[Mapping[str, Any]], tuple[dict[str, Any], list[str]]]
    model_config: Callable[[Mapping[str, Any], int, int], tuple[ModelConfig | None, list[str]]]
    model_weights: Callable[[Mapping[str, Tensor], ModelConfig], tuple[Weights, list[str]]]


def read_options(arguments: Mapping[str, Any], options: Options) -> tuple[dict[str, Any], list[str]]:
    """Return all options, with their architecture's defaults, and problems.

    The value of an option that is not understood is None.
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
        values[name] = default if setting is None else _in_type_of(default, setting)
    for name, other in options.inherited.items():
        if name in values:  # the architecture has a default of its own
            continue
        setting = arguments.get(name)
        values[name] = values[other] if setting is None else _in_type_of(defaults.get(other, 0), setting)
    for name, value in values.items():
        if value is None and arguments.get(name) is not None:
            problems.append(f"{name} = {arguments[name]!r} is not understood")
        most = MOST_LAYERS if name.endswith("_layers") else LARGEST_SIZE
        if type(value) is int and not 0 < value <= most:
            problems.append(f"{name} = {value} is not between 1 and {most}")
    return values, problems


def defaults(name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a preset; `fields` maps an option to a field such as "encoder.layers"."""
    config = preset(name, FEWEST_TOKENS, FEWEST_TOKENS)
    values = {option: attrgetter(path)(config) for option, path in fields.items()}
    return {option: list(v) if isinstance(v, tuple) else v for option, v in values.items()}


def equal_kernels(values: dict[str, Any], sides: Iterable[str]) -> list[str]:
    """Repeat a single kernel width for every layer, and return a problem for each wrong number of widths."""
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
    """Return the configuration that `make` makes of a checkpoint's options, or None and the problems."""
    values, problems = options
    if problems:
        return None, problems
    try:
        return make(values), []
    except ConfigError as error:
        return None, [str(error)]


def model_fields(values: Mapping[str, Any], source_vocab: int, target_vocab: int) -> dict[str, Any]:
    """Return the fields of `ModelConfig` that the options of a residual encoder-decoder describe.

    values: all options of the model.
    source_vocab: number of source symbols.
    target_vocab: number of target symbols.
    """
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


def convolution_fields(values: Mapping[str, Any], side: str) -> dict[str, Any]:
    """Return the fields of `StackConfig` that the options of light or dynamic convolutions describe."""
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


def separate_positions(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return `arguments` with separate limits of positions; before fairseq 0.5 both sides shared one."""
    old = arguments.get("max_positions")
    return {"max_source_positions": old, "max_target_positions": old, **arguments} if old else dict(arguments)


def _in_type_of(example: Any, value: Any) -> Any:
    """Return the value in the type of `example`, or None. Some files hold booleans or numbers as text."""
    if isinstance(example, bool):
        return {"True": True, "False": False}.get(str(value))
    if isinstance(example, list):
        fine = isinstance(value, list) and value and all(type(v) is int for v in value)
        return value if fine else None
    if type(example) is int and isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if type(value) is type(example) else None
