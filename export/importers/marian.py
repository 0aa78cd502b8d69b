"""`convoy convert marian`: a folder of a Marian model (OPUS-MT) to a bundle.

Two layouts are read: that of Hugging Face (`export.importers.marian_hf`) and Marian's own
(`export.importers.marian_native`).
What is refused and where the search differs: docs/import.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle, Description
from engine.bundle.config import ModelConfig
from engine.errors import BundleError, CheckpointError
from engine.text.codes import by_short_code, short
from engine.text.marian import Settings as TextSettings
from engine.text.marian import language_codes
from export.importers.imported import Array, ImportedModel, check_folders, misfitting, write

IMPOSSIBLE: Final = -1e4  # the logit of a token that is never chosen; fp16 holds it


@dataclass(frozen=True, slots=True)
class Settings:
    """What a folder does not say. None: find out from it, or refuse.

    source, target: language codes; of several sources all, with "," between. weights: name of the file.
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

    weights: by our names. vocabulary, target_vocabulary: symbol to id, of the source and the target.
    generation: fields of DecodeOptions. left: settings of the search that are not carried over. spoken:
    source and target as the folder names them. command: of `convoy convert` that read it. shortlisted:
    whether it answers with its shortlist by default.
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


def convert(folder: Path, out: Path, settings: Settings | None = None, *, overwrite: bool = False) -> Bundle:
    """Import the model of `folder` as the bundle `out`.

    Raises CheckpointError that names what is missing, unsupported or does not fit; BundleError when `out`
    exists. Nothing is written before everything was checked.
    """
    return convert_by(_read_folder, folder, out, settings or Settings(), overwrite=overwrite)


def convert_by(
    reader: Callable[[Path, Settings], MarianModel],
    folder: Path,
    out: Path,
    settings: Settings,
    *,
    overwrite: bool,
) -> Bundle:
    """`convert` of what a reader of folders finds."""
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


def read_json(path: Path) -> dict[str, Any]:
    """An object of a folder's file. Raises CheckpointError naming it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable as JSON ({error}); download it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: must be a JSON object, not {type(value).__name__}; download it again")
    return value


def _read_folder(folder: Path, settings: Settings) -> MarianModel:
    """By the layout of the folder."""
    from export.importers import marian_hf, marian_native
    from export.importers.hf_files import CONFIG

    if (folder / CONFIG).is_file():
        return marian_hf.read(folder, settings)
    if marian_native.models(folder):
        return marian_native.read(folder, settings)
    raise CheckpointError(
        f"{folder}: holds neither config.json (Hugging Face) nor *.npz or *.bin (Marian's own); name the "
        "folder with the model's files"
    )


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
