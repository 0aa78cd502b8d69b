"""Code that all of Hugging Face's families share: text sides, configurations, defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.bundle.config import SIDES, ModelConfig
from engine.errors import CheckpointError, ConfigError
from export.importers.weights import Tensor, same

HF_ACTIVATIONS: Final = {
    "relu": "relu",
    "relu6": "relu6",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "swish": "swish",
    "silu": "swish",
}


@dataclass(frozen=True, slots=True)
class TextPart:
    """The text side of a model.

    settings: tokenizer settings, with their "kind".
    files: files that the settings name.
    unk: id of the unknown symbol.
    codes: language code, as clients send it, to the model's symbol.
    languages: source and target language of the files, or None.
    start: first token of a target, where the text side determines it.
    source_end: whether end-of-sentence follows a source.
    """

    settings: Mapping[str, Any]
    files: Mapping[str, bytes | Path]
    unk: int
    codes: Mapping[str, str] = field(default_factory=dict)
    languages: tuple[str, str] | None = None
    start: int | None = None
    source_end: bool = True


def token_problems(config: Mapping[str, Any]) -> list[str]:
    """Return the problems of the ids that every model needs."""
    names = ("pad_token_id", "eos_token_id")
    return [
        f"{name} = {config.get(name)!r} is not a token" for name in names if type(config.get(name)) is not int
    ]


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of a target's first token (None: end-of-sentence) and of the unknown symbol."""

    start: Any
    unk: int


def transformer(
    path: Path, config: Mapping[str, Any], ids: Ids, positions: int, own: Callable[[], Mapping[str, Any]]
) -> ModelConfig:
    """Return the configuration that a checked config.json describes.

    path: path of config.json, for errors.
    config: content of the file.
    ids: ids that the family determines.
    positions: limit of the tokens of a source or target.
    own: returns the fields that the family determines, including the stacks; may raise ConfigError.

    Raises CheckpointError that names `path` on impossible values.
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
    """Return whether `transformers` 5 or later wrote a config.json; it wrongly calls some weights tied."""
    version = str(config.get("transformers_version", "")).partition(".")[0]
    return version.isdecimal() and int(version) >= 5


def share(named: dict[str, Tensor], problems: list[str], *, tied: bool = True) -> bool:
    """Replace `shared.weight` by the embeddings of both sides, and return whether these are equal.

    named: weights by our names; changed in place.
    problems: receives each table that differs from the shared one if `tied`.
    tied: whether the settings say that both sides share their embeddings.
    """
    shared = named.pop("shared.weight", None)
    tables = [f"{side}.embed_tokens.weight" for side in SIDES]
    if shared is None:
        shared = next((named[name] for name in tables if name in named), None)
    if shared is None:
        return True
    differing = [name for name in tables if not same(named.setdefault(name, shared), shared)]
    if tied:
        problems += [f"{name} differs from shared.weight" for name in differing]
    return tied or same(*(named[name] for name in tables))
