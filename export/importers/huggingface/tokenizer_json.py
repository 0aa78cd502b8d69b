"""Convert tokenizer.json, the only tokenizer file of `transformers` 5, to files that our tokenizers read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.tokenizers.marian import BYTE, UNKNOWN
from export.importers.json_object import read_object

MAX_PIECES: Final = 1 << 21
SPACE_MARK: Final = "\u2581"
# parts that treat a text like SentencePiece: mark spaces, merge several spaces
PLAIN_NORMALIZERS: Final = ("Replace", "Strip")
COMPOSED: Final = "NFC"  # form of Unicode
PLAIN_SPLITTERS: Final = ("WhitespaceSplit", "Metaspace")
UNMERGED_SCORE: Final = -1e6  # score of a piece that no merge produces


def sentencepiece_model(path: Path) -> bytes:
    """Return a SentencePiece model with the pieces and ids of a tokenizer.json.

    Raises CheckpointError if the file is damaged or holds another kind of tokenizer.
    """
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined] # made when it is imported
    types = type(model.pieces.add())
    model.Clear()
    content = read_object(path)
    kind, pieces, unk = _pieces(path, content)
    model.trainer_spec.model_type = {"Unigram": 1, "BPE": 2}[kind]
    model.trainer_spec.vocab_size = len(pieces)
    model.trainer_spec.unk_id = unk
    model.normalizer_spec.precompiled_charsmap = _character_map(path, content)
    model.normalizer_spec.add_dummy_prefix = True
    bytes_follow = content["model"].get("byte_fallback") is True
    model.trainer_spec.byte_fallback = bytes_follow
    special = {token.get("content"): bool(token.get("special")) for token in _added_tokens(content)}
    for number, (piece, score) in enumerate(pieces):
        entry = model.pieces.add(piece=piece, score=score)
        if number == unk:
            entry.type = types.UNKNOWN
        elif bytes_follow and BYTE.fullmatch(piece):
            entry.type = types.BYTE
        elif piece in special:
            kinds = types.CONTROL, types.USER_DEFINED
            entry.type = kinds[0] if special[piece] else kinds[1]
    data: bytes = model.SerializeToString()
    return data


def is_composed(path: Path) -> bool:
    """Return whether a tokenizer.json changes texts to Unicode's form NFC."""
    parts = _parts(read_object(path).get("normalizer"), "normalizers")
    return any(part.get("type") == COMPOSED for part in parts)


def byte_bpe(path: Path) -> tuple[dict[str, int], list[tuple[str, str]], bool]:
    """Return ids by symbol, merges, and whether a space is put before a text, of a byte-level BPE.

    Raises CheckpointError if the file is damaged or holds another kind of tokenizer.
    """
    content = read_object(path)
    parts = list(_parts(content.get("pre_tokenizer"), "pretokenizers"))
    levels = [part for part in parts if part.get("type") == "ByteLevel"]
    if len(parts) != 1 or not levels:
        raise CheckpointError(f"{path}: is not the byte-level BPE of this kind of model")
    vocabulary, merges = _bpe(path, content)
    return vocabulary, merges, bool(levels[0].get("add_prefix_space"))


def _pieces(path: Path, content: Mapping[str, Any]) -> tuple[str, list[tuple[str, float]], int]:
    """Return the kind of model, pieces and scores in the order of ids, and the id of the unknown piece."""
    for part in _parts(content.get("pre_tokenizer"), "pretokenizers"):
        if part.get("type") not in PLAIN_SPLITTERS or part.get("replacement", SPACE_MARK) != SPACE_MARK:
            raise CheckpointError(f"{path}: its pre_tokenizer {part.get('type')!r} is not supported")
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind not in ("Unigram", "BPE"):
        raise CheckpointError(f"{path}: has a model of the kind {kind!r}; Unigram and BPE are read")
    pairs, unk = _unigram(path, content["model"]) if kind == "Unigram" else _bpe_pieces(path, content)
    if type(unk) is not int or not 0 <= unk < len(pairs) or len(pairs) > MAX_PIECES:
        raise CheckpointError(f"{path}: has no piece for unknown words; download it again")
    if len({piece for piece, _ in pairs} - {""}) < len(pairs):
        raise CheckpointError(f"{path}: holds a piece twice, or an empty one; download it again")
    # prefer the piece "<unk>" to the stored id: `transformers` 5 writes 2 for T5, the id of MADLAD-400's
    # end-of-sentence
    return str(kind), pairs, next((i for i, (piece, _) in enumerate(pairs) if piece == UNKNOWN), unk)


def _unigram(path: Path, model: Mapping[str, Any]) -> tuple[list[tuple[str, float]], Any]:
    """Return the pieces with their scores, and the id of the unknown piece."""
    pieces = model.get("vocab")
    if not isinstance(pieces, list) or not all(_is_piece(entry) for entry in pieces):
        raise CheckpointError(f"{path}: its model holds no pieces with scores; download it again")
    return [(str(piece), float(score)) for piece, score in pieces], model.get("unk_id")


def _bpe_pieces(path: Path, content: Mapping[str, Any]) -> tuple[list[tuple[str, float]], Any]:
    """Return the pieces of BPE, with scores that rank merges, and the id of the unknown piece."""
    vocabulary, merges = _bpe(path, content)
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise CheckpointError(f"{path}: the token ids are not 0, 1, 2, ...; download it again")
    # reversed, because the first of several merges to the same piece must win
    ranks = {left + right: -float(rank) for rank, (left, right) in reversed(list(enumerate(merges)))}
    symbols = sorted(vocabulary, key=lambda symbol: vocabulary[symbol])
    pairs = [(symbol, ranks.get(symbol, UNMERGED_SCORE)) for symbol in symbols]
    return pairs, vocabulary.get(str(content["model"].get("unk_token")))


def _is_piece(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and _is_number(entry[1])


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e30


def _bpe(path: Path, content: Mapping[str, Any]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return ids by symbol, and merges. Raises CheckpointError if the model is no valid BPE."""
    model = content.get("model")
    found = model if isinstance(model, dict) else {}
    vocabulary, merges = found.get("vocab"), found.get("merges")
    if isinstance(vocabulary, dict) and isinstance(merges, list):
        rules = [rule.split(" ") if isinstance(rule, str) else rule for rule in merges]
        ids = all(type(i) is int and 0 <= i < MAX_PIECES for i in vocabulary.values())
        if ids and all(_is_rule(rule) for rule in rules):
            return vocabulary, [(left, right) for left, right in rules]
    raise CheckpointError(f"{path}: its BPE has no valid vocabulary or merges; download it again")


def _is_rule(rule: Any) -> bool:
    return isinstance(rule, list) and len(rule) == 2 and all(isinstance(symbol, str) for symbol in rule)


def _character_map(path: Path, content: Mapping[str, Any]) -> bytes:
    """Return SentencePiece's map of characters, empty if the file has none."""
    maps = b""
    for part in _parts(content.get("normalizer"), "normalizers"):
        if part.get("type") == "Precompiled":
            try:
                maps = base64.b64decode(str(part.get("precompiled_charsmap")), validate=True)
            except (binascii.Error, ValueError) as error:
                raise CheckpointError(f"{path}: its precompiled_charsmap is damaged ({error})") from error
        elif part.get("type") not in (*PLAIN_NORMALIZERS, COMPOSED):
            raise CheckpointError(f"{path}: its normalizer {part.get('type')!r} is not supported")
    return maps


def _parts(part: Any, inner: str) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a pipeline, with nested sequences flattened."""
    if isinstance(part, dict) and part.get("type") == "Sequence":
        for entry in part.get(inner) or ():
            yield from _parts(entry, inner)
    elif isinstance(part, dict):
        yield part


def _added_tokens(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    tokens = content.get("added_tokens")
    return [token for token in tokens if isinstance(token, dict)] if isinstance(tokens, list) else []
