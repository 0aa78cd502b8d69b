"""SentencePiece before a fairseq dictionary: the pieces are those of the model, their ids its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from engine.errors import BundleError
from engine.text.dictionary import UNK, Dictionary
from engine.text.pieces import SPACE, last_word


def read_pieces(path: Path) -> Any:
    """Open a SentencePiece model. Raises BundleError."""
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise BundleError(f"{path}: not a SentencePiece model ({error}); copy it again") from error


class DictionaryPieces:
    """One SentencePiece model for both sides; a piece that a dictionary lacks becomes unk."""

    placeholders: tuple[str, ...] = ()
    replaces_unk = False

    def __init__(self, processor: Any, source: Dictionary, target: Dictionary) -> None:
        self._model, self._source, self._target = processor, source, target

    def encode(self, text: str) -> list[int]:
        return self._ids(text, self._source)

    def encode_target(self, text: str) -> list[int]:
        return self._ids(text, self._target)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._joined([t for t in tokens if t >= UNK], target=True).strip()

    def replaced(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        return self.decode(tokens)

    def settled(self, tokens: Sequence[int]) -> str:
        """Pieces are joined from left to right, so only the last word may still grow."""
        text = self._joined([t for t in tokens if t >= UNK], target=True).lstrip()
        return text[: last_word(text)].rstrip()

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        pieces = self.pieces(tokens, target=target)
        return [i for i, piece in enumerate(pieces) if not i or piece.startswith(SPACE)]

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return self._joined(tokens, target=target).replace(" ", "")

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        symbols = (self._target if target else self._source).symbols
        return [symbols[t] for t in tokens]

    def _joined(self, tokens: Sequence[int], *, target: bool) -> str:
        return "".join(self.pieces(tokens, target=target)).replace(SPACE, " ")

    def _ids(self, text: str, dictionary: Dictionary) -> list[int]:
        # lone surrogates may come out of JSON and have no UTF-8 form
        pieces = self._model.encode(text.encode("utf-8", "replace").decode("utf-8"), out_type=str)
        return [dictionary.ids.get(piece, UNK) for piece in pieces]
