"""What a folder with a fairseq model holds: checkpoints, dictionaries and the files of its text pipeline.

The published archives keep model.pt or several checkpoints beside dict.LANGUAGE.txt and bpecodes; a data-bin
folder keeps the dictionaries alone. Where a folder leaves a choice, nothing is guessed: the error names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.errors import BundleError, CheckpointError
from engine.text.dictionary import SPECIALS, Dictionary, read_dictionary
from engine.text.fairseq import HYPHEN, Settings, read_bpe
from engine.text.fairseq_pieces import read_pieces
from engine.text.unknown import read_table

PREFERRED: Final = ("model.pt", "checkpoint_best.pt", "checkpoint.pt")
CODES: Final = ("bpecodes", "code", "codes", "bpe.codes")
BYTE_LEVEL: Final = "vocab.json"  # beside merges.txt: the byte-level BPE of GPT-2
LANGUAGE_MODEL: Final = "dict.txt"
UNKNOWN: Final = "unk_dictionary.txt"
ESCAPES: Final = ("&apos;", "&quot;", "&amp;", "&#124;", "&#91;", "&#93;", "&lt;", "&gt;")


@dataclass(frozen=True, slots=True)
class Languages:
    """Of the source and the target. Both are "und" for a language model whose language nothing tells."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Dictionaries, read, and all files of the text pipeline by the names that they have in a bundle."""

    source: Dictionary
    target: Dictionary
    files: Mapping[str, Path]
    settings: Settings


def find_checkpoints(folder: Path, names: Sequence[str]) -> list[Path]:
    """The named checkpoints, else the one of the folder. Several are not guessed from."""
    if names:
        found = [folder / name for name in names]
        for path, name in zip(found, names, strict=True):
            if not path.is_file():
                raise CheckpointError(f"{folder}: there is no checkpoint {name!r}")
        real = [path.resolve() for path in found]
        twice = [name for i, name in enumerate(names) if real[i] in real[:i]]
        if twice:
            raise CheckpointError(f"{folder}: checkpoint {twice[0]!r} is named twice; name each one once")
        return found
    for usual in PREFERRED:
        if (folder / usual).is_file():
            return [folder / usual]
    held = sorted(path.name for path in folder.glob("*.pt"))
    if len(held) == 1:
        return [folder / held[0]]
    if held:
        raise CheckpointError(
            f"{folder}: holds several checkpoints {held}; name one with --checkpoint, or several for "
            "an ensemble"
        )
    raise CheckpointError(f"{folder}: holds no checkpoint, neither model.pt nor any other *.pt")


def find_dictionaries(folder: Path, chosen: Path | None) -> Path:
    """The folder of the dictionaries: the chosen one, the model's own, or the only sub-folder with any."""
    if chosen is not None:
        if not chosen.is_dir():
            raise CheckpointError(f"{chosen}: there is no such folder of dictionaries")
        return chosen
    if _dictionary_names(folder):
        return folder
    found = sorted({p.parent for pattern in ("*/dict*.txt", "*/*/dict*.txt") for p in folder.glob(pattern)})
    if len(found) > 1:
        names = [path.relative_to(folder).as_posix() for path in found]
        raise CheckpointError(
            f"{folder}: dictionaries lie in several folders {names}; name one with --dictionaries"
        )
    return found[0] if found else folder


def languages(folder: Path, given: Mapping[str, Any], source: str | None, target: str | None) -> Languages:
    """Those chosen, else the checkpoint's: the dictionaries alone don't tell the direction."""
    if is_language_model(given):
        language = target or source or "und"
        return Languages(language, language)
    source, target = source or given.get("source_lang"), target or given.get("target_lang")
    known = [name.split(".")[1] for name in _dictionary_names(folder) if name != LANGUAGE_MODEL]
    if not source or not target:
        raise CheckpointError(
            f"{folder}: the checkpoint does not name its languages: give source and target of {known}"
        )
    missing = [language for language in (source, target) if language not in known]
    if missing:
        name = f"dict.{missing[0]}.txt"
        raise CheckpointError(f"{folder}: there is no {name!r}; it has dictionaries for {known}")
    return Languages(source, target)


def is_language_model(given: Mapping[str, Any]) -> bool:
    return given.get("task") == "language_modeling"


def read_text(folder: Path, dictionaries: Path, spoken: Languages, *, language_model: bool) -> TextFiles:
    """Read the dictionaries and find the files that segment words. Raises CheckpointError naming the file."""
    single = [LANGUAGE_MODEL] * 2
    names = single if language_model else [f"dict.{spoken.source}.txt", f"dict.{spoken.target}.txt"]
    if not (dictionaries / names[0]).is_file():
        raise CheckpointError(f"{dictionaries}: there is no {names[0]}, the dictionary of the language model")
    codes = _only("files of BPE codes", _present([folder, dictionaries], CODES))
    pieces = _only("SentencePiece models", _matching([folder, dictionaries], "*.model"))
    if codes and pieces:
        raise CheckpointError(
            f"{folder}: holds BPE codes ({codes.name}) and a SentencePiece model ({pieces.name}); keep the "
            "one of this model"
        )
    if not codes and _present([folder, dictionaries], (BYTE_LEVEL,)):
        raise CheckpointError(
            f"{folder}: holds byte-level BPE ({BYTE_LEVEL}), which is not supported; BPE codes and "
            "SentencePiece are. Remove the file to import the model for segmented text"
        )
    segmenters = [path for path in (codes, pieces) if path]
    try:
        if codes:
            read_bpe(codes)
        if pieces:
            read_pieces(pieces)
        source, target = (read_dictionary(dictionaries / name) for name in names)
    except BundleError as error:
        raise CheckpointError(str(error)) from error
    settings = Settings(
        source_dictionary=names[0],
        target_dictionary=names[1],
        bpe=codes.name if codes else None,
        sentencepiece=pieces.name if pieces else None,
        source_language=spoken.source,
        target_language=spoken.target,
    )
    files = {name: dictionaries / name for name in names} | {path.name: path for path in segmenters}
    return TextFiles(source, target, files, settings)


def with_unknown(found: TextFiles, path: Path) -> TextFiles:
    """With a dictionary of words that replace unknown ones."""
    if found.settings.sentencepiece:
        raise CheckpointError(f"{path}: only dictionaries of words have words to replace: leave it out")
    try:
        read_table(path)
    except BundleError as error:
        raise CheckpointError(str(error)) from error
    settings = replace(found.settings, unk_dictionary=UNKNOWN)
    return replace(found, files={**found.files, UNKNOWN: path}, settings=settings)


def moses_as_shown(settings: Settings, symbols: Iterable[str]) -> Settings:
    """With the Moses options that made a dictionary's own symbols."""
    known = set(symbols) - set(SPECIALS)
    return replace(
        settings,
        aggressive=HYPHEN in known,
        escape=not known.isdisjoint(ESCAPES),
        lowercase=all(symbol == symbol.lower() for symbol in known),
    )


def _dictionary_names(folder: Path) -> list[str]:
    own = [LANGUAGE_MODEL] if (folder / LANGUAGE_MODEL).is_file() else []
    return sorted(path.name for path in folder.glob("dict.*.txt")) + own


def _present(folders: Sequence[Path], names: Sequence[str]) -> list[Path]:
    return [f / name for f in dict.fromkeys(folders) for name in names if (f / name).is_file()]


def _matching(folders: Sequence[Path], pattern: str) -> list[Path]:
    return [path for f in dict.fromkeys(folders) for path in sorted(f.glob(pattern))]


def _only(kind: str, found: Sequence[Path]) -> Path | None:
    if len(found) > 1:
        names = [path.name for path in found]
        raise CheckpointError(f"{found[0].parent}: holds several {kind} {names}: keep this model's")
    return found[0] if found else None
