"""Base of tokenizers whose text grows from left to right: further tokens change only the last word."""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

SPACE: Final = "\u2581"  # a space in pieces


class LeftToRight:
    """A part of the protocol `engine.text.tokenizers.tokenizer.Tokenizer`; subclasses add the rest."""

    replaces_unk = False
    placeholders: tuple[str, ...] = ()
    beginning: tuple[int, ...] = ()

    def lacks(self, character: str) -> bool:
        return False

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str: ...

    @abstractmethod
    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]: ...

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        """Return the text of the pieces of a word, without spaces."""
        return "".join(self.pieces(tokens, target=target)).replace(SPACE, "")

    def replace_unknown(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        return self.decode(tokens)

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Decode whole words; a word is whole once the next one begins."""
        return whole_words(self.decode(tokens))


def whole_words(text: str) -> str:
    """Return a text without its last word, which may still grow."""
    return text[: last_word(text)].rstrip()


def last_word(text: str) -> int:
    """Return the position of the last word, which may still grow.

    It begins after a space, or after a character of a script without spaces.
    """
    for i in range(len(text), 0, -1):
        last = text[i - 1]
        # Hangul has spaces
        wide = unicodedata.east_asian_width(last) in "WF" and not "\uac00" <= last <= "\ud7a3"
        if last.isspace() or wide:
            return i
    return 0
