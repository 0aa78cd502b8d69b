"""The steps of every import: check folders, read the model, report all problems, write the bundle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from engine.bundle.bundle import (
    MIN_SENTENCE_TOKENS,
    Bundle,
    Content,
    Description,
    Stage,
    WriteOptions,
    write_in_stages,
)
from engine.bundle.config import ModelConfig
from engine.bundle.strict import from_json
from engine.bundle.weights import LazyWeight, QuantizedWeight, Stored
from engine.errors import BundleError, CheckpointError, ConfigError, InvalidRequest
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import MAX_SENTENCE_TOKENS, DecodeOptions
from export.importers.downloads import false_download
from export.importers.settings import ImportSettings
from export.importers.weights import half_holds

T = TypeVar("T")
MAX_BEAMS: Final = 2_048  # rows of the widest lane of an offline service
THEIR_PAGE: Final = "Licence and training data: those of the model's own page"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A foreign model, read and checked.

    origin: the importer and the original architecture, for the card.
    text: tokenizer settings, with their "kind".
    files: files of the text pipeline, by their names in the bundle.
    half: whether the files store fp16.
    generation: decoding defaults, by field of `DecodeOptions`.
    shortlisted: whether `files` hold a shortlist that is used by default.
    max_sentence_tokens: length at which sentences are cut: the source's limit or the longest training
        sentence, if the files name one (`known_length`).
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
    """Reading can't go on; the list of problems holds the reason."""


class ProblemList:
    """Collects the problems of a model's files for one error message."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._problems = folder, list[str]()

    def add(self, *problems: str) -> None:
        """Add sentences; a sentence about a file begins with its path."""
        self._problems += problems

    def add_under(self, what: str, problems: Iterable[str]) -> None:
        """Add the problems of one file as one sentence, if there are any.

        what: beginning of the sentence: the file, and the consequence of the problems.
        problems: problems of the file.
        """
        if listed := "; ".join(problems):
            self.add(f"{what}: {listed}")

    def attempt(self, read: Callable[[], T]) -> T | None:
        """Return the result of `read`, or add its CheckpointError or BundleError and return None."""
        try:
            return read()
        except StoppedError:
            return None
        except (CheckpointError, BundleError) as error:
            self.add(str(error))
            return None

    def require(self, what: str, read: Callable[[], T]) -> T:
        """Return the result of `read`, or add its error after `what` and raise StoppedError.

        what: the file, and the consequence of the error.
        read: function that may raise CheckpointError or BundleError.
        """
        try:
            return read()
        except (CheckpointError, BundleError) as error:
            self.add(f"{what}: {error}")
            raise StoppedError from error

    def stop(self) -> None:
        """Raise StoppedError if there are problems."""
        if self._problems:
            raise StoppedError

    def check(self) -> None:
        """Raise CheckpointError with all problems, if there are any."""
        self._name_false_downloads()
        if len(self._problems) == 1:
            raise CheckpointError(self._problems[0])
        if self._problems:
            parts = [each.removeprefix(f"{self._folder}: ") for each in dict.fromkeys(self._problems)]
            short = [part.removeprefix(f"{self._folder}/") for part in parts]
            raise CheckpointError(f"{self._folder}: {'; '.join(short)}")

    def _name_false_downloads(self) -> None:
        """Replace the problems of a file that is a Git LFS pointer or a web page by this cause."""
        paths = self._folder.rglob("*") if self._folder.is_dir() else [self._folder]
        for path in paths if self._problems else ():
            of_others = [each for each in self._problems if path.name not in each]
            if len(of_others) < len(self._problems) and path.is_file() and (cause := false_download(path)):
                self._problems = [*of_others, cause]


class ModelReader(Protocol):
    """A module that reads the models of one source."""

    def read(self, folder: Path, settings: Any, problems: ProblemList, /) -> ImportedModel:
        """Read and check the model of a folder.

        folder: folder of the model.
        settings: settings, of the source's class.
        problems: receives all problems; reading may go on after one.

        Raises CheckpointError or BundleError on an error after which reading can't go on.
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

    reader: module that reads the source's models.
    folder: folder of the model.
    out: the bundle's folder.
    settings: settings, of the source's class.
    overwrite: replace an existing `out`.
    stages: steps that add files to the bundle before it is renamed to `out` (`write_in_stages`).

    Raises the errors of `export.importers.convert`.
    """
    check_folders(folder, out, overwrite=overwrite)
    problems = ProblemList(folder)
    model = problems.attempt(lambda: reader.read(folder, settings, problems))
    if model is not None:
        problems.add_under(f"{folder}: its decoding settings can't be used", _search_problems(model))
    problems.check()
    assert model is not None  # for mypy: `problems.check` has raised without a model
    half = model.half and half_holds(model.weights) if settings.half is None else settings.half
    weights = dict(model.weights)  # `release` empties this copy
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
        weights.clear()  # frees memory for the stages of a large model
        return {}

    how = WriteOptions(half, overwrite, (release, _read_text, *stages))
    return write_in_stages(out, description, weights, files, how)


def known_length(value: object) -> int:
    """Return the length in tokens at which sentences are cut: `value`, or the default if it is no length."""
    return value if type(value) is int and value >= MIN_SENTENCE_TOKENS else MAX_SENTENCE_TOKENS


def _search_problems(model: ImportedModel) -> list[str]:
    """Return the problem of the decoding defaults: they must suit a request without options."""
    try:
        options = from_json(DecodeOptions, dict(model.generation), "generation")
        options.check(model.config.limits(MAX_BEAMS, shortlisted=model.shortlisted))
    except (ConfigError, InvalidRequest) as error:
        return [str(error)]
    return []


def _read_text(bundle: Bundle) -> dict[str, Content]:
    """Tokenize a text only to check the tokenizer. Raises BundleError if files and settings don't fit."""
    tokens, most = open_tokenizer(bundle).encode("A 1."), bundle.config.source_vocab
    if not all(0 <= token < most for token in tokens):
        raise BundleError(f"{bundle.name}: its tokenizer has more tokens than the model's {most:,}")
    return {}


def check_folders(folder: Path, out: Path, *, overwrite: bool) -> None:
    """Check the folders of an import.

    folder: folder of the model.
    out: the bundle's folder.
    overwrite: whether `out` may exist.

    Raises CheckpointError if `folder` is missing, BundleError if `out` exists.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: there is no such folder")
    if out.exists() and not overwrite:
        raise BundleError(f"{out}: already exists; choose another name or ask to overwrite it")


def _card(description: Description, model: ImportedModel) -> bytes:
    """Return the model card of an import, in Markdown."""
    parameters = sum(math.prod(weight.shape) for weight in model.weights.values())
    quantized = any(
        isinstance(weight, QuantizedWeight) or (isinstance(weight, LazyWeight) and weight.int8)
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
