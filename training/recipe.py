"""Recipes: everything that decides a training run, in one TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine.config import ModelConfig, StackConfig
from engine.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Corpus:
    folder: str  # below the folder of corpora
    source_column: int = 0
    target_column: int = 1
    placeholder_share: float = 0.03


@dataclass(frozen=True, slots=True)
class Vocabulary:
    size: int = 8000
    kind: str = "unigram"
    character_coverage: float = 0.9999


@dataclass(frozen=True, slots=True)
class Train:
    """Optimisation as in the paper's section 5: Adam, warm-up, label smoothing, dropout, DropConnect."""

    updates: int
    batch_tokens: int  # padded tokens a side and step
    accumulate: int = 1
    learning_rate: float = 1e-3
    schedule: str = "cosine"  # cosine | inverse_sqrt
    warmup: int = 1000
    final_rate: float = 0.0  # share of learning_rate left at the end of the cosine
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.0
    clip: float = 1.0
    smoothing: float = 0.1
    dropout: float = 0.1
    input_dropout: float = 0.0
    relu_dropout: float = 0.0
    weight_dropout: float = 0.1
    average: int = 5  # checkpoints averaged for the bundle
    save_every: int = 500  # updates
    max_tokens: int = 200
    crop_source: int = 0  # 0: never
    copy_updates: int = 0  # updates over which batches of a copying task give way to the real ones
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    task: str  # translate | summarize
    source: str
    target: str
    licence: str
    attribution: str
    corpus: Corpus
    vocabulary: Vocabulary
    model: dict[str, Any]
    train: Train
    generation: dict[str, Any]

    def config(self) -> ModelConfig:
        stacks: dict[str, Any] = {}
        for side in ("encoder", "decoder"):
            values = dict(self.model[side])
            stacks[side] = StackConfig(**values | {"kernel_sizes": tuple(values["kernel_sizes"])})
        rest = {k: v for k, v in self.model.items() if k not in stacks}
        size = self.vocabulary.size
        return ModelConfig(source_vocab=size, target_vocab=size, **rest, **stacks)


def load(path: Path, device: str, changes: dict[str, str] | None = None) -> Recipe:
    """Read a recipe. `[train.cpu]` overrides `[train]` on a CPU; `changes` maps keys of [train] to values.

    Raises InvalidRequest that names the file and the key at fault.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"can't read the recipe {path}: {error}") from None
    try:
        train = dict(data.pop("train"))
        overrides = train.pop("cpu", {})
        if device == "cpu":
            train |= overrides
        for key, text in (changes or {}).items():
            train[key] = tomllib.loads(f"x = {text}")["x"] if not text.isalpha() else text
        if "betas" in train:
            train["betas"] = tuple(train["betas"])
        return Recipe(
            corpus=_build(Corpus, data.pop("corpus"), "corpus"),
            vocabulary=_build(Vocabulary, data.pop("vocabulary"), "vocabulary"),
            train=_build(Train, train, "train"),
            **data,
        )
    except KeyError as error:
        raise InvalidRequest(f"recipe {path} lacks {error.args[0]!r}") from None
    except (TypeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"recipe {path}: {error}") from None


def _build(kind: type[Any], data: dict[str, Any], where: str) -> Any:
    unknown = sorted(set(data) - {f.name for f in fields(kind)})
    if unknown:
        raise InvalidRequest(f"[{where}] has unknown keys {unknown}")
    return kind(**data)
