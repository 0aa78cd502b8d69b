"""What the maps of fairseq's families to ours have in common: reading options, and renaming weights.

A family is a module with `ARCHITECTURES`, `options`, `model_config` and `model_weights` (see `Family`).
Nothing is ever guessed: every function returns what it found and everything that is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.config import ModelConfig
from engine.models import build, misfits, weight_shapes
from engine.presets import preset

Weights = dict[str, NDArray[np.float32]]

LARGEST: Final = 65_536  # of any width or number of positions; tables of positions are made for every model
DEEPEST: Final = 1_000
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

    def options(self, given: Mapping[str, Any], /) -> tuple[dict[str, Any], list[str]]:
        """All options of the model, absent ones by its architecture's defaults, and what is wrong."""

    def model_config(
        self, given: Mapping[str, Any], source_vocab: int, target_vocab: int, /
    ) -> tuple[ModelConfig | None, list[str]]:
        """Our configuration of a checkpoint's options, or None and all the reasons why there is none."""

    def model_weights(self, state: Mapping[str, Tensor], config: ModelConfig, /) -> tuple[Weights, list[str]]:
        """The state dictionary under our names, and every weight that does not fit."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a family's checkpoints may say.

    base: defaults of the options that matter, each of the option's type. inherited: an option that is absent
    takes the value of another. architectures: what differs from `base` under each name. neutral: options that
    change the arithmetic and are not carried over, with their harmless values.
    """

    base: Mapping[str, Any]
    inherited: Mapping[str, str]
    architectures: Mapping[str, Mapping[str, Any]]
    neutral: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Names:
    """How a family's weights are called in files of all eras. dropped: weights without a use."""

    renamed: tuple[tuple[re.Pattern[str], str], ...]
    dropped: re.Pattern[str]


def read_options(given: Mapping[str, Any], known: Options) -> tuple[dict[str, Any], list[str]]:
    """All options by the defaults of `given["arch"]`, and what is wrong with them (None where a value is)."""
    defaults = {**known.base, **known.architectures[given["arch"]]}
    problems = [
        f"{name} = {given[name]!r} is not supported"
        for name, harmless in known.neutral.items()
        if name in given and given[name] not in harmless
    ]
    values: dict[str, Any] = {}
    for name, default in defaults.items():
        found = given.get(name)
        values[name] = default if found is None else _like(default, found)
    for name, other in known.inherited.items():
        if name in values:  # the architecture has a default of its own
            continue
        found = given.get(name)
        values[name] = values[other] if found is None else _like(defaults.get(other, 0), found)
    for name, value in values.items():
        if value is None and given.get(name) is not None:
            problems.append(f"{name} = {given[name]!r} is not understood")
        most = DEEPEST if name.endswith("_layers") else LARGEST
        if type(value) is int and not 0 < value <= most:
            problems.append(f"{name} = {value} is beyond 1 to {most}")
    return values, problems


def defaults(name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The options of a preset (`engine.presets`). fields: where in our configuration each option is."""
    config = preset(name, ANY, ANY)
    values = {option: attrgetter(path)(config) for option, path in fields.items()}
    return {option: list(v) if isinstance(v, tuple) else v for option, v in values.items()}


def positions(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with the two limits that files before fairseq 0.5 hold as one."""
    old = given.get("max_positions")
    return {"max_source_positions": old, "max_target_positions": old, **given} if old else dict(given)


def read_weights(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    names: Names,
    ties: Iterable[tuple[str, str]] = (),
) -> tuple[Weights, list[str]]:
    """The state dictionary under our names, of any era, and every weight that is missing, left over, of
    another shape, not finite, or said to be shared but different.

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
    return fitted(named, config, problems)


def fitted(
    named: Mapping[str, Tensor], config: ModelConfig, problems: list[str]
) -> tuple[Weights, list[str]]:
    """Weights under our names as arrays, and `problems` with every one that does not fit the model."""
    with torch.device("meta"):
        wanted = weight_shapes(build(config))
    problems = [*problems, *misfits(wanted, {name: tuple(w.shape) for name, w in named.items()})]
    problems += [f"{n} holds {w.dtype}, no floats" for n, w in named.items() if not w.is_floating_point()]
    problems += [f"{n} holds values that are not finite" for n, w in named.items() if not w.isfinite().all()]
    return {name: weight.detach().to(torch.float32).numpy() for name, weight in named.items()}, problems


def rename(state: Mapping[str, Tensor], names: Names) -> tuple[dict[str, Tensor], list[str]]:
    """The weights that matter under their newest names, and those that came under two."""
    named: dict[str, Tensor] = {}
    problems = []
    for old, weight in state.items():
        if names.dropped.search(old):
            continue
        new = old
        for pattern, replacement in names.renamed:
            new = pattern.sub(replacement, new)
        for name, part in _split(new, weight):
            if name in named:
                problems.append(f"{name} occurs under two names")
            named[name] = part
    return named, problems


def tied_embeddings(config: ModelConfig) -> list[tuple[str, str]]:
    """The pairs (copy, original) of a residual encoder-decoder's shared tables."""
    table = "decoder.embed_tokens.weight"
    ties = [("decoder.output_projection.weight", table)] if config.share_output else []
    return [*ties, (table, "encoder.embed_tokens.weight")] if config.share_embeddings else ties


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.float(), b.float())


def _split(name: str, weight: Tensor) -> list[tuple[str, Tensor]]:
    """Before fairseq 0.9 the projections of attention were one weight, rows q | k | v."""
    found = JOINT.search(name)
    if not found or not weight.dim() or weight.shape[0] % 3:
        return [(name, weight)]
    base = name[: found.start()]
    parts = zip("qkv", weight.chunk(3), strict=True)
    return [(f"{base}.{letter}_proj.{found[1]}", part.contiguous()) for letter, part in parts]


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
