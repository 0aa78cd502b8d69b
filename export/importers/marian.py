"""`convoy convert marian`: a folder of a Marian model (OPUS-MT) to a bundle.

Two layouts are read: that of Hugging Face (`export.marian_hf`) and Marian's own (`export.marian_native`).
What is refused and where the search differs: docs/import.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from engine.bundle import Bundle, Description, write_bundle
from engine.config import ModelConfig
from engine.errors import BundleError, CheckpointError
from engine.text.codes import listed, short
from engine.text.marian import Settings as TextSettings
from engine.text.marian import language_codes
from export.maps import Weights, fitted

IMPOSSIBLE: Final = -1e4  # the logit of a token that is never chosen; fp16 holds it
CARD: Final = """# {said.name}

{said.task} {said.source} -> {said.target}. Imported by `convoy convert marian` ({layout}).

- Parameters: {parameters:,}, stored as {precision}
- Vocabulary: {model.source_vocab:,} source and {model.target_vocab:,} target symbols
- Target languages: {languages}
- Settings of the search that have no counterpart here: {left}
- Licence and training data: those of the model's own page
"""


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
class Found:
    """A model as a folder holds it.

    tensors: by our names. vocabulary: of the source, symbol to id. generation: fields of DecodeOptions. left:
    settings of the search that are not carried over. spoken: source and target as the folder names them.
    """

    layout: str
    path: Path
    config: ModelConfig
    tensors: Mapping[str, Tensor]
    problems: list[str]
    text: TextSettings
    vocabulary: Mapping[str, int]
    files: Mapping[str, bytes | Path]
    generation: Mapping[str, Any]
    left: tuple[str, ...]
    spoken: tuple[str | None, str | None]
    half: bool


def convert(folder: Path, out: Path, settings: Settings | None = None, *, overwrite: bool = False) -> Bundle:
    """Import the model of `folder` as the bundle `out`.

    Raises CheckpointError that names what is missing, unsupported or does not fit; BundleError when `out`
    exists. Nothing is written before everything was checked.
    """
    folder, chosen = Path(folder), settings or Settings()
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: there is no such folder")
    if out.exists() and not overwrite:
        raise BundleError(f"{out}: already exists; choose another name or ask to overwrite it")
    try:
        found = _read(folder, chosen)
    except BundleError as error:  # of files that a bundle holds too
        raise CheckpointError(str(error)) from error
    weights, problems = fitted(found.tensors, found.config, found.problems)
    if problems:
        raise CheckpointError(f"{found.path}: its weights do not fit its options: " + "; ".join(problems))
    sources, target, text = _languages(folder, found, chosen)
    half = found.half if chosen.half is None else chosen.half
    description = Description(
        name=chosen.name or out.resolve().name,
        task="translate",
        source=sources[0],
        target=target,
        config=found.config,
        text={"kind": "marian", **asdict(text)},
        generation=found.generation,
    )
    files = {**found.files, "README.md": _card(found, description, weights, half=half)}
    return write_bundle(out, description, weights, files, half=half, overwrite=overwrite)


def read_json(path: Path) -> dict[str, Any]:
    """An object of a folder's file. Raises CheckpointError naming it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable as JSON ({error}); download it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: must be a JSON object, not {type(value).__name__}; download it again")
    return value


def _read(folder: Path, chosen: Settings) -> Found:
    """By the layout of the folder."""
    from export import marian_hf, marian_native

    if (folder / marian_hf.CONFIG).is_file():
        return marian_hf.read(folder, chosen)
    if marian_native.models(folder):
        return marian_native.read(folder, chosen)
    raise CheckpointError(
        f"{folder}: holds neither config.json (Hugging Face) nor *.npz or *.bin (Marian's own); name the "
        "folder with the model's files"
    )


def _languages(folder: Path, found: Found, chosen: Settings) -> tuple[list[str], str, TextSettings]:
    """Source codes, the target code and the text settings with both."""
    source = chosen.source or found.spoken[0]
    target = (chosen.target or found.spoken[1] or "").lower()
    codes = language_codes(found.vocabulary)
    target = listed(codes).get(short(target), target)  # "de" where the model says "deu"
    if codes and target not in codes:
        only = next(iter(codes)) if len(codes) == 1 and chosen.target is None else None
        if only is None:
            some = ", ".join(sorted(codes)[:20]) + (", ..." if len(codes) > 20 else "")
            raise CheckpointError(
                f"{folder}: translates into {len(codes)} languages; name the usual one with --target: {some}"
            )
        target = only
    if not source or not target:
        raise CheckpointError(f"{folder}: does not name its languages: give --source and --target")
    sources = [code for code in source.split(",") if code]
    text = replace(found.text, languages=codes, sources=tuple(sources) if len(sources) > 1 else ())
    return sources, target, text


def _card(found: Found, description: Description, weights: Weights, *, half: bool) -> bytes:
    languages = description.text["languages"] or {description.target: ""}
    card = CARD.format(
        said=description,
        layout=found.layout,
        model=description.config,
        parameters=sum(weight.size for weight in weights.values()),
        precision="fp16" if half else "fp32",
        languages=", ".join(sorted(languages)),
        left=", ".join(found.left) or "none",
    )
    return card.encode()
