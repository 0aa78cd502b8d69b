"""How every import goes: check the folders, read the model, tell all problems at once, write the bundle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from engine.bundle.bundle import (
    MAX_SENTENCE_TOKENS,
    MIN_SENTENCE_TOKENS,
    Bundle,
    Content,
    Description,
    Stage,
    Writing,
    write_in_stages,
)
from engine.bundle.config import ModelConfig
from engine.bundle.strict import from_json
from engine.bundle.weights import Later, QuantizedWeight, Stored
from engine.errors import BundleError, CheckpointError, ConfigError, InvalidRequest
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions
from export.importers.settings import ImportSettings
from export.importers.weights import half_holds

T = TypeVar("T")
MAX_BEAMS: Final = 2_048  # rows of the widest lane that a command makes
THEIR_PAGE: Final = "Licence and training data: those of the model's own page"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A foreign model, read and checked.

    origin: what the card says of where the model comes from.
    weights: by our names.
    text: tokenizer settings, with their "kind".
    files: of the text pipeline, by their names in the bundle.
    source, target: language codes.
    half: whether the files store fp16.
    generation: decoding defaults, by field of `DecodeOptions`.
    max_sentence_tokens: where a longer sentence is cut: what the source cuts at, or has learnt from at most,
        where that is known (`known_length`).
    notes: further lines of the card.
    """

    origin: str
    config: ModelConfig
    weights: Mapping[str, Stored]
    text: Mapping[str, Any]
    files: Mapping[str, Content]
    source: str
    target: str
    half: bool
    task: str = "translate"
    generation: Mapping[str, Any] = field(default_factory=dict)
    shortlisted: bool = False
    max_sentence_tokens: int = MAX_SENTENCE_TOKENS
    notes: tuple[str, ...] = ()


class StoppedError(CheckpointError):
    """Reading can't go on; the list of problems says why."""


class ProblemList:
    """What is wrong with a model's files, of all that is looked at, for one message."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._problems = folder, list[str]()

    def add(self, *problems: str) -> None:
        """Add sentences, each of which begins with the file at fault where one is."""
        self._problems += problems

    def unfit(self, what: str, problems: Iterable[str]) -> None:
        """Add the problems of one file as one sentence, if there are any.

        what: the file, and what they keep from being done.
        """
        if listed := "; ".join(problems):
            self.add(f"{what}: {listed}")

    def of(self, look: Callable[[], T]) -> T | None:
        """Return what `look` finds, or None when it raises an error of files, which is added."""
        try:
            return look()
        except StoppedError:
            return None
        except (CheckpointError, BundleError) as error:
            self.add(str(error))
            return None

    def naming(self, what: str, look: Callable[[], T]) -> T:
        """Return what `look` finds; what it raises is added under the name of what was looked at.

        what: the file, and what the error keeps from being done.
        look: may raise an error of files.

        Raises StoppedError when `look` raised.
        """
        try:
            return look()
        except (CheckpointError, BundleError) as error:
            self.add(f"{what}: {error}")
            raise StoppedError from error

    def stop(self) -> None:
        """Raise StoppedError if anything was wrong."""
        if self._problems:
            raise StoppedError

    def check(self) -> None:
        """Raise CheckpointError with all that was wrong, if anything was."""
        if len(self._problems) == 1:
            raise CheckpointError(self._problems[0])
        if self._problems:
            parts = [each.removeprefix(f"{self._folder}: ") for each in dict.fromkeys(self._problems)]
            short = [part.removeprefix(f"{self._folder}/") for part in parts]
            raise CheckpointError(f"{self._folder}: {'; '.join(short)}")


class ModelReader(Protocol):
    """A module that reads models of one source."""

    def read(self, folder: Path, settings: Any, problems: ProblemList, /) -> ImportedModel:
        """Read and check the model of a folder.

        folder: of the model.
        settings: of the source's own class.
        problems: gets everything that is wrong; reading may go on past it.

        Raises CheckpointError or BundleError on what it can't go on past.
        """


def convert_by(
    reader: ModelReader,
    folder: Path,
    out: Path,
    settings: ImportSettings,
    *,
    overwrite: bool = False,
    stages: Iterable[Stage] = (),
) -> Bundle:
    """Import the model of a folder as a bundle.

    reader: of the source.
    folder: with the model's files.
    out: the bundle's folder.
    settings: of the source's own class.
    overwrite: replace `out` where it is there.
    stages: what adds files to the bundle before it has its place (`write_in_stages`).

    Raises CheckpointError with all that is missing, unsupported, damaged or does not fit; BundleError when
    `out` exists. Nothing is written before everything was checked.
    """
    check_folders(folder, out, overwrite=overwrite)
    problems = ProblemList(folder)
    model = problems.of(lambda: reader.read(folder, settings, problems))
    if model is not None:
        problems.unfit(f"{folder}: its settings of the search can't be used", _search_problems(model))
    problems.check()
    assert model is not None
    half = model.half and half_holds(model.weights) if settings.half is None else settings.half
    weights = dict(model.weights)
    model = replace(model, half=half, weights=weights)
    description = Description(
        name=settings.name or out.resolve().name,
        task=model.task,
        source=model.source,
        target=model.target,
        config=model.config,
        text=model.text,
        generation=model.generation,
        shortlisted=model.shortlisted,
        max_sentence_tokens=settings.max_sentence_tokens or model.max_sentence_tokens,
    )
    files = {**model.files, "README.md": _card(description, model)}

    def release(_: Bundle) -> dict[str, Content]:
        weights.clear()  # large models: what the stages load finds room
        return {}

    how = Writing(half, overwrite, (release, _read_text, *stages))
    return write_in_stages(out, description, weights, files, how)


def known_length(value: object) -> int:
    """Return the tokens at which sentences are cut, by a setting of the source; as usual where it is none."""
    return value if type(value) is int and value >= MIN_SENTENCE_TOKENS else MAX_SENTENCE_TOKENS


def _search_problems(model: ImportedModel) -> list[str]:
    """What keeps a request without options of its own from being answered."""
    try:
        options = from_json(DecodeOptions, dict(model.generation), "generation")
        options.check(model.config.limits(MAX_BEAMS, shortlisted=model.shortlisted))
    except (ConfigError, InvalidRequest) as error:
        return [str(error)]
    return []


def _read_text(bundle: Bundle) -> dict[str, Content]:
    """Cut a text as serving will. Raises BundleError when files and settings don't go together."""
    tokens, most = open_tokenizer(bundle).encode("A 1."), bundle.config.source_vocab
    if not all(0 <= token < most for token in tokens):
        raise BundleError(f"{bundle.name}: its tokenizer has more tokens than the model's {most:,}")
    return {}


def check_folders(folder: Path, out: Path, *, overwrite: bool) -> None:
    """Look whether an import may begin.

    folder: of the model.
    out: the bundle's folder.
    overwrite: whether `out` may be there already.

    Raises CheckpointError when there is no `folder`, BundleError when `out` is there.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: there is no such folder")
    if out.exists() and not overwrite:
        raise BundleError(f"{out}: already exists; choose another name or ask to overwrite it")


def _card(description: Description, model: ImportedModel) -> bytes:
    parameters = sum(math.prod(weight.shape) for weight in model.weights.values())
    quantized = any(
        isinstance(weight, QuantizedWeight) or (isinstance(weight, Later) and weight.int8)
        for weight in model.weights.values()
    )
    floats, config = "fp16" if model.half else "fp32", model.config
    lines = (
        f"Parameters: {parameters:,}, stored as {f'int8, the rest as {floats}' if quantized else floats}",
        f"Vocabulary: {config.source_vocab:,} source and {config.target_vocab:,} target symbols",
        *model.notes,
    )
    what = f"{model.task} {model.source} -> {model.target}"
    title = f"# {description.name}\n\n{what}. Imported by {model.origin}.\n\n"
    return (title + "".join(f"- {line}\n" for line in lines)).encode()
