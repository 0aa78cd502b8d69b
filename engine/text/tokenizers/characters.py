"""Texts as Unicode code points, the tokens of an upstream: its engine reads the text from the source again.

A source is a token for each of its two languages, the text, the entries of a glossary after HINTS, and EOS.
Placeholders are tags without content, which language models copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from engine.text.language_names import LANGUAGE_NAMES
from engine.types import QUOTAS

CODES: Final = tuple(LANGUAGE_NAMES)
SYMBOLS: Final = tuple(f"<x{number}/>" for number in range(1, QUOTAS + 1))
SYMBOL: Final = re.compile(r"(<x(?:[1-9]|[1-5]\d|6[0-4])/>)")
EOS: Final = 0x110000  # the first number that is no code point
HINTS: Final = EOS + 1
FIRST_SYMBOL: Final = EOS + 0x100
FIRST_SOURCE: Final = EOS + 0x1000
FIRST_TARGET: Final = EOS + 0x2000
VOCABULARY: Final = EOS + 0x3000
FIRST_WIDE: Final = "\u2e80"  # first character of the scripts that are written without spaces


class SourceText(NamedTuple):
    """The content of a source.

    source, target: codes of the languages.
    text: text with placeholders.
    hints: translation of each phrase that the answer must use.
    """

    source: str
    target: str
    text: str
    hints: Mapping[str, str]


@dataclass(slots=True)
class CodePoints:
    """A tokenizer of code points; implements `engine.text.tokenizers.tokenizer.Tokenizer`.

    source, target: codes of the languages of a direction.
    """

    source: str
    target: str
    placeholders: tuple[str, ...] = SYMBOLS
    replaces_unk: bool = False
    beginning: tuple[int, ...] = ()

    def lacks(self, character: str) -> bool:
        return False

    def encode(self, text: str) -> list[int]:
        languages = FIRST_SOURCE + CODES.index(self.source), FIRST_TARGET + CODES.index(self.target)
        return [*languages, *self.encode_target(text)]

    def encode_target(self, text: str) -> list[int]:
        return target_tokens(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(_piece, tokens))

    def replace_unknown(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        return self.decode(tokens)

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        text = self.decode(tokens)
        return text if text[-1:] >= FIRST_WIDE else text.rpartition(" ")[0]

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        starts, before = list[int](), " "
        for number, piece in enumerate(map(_piece, tokens)):
            if piece and not piece.isspace() and before.isspace():
                starts.append(number)
            before = piece or before
        return starts

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return self.decode(tokens).strip()

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        return list(map(_piece, tokens))


def target_tokens(text: str) -> list[int]:
    """Return the tokens of a text with placeholders."""
    tokens = list[int]()
    for number, part in enumerate(SYMBOL.split(text)):
        tokens += [FIRST_SYMBOL + SYMBOLS.index(part)] if number % 2 else map(ord, part)
    return tokens


def _piece(token: int) -> str:
    """Return the text of a token, "" for one without a text."""
    if token < EOS:
        return chr(token)
    number = token - FIRST_SYMBOL
    return SYMBOLS[number] if 0 <= number < len(SYMBOLS) else ""


def hint_tokens(hints: Mapping[str, str]) -> list[int]:
    """Return the tokens of the entries of a glossary, to append to a source."""
    lines = (f"{' '.join(source.split())}\n{' '.join(target.split())}" for source, target in hints.items())
    return [HINTS, *map(ord, "\n".join(lines))] if hints else []


def read_source(tokens: Sequence[int]) -> SourceText:
    """Return the content of a source."""
    first, last, *rest = tokens
    text, entries = "".join(map(_piece, rest)), list[str]()
    if HINTS in rest:
        at = rest.index(HINTS)
        text, entries = "".join(map(_piece, rest[:at])), "".join(map(_piece, rest[at:])).split("\n")
    hints = dict(zip(entries[::2], entries[1::2], strict=True))
    return SourceText(CODES[first - FIRST_SOURCE], CODES[last - FIRST_TARGET], text, hints)
