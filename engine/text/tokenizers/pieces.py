"""SentencePiece: one model for both sides (Kudo and Richardson 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers.left_to_right import SPACE, LeftToRight


class Pieces(LeftToRight):
    """A tokenizer with the ids of a SentencePiece model; symbols "<ph..." of the model are placeholders."""

    def __init__(self, processor: Any) -> None:
        self._model = processor
        ids = range(processor.get_piece_size())
        self._pieces: list[str] = [processor.id_to_piece(i) for i in ids]
        self._special = frozenset(i for i in ids if processor.is_control(i))
        self.placeholders: tuple[str, ...] = tuple(
            piece
            for i, piece in enumerate(self._pieces)
            if piece.startswith("<ph") and i not in self._special
        )
        # ids of the unknown piece and of single bytes
        self._unread = frozenset(i for i in ids if processor.is_unknown(i) or processor.is_byte(i))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._model.encode(text)
        return ids

    def lacks(self, character: str) -> bool:
        return not self._unread.isdisjoint(self.encode(character))

    def encode_target(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._model.decode([int(t) for t in tokens if t not in self._special])
        return text

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        pieces = self.pieces(tokens, target=target)
        return [i for i, piece in enumerate(pieces) if not i or piece.startswith(SPACE)]

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        return [self._pieces[t] for t in tokens]


def open_pieces(bundle: Bundle) -> Pieces:
    """Open the tokenizer of a bundle with one SentencePiece model.

    Settings: {"kind": "sentencepiece", "model": file name}.
    """
    unknown = sorted(set(bundle.text) - {"kind", "model"})
    if unknown:
        raise BundleError(f"{bundle.path}: unknown text settings {unknown}; known are 'kind' and 'model'")
    path = bundle.file(str(bundle.text.get("model")))
    processor = read_processor(path)
    config = bundle.config
    size = processor.get_piece_size()
    if (size, size) != (config.source_vocab, config.target_vocab):
        raise BundleError(
            f"{path}: has {size} pieces, the model {config.source_vocab} source and "
            f"{config.target_vocab} target tokens; the bundle mixes files of two models: convert it again"
        )
    ids = (processor.bos_id(), processor.pad_id(), processor.eos_id(), processor.unk_id())
    model_ids = (config.bos, config.pad, config.eos, config.unk)
    if ids != model_ids:
        raise BundleError(f"{path}: its bos, pad, eos, unk are {ids}, the model's {model_ids}")
    return Pieces(processor)


def read_processor(path: Path) -> Any:
    """Read a SentencePiece model. Raises BundleError naming the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: not readable ({error}); copy it again") from error
    return load_processor(data, path)


def load_processor(data: bytes, path: Path) -> Any:
    """Load a SentencePiece model from the bytes of a file. Raises BundleError naming its path."""
    if not data:  # the library accepts an empty file without loading a model
        raise BundleError(f"{path}: not a SentencePiece model, it is empty; copy it again")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=data)
    except (RuntimeError, OSError) as error:
        raise BundleError(f"{path}: not a SentencePiece model ({error}); copy it again") from error
