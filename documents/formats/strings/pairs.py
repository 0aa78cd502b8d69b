"""Strings of programs as pairs of key and value on lines: `.properties` of Java, `.strings` of Apple."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from documents.document import Document, unreadable
from documents.errors import Unreadable
from documents.formats.plain import DecodedText, decode
from documents.formats.strings.messages import Message, Value, messages_document

# a line of .properties with its continuations: comment, or key and value
PROPERTY: Final = re.compile(
    r"[ \t\f]*+(?:[#!][^\r\n]*+"
    r"|((?:[^\s\\:=]|\\.)++)[ \t\f]*+[:=]?[ \t\f]*+((?:[^\\\r\n]|\\\r\n|\\[\s\S])*+))"
    r"(?:\r\n|\r|\n|\Z)"
)
BLANK_LINE: Final = re.compile(r"[ \t\f]*+(?:\r\n|\r|\n)|[ \t\f]++\Z")
CONTINUED: Final = re.compile(r"\\(?:\r\n|\r|\n)[ \t\f]*+")
ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
BETWEEN_PAIRS: Final = re.compile(r"[\ufeff\s]*+")
BARE_QUOTE: Final = re.compile(r"(?<!\\)((?:\\\\)*+)\"")
# a pair of .strings, or a comment
PAIR: Final = re.compile(
    r"/\*.*?\*/|//[^\n]*+|(?:\"(?:[^\"\\]|\\.)*+\"|[\w.-]++)\s*+=\s*+\"((?:[^\"\\]|\\.)*+)\"\s*+;",
    re.DOTALL,
)


def read_properties(data: bytes) -> Document:
    """Return the values of a .properties file, in UTF-8 or in Latin-1 with escapes. Raises Unreadable."""
    file = _decoded(data)
    escaped = file.text.isascii()

    def encode(text: str) -> str:
        written = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
        written = "\\" + written if written.startswith(" ") else written
        return "".join(map(_ascii, written)) if escaped else written

    values, position = list[Value](), 0
    while position < len(file.text):
        match = BLANK_LINE.match(file.text, position) or PROPERTY.match(file.text, position)
        if match is None or match.end() == position:
            raise unreadable("a .properties file")
        if match.re is PROPERTY and match[2]:
            text = ESCAPED.sub(_unescaped, CONTINUED.sub("", match[2]))
            values.append(Value(*match.span(2), Message(text), encode))
        position = match.end()
    return messages_document(file.text, values, lambda text: _encoded(file, text))


def read_strings(data: bytes) -> Document:
    """Return the values of a .strings file of Apple, in UTF-8 or UTF-16. Raises Unreadable."""
    file = decode(data)
    return messages_document(file.text, list(_pairs(file.text)), file.encode)


def _pairs(text: str) -> Iterator[Value]:
    """Yield the values of a .strings file. Raises Unreadable on anything between pairs and comments."""
    position = BETWEEN_PAIRS.match(text).end()  # type: ignore[union-attr]  # it matches the empty string
    while position < len(text):
        match = PAIR.match(text, position)
        if match is None:
            raise unreadable("a .strings file")
        if match[1]:
            yield Value(*match.span(1), Message(match[1]), _quoted)
        position = BETWEEN_PAIRS.match(text, match.end()).end()  # type: ignore[union-attr]


def _quoted(text: str) -> str:
    """Return a text in which each quotation mark is escaped once."""
    return BARE_QUOTE.sub(r'\1\\"', text)


def _decoded(data: bytes) -> DecodedText:
    try:
        return decode(data)
    except Unreadable:
        return decode(data, "latin-1")  # the encoding of Java until version 8


def _encoded(file: DecodedText, text: str) -> bytes:
    """Return the bytes of a file; characters that its encoding lacks are escaped."""
    try:
        return file.encode(text, "strict")
    except UnicodeEncodeError:
        return file.encode("".join(c if ord(c) < 256 else _ascii(c) for c in text))


def _ascii(character: str) -> str:
    """Return a character in ASCII: itself, or the escapes of its UTF-16 units."""
    if character.isascii():
        return character
    units = character.encode("utf-16be")
    return "".join(f"\\u{int.from_bytes(units[i : i + 2], 'big'):04x}" for i in range(0, len(units), 2))


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else CONTROL.get(match[2], match[2])
