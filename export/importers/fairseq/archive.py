"""Find the files of a fairseq model: checkpoints, dictionaries and the files of its text pipeline.

Published archives hold model.pt or several checkpoints, dict.LANGUAGE.txt and bpecodes; a data-bin folder
holds only dictionaries. If a folder leaves a choice, nothing is guessed: the error lists the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.tokenizers.dictionary import SPECIALS, Dictionary, read_dictionary
from engine.text.tokenizers.fairseq import HYPHEN, FairseqSettings, read_bpe
from engine.text.tokenizers.pieces import read_processor
from engine.text.tokenizers.unknown import read_table
from export.importers.fairseq.byte_text import BYTE_LEVEL, BYTES, FILES, find_byte_level

PREFERRED: Final = ("model.pt", "checkpoint_best.pt", "checkpoint.pt")
CODES: Final = ("bpecodes", "code", "codes", "bpe.codes")
UNREAD: Final = ("byte_bpe", "bert")  # fairseq's --bpe of tokenizers that are not read
CHARACTERS: Final = "characters"
LANGUAGE_MODEL: Final = "dict.txt"
UNKNOWN: Final = "unk_dictionary.txt"
ESCAPES: Final = ("&apos;", "&quot;", "&amp;", "&#124;", "&#91;", "&#93;", "&lt;", "&gt;")


@dataclass(frozen=True, slots=True)
class Languages:
    """Codes of the source and target language; both are "und" for a language model of unknown language."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Files of the text pipeline.

    source, target: dictionaries.
    files: all files by their names in the bundle.
    settings: tokenizer settings.
    byte_level: files of byte-level BPE, if the folder has them instead of others.
    """

    source: Dictionary
    target: Dictionary
    files: Mapping[str, Path]
    settings: FairseqSettings
    byte_level: tuple[Path, Path] | None = None


def find_checkpoints(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the paths of the named checkpoints; without names, the path of the usual or only checkpoint.

    Raises CheckpointError if a file is missing or named twice, or if the folder holds several.
    """
    if names:
        paths = [folder / name for name in names]
        for path, name in zip(paths, names, strict=True):
            if not path.is_file():
                raise CheckpointError(f"{folder}: there is no checkpoint {name!r}")
        real = [path.resolve() for path in paths]  # links may give one file two names
        twice = [name for i, name in enumerate(names) if real[i] in real[:i]]
        if twice:
            raise CheckpointError(f"{folder}: checkpoint {twice[0]!r} is named twice; name each one once")
        return paths
    for usual in PREFERRED:
        if (folder / usual).is_file():
            return [folder / usual]
    candidates = sorted(path.name for path in folder.glob("*.pt"))
    if len(candidates) == 1:
        return [folder / candidates[0]]
    if candidates:
        raise CheckpointError(
            f"{folder}: holds several checkpoints {candidates}; name one with --checkpoint, or several for "
            "an ensemble"
        )
    raise CheckpointError(f"{folder}: holds no checkpoint, neither model.pt nor any other *.pt")


def find_dictionaries(folder: Path, named_folder: Path | None) -> Path:
    """Return `named_folder`, otherwise `folder` or its only sub-folder that holds dictionaries.

    Raises CheckpointError if `named_folder` does not exist, or if several sub-folders hold dictionaries.
    """
    if named_folder is not None:
        if not named_folder.is_dir():
            raise CheckpointError(f"{named_folder}: there is no such folder of dictionaries")
        return named_folder
    if _dictionary_names(folder):
        return folder
    folders = sorted({p.parent for pattern in ("*/dict*.txt", "*/*/dict*.txt") for p in folder.glob(pattern)})
    if len(folders) > 1:
        names = [path.relative_to(folder).as_posix() for path in folders]
        raise CheckpointError(
            f"{folder}: dictionaries lie in several folders {names}; name one with --dictionaries"
        )
    return folders[0] if folders else folder  # the readers report missing dictionaries


def languages(folder: Path, options: Mapping[str, Any], source: str | None, target: str | None) -> Languages:
    """Return the chosen languages, or the checkpoint's; dictionaries alone don't show the direction.

    folder: folder of the dictionaries.
    options: options of the checkpoint.
    source: language code that the user chose, or None.
    target: language code that the user chose, or None.

    Raises CheckpointError if a language is unknown or has no dictionary.
    """
    if is_language_model(options):
        language = target or source or "und"
        return Languages(language, language)
    source, target = source or options.get("source_lang"), target or options.get("target_lang")
    codes = [name.split(".")[1] for name in _dictionary_names(folder) if name != LANGUAGE_MODEL]
    if not source or not target:
        raise CheckpointError(
            f"{folder}: the checkpoint does not name its languages: give source and target of {codes}"
        )
    missing = [language for language in (source, target) if language not in codes]
    if missing:
        name = f"dict.{missing[0]}.txt"
        raise CheckpointError(f"{folder}: there is no {name!r}; it has dictionaries for {codes}")
    return Languages(source, target)


def is_language_model(options: Mapping[str, Any]) -> bool:
    return options.get("task") == "language_modeling"


def read_text(folder: Path, dictionaries: Path, pair: Languages, *, language_model: bool) -> TextFiles:
    """Read the dictionaries and find the files that segment words.

    folder: the model's folder.
    dictionaries: folder of dict.*.txt.
    pair: languages of the dictionaries.
    language_model: whether there is only one dictionary, without a language in its name.

    Raises CheckpointError that names the file.
    """
    single = [LANGUAGE_MODEL] * 2
    names = single if language_model else [f"dict.{pair.source}.txt", f"dict.{pair.target}.txt"]
    if not (dictionaries / names[0]).is_file():
        raise CheckpointError(f"{dictionaries}: there is no {names[0]}, the dictionary of the language model")
    codes, pieces = _segmenters(folder, dictionaries)
    source, target = (read_dictionary(dictionaries / name) for name in names)
    settings = FairseqSettings(
        source_dictionary=names[0],
        target_dictionary=names[1],
        bpe=codes.name if codes else None,
        sentencepiece=pieces.name if pieces else None,
        source_language=pair.source,
        target_language=pair.target,
    )
    files = {name: dictionaries / name for name in names}
    files |= {path.name: path for path in (codes, pieces) if path}
    byte_level = None if codes or pieces else find_byte_level([folder, dictionaries])
    return TextFiles(source, target, files, settings, byte_level)


def _segmenters(folder: Path, dictionaries: Path) -> tuple[Path | None, Path | None]:
    """Return the checked BPE codes and SentencePiece model, at most one of them; None where there is none."""
    codes = _at_most_one("files of BPE codes", _existing([folder, dictionaries], CODES))
    pieces = _at_most_one("SentencePiece models", _matching([folder, dictionaries], "*.model"))
    if codes and pieces:
        raise CheckpointError(
            f"{folder}: holds BPE codes ({codes.name}) and a SentencePiece model ({pieces.name}); keep the "
            "one of this model"
        )
    # read only to check the files
    if codes:
        read_bpe(codes)
    if pieces:
        read_processor(pieces)
    return codes, pieces


def check_segmentation(folder: Path, arguments: Mapping[str, Any], text_files: TextFiles) -> None:
    """Raise CheckpointError if the folder lacks the files of the tokenizer that the model was trained with.

    folder: the model's folder.
    arguments: options of the checkpoint.
    text_files: files of the folder.
    """
    bpe, settings = arguments.get("bpe"), text_files.settings
    advice = "with --pretokenized, texts are its symbols between spaces"
    if bpe == "sentencepiece" and not settings.sentencepiece:
        raise CheckpointError(
            f"{folder}: its texts were cut by SentencePiece (bpe = sentencepiece), and it holds no *.model; "
            f"put the model there, or {advice}"
        )
    if bpe in BYTE_LEVEL and text_files.byte_level is None:
        raise CheckpointError(
            f"{folder}: its texts were cut by {bpe}, and it holds neither {' with '.join(FILES[0])} nor "
            f"{' with '.join(FILES[1])}; put them there, or {advice}"
        )
    if bpe in (*BYTE_LEVEL, BYTES, CHARACTERS) and arguments.get("tokenizer") not in (None, "space"):
        raise CheckpointError(
            f"{folder}: its texts were cut by {arguments['tokenizer']} and then by {bpe}, and these two are "
            f"not read together; {advice}"
        )
    if bpe in UNREAD and not (settings.bpe or settings.sentencepiece):
        raise CheckpointError(
            f"{folder}: its texts were cut by {bpe}, which is not read; BPE codes, SentencePiece, "
            f"gpt2, hf_byte_bpe, bytes and characters are, and {advice}"
        )


def with_unknown(text_files: TextFiles, path: Path) -> TextFiles:
    """Return the text files with a table of replacements for unknown words, the file `path`.

    Raises BundleError if the table is damaged, and CheckpointError if the model has no unknown words.
    """
    if text_files.settings.sentencepiece or text_files.byte_level:
        raise CheckpointError(f"{path}: pieces of words have no unknown words to replace: leave it out")
    read_table(path)  # only to check it: the bundle gets the file itself
    settings = replace(text_files.settings, unk_dictionary=UNKNOWN)
    return replace(text_files, files={**text_files.files, UNKNOWN: path}, settings=settings)


def infer_moses(settings: FairseqSettings, symbols: Iterable[str]) -> FairseqSettings:
    """Return the settings with the Moses options that produced the symbols of the source dictionary."""
    own_symbols = set(symbols) - set(SPECIALS)
    return replace(
        settings,
        aggressive=HYPHEN in own_symbols,
        escape=not own_symbols.isdisjoint(ESCAPES),
        lowercase=all(symbol == symbol.lower() for symbol in own_symbols),
    )


def _dictionary_names(folder: Path) -> list[str]:
    own = [LANGUAGE_MODEL] if (folder / LANGUAGE_MODEL).is_file() else []
    return sorted(path.name for path in folder.glob("dict.*.txt")) + own


def _existing(folders: Sequence[Path], names: Sequence[str]) -> list[Path]:
    return [f / name for f in dict.fromkeys(folders) for name in names if (f / name).is_file()]


def _matching(folders: Sequence[Path], pattern: str) -> list[Path]:
    return [path for f in dict.fromkeys(folders) for path in sorted(f.glob(pattern))]


def _at_most_one(kind: str, paths: Sequence[Path]) -> Path | None:
    """Return the only path, or None. Raises CheckpointError if there are several."""
    if len(paths) > 1:
        names = [path.name for path in paths]
        raise CheckpointError(f"{paths[0].parent}: holds several {kind} {names}: keep this model's")
    return paths[0] if paths else None
