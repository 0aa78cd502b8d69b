"""What the maps of Hugging Face's families have in common: text sides, configurations, defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from engine.bundle.config import ModelConfig
from engine.errors import CheckpointError, ConfigError

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
    """

    settings: Mapping[str, Any]
    files: Mapping[str, bytes | Path]
    unk: int
    codes: Mapping[str, str] = field(default_factory=dict)


def token_problems(config: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the ids that every model has."""
    names = ("pad_token_id", "eos_token_id")
    return [
        f"{name} = {config.get(name)!r} is no token" for name in names if type(config.get(name)) is not int
    ]


def transformer(path: Path, config: Mapping[str, Any], own: Callable[[], Mapping[str, Any]]) -> ModelConfig:
    """Make our configuration of a checked config.json.

    path: of config.json, for errors.
    config: content of the file.
    own: makes the fields that a family sets by itself, the stacks among them; start: the first token.

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
        } | dict(own())
        if fields["start"] == fields["eos"]:
            fields["start"] = None
        return ModelConfig(**fields)
    except (ConfigError, TypeError) as error:
        raise CheckpointError(f"{path}: can't be imported: {error}") from error


def share(named: dict[str, Tensor], problems: list[str]) -> None:
    """Put `shared.weight` in the place of the tables that it stands for."""
    shared = named.pop("shared.weight", None)
    tables = [f"{side}.embed_tokens.weight" for side in BOTH_SIDES]
    if shared is None:
        shared = next((named[name] for name in tables if name in named), None)
    if shared is None:
        return
    for name in tables:
        table = named.setdefault(name, shared)
        if table is not shared and (table.shape != shared.shape or not torch.equal(table, shared)):
            problems.append(f"{name} differs from shared.weight")
