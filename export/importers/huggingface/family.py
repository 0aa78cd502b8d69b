"""What the maps of Hugging Face's families have in common: text sides, configurations, defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from engine.bundle.config import ModelConfig
from engine.errors import CheckpointError, ConfigError
from export.importers.weights import same

BOTH_SIDES: Final = ("encoder", "decoder")
HF_ACTIVATIONS: Final = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "swish": "swish",
    "silu": "swish",
}


@dataclass(frozen=True, slots=True)
class TextPart:
    """The text side of a model: settings of its tokenizer's kind, the files that they name, special ids.

    codes: every language's code, as clients send it, with the symbol that names it.
    spoken: source and target, where the files say them.
    """

    settings: Mapping[str, Any]
    files: Mapping[str, bytes | Path]
    unk: int
    codes: Mapping[str, str] = field(default_factory=dict)
    spoken: tuple[str, str] | None = None


def token_problems(config: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the ids that every model has."""
    names = ("pad_token_id", "eos_token_id")
    return [
        f"{name} = {config.get(name)!r} is no token" for name in names if type(config.get(name)) is not int
    ]


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids that each family finds by itself: the first token of a target, and what a vocabulary lacks."""

    start: Any
    unk: int


def transformer(
    path: Path, config: Mapping[str, Any], ids: Ids, positions: int, own: Callable[[], Mapping[str, Any]]
) -> ModelConfig:
    """Make our configuration of a checked config.json.

    path: of config.json, for errors.
    config: content of the file.
    ids: that the family finds by itself.
    positions: most tokens of a source or target.
    own: makes the fields that a family sets by itself, the stacks among them.

    Raises CheckpointError on impossible values, naming `path`.
    """
    try:
        fields = {
            "architecture": "transformer",
            "source_vocab": config["vocab_size"],
            "target_vocab": config["vocab_size"],
            "share_embeddings": True,
            "share_output": bool(config.get("tie_word_embeddings", True)),
            "bos": None,
            "pad": config["pad_token_id"],
            "eos": config["eos_token_id"],
            "unk": ids.unk,
            "start": None if ids.start == config["eos_token_id"] else ids.start,
            "max_source": positions,
            "max_target": positions,
        } | dict(own())
        return ModelConfig(**fields)
    except (ConfigError, TypeError) as error:
        raise CheckpointError(f"{path}: can't be imported: {error}") from error


def newer_writer(config: Mapping[str, Any]) -> bool:
    """Tell whether `transformers` 5 or later wrote a config.json: then weights say what is tied."""
    version = str(config.get("transformers_version", "")).partition(".")[0]
    return version.isdecimal() and int(version) >= 5


def share(named: dict[str, Tensor], problems: list[str], *, tied: bool = True) -> bool:
    """Put `shared.weight` in the place of the tables that it stands for; tell whether both sides have one.

    named: weights by our names.
    problems: gets a table that differs from the shared one, where they are said to be tied.
    tied: whether sides can't have tables of their own.
    """
    shared = named.pop("shared.weight", None)
    tables = [f"{side}.embed_tokens.weight" for side in BOTH_SIDES]
    if shared is None:
        shared = next((named[name] for name in tables if name in named), None)
    if shared is None:
        return True
    differing = [name for name in tables if not same(named.setdefault(name, shared), shared)]
    if tied:
        problems += [f"{name} differs from shared.weight" for name in differing]
    return tied or same(*(named[name] for name in tables))
