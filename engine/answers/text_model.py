"""What turning texts into sources and back needs to know of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.text.borrowed import BorrowedWord, BorrowingTokenizer, symbols_of
from engine.text.tokenizer import Tokenizer
from engine.types import DecodeOptions, Limits

# languages written without spaces between sentences; their translations need one
SPACELESS: Final = frozenset({"bo", "ja", "km", "lo", "my", "th", "zh", "zt"})


@dataclass(frozen=True, slots=True)
class TextModel:
    """What turning text into sources and back needs to know of a bundle.

    unk: the token that unknown words become, if there is one.
    replace_unk: whether unknown words are replaced unasked.
    truncates: whether the beginning of a text that is too long is read, unasked.
    borrowed: words that are placeholders, where the vocabulary has no symbols of its own.
    """

    task: str
    source: str
    target: str
    tokenizer: Tokenizer
    defaults: DecodeOptions
    limits: Limits
    eos: int
    name: str = ""
    unk: int | None = None
    replace_unk: bool = False
    truncates: bool = False
    borrowed: tuple[BorrowedWord, ...] = ()

    @property
    def placeholders(self) -> tuple[str, ...]:
        return self.tokenizer.placeholders or symbols_of(self.borrowed)

    @property
    def keeping(self) -> Tokenizer:
        """The tokenizer of sentences that hold placeholders."""
        return BorrowingTokenizer(self.tokenizer, self.borrowed) if self.borrowed else self.tokenizer

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target

    @property
    def between(self) -> str:
        """What goes between translations of sentences that touched."""
        return "" if self.spaced or _spaceless(self.target) else " "

    @property
    def spaced(self) -> bool:
        """Whether the words of sources have spaces between them."""
        return not _spaceless(self.source)

    def beginning(self, ids: Sequence[int]) -> list[int]:
        """Return the longest beginning of a source that the model reads; both end with end-of-sentence."""
        return [*ids[: self.limits.source - 1], self.eos]


def _spaceless(code: str) -> bool:
    return code.partition("-")[0].lower() in SPACELESS
