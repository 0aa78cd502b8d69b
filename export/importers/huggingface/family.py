"""What the maps of Hugging Face's families have in common: wishes, text sides, configurations, defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from engine.bundle.config import ModelConfig
from engine.errors import CheckpointError, ConfigError

SIDES: Final = ("encoder", "decoder")
ACTIVATIONS: Final = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "swish": "swish",
    "silu": "swish",
}
# settings of generation with their harmless values; others than these are not carried over
HARMLESS: Final[dict[str, tuple[Any, ...]]] = {
    "do_sample": (None, False),
    "num_beam_groups": (None, 1),
    "repetition_penalty": (None, 1, 1.0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "bad_words_ids": (None, []),
    "suppress_tokens": (None, []),
    "begin_suppress_tokens": (None, []),
}


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a user asks of a conversion beyond the files. None: as the files say.

    name: of the model.
    source, target: language codes.
    task: translate | summarize.
    prompt: what is written before each source.
    half: store fp16.
    int8: store matrices and tables of tokens in int8.
    """

    name: str | None = None
    source: str | None = None
    target: str | None = None
    task: str | None = None
    prompt: str | None = None
    half: bool | None = None
    int8: bool = False


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
    tables = [f"{side}.embed_tokens.weight" for side in SIDES]
    if shared is None:
        shared = next((named[name] for name in tables if name in named), None)
    if shared is None:
        return
    for name in tables:
        table = named.setdefault(name, shared)
        if table is not shared and (table.shape != shared.shape or not torch.equal(table, shared)):
            problems.append(f"{name} differs from shared.weight")


def generation(rules: Mapping[str, Any], longest: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the decoding defaults, and the settings that have no counterpart.

    Lengths of `transformers` count the first token and end-of-sentence; ours count neither.
    """
    if type(rules.get("max_new_tokens")) is int:
        longest = min(longest, rules["max_new_tokens"] - 1)
    elif type(rules.get("max_length")) is int:
        longest = min(longest, rules["max_length"] - 2)
    options = {
        "beam_size": int(_number(rules, "num_beams", 1)),
        "length_penalty": float(_number(rules, "length_penalty", 1.0)),
        "max_length_b": max(1, longest),
        "min_length": min(max(0, int(_number(rules, "min_length", 0)) - 1), max(1, longest)),
        "no_repeat_ngram_size": int(_number(rules, "no_repeat_ngram_size", 0)),
    }
    leftovers = [
        f"{name} = {rules.get(name)!r}" for name, fine in HARMLESS.items() if rules.get(name) not in fine
    ]
    if rules.get("early_stopping", False) is not True:  # ours: docs/import.md
        leftovers.append(f"early_stopping = {rules.get('early_stopping', False)!r}")
    return options, tuple(leftovers)


def _number(rules: Mapping[str, Any], name: str, usual: float) -> float:
    value = rules.get(name, usual)
    return value if type(value) in (int, float) else usual
