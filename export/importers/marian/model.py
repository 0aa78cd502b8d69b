"""A Marian model as a reader found it, and the bundle that it becomes; Firefox's students are such too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.bundle.bundle import Bundle, Description
from engine.bundle.config import ModelConfig
from engine.errors import BundleError, CheckpointError
from engine.text.codes import by_short_code, short
from engine.text.marian import Settings as TextSettings
from engine.text.marian import language_codes
from export.importers.imported import Array, ImportedModel, check_folders, misfitting, write


@dataclass(frozen=True, slots=True)
class Settings:
    """What a folder does not say. None: find out from it, or refuse.

    source, target: language codes; of several sources all, with "," between.
    weights: name of the file.
    half: store fp16, by default as the file does.
    """

    name: str | None = None
    source: str | None = None
    target: str | None = None
    weights: str | None = None
    half: bool | None = None


@dataclass(frozen=True, slots=True)
class MarianModel:
    """A model as a folder holds it.

    weights: by our names.
    vocabulary, target_vocabulary: symbol to id, of the source and the target.
    generation: fields of DecodeOptions.
    left: settings of the search that are not carried over.
    spoken: source and target as the folder names them.
    command: of `convoy convert` that read it.
    shortlisted: whether it answers with its shortlist by default.
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
    left: tuple[str, ...]
    spoken: tuple[str | None, str | None]
    half: bool
    command: str = "marian"
    shortlisted: bool = False
    target_vocabulary: Mapping[str, int] = field(default_factory=dict)


def convert_by(
    reader: Callable[[Path, Settings], MarianModel],
    folder: Path,
    out: Path,
    settings: Settings,
    *,
    overwrite: bool,
) -> Bundle:
    """Import what a reader of folders finds in `folder` as the bundle `out`.

    Raises CheckpointError that names what is missing, unsupported or does not fit; BundleError when `out`
    exists. Nothing is written before everything was checked.
    """
    check_folders(folder, out, overwrite=overwrite)
    try:
        model = reader(folder, settings)
    except BundleError as error:  # of files that a bundle holds too
        raise CheckpointError(str(error)) from error
    problems = [*model.problems, *misfitting(model.weights, model.config)]
    if problems:
        raise CheckpointError(f"{model.path}: its weights do not fit its options: " + "; ".join(problems))
    sources, target, text = _languages(folder, model, settings)
    half = model.half if settings.half is None else settings.half
    description = Description(
        name=settings.name or out.resolve().name,
        task="translate",
        source=sources[0],
        target=target,
        config=model.config,
        text={"kind": "marian", **asdict(text)},
        generation=model.generation,
        shortlisted=model.shortlisted,
    )
    origin = f"`convoy convert {model.command}` ({model.layout})"
    imported = ImportedModel(
        origin, description, model.weights, model.files, half, _notes(model, description)
    )
    return write(imported, out, overwrite=overwrite)


def _languages(folder: Path, model: MarianModel, settings: Settings) -> tuple[list[str], str, TextSettings]:
    """Source codes, the target code and the text settings with both."""
    source = settings.source or model.spoken[0]
    target = (settings.target or model.spoken[1] or "").lower()
    codes = language_codes(model.vocabulary)
    target = by_short_code(codes).get(short(target), target)  # "de" where the model says "deu"
    if codes and target not in codes:
        only = next(iter(codes)) if len(codes) == 1 and settings.target is None else None
        if only is None:
            some = ", ".join(sorted(codes)[:20]) + (", ..." if len(codes) > 20 else "")
            raise CheckpointError(
                f"{folder}: translates into {len(codes)} languages; name the usual one with --target: {some}"
            )
        target = only
    if not source or not target:
        raise CheckpointError(f"{folder}: does not name its languages: give --source and --target")
    sources = [code for code in source.split(",") if code]
    text = replace(model.text, languages=codes, sources=tuple(sources) if len(sources) > 1 else ())
    return sources, target, text


def _notes(model: MarianModel, description: Description) -> tuple[str, ...]:
    languages = description.text["languages"] or {description.target: ""}
    return (
        f"Target languages: {', '.join(sorted(languages))}",
        f"Settings of the search that have no counterpart here: {', '.join(model.left) or 'none'}",
        "Licence and training data: those of the model's own page",
    )
