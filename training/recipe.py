"""Recipes: all settings of a training run, in one TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from engine.bundle.config import ModelConfig
from engine.bundle.presets import preset
from engine.errors import ConfigError, InvalidRequest

LANGUAGE_MODEL: Final = "language-model"
STORED: Final = ("fp16", "int8")  # type of the bundle's weights; int8: matrices, with a scale for each row
TASKS: Final = ("translate", "summarize", LANGUAGE_MODEL)


@dataclass(frozen=True, slots=True)
class Corpus:
    folder: str  # path below the folder of corpora
    source_column: int = 0
    target_column: int = 1
    placeholder_share: float = 0.03
    # other folders with the same columns, and the number of repetitions of their pairs
    beside: dict[str, int] = field(default_factory=dict)
    clean: bool = False  # drop harmful pairs (`training.cleaning`)


@dataclass(frozen=True, slots=True)
class Augment:
    """Share of the pairs that are also added in each form (`training.augmentation`)."""

    joined: float = 0.0  # two to four pairs in one line
    bare: float = 0.0  # pairs without the final mark
    commas: float = 0.0  # short pairs with a comma or colon at their end
    lower: float = 0.0  # sources in lower case
    capitals: float = 0.0
    quoted: float = 0.0
    typographic: float = 0.0  # curly apostrophes, dashes, dots in one character
    numbers: float = 0.0  # other numbers
    named: float = 0.0  # other names
    words: int = 0  # repetitions of the entries of a dictionary learnt from the pairs
    short: int = 0  # repetitions of the pairs with one or two source words


@dataclass(frozen=True, slots=True)
class Vocabulary:
    size: int = 8000
    kind: str = "unigram"
    character_coverage: float = 0.9999
    characters: str = ""  # characters that always get a piece


@dataclass(frozen=True, slots=True)
class Train:
    """Optimisation, described in section 5 of Wu et al. 2019: Adam, warm-up, label smoothing, dropouts."""

    updates: int
    batch_tokens: int  # limit of the padded tokens of a batch, on each side
    accumulate: int = 1
    learning_rate: float = 1e-3
    schedule: str = "cosine"  # cosine | inverse_sqrt
    warmup: int = 1000
    final_rate: float = 0.0  # share of learning_rate at the end of the cosine
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.0
    clip: float = 1.0
    smoothing: float = 0.1
    dropout: float = 0.1
    input_dropout: float = 0.0
    relu_dropout: float = 0.0
    weight_dropout: float = 0.1
    attention_dropout: float = 0.0
    symbol_dropout: float = 0.0  # share of tokens that are replaced by padding (SliceNet)
    average: int = 5  # number of last checkpoints that are averaged
    start_share: float = 0.0  # share of the weights of `--from` in that mean, against forgetting
    save_every: int = 500  # updates
    max_tokens: int = 200
    crop_source: int = 0  # length in tokens to which sources are cut; 0: never
    copy_updates: int = 0  # number of updates over which a copying task fades out
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    task: str  # see TASKS
    source: str
    target: str
    licence: str
    attribution: str
    corpus: Corpus
    vocabulary: Vocabulary
    model: dict[str, Any]
    train: Train
    generation: dict[str, Any]
    augment: Augment = Augment()
    weaknesses: str = ""  # a sentence for the card
    stored: str = "fp16"  # see STORED

    def config(self) -> ModelConfig:
        """Return the configuration of the model: a preset with changes, or all fields in `model`.

        The model reads at most `crop_source` tokens, if set. Raises ConfigError that names the wrong field.
        """
        size = self.vocabulary.size
        read = {"max_source": self.train.crop_source + 1} if self.train.crop_source else {}
        values = {key: value for key, value in (self.model | read).items() if key != "preset"}
        if "preset" in self.model:
            return preset(self.model["preset"], size, size, values)
        sizes = {"source_vocab": size, "target_vocab": size}
        return ModelConfig.from_dict({"encoder": None, **values, **sizes})


def load(path: Path, device: str, changes: dict[str, str] | None = None) -> Recipe:
    """Read a recipe.

    path: TOML file of the recipe.
    device: "cpu" or "cuda"; `[train.cpu]` overrides `[train]` on a CPU.
    changes: keys of [train] to values that override both.

    Raises InvalidRequest that names the file and the wrong key.
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
            # a value is TOML; words need no quotes
            train[key] = tomllib.loads(f"x = {text}")["x"] if not text.isalpha() else text
        if "betas" in train:
            train["betas"] = tuple(train["betas"])
        recipe = Recipe(
            corpus=_build(Corpus, data.pop("corpus"), "corpus"),
            vocabulary=_build(Vocabulary, data.pop("vocabulary"), "vocabulary"),
            train=_build(Train, train, "train"),
            augment=_build(Augment, data.pop("augment", {}), "augment"),
            **data,
        )
    except KeyError as error:
        raise InvalidRequest(f"recipe {path} lacks {error.args[0]!r}") from None
    except (TypeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"recipe {path}: {error}") from None
    return _check_recipe(recipe, path)


def _check_recipe(recipe: Recipe, path: Path) -> Recipe:
    """Return the recipe. Raises InvalidRequest if its task is unknown or its model impossible."""
    if not isinstance(recipe.model, dict):
        raise InvalidRequest(f"recipe {path}: [model] must be a table, not {recipe.model!r}")
    if recipe.task not in TASKS:
        raise InvalidRequest(f"recipe {path}: task {recipe.task!r} is none of {', '.join(TASKS)}")
    if recipe.stored not in STORED:
        raise InvalidRequest(f"recipe {path}: stored {recipe.stored!r} is none of {', '.join(STORED)}")
    try:
        reads = recipe.config().reads_source
    except ConfigError as error:
        raise InvalidRequest(f"recipe {path}, [model]: {error}") from None
    if reads == (recipe.task == LANGUAGE_MODEL):
        raise InvalidRequest(
            f"recipe {path}: the task {LANGUAGE_MODEL!r} is that of models without an encoder"
        )
    return recipe


def _build(kind: type[Any], data: dict[str, Any], where: str) -> Any:
    """Return a dataclass from a TOML table. Raises InvalidRequest on unknown keys."""
    unknown = sorted(set(data) - {f.name for f in fields(kind)})
    if unknown:
        raise InvalidRequest(f"[{where}] has unknown keys {unknown}")
    return kind(**data)
