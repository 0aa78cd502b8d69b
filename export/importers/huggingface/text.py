"""The text side of Hugging Face's families: which file, which ids, and which symbols name languages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.errors import BundleError, CheckpointError
from engine.text.tokenizers.byte_bpe import read_merges
from engine.text.tokenizers.mapped_pieces import PieceSettings, read_ids
from engine.text.tokenizers.pieces import load_processor, read_processor
from export.importers.huggingface.family import TextPart
from export.importers.huggingface.files import TOKENIZER_FILE, ModelFolder, added_tokens
from export.importers.huggingface.language_codes import M2M_100, language_symbols
from export.importers.huggingface.tokenizer_json import TOKENIZER_JSON, byte_bpe, sentencepiece_model

FAIRSEQ: Final = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
PEGASUS_OFFSET: Final = 103
MAX_OFFSET: Final = 10_000  # of ids
MODEL: Final = "sentencepiece.model"
VOCABULARY, MERGES = "vocab.json", "merges.txt"
EXTRA: Final = re.compile(r"^<extra_id_\d+>$")


def bart_text(folder: ModelFolder) -> TextPart:
    """Read the text side with byte-level BPE. Raises CheckpointError naming what is missing or wrong."""
    files: dict[str, bytes | Path]
    spaced = bool(folder.tokenizer.get("add_prefix_space"))
    if folder.has(TOKENIZER_JSON) and not (folder.has(VOCABULARY) and folder.has(MERGES)):
        ids, rules, spaced = byte_bpe(folder.path / TOKENIZER_JSON)
        lines = "".join(f"{left} {right}\n" for left, right in rules)
        files = {VOCABULARY: json.dumps(ids, ensure_ascii=False).encode(), MERGES: lines.encode()}
    else:
        folder.need(VOCABULARY, MERGES)
        ids, merges = _ids(folder.path / VOCABULARY), folder.path / MERGES
        _readable(lambda: read_merges(merges))
        files = {VOCABULARY: folder.path / VOCABULARY, MERGES: merges}
    bos, forced = folder.config.get("bos_token_id"), folder.rules.get("forced_bos_token_id")
    if type(forced) is int and forced not in ids.values():
        raise CheckpointError(f"{folder.path}: forced_bos_token_id = {forced} is no token of {VOCABULARY}")
    settings: dict[str, Any] = {
        "kind": "byte-bpe",
        "vocabulary": VOCABULARY,
        "merges": MERGES,
        "first": [bos] if type(bos) is int else [],
        "beginning": [forced] if type(forced) is int else [],
    }
    if spaced:
        settings["prefix_space"] = True
    return TextPart(settings, files, _token(folder, ids, "<unk>"))


def mbart_text(folder: ModelFolder) -> TextPart:
    """Read the text side of mBART-50: fairseq's ids, a language before the source and before the target."""
    named = folder.tokenizer.get("tokenizer_class") or folder.config.get("tokenizer_class")
    kind = named or "MBartTokenizer"  # what `transformers` takes for the model type
    if kind not in ("MBart50Tokenizer", "MBart50TokenizerFast"):
        raise CheckpointError(
            f"{folder.path}: has the tokenizer {kind}, which ends sources with their language; only "
            "mBART-50's order is served. If it is one, say so: tokenizer_class in tokenizer_config.json"
        )
    return _fairseq_pieces(folder)


def nllb_text(folder: ModelFolder) -> TextPart:
    """Read the text side of M2M-100, SMaLL-100 or NLLB-200, told apart by their vocabularies."""
    if not folder.has(VOCABULARY):
        return _fairseq_pieces(folder)
    ids = _ids(folder.file(VOCABULARY))
    special = {s: i for s, i in added_tokens(folder, len(ids)).items() if s not in ids}
    if not language_symbols(special) and folder.tokenizer.get("language_codes", "m2m100") == "m2m100":
        special |= {f"__{code}__": len(ids) + i for i, code in enumerate(M2M_100)}
    small = str(folder.tokenizer.get("tokenizer_class", "")).startswith("SMALL100")
    return _mapped_pieces(
        folder,
        folder.file("sentencepiece.bpe.model", "spm.model"),
        special | {s: i for s, i in ids.items() if s in FAIRSEQ},
        _token(folder, ids, "<unk>"),
        vocabulary=VOCABULARY,
        source_symbol="target" if small else "source",
        target_symbol=not small,
    )


def pegasus_text(folder: ModelFolder) -> TextPart:
    """Read the text side with SentencePiece's ids and 103 more in front; `<n>` is a line's end."""
    model, whole = _pieces_model(folder, "spiece.model")
    offset = 0 if whole else folder.tokenizer.get("offset", PEGASUS_OFFSET)
    if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
        raise CheckpointError(f"{folder.path / TOKENIZER_FILE}: offset = {offset!r} is no number of ids")
    unk = _processor(model).unk_id() + offset
    special = {"<pad>": folder.config["pad_token_id"], "</s>": folder.config["eos_token_id"]}
    return _mapped_pieces(folder, model, special, unk, offset=offset, newline="<n>")


def t5_text(folder: ModelFolder, prompt: str) -> TextPart:
    """Read the text side with SentencePiece's own ids, or bytes.

    MADLAD-400 names the target's language before the source.
    """
    if not folder.has("spiece.model") and "ByT5" in str(folder.tokenizer.get("tokenizer_class")):
        return TextPart({"kind": "bytes", "offset": 3, "prompt": prompt}, {}, unk=2)
    model, whole = _pieces_model(folder, "spiece.model")
    processor = _processor(model)
    symbols = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    languages = {s: symbols[s] for s in language_symbols(symbols).values() if s.startswith("<2")}
    return _mapped_pieces(
        folder,
        model,
        languages,
        processor.unk_id(),
        source_symbol="target" if languages else "none",
        written=bool(languages) and not whole,  # tokenizer.json cuts such symbols out of a text
        prompt=prompt,
    )


def _fairseq_pieces(folder: ModelFolder) -> TextPart:
    model, whole = _pieces_model(folder, "sentencepiece.bpe.model")
    first = _processor(model).get_piece_size() + 1
    special = FAIRSEQ | added_tokens(folder, first)
    offset = 0 if whole else 1
    return _mapped_pieces(
        folder, model, special, FAIRSEQ["<unk>"], offset=offset, source_symbol="source", target_symbol=True
    )


def _pieces_model(folder: ModelFolder, name: str) -> tuple[Path | bytes, bool]:
    """The SentencePiece model of a folder, and whether it is tokenizer.json's, with the model's own ids."""
    if not folder.has(name) and folder.has(TOKENIZER_JSON):
        return sentencepiece_model(folder.path / TOKENIZER_JSON), True
    return folder.file(name, TOKENIZER_JSON), False


def _mapped_pieces(
    folder: ModelFolder, model: Path | bytes, special: Mapping[str, int], unk: int, **more: Any
) -> TextPart:
    """more: fields of `engine.text.tokenizers.mapped_pieces.PieceSettings`."""
    codes = language_symbols(special)
    symbols = {symbol: token for symbol, token in special.items() if not EXTRA.match(symbol)}
    if not codes:
        more |= {"source_symbol": "none", "target_symbol": False}
    settings = PieceSettings(model=MODEL, special=symbols, languages=codes, **more)
    files: dict[str, bytes | Path] = {MODEL: model}
    if settings.vocabulary is not None:
        files[VOCABULARY] = json.dumps(_ids(folder.file(VOCABULARY)), ensure_ascii=False).encode()
    return TextPart({"kind": "mapped-pieces", **asdict(settings)}, files, unk, codes)


def _token(folder: ModelFolder, ids: Mapping[str, int], symbol: str) -> int:
    if symbol not in ids:
        raise CheckpointError(f"{folder.path / VOCABULARY}: lacks {symbol}; download it again")
    return ids[symbol]


def _ids(path: Path) -> dict[str, int]:
    ids: dict[str, int] = _readable(lambda: read_ids(path))
    return ids


def _processor(model: Path | bytes) -> Any:
    if isinstance(model, bytes):
        return _readable(lambda: load_processor(model, Path(TOKENIZER_JSON)))
    return _readable(lambda: read_processor(model))


def _readable(reader: Any) -> Any:
    """What is read, of files that bundles hold too and whose readers speak of bundles."""
    try:
        return reader()
    except BundleError as error:
        raise CheckpointError(str(error)) from error
