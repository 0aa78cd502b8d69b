"""Messages of Project Fluent (.ftl): patterns of messages, attributes and variants; terms stay."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from documents.document import Document
from documents.formats.plain import decode
from documents.formats.strings.messages import Message, Value, messages_document

MESSAGE: Final = re.compile(r"[a-zA-Z][\w-]*+ *+= *+")
ATTRIBUTE: Final = re.compile(r" ++\.[a-zA-Z][\w-]*+ *+= *+")
VARIANT: Final = re.compile(r" *+\*?\[ *+[\w.-]++ *+\] *+")
SELECTS: Final = re.compile(r"\{[^{}]*-> *$")  # the begin of variants at the end of a line
ENDS: Final = re.compile(r" *+\}")
INDENT: Final = re.compile(r"\n *")
LINE: Final = re.compile(r"[^\n]*+\n|[^\n]++")
SYNTAX: Final = "[*.}"  # signs that don't begin a line of a pattern


@dataclass(slots=True)
class _Pattern:
    """A pattern: characters [begin, end) of a file; `indent` is the white space before its further lines."""

    begin: int
    end: int
    indent: str = ""


def read_fluent(data: bytes) -> Document:
    """Return the messages of a Fluent file; placeables and the names of variants stay. Raises Unreadable."""
    file = decode(data)
    values = [
        Value(pattern.begin, pattern.end, Message(_dedented(source)), _Indented(pattern.indent))
        for pattern in _patterns(file.text)
        if (source := file.text[pattern.begin : pattern.end]).strip()
    ]
    return messages_document(file.text, values, file.encode)


def _dedented(source: str) -> str:
    return INDENT.sub("\n", source.replace("\r\n", "\n"))


@dataclass(frozen=True, slots=True)
class _Indented:
    """Writes a text as a pattern: its further lines get an indent."""

    indent: str

    def __call__(self, text: str) -> str:
        first, *rest = text.split("\n")
        safe = (f'{{ "{line[0]}" }}{line[1:]}' if line[:1] in SYNTAX and line else line for line in rest)
        return "".join([first, *(f"\n{self.indent or '    '}{line}" if line else "\n" for line in safe)])


def _continue(pattern: _Pattern, text: str, at: int, line: str) -> None:
    """Add a line to the pattern before it.

    pattern: pattern that the line continues.
    text: text of the file.
    at: position of the line.
    line: line without its end.
    """
    indent = line[: len(line) - len(line.lstrip())]
    if not text[pattern.begin : pattern.end].strip():  # the pattern begins on its own line
        pattern.begin = at + len(indent)
    pattern.indent, pattern.end = pattern.indent or indent, at + len(line)


def _begins_other(line: str) -> bool:
    """Return whether a line begins a comment, a term or other text."""
    return bool(line.strip()) and not line[0].isspace() and not ENDS.match(line)


def _patterns(text: str) -> list[_Pattern]:
    """Return the patterns of a file, in order; a comment, a term or other text ends a pattern."""
    found = list[_Pattern]()
    pattern: _Pattern | None = None  # that the next line may continue
    selects, in_message = 0, False
    for match in LINE.finditer(text):
        line, at = match[0].rstrip("\r\n"), match.start()
        head = MESSAGE.match(line)
        if head or _begins_other(line):
            in_message, selects = head is not None, 0
        elif in_message and not (head := ATTRIBUTE.match(line)) and selects:
            head = VARIANT.match(line) or ENDS.match(line)
            selects -= bool(head and head.re is ENDS)
        if not in_message:
            pattern = None
        elif head:
            pattern = _Pattern(at + head.end(), at + len(line))
            found.append(pattern)
        elif pattern and line.strip():
            _continue(pattern, text, at, line)
        if pattern and (select := SELECTS.search(line)):
            pattern.end = at + select.start()
            selects += 1
            pattern = None
    return found
