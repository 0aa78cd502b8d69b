"""Text settings and files of an imported model: of a family of `transformers`, or by segmentation files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Content
from engine.errors import CheckpointError
from engine.text.codes import by_short_code, short
from engine.text.tokenizers.fairseq import read_bpe
from engine.text.tokenizers.pieces import read_processor
from engine.text.tokenizers.symbols import SymbolsSettings
from export.importers.ctranslate2.families import TextFamily
from export.importers.ctranslate2.readers import PIECES, TokenizerInput, read_tokenizer
from export.importers.ctranslate2.vocabularies import FileVocabularies
from export.importers.settings import CTranslate2Import

PIECES_FILES: Final = ("sentencepiece.model", "*.spm", "*.model")
CODES_FILES: Final = ("bpe.model", "bpe.codes", "bpecodes", "codes")
CODES: Final = "bpecodes"
FEWEST_CHARACTERS: Final = 8  # symbols of a vocabulary that is recognised as one of characters
TASKS: Final = ("translate", "summarize")


@dataclass(frozen=True, slots=True)
class TextSources:
    """Segmentation files: one or two SentencePiece models, or BPE codes; neither if symbols are words."""

    pieces: tuple[Path, ...]
    codes: Path | None


@dataclass(frozen=True, slots=True)
class TextRules:
    """Text processing of a library that runs CTranslate2's models.

    moses: text is normalised and escaped by Moses' rules before BPE codes are applied.
    replace_unknown: unknown symbols of an answer are replaced by source symbols.
    families: models of families of `transformers` are recognised.
    """

    moses: bool = False
    replace_unknown: bool = False
    families: bool = True


@dataclass(frozen=True, slots=True)
class TextSide:
    """The text side of a model.

    settings: tokenizer settings with their "kind".
    files: files that the settings name.
    source, target: default languages.
    task: task of the model.
    start: first input of the decoder; None: that of the vocabularies.
    source_end: whether end-of-sentence follows a source of a family.
    """

    settings: Mapping[str, Any]
    files: Mapping[str, Content]
    source: str
    target: str
    task: str = "translate"
    start: int | None = None
    source_end: bool = True


def find_sources(folder: Path, settings: CTranslate2Import) -> TextSources:
    """Return the chosen segmentation files, or the folder's; each is read once, as a check."""
    pieces, codes = settings.pieces, settings.codes
    if not pieces and codes is None:
        codes = next((folder / name for name in CODES_FILES if (folder / name).is_file()), None)
    if not pieces and codes is None:
        pieces = _find_pieces(folder)
    for path in pieces:
        read_processor(path)
    if codes is not None:
        read_bpe(codes)
    return TextSources(pieces, codes)


def _find_pieces(folder: Path) -> tuple[Path, ...]:
    """Find the SentencePiece models of a folder: one for both sides, or two."""
    if (folder / "source.spm").is_file() and (folder / "target.spm").is_file():
        return folder / "source.spm", folder / "target.spm"
    paths = sorted({path for pattern in PIECES_FILES for path in folder.glob(pattern)})
    if len(paths) > 1:
        raise CheckpointError(
            f"{folder}: holds several SentencePiece models {[p.name for p in paths]}; name one for both "
            "sides, or two, with --pieces"
        )
    return tuple(paths)


def family_text(
    folder: Path,
    family: TextFamily,
    sources: TextSources,
    settings: CTranslate2Import,
    vocabularies: FileVocabularies,
) -> TextSide:
    """Return the text side of a model of a family.

    folder: folder of the model.
    family: convention of the model's tokenizer.
    sources: segmentation files.
    settings: settings of the user.
    vocabularies: symbols of the model.

    Raises CheckpointError if a file or the languages are missing.
    """
    if settings.prefix is not None:
        raise CheckpointError(f"{folder}: --target names the language of its targets; leave out --prefix")
    ids: dict[str, int] = {}
    for token, symbol in enumerate(vocabularies.source):
        ids.setdefault(symbol, token)
    part = read_tokenizer(TokenizerInput(folder, family, sources.pieces, settings, ids))
    task = settings.task or family.task
    if task not in TASKS:
        raise CheckpointError(f"task {task!r} is none of {', '.join(TASKS)}")
    source, target = _languages(folder, task, part.settings.get("languages") or {}, settings)
    text = dict(part.settings)
    if family.source_symbol == "source" and text.get("languages"):
        text["sources"] = sorted(text["languages"])
    side = TextSide(text, part.files, source, target, task)
    return _one_direction(side, vocabularies.eos) if family.one_direction else side


def _one_direction(side: TextSide, eos: int) -> TextSide:
    """Return the text side of mBART-25 for the default languages.

    The end and its language follow a source, and the first input of the decoder is the target's language.
    """
    symbols, ids = side.settings["languages"], side.settings["special"]
    own = {"languages": {}, "sources": (), "source_symbol": "none", "target_symbol": False}
    own["last"] = (eos, ids[symbols[side.source]])
    return replace(side, settings={**side.settings, **own}, start=ids[symbols[side.target]], source_end=False)


def _languages(
    folder: Path, task: str, symbols: Mapping[str, str], settings: CTranslate2Import
) -> tuple[str, str]:
    """Return the codes of the default languages; symbols such as "deu_Latn" are accepted too.

    folder: folder of the model.
    task: task of the model.
    symbols: language symbol by code.
    settings: settings of the user.

    Raises CheckpointError if the languages are missing or unknown.
    """
    if task == "summarize" and not symbols:
        source = settings.source or "en"
        return source, settings.target or source
    if settings.source is None or settings.target is None:
        raise CheckpointError(
            f"{folder}: does not name its languages: give --source and --target{_some(symbols)}"
        )
    codes = {symbol: code for code, symbol in symbols.items()} | {code: code for code in symbols}
    by_short = by_short_code(symbols)
    source, target = (
        codes.get(name, by_short.get(short(name), name)) for name in (settings.source, settings.target)
    )
    if symbols:
        # the symbols of OPUS-MT and MADLAD are those of the targets
        only_targets = next(iter(symbols.values())).startswith((">>", "<2"))
        for code in (target,) if only_targets else (target, source):
            if code not in symbols:
                raise CheckpointError(f"{folder}: lacks the language {code!r}{_some(symbols)}")
    return source, target


def _some(symbols: Iterable[str]) -> str:
    """Return the beginning of a list of languages, for a message."""
    codes = sorted(symbols)
    return f": {', '.join(codes[:20])}{', ...' if len(codes) > 20 else ''}" if codes else ""


def symbols_text(
    sources: TextSources, settings: CTranslate2Import, rules: TextRules, vocabularies: FileVocabularies
) -> TextSide:
    """Return the text side of a model without a family.

    sources: segmentation files.
    settings: settings of the user.
    rules: text processing of the library that runs the model.
    vocabularies: symbols of the model.
    """
    both = vocabularies.source == vocabularies.target
    names = ["vocab.json"] if both else ["vocab.source.json", "vocab.target.json"]
    files: dict[str, Content] = {
        name: _json(symbols)
        for name, symbols in zip(names, (vocabularies.source, vocabularies.target), strict=False)
    }
    cut: dict[str, Any] = {}
    pieces = sources.pieces
    for side, path in zip(("source", "target"), pieces * (3 - len(pieces)), strict=False):
        name = PIECES if len(pieces) == 1 else f"{side}.spm"
        files[name], cut[f"{side}_pieces"] = path, name
    if sources.codes is not None:
        files[CODES], cut["bpe"] = sources.codes, CODES
    characters = not cut and settings.characters is not False
    if settings.characters is None:
        characters = characters and all(map(_is_characters, (vocabularies.source, vocabularies.target)))
    text = SymbolsSettings(
        source_vocabulary=names[0],
        target_vocabulary=names[-1],
        source_language=str(settings.source),
        target_language=str(settings.target),
        prefix=settings.prefix,
        normalize=settings.source if rules.moses else None,
        escape=rules.moses,
        replace_unknown=rules.replace_unknown,
        begin=vocabularies.begin,
        unknown=vocabularies.unknown,
        characters=characters,
        **cut,
    )
    return TextSide({"kind": "symbols", **asdict(text)}, files, str(settings.source), str(settings.target))


def _is_characters(symbols: Sequence[str]) -> bool:
    """Return whether all symbols of a vocabulary are characters, except special ones such as `<s>`."""
    plain = [symbol for symbol in symbols if not (symbol.startswith("<") and symbol.endswith(">"))]
    return len(plain) >= FEWEST_CHARACTERS and all(len(symbol) == 1 for symbol in plain)


def _json(symbols: Any) -> bytes:
    """Return the content of a vocabulary's file."""
    return json.dumps(symbols, ensure_ascii=False, indent=0).encode("utf-8", "replace")
