"""Text settings and files of an imported model: of a family of `transformers`, or by segmentation files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Content
from engine.errors import CheckpointError
from engine.text.codes import by_short_code, short
from engine.text.tokenizers.added import AddedToken
from engine.text.tokenizers.byte_bpe import ByteBpeSettings
from engine.text.tokenizers.fairseq import read_bpe
from engine.text.tokenizers.mapped_pieces import PieceSettings
from engine.text.tokenizers.marian import MarianSettings, language_codes
from engine.text.tokenizers.pieces import load_processor, read_processor
from engine.text.tokenizers.symbols import SymbolsSettings
from engine.text.tokenizers.utf8_bytes import BytesSettings
from export.importers.ctranslate2.families import BYTE_SYMBOLS, TOKENIZER_CONFIG, TextFamily
from export.importers.ctranslate2.vocabularies import FileVocabularies
from export.importers.huggingface.language_codes import language_symbols
from export.importers.huggingface.tokenizer_json import byte_bpe, sentencepiece_model
from export.importers.json_object import read_object
from export.importers.settings import CTranslate2Import

PIECES_FILES: Final = ("sentencepiece.model", "*.spm", "*.model")
CODES_FILES: Final = ("bpe.model", "bpe.codes", "bpecodes", "codes")
TOKENIZER_JSON: Final = "tokenizer.json"
PIECES, VOCABULARY, MERGES, CODES = "sentencepiece.model", "vocab.json", "merges.txt", "bpecodes"
T5_SENTINEL: Final = "<extra_id_"
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
    """The text side of a model: tokenizer settings with their "kind", files, default languages, task."""

    settings: Mapping[str, Any]
    files: Mapping[str, Content]
    source: str
    target: str
    task: str = "translate"


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
    reader = {
        "mapped-pieces": _mapped_pieces,
        "marian": _marian,
        "bytes": _bytes,
        "byte-bpe": _byte_bpe,
    }[family.kind]
    part = reader(_TextInput(folder, family, sources, settings, ids))
    task = settings.task or family.task
    if task not in TASKS:
        raise CheckpointError(f"task {task!r} is none of {', '.join(TASKS)}")
    source, target = _languages(folder, task, part.settings.get("languages") or {}, settings)
    text = dict(part.settings)
    if family.source_symbol == "source" and text.get("languages"):
        text["sources"] = sorted(text["languages"])
    return TextSide(text, part.files, source, target, task)


@dataclass(frozen=True, slots=True)
class _TokenizerPart:
    """Tokenizer settings and their files."""

    settings: Mapping[str, Any]
    files: Mapping[str, Content]


@dataclass(frozen=True, slots=True)
class _TextInput:
    """Input of the functions that read a tokenizer.

    folder: folder of the model.
    family: convention of the model's tokenizer.
    sources: segmentation files.
    settings: settings of the user.
    ids: token of each symbol of the source vocabulary.
    """

    folder: Path
    family: TextFamily
    sources: TextSources
    settings: CTranslate2Import
    ids: Mapping[str, int]


def _mapped_pieces(given: _TextInput) -> _TokenizerPart:
    """Return a text side of SentencePiece pieces with the vocabulary's ids."""
    model = _pieces_model(given.folder, given.sources)
    languages = language_symbols(given.ids) if given.family.source_symbol != "none" else {}
    names = {*languages.values(), "<s>", "<pad>", "</s>", "<unk>"}
    processor = (
        load_processor(model, Path(TOKENIZER_JSON)) if isinstance(model, bytes) else read_processor(model)
    )
    others = {s for s in given.ids if processor.piece_to_id(s) == processor.unk_id()}
    pieces = PieceSettings(
        model=PIECES,
        vocabulary=VOCABULARY,
        special={symbol: given.ids[symbol] for symbol in sorted(names | others) if symbol in given.ids},
        added={s: each for s, each in _added_tokens(given.folder, given.ids).items() if s not in names},
        languages=languages,
        source_symbol=given.family.source_symbol,
        written=given.family.source_symbol == "target"
        and isinstance(model, Path)
        and any(s[:2] == "<2" for s in languages.values()),
        target_symbol=given.family.target_symbol,
        prompt=given.settings.prompt or "",
        newline=given.family.newline,
    )
    return _TokenizerPart(
        {"kind": given.family.kind, **asdict(pieces)}, {PIECES: model, VOCABULARY: _json(given.ids)}
    )


def _pieces_model(folder: Path, sources: TextSources) -> Path | bytes:
    """Return the path of the SentencePiece model, or the bytes of a model made from tokenizer.json.

    Raises CheckpointError if there is neither.
    """
    if len(sources.pieces) == 1:
        return sources.pieces[0]
    if (folder / TOKENIZER_JSON).is_file():
        return sentencepiece_model(folder / TOKENIZER_JSON)
    raise CheckpointError(
        f"{folder}: its tokenizer is missing: copy {TOKENIZER_JSON} or the SentencePiece model of the "
        "original model into the folder, or name the latter with --pieces"
    )


def _marian(given: _TextInput) -> _TokenizerPart:
    """Return a text side of OPUS-MT: two SentencePiece models, one vocabulary."""
    if len(given.sources.pieces) != 2:
        raise CheckpointError(
            f"{given.folder}: lacks source.spm and target.spm of the original model; copy them into the "
            "folder, or name both with --pieces"
        )
    names = "source.spm", "target.spm"
    text = MarianSettings(*names, VOCABULARY, VOCABULARY, languages=language_codes(given.ids))
    files = dict(zip(names, given.sources.pieces, strict=True))
    return _TokenizerPart(
        {"kind": given.family.kind, **asdict(text)}, {**files, VOCABULARY: _json(given.ids)}
    )


def _bytes(given: _TextInput) -> _TokenizerPart:
    """Return a text side of bytes, as in ByT5."""
    text = BytesSettings(
        given.ids[BYTE_SYMBOLS[0]], given.settings.prompt or "", _added_tokens(given.folder, given.ids)
    )
    return _TokenizerPart({"kind": given.family.kind, **asdict(text)}, {})


def _byte_bpe(given: _TextInput) -> _TokenizerPart:
    """Return a text side of byte-level BPE; a source begins with `<s>`."""
    if given.settings.prompt:
        raise CheckpointError(f"{given.folder}: models like BART read no prompt; leave out --prompt")
    spaced: Any = False
    if (given.folder / MERGES).is_file():
        merges: Content = given.folder / MERGES
        if (given.folder / TOKENIZER_CONFIG).is_file():
            spaced = read_object(given.folder / TOKENIZER_CONFIG).get("add_prefix_space")
    elif (given.folder / TOKENIZER_JSON).is_file():
        _, rules, spaced = byte_bpe(given.folder / TOKENIZER_JSON)
        merges = "".join(f"{left} {right}\n" for left, right in rules).encode()
    else:
        raise CheckpointError(
            f"{given.folder}: its tokenizer is missing: copy {TOKENIZER_JSON}, or {MERGES}, of the original "
            "model into the folder"
        )
    text = ByteBpeSettings(VOCABULARY, MERGES, (given.ids["<s>"],), (), prefix_space=spaced is True)
    return _TokenizerPart(
        {"kind": given.family.kind, **asdict(text)}, {VOCABULARY: _json(given.ids), MERGES: merges}
    )


def _added_tokens(folder: Path, ids: Mapping[str, int]) -> dict[str, AddedToken]:
    """Return the symbols that a text may contain as they are: of tokenizer.json, or T5's."""
    added = {s: AddedToken(i, shown=False) for s, i in ids.items() if s.startswith(T5_SENTINEL)}
    listed: Any = ()
    if (folder / TOKENIZER_JSON).is_file():
        listed = read_object(folder / TOKENIZER_JSON).get("added_tokens") or ()
    for entry in listed if isinstance(listed, (list, tuple)) else ():
        symbol = entry.get("content") if isinstance(entry, dict) else None
        if isinstance(symbol, str) and symbol in ids and symbol not in ("<s>", "<pad>", "</s>", "<unk>"):
            flags = {name: entry.get(name) is True for name in ("lstrip", "rstrip", "single_word")}
            added[symbol] = AddedToken(ids[symbol], **flags, shown=entry.get("special") is not True)
    return added


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
