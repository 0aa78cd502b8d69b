"""Steps that the readers of text sides share: SentencePiece models, added tokens, vocabularies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.errors import BundleError, CheckpointError
from engine.text.tokenizers.added import AddedToken
from engine.text.tokenizers.mapped_pieces import PieceSettings, read_ids
from engine.text.tokenizers.pieces import load_processor, read_processor
from export.importers.huggingface.family import TextPart
from export.importers.huggingface.files import TOKENIZER_JSON, ModelFolder, added_tokens, listed_tokens
from export.importers.huggingface.language_codes import language_symbols
from export.importers.huggingface.tokenizer_json import is_composed, sentencepiece_model

FAIRSEQ: Final = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
MODEL: Final = "sentencepiece.model"
VOCABULARY, MERGES = "vocab.json", "merges.txt"
FAIRSEQ_MODEL: Final = "sentencepiece.bpe.model"
MASK: Final = "<mask>"  # many models have no row for it


def fairseq_pieces(folder: ModelFolder, languages: Sequence[str] = ()) -> TextPart:
    """Read a SentencePiece text side with fairseq's special ids and language symbols.

    folder: folder of the model.
    languages: symbols that the tokenizer's class adds.
    """
    model, whole = pieces_model(folder, FAIRSEQ_MODEL)
    # fairseq has one symbol more than SentencePiece, "<pad>", so that ids of pieces are greater by 1
    added = all_added_tokens(folder, processor_of(model).get_piece_size() + 1, languages)
    special = {symbol: each.token for symbol, each in added.items()}
    offset = 0 if whole else 1
    return mapped_pieces(
        folder,
        model,
        special | FAIRSEQ,
        FAIRSEQ["<unk>"],
        added=added,
        offset=offset,
        source_symbol="source",
        target_symbol=True,
    )


def all_added_tokens(folder: ModelFolder, first: int, languages: Sequence[str] = ()) -> dict[str, AddedToken]:
    """Return the added tokens of the files and of the tokenizer's class.

    folder: folder of the model.
    first: id of the first symbol without an id in the files.
    languages: symbols that the class adds before all others.
    """
    symbols = dict.fromkeys([*languages, *listed_tokens(folder)])
    return {s: AddedToken(first + i, shown=False) for i, s in enumerate(symbols)} | added_tokens(folder)


def spelled_tokens(folder: ModelFolder, tokens: Mapping[str, AddedToken], unk: int) -> dict[str, AddedToken]:
    """Return the added tokens that a text may contain: all except beginning, end, padding and unknown.

    folder: folder of the model.
    tokens: added tokens by their symbols.
    unk: id of the unknown symbol.

    Raises CheckpointError if the model has no row for a token.
    """
    config = folder.config
    special = {config.get(f"{name}_token_id") for name in ("bos", "pad", "eos")} | {unk}
    added = {symbol: each for symbol, each in tokens.items() if each.token not in special}
    rows = config.get("vocab_size")
    beyond = [s for s, each in added.items() if type(rows) is int and each.token >= rows and s != MASK]
    if beyond:
        raise CheckpointError(
            f"{folder.path}: its tokenizer adds {beyond[0]!r} with the id {added[beyond[0]].token}, the "
            f"model has {rows:,} rows; save it after resize_token_embeddings"
        )
    return {symbol: each for symbol, each in added.items() if type(rows) is not int or each.token < rows}


def pieces_model(folder: ModelFolder, name: str) -> tuple[Path | bytes, bool]:
    """Return the SentencePiece model, and whether it was made of tokenizer.json, with the model's own ids."""
    if not folder.has(name) and folder.has(TOKENIZER_JSON):
        return sentencepiece_model(folder.path / TOKENIZER_JSON), True
    return folder.file(name, TOKENIZER_JSON), False


def mapped_pieces(
    folder: ModelFolder,
    model: Path | bytes,
    special: Mapping[str, int],
    unk: int,
    added: Mapping[str, AddedToken],
    vocabulary: Mapping[str, int] | None = None,
    **more: Any,
) -> TextPart:
    """Return a text side of SentencePiece pieces whose ids are mapped to the model's.

    folder: folder of the model.
    model: SentencePiece model.
    special: ids of language symbols and of fairseq's special symbols, perhaps among others.
    unk: id of the unknown symbol.
    added: added tokens by their symbols.
    vocabulary: id of each symbol, if SentencePiece's ids do not determine it.
    more: further fields of `PieceSettings`.
    """
    codes = language_symbols(special)
    names = {*codes.values(), *FAIRSEQ}
    if not codes:
        more |= {"source_symbol": "none", "target_symbol": False}
    spelled = spelled_tokens(
        folder, {symbol: each for symbol, each in added.items() if symbol not in names}, unk
    )
    symbols = {symbol: token for symbol, token in special.items() if symbol in names}
    if isinstance(model, bytes):  # made of tokenizer.json
        more |= {"composed": is_composed(folder.path / TOKENIZER_JSON)}
    name = None if vocabulary is None else VOCABULARY
    settings = PieceSettings(MODEL, name, special=symbols, added=spelled, languages=codes, **more)
    files: dict[str, bytes | Path] = {MODEL: model}
    if vocabulary is not None:
        files[VOCABULARY] = json.dumps(vocabulary, ensure_ascii=False).encode()
    return TextPart({"kind": "mapped-pieces", **asdict(settings)}, files, unk, codes)


def token_of(folder: ModelFolder, ids: Mapping[str, int], symbol: str) -> int:
    """Return the id of a symbol. Raises CheckpointError if the vocabulary lacks it.

    folder: folder of the model, which the error names.
    ids: id of each symbol.
    symbol: symbol to find.
    """
    if symbol not in ids:
        raise CheckpointError(f"{folder.path / VOCABULARY}: lacks {symbol}; download it again")
    return ids[symbol]


def read_vocabulary(path: Path) -> dict[str, int]:
    """Return the id of each symbol of a file. Raises CheckpointError that names the file."""
    ids: dict[str, int] = read_or_refuse(lambda: read_ids(path))
    return ids


def processor_of(model: Path | bytes) -> Any:
    """Return a loaded SentencePiece model. Raises CheckpointError that names its file."""
    if isinstance(model, bytes):
        return read_or_refuse(lambda: load_processor(model, Path(TOKENIZER_JSON)))
    return read_or_refuse(lambda: read_processor(model))


def read_or_refuse(reader: Any) -> Any:
    """Return the result of a reader of bundles' files, with its BundleError as CheckpointError."""
    try:
        return reader()
    except BundleError as error:
        raise CheckpointError(str(error)) from error
