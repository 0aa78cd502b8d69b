"""What tokenizers share whose texts grow from left to right: more tokens only add to the last word."""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any


class LeftToRight:
    """A part of `engine.text.tokenizers.tokenizer.Tokenizer`; a subclass adds the rest."""

    replaces_unk = False
    placeholders: tuple[str, ...] = ()

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str: ...

    def replace_unknown(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        return self.decode(tokens)

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Decode whole words only: a word ends where the next begins."""
        return whole_words(self.decode(tokens))


def whole_words(text: str) -> str:
    """Cut a text before the word that may still grow."""
    return text[: last_word(text)].rstrip()


def last_word(text: str) -> int:
    """Find where the word that may still grow begins.

    That is after a space, or after a character of a script without spaces.
    """
    for i in range(len(text), 0, -1):
        last = text[i - 1]
        wide = unicodedata.east_asian_width(last) in "WF" and not "\uac00" <= last <= "\ud7a3"  # no Hangul
        if last.isspace() or wide:
            return i
    return 0
