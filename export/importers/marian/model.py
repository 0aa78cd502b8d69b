"""A Marian model (or student) as read from its files, and its conversion to an `ImportedModel`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.bundle.config import ModelConfig
from engine.errors import CheckpointError
from engine.text.codes import by_short_code, short
from engine.text.tokenizers.marian import MarianSettings as TextSettings
from engine.text.tokenizers.marian import language_codes
from engine.types import MAX_SENTENCE_TOKENS
from export.importers.importing import THEIR_PAGE, ImportedModel, ProblemList
from export.importers.settings import MarianImport
from export.importers.weights import Array, weight_problems


@dataclass(frozen=True, slots=True)
class MarianModel:
    """A model as read from its files.

    layout: description of the folder's layout, for the card.
    problems: problems of the weights.
    vocabulary, target_vocabulary: symbol to id, source and target.
    files: files of the text pipeline, by their names in the bundle.
    generation: decoding defaults, by field of `DecodeOptions`.
    unsupported: decoding settings of the files that have no counterpart here.
    languages: source and target language named by the files, or None.
    half: whether the files store fp16.
    command: subcommand of `convoy convert` that reads the source.
    shortlisted: whether the model uses its shortlist by default.
    max_sentence_tokens: length at which Marian cuts sentences.
    """

    layout: str
    path: Path
    config: ModelConfig
    weights: Mapping[str, Array]
    problems: list[str]
    text: TextSettings
    vocabulary: Mapping[str, int]
    files: Mapping[str, bytes | Path]
    generation: Mapping[str, Any]
    unsupported: tuple[str, ...]
    languages: tuple[str | None, str | None]
    half: bool
    command: str = "marian"
    shortlisted: bool = False
    max_sentence_tokens: int = MAX_SENTENCE_TOKENS
    target_vocabulary: Mapping[str, int] = field(default_factory=dict)


def to_imported_model(
    model: MarianModel, folder: Path, settings: MarianImport, problems: ProblemList
) -> ImportedModel:
    """Convert a model to an `ImportedModel`.

    model: the model as read from its files.
    folder: folder of the files, for messages.
    settings: settings of the user.
    problems: receives the problems of the weights.

    Raises CheckpointError if neither files nor settings name the languages.
    """
    findings = [*model.problems, *weight_problems(model.weights, model.config)]
    problems.add_under(f"{model.path}: its weights do not fit its options", findings)
    sources, target, text = _languages(folder, model, settings)
    return ImportedModel(
        origin=f"`convoy convert {model.command}` ({model.layout})",
        config=model.config,
        weights=model.weights,
        text={"kind": "marian", **asdict(text)},
        files=model.files,
        source=sources[0],
        target=target,
        half=model.half,
        generation=model.generation,
        shortlisted=model.shortlisted,
        max_sentence_tokens=model.max_sentence_tokens,
        notes=_notes(model, text.languages or {target: ""}),
    )


def _languages(
    folder: Path, model: MarianModel, settings: MarianImport
) -> tuple[list[str], str, TextSettings]:
    """Return the source codes, the target code, and the text settings with both."""
    source = settings.source or model.languages[0]
    target = (settings.target or model.languages[1] or "").lower()
    codes = language_codes(model.vocabulary)
    target = by_short_code(codes).get(short(target), target)  # "de" for a model with "deu"
    if codes and target not in codes:
        only = next(iter(codes)) if len(codes) == 1 and settings.target is None else None
        if only is None:
            some = ", ".join(sorted(codes)[:20]) + (", ..." if len(codes) > 20 else "")
            raise CheckpointError(
                f"{folder}: translates into {len(codes)} languages; name the default with --target: {some}"
            )
        target = only
    if not source or not target:
        raise CheckpointError(f"{folder}: does not name its languages: give --source and --target")
    sources = [code for code in source.split(",") if code]
    text = replace(model.text, languages=codes, sources=tuple(sources) if len(sources) > 1 else ())
    return sources, target, text


def _notes(model: MarianModel, languages: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of the model card."""
    return (
        f"Target languages: {', '.join(sorted(languages))}",
        f"Decoding settings without a counterpart here: {', '.join(model.unsupported) or 'none'}",
        THEIR_PAGE,
    )
