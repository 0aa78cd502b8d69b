"""Catalogues of gettext (.po): translates messages without a translation; nothing else changes.

polib parses the messages; the positions of their translations are found line by line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polib

from documents.document import Document, unreadable
from documents.formats.plain import DecodedText, decode
from documents.formats.strings.messages import Message
from documents.spans import Segment

KIND_NAME: Final = "a catalogue of gettext"
HEAD_CHARSET: Final = re.compile(rb"\"Content-Type:[^\n]{0,200}?charset=([\w.:-]{1,40})")
MAX_HEAD_BYTES: Final = 65_536  # bytes in which the encoding is searched
TEMPLATE_CHARSET: Final = "charset"  # written by xgettext for an unknown encoding
KEYWORD: Final = re.compile(r"[ \t]*(msgid_plural|msgid|msgctxt|msgstr)(?:\[\d{1,3}\])?[ \t]*(?=\")")
LINE: Final = re.compile(r"[^\n]*\n|[^\n]+\Z")
WIDTH: Final = 76  # characters between the quotes of a line, like the tools of gettext


@dataclass(slots=True)
class _Strings:
    """The strings of one `msgstr`: characters [begin, end) of a file."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Untranslated:
    """A message without a translation.

    entry: message as polib read it.
    places: position of its translation, or of each form of a plural.
    messages: text of the message, and of its plural.
    """

    entry: Any
    places: list[_Strings]
    messages: list[Message]

    @property
    def segments(self) -> list[Segment]:
        return [segment for message in self.messages for segment in message.segments]

    def write(self, segments: Sequence[Segment], newline: str) -> list[str]:
        """Return the strings for each position; the first of several forms is the singular."""
        rest = iter(segments)
        texts = [message.write([next(rest) for _ in message.segments]) for message in self.messages]
        forms = [texts[0] if len(self.places) > 1 else texts[-1], *[texts[-1]] * (len(self.places) - 1)]
        wrapped = "no-wrap" not in self.entry.flags
        return [_gettext_strings(text, newline, wrapped) for text in forms]


def read_po(data: bytes) -> Document:
    """Return a document of the messages without a translation, not even a fuzzy one.

    The first form of a plural translates the singular, all others the plural. Raises Unreadable.
    """
    charset = HEAD_CHARSET.search(data[:MAX_HEAD_BYTES])
    declared_charset = charset[1].decode("ascii") if charset else TEMPLATE_CHARSET
    file = decode(data, "utf-8" if declared_charset.lower() == TEMPLATE_CHARSET else declared_charset)
    try:
        # polib would open a text without a line end as the name of a file
        catalogue = polib.pofile("\n" + file.text, encoding=file.encoding)
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        raise unreadable(KIND_NAME) from None
    untranslated = _untranslated(catalogue, _places(file.text))
    newline = "\r\n" if "\r\n" in file.text else "\n"

    def write(segments: Sequence[Segment]) -> bytes:
        rest = iter(segments)
        parts, position = list[str](), 0
        for entry in untranslated:
            old = entry.segments
            new = [next(rest) for _ in old]
            # a segment that was not translated comes back as the same object
            if old and all(after is before for after, before in zip(new, old, strict=True)):
                continue
            for place, strings in zip(entry.places, entry.write(new, newline), strict=True):
                parts += [file.text[position : place.begin], strings]
                position = place.end
        return _encode(file, declared_charset, "".join([*parts, file.text[position:]]))

    return Document([segment for entry in untranslated for segment in entry.segments], write)


def _places(text: str) -> list[tuple[bool, list[_Strings]]]:
    """Return for each active message whether its `msgid` is empty, and the positions of its translations."""
    found = list[tuple[bool, list[_Strings]]]()
    strings: _Strings | None = None  # strings that the next line may continue
    for match in LINE.finditer(text):
        line = match[0].rstrip()
        keyword = KEYWORD.match(line)
        if keyword is None:
            if strings and line.lstrip().startswith('"'):
                strings.end = match.start() + len(line)
            continue
        strings = None
        if keyword[1] == "msgid":
            found.append((line[keyword.end() :] == '""', []))
        elif keyword[1] == "msgstr" and found:
            strings = _Strings(match.start() + keyword.end(), match.start() + len(line))
            found[-1][1].append(strings)
    return found


def _untranslated(catalogue: Any, places: list[tuple[bool, list[_Strings]]]) -> list[_Untranslated]:
    """Return the untranslated entries of polib, which has no entry for the head, with their positions.

    Raises Unreadable.
    """
    entries = [entry for entry in catalogue if not entry.obsolete]
    if len(places) == len(entries) + 1:
        head = next((number for number, (empty, _) in enumerate(places) if empty), 0)
        places = [*places[:head], *places[head + 1 :]]
    if len(places) != len(entries):
        raise unreadable(KIND_NAME)
    return [
        _Untranslated(entry, strings, [Message(text) for text in (entry.msgid, entry.msgid_plural) if text])
        for entry, (_, strings) in zip(entries, places, strict=True)
        if entry.msgid and strings and not (entry.msgstr or any(entry.msgstr_plural.values()))
    ]


def _gettext_strings(text: str, newline: str, wrapped: bool) -> str:
    """Return a text as strings of gettext, one for each line of the text; long lines are wrapped."""
    lines = [polib.escape(line) for line in text.splitlines(keepends=True)] or [""]
    if wrapped:
        lines = [part for line in lines for part in _wrap(line)]
    if len(lines) > 1:
        lines.insert(0, "")
    return newline.join(f'"{line}"' for line in lines)


def _wrap(line: str) -> list[str]:
    return textwrap.wrap(
        line, WIDTH, drop_whitespace=False, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _encode(file: DecodedText, declared_charset: str, text: str) -> bytes:
    """Return the file in its encoding, or in UTF-8 with a new head if the encoding lacks a character."""
    try:
        return file.encode(text, "strict")
    except UnicodeEncodeError:
        return text.replace(f"charset={declared_charset}", "charset=UTF-8", 1).encode()
