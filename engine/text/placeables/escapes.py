r"""Escaped characters of words: `don&#39;t`, `l&rsquo;h&ocirc;tel`, `don\'t`, `caf\u00e9`.

The model reads the characters, and the answer has its own characters in the form of the source.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from html.entities import codepoint2name
from typing import Final, NamedTuple

ESCAPE: Final = r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});|\\(?:u[0-9a-fA-F]{4}|['\"])"
# marks in, around and between words
WORD_MARKS: Final = frozenset("'’‘ʼ\"“”„«»‚‹›–—…&\u00a0")

AMPERSAND: Final = re.compile(r"&(?!#?\w{1,31};)")  # no part of an escape
DOUBLE_QUOTES: Final = re.compile("[“”„]|«[ \u00a0\u202f]?|[ \u00a0\u202f]?»")


class Escaped(NamedTuple):
    """An escape of a text, and the character that it stands for."""

    written: str
    character: str


def read_escape(written: str) -> str:
    """Return the letter or mark of words for which an escape stands, "" for another character."""
    if written.startswith("\\u"):
        character = chr(int(written[2:], 16))
    else:
        character = unescape(written) if written.startswith("&") else written[1:]
    of_words = len(character) == 1 and (character in WORD_MARKS or unicodedata.category(character)[0] in "LM")
    return character if of_words else ""


@dataclass(frozen=True, slots=True)
class Escapes:
    """Forms in which a source writes characters.

    spellings: escape of each mark that the source escapes.
    letters: an escape of a letter in the source, whose form all letters beyond ASCII get; "" for none.
    """

    spellings: Mapping[str, str]
    letters: str = ""

    def write(self, text: str) -> str:
        """Escape the characters of a part of an answer."""
        if self.letters:
            text = "".join(self._letter(c) if c > "\x7f" and c.isalpha() else c for c in text)
        if '"' in self.spellings:  # a typographic mark is written in the form of the source too
            text = DOUBLE_QUOTES.sub('"', text)
        text = AMPERSAND.sub(self.spellings["&"], text) if "&" in self.spellings else text
        return "".join(c if c == "&" else self.spellings.get(c, c) for c in text) if self.spellings else text

    def _letter(self, letter: str) -> str:
        """Return a letter in the form of `letters`."""
        code = ord(letter)
        if self.letters.startswith("\\u"):
            return f"\\u{code:04x}" if code <= 0xFFFF else letter  # noqa: PLR2004
        if self.letters.startswith(("&#x", "&#X")):
            return f"&#x{code:x};"
        name = "" if self.letters.startswith("&#") else codepoint2name.get(code, "")
        return f"&{name};" if name else f"&#{code};"


NO_ESCAPES: Final = Escapes({})


def escapes_of(found: list[Escaped]) -> Escapes:
    """Return the forms of the escapes of a text."""
    letters = next((e.written for e in found if e.character not in WORD_MARKS), "")
    return Escapes({e.character: e.written for e in reversed(found) if e.character in WORD_MARKS}, letters)
