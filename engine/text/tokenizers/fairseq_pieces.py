"""SentencePiece with a dictionary: the SentencePiece model makes the pieces, the dictionary has their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.text.tokenizers.dictionary import Dictionary
from engine.text.tokenizers.left_to_right import SPACE, LeftToRight, whole_words
from engine.text.tokenizers.unknown import replace_unknown


class Characters:
    """Splits a text into characters, with SentencePiece's mark for spaces."""

    def encode(self, text: str, out_type: type[str]) -> list[str]:
        return [SPACE if character.isspace() else character for character in text.strip()]


class DictionaryPieces(LeftToRight):
    """A tokenizer with a SentencePiece model for each side; a piece that its dictionary lacks becomes unk."""

    replaces_unk = True

    def __init__(
        self,
        processors: tuple[Any, Any],
        source: Dictionary,
        target: Dictionary,
        first: tuple[int, ...] = (),
        beginning: tuple[int, ...] = (),
    ) -> None:
        """Make a tokenizer.

        processors: SentencePiece models of source and target.
        source, target: dictionaries of the two sides.
        first: ids that every source begins with.
        beginning: ids that every target begins with.
        """
        self._first, self.beginning = first, beginning
        self._processors, self._source, self._target = processors, source, target

    def lacks(self, character: str) -> bool:
        """Return whether the source's dictionary has no pieces for a character."""
        return self._source.unk in self.encode(character)

    def encode(self, text: str) -> list[int]:
        return [*self._first, *_ids(self._processors[0], text, self._source)]

    def encode_target(self, text: str) -> list[int]:
        return _ids(self._processors[1], text, self._target)

    def decode(self, tokens: Sequence[int]) -> str:
        return _join_pieces(self.pieces(self._drop_silent(tokens), target=True)).strip()

    def replace_unknown(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        """Decode target ids, with source pieces in the place of unknown pieces, as in CTranslate2.

        tokens: target ids.
        attention: float array [at least the tokens, source tokens with end-of-sentence].
        source: the text that was encoded.
        """
        positions = [i for i, token in enumerate(tokens) if token not in self._target.silent]
        unknown = [i for i in positions if tokens[i] == self._target.unk]
        pieces = self.pieces(tokens, target=True)
        if unknown:
            words = ["" for _ in self._first] + _pieces(self._processors[0], source)
            pieces = replace_unknown(pieces, unknown, words, attention, {})
        return _join_pieces([pieces[i] for i in positions]).strip()

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Decode whole words; further pieces change only the last word."""
        return whole_words(_join_pieces(self.pieces(self._drop_silent(tokens), target=True)).lstrip())

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        """Return the index of the first token of each word."""
        pieces = self.pieces(tokens, target=target)
        return [i for i, piece in enumerate(pieces) if not i or piece.startswith(SPACE)]

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        """Return the pieces of token ids, of the target's dictionary if `target`."""
        symbols = (self._target if target else self._source).symbols
        return [symbols[t] for t in tokens]

    def _drop_silent(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens that produce text."""
        return [t for t in tokens if t not in self._target.silent]


def _join_pieces(pieces: Sequence[str]) -> str:
    return "".join(pieces).replace(SPACE, " ")


def _pieces(processor: Any, text: str) -> list[str]:
    return list(processor.encode(text, out_type=str))


def _ids(processor: Any, text: str, dictionary: Dictionary) -> list[int]:
    return [dictionary.ids.get(piece, dictionary.unk) for piece in _pieces(processor, text)]
