"""SentencePiece: one model for both sides (Kudo and Richardson 2018)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, Final

import sentencepiece

from engine.bundle import Bundle
from engine.errors import BundleError

SPACE: Final = "\u2581"  # how the library writes a space in its pieces


class Pieces:
    """Ids are those of the SentencePiece model. Its user-defined symbols are the placeholders."""

    replaces_unk = False

    def __init__(self, processor: Any) -> None:
        self._model = processor
        ids = range(processor.get_piece_size())
        self._special = frozenset(i for i in ids if processor.is_control(i))
        self.placeholders: tuple[str, ...] = tuple(
            processor.id_to_piece(i)
            for i in ids
            if processor.id_to_piece(i).startswith("<ph") and i not in self._special
        )

    def encode(self, text: str) -> list[int]:
        # lone surrogates may come out of JSON and have no UTF-8 form
        ids: list[int] = self._model.encode(text.encode("utf-8", "replace").decode("utf-8"))
        return ids

    def encode_target(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._model.decode([int(t) for t in tokens if t not in self._special])
        return text

    def replaced(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        return self.decode(tokens)

    def settled(self, tokens: Sequence[int]) -> str:
        """SentencePiece decodes from left to right; only bytes of an unfinished character may still change,
        and they end no word."""
        text = self.decode(tokens)
        return text[: last_word(text)].rstrip()

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        pieces = self.pieces(tokens, target=target)
        return [i for i, piece in enumerate(pieces) if not i or piece.startswith(SPACE)]

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return "".join(self.pieces(tokens, target=target)).replace(SPACE, "")

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        return [self._model.id_to_piece(int(t)) for t in tokens]


def open_pieces(bundle: Bundle) -> Pieces:
    """Settings: {"kind": "sentencepiece", "model": file name}."""
    unknown = sorted(set(bundle.text) - {"kind", "model"})
    if unknown:
        raise BundleError(f"{bundle.path}: unknown text settings {unknown}; known are 'kind' and 'model'")
    path = bundle.file(str(bundle.text.get("model")))
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise BundleError(f"{path}: not a SentencePiece model ({error}); convert the bundle again") from error
    config = bundle.config
    size = processor.get_piece_size()
    if (size, size) != (config.source_vocab, config.target_vocab):
        raise BundleError(
            f"{path}: has {size} pieces, the model {config.source_vocab} source and "
            f"{config.target_vocab} target tokens; the bundle mixes files of two models: convert it again"
        )
    found = (processor.bos_id(), processor.pad_id(), processor.eos_id(), processor.unk_id())
    wanted = (config.bos, config.pad, config.eos, config.unk)
    if found != wanted:
        raise BundleError(f"{path}: its bos, pad, eos, unk are {found}, the model's {wanted}")
    return Pieces(processor)


def last_word(text: str) -> int:
    """Where the word that may still grow begins: after a space, or a character of a script without spaces."""
    for i in range(len(text), 0, -1):
        last = text[i - 1]
        wide = unicodedata.east_asian_width(last) in "WF" and not "\uac00" <= last <= "\ud7a3"  # no Hangul
        if last.isspace() or wide:
            return i
    return 0
