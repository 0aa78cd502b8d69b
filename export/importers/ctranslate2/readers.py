"""Read the tokenizers of the families of `transformers` from CTranslate2's folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Content
from engine.errors import CheckpointError
from engine.text.tokenizers.added import AddedToken
from engine.text.tokenizers.byte_bpe import ByteBpeSettings
from engine.text.tokenizers.mapped_pieces import PieceSettings
from engine.text.tokenizers.marian import MarianSettings, language_codes
from engine.text.tokenizers.pieces import load_processor, read_processor
from engine.text.tokenizers.utf8_bytes import BytesSettings
from export.importers.ctranslate2.families import BYTE_SYMBOLS, TOKENIZER_CONFIG, TextFamily
from export.importers.huggingface.language_codes import language_symbols
from export.importers.huggingface.tokenizer_json import byte_bpe, sentencepiece_model
from export.importers.huggingface.word_text import (
    BEGIN,
    END,
    MASK,
    SYMBOLS,
    UNKNOWN,
    json_pieces,
    word_settings,
)
from export.importers.json_object import read_object
from export.importers.settings import CTranslate2Import

TOKENIZER_JSON: Final = "tokenizer.json"
PIECES, VOCABULARY, MERGES = "sentencepiece.model", "vocab.json", "merges.txt"
T5_SENTINEL: Final = "<extra_id_"
FILLED: Final = "<mask>"  # BART fills it with words
SPECIAL: Final = ("<s>", "<pad>", "</s>", "<unk>")


@dataclass(frozen=True, slots=True)
class TokenizerPart:
    """Tokenizer settings and their files."""

    settings: Mapping[str, Any]
    files: Mapping[str, Content]


@dataclass(frozen=True, slots=True)
class TokenizerInput:
    """Input of the functions that read a tokenizer.

    folder: folder of the model.
    family: convention of the model's tokenizer.
    pieces: SentencePiece models.
    settings: settings of the user.
    ids: token of each symbol of the source vocabulary.
    """

    folder: Path
    family: TextFamily
    pieces: tuple[Path, ...]
    settings: CTranslate2Import
    ids: Mapping[str, int]


def read_tokenizer(given: TokenizerInput) -> TokenizerPart:
    """Return the tokenizer of a folder. Raises CheckpointError that names a missing or wrong file."""
    readers = {
        "mapped-pieces": _mapped_pieces,
        "marian": _marian,
        "bytes": _bytes,
        "byte-bpe": _byte_bpe,
        "word-pieces": _word_pieces,
    }
    return readers[given.family.kind](given)


def _mapped_pieces(given: TokenizerInput) -> TokenizerPart:
    """Return a text side of SentencePiece pieces with the vocabulary's ids."""
    model = _pieces_model(given.folder, given.pieces)
    languages = language_symbols(given.ids) if given.family.source_symbol != "none" else {}
    names = {*languages.values(), *SPECIAL}
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
        first=_first(given),
    )
    return TokenizerPart(
        {"kind": given.family.kind, **asdict(pieces)}, {PIECES: model, VOCABULARY: _json(given.ids)}
    )


def _pieces_model(folder: Path, pieces: tuple[Path, ...]) -> Path | bytes:
    """Return the path of the SentencePiece model, or the bytes of a model made from tokenizer.json.

    Raises CheckpointError if there is neither.
    """
    if len(pieces) == 1:
        return pieces[0]
    if (folder / TOKENIZER_JSON).is_file():
        return sentencepiece_model(folder / TOKENIZER_JSON)
    raise CheckpointError(
        f"{folder}: its tokenizer is missing: copy {TOKENIZER_JSON} or the SentencePiece model of the "
        "original model into the folder, or name the latter with --pieces"
    )


def _marian(given: TokenizerInput) -> TokenizerPart:
    """Return a text side of OPUS-MT: two SentencePiece models, one vocabulary."""
    if len(given.pieces) != 2:
        raise CheckpointError(
            f"{given.folder}: lacks source.spm and target.spm of the original model; copy them into the "
            "folder, or name both with --pieces"
        )
    names = "source.spm", "target.spm"
    text = MarianSettings(*names, VOCABULARY, VOCABULARY, languages=language_codes(given.ids))
    files = dict(zip(names, given.pieces, strict=True))
    return TokenizerPart({"kind": given.family.kind, **asdict(text)}, {**files, VOCABULARY: _json(given.ids)})


def _bytes(given: TokenizerInput) -> TokenizerPart:
    """Return a text side of bytes, as in ByT5."""
    text = BytesSettings(
        given.ids[BYTE_SYMBOLS[0]], given.settings.prompt or "", _added_tokens(given.folder, given.ids)
    )
    return TokenizerPart({"kind": given.family.kind, **asdict(text)}, {})


def _byte_bpe(given: TokenizerInput) -> TokenizerPart:
    """Return a text side of byte-level BPE; a source begins with `<s>`."""
    prompt = given.settings.prompt or ""
    if prompt and not given.family.prompts:
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
    mask = {FILLED: AddedToken(given.ids[FILLED], lstrip=True, shown=False)} if FILLED in given.ids else {}
    added = mask | _added_tokens(given.folder, given.ids)
    text = ByteBpeSettings(VOCABULARY, MERGES, _first(given), (), spaced is True, added, prompt)
    return TokenizerPart(
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
        if isinstance(symbol, str) and symbol in ids and symbol not in SPECIAL:
            flags = {name: entry.get(name) is True for name in ("lstrip", "rstrip", "single_word")}
            added[symbol] = AddedToken(ids[symbol], **flags, shown=entry.get("special") is not True)
    return added


def _word_pieces(given: TokenizerInput) -> TokenizerPart:
    """Return a text side of BERT's pieces: `[CLS]` before a source, `[SEP]` after it."""
    if (given.folder / TOKENIZER_CONFIG).is_file():
        options = read_object(given.folder / TOKENIZER_CONFIG)
    elif (given.folder / TOKENIZER_JSON).is_file():
        _, options = json_pieces(given.folder / TOKENIZER_JSON)
    else:
        raise CheckpointError(
            f"{given.folder}: does not name the rules of its tokenizer, such as lower case: copy "
            f"{TOKENIZER_CONFIG} of the original model into the folder"
        )
    lacking = [symbol for symbol in (BEGIN, END, UNKNOWN) if symbol not in given.ids]
    symbols = sorted(given.ids, key=lambda symbol: given.ids[symbol])
    ordered = [given.ids[symbol] for symbol in symbols] == list(range(len(symbols)))
    if lacking or not ordered or any("\n" in symbol for symbol in symbols):
        raise CheckpointError(
            f"{given.folder}: its vocabulary is not BERT's, which has {BEGIN}, {END}, {UNKNOWN}"
        )
    added = {MASK: AddedToken(given.ids[MASK], shown=False)} if MASK in given.ids else {}
    text = word_settings(options, given.ids[BEGIN], added, given.settings.prompt or "")
    lines = "".join(f"{symbol}\n" for symbol in symbols)
    return TokenizerPart({"kind": given.family.kind, **asdict(text)}, {SYMBOLS: lines.encode()})


def _first(given: TokenizerInput) -> tuple[int, ...]:
    """Return the ids that every source begins with."""
    return () if given.family.first is None else (given.ids[given.family.first],)


def _json(symbols: Any) -> bytes:
    return json.dumps(symbols, ensure_ascii=False, indent=0).encode("utf-8", "replace")
