"""Tables with a record on each line: `.csv` and `.tsv`. Quotes, empty fields and numbers stay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from documents.document import Document, unreadable
from documents.errors import Unreadable
from documents.formats.plain import DecodedText, decode_guessed
from documents.formats.strings.messages import Message, Value, is_for_programs, messages_document

DELIMITERS: Final = ",;\t|"
# a field, quoted or not, and the delimiter or line end after it
QUOTED: Final = r"\"((?:[^\"]|\"\")*+)\""
FIELDS: Final = {
    delimiter: re.compile(rf"(?:{QUOTED}|([^{delimiter}\r\n]*+))({delimiter}|\r\n?|\n|\Z)")
    for delimiter in map(re.escape, DELIMITERS)
}
FORMULA: Final = "="  # first character of a formula of spreadsheets
NAME: Final = re.compile(r"[a-z0-9_.:-]*")  # of a column that programs read
NUMBER_DIGITS: Final = 9  # most digits of a column's number
MAX_HEAD_CHARACTERS: Final = 65_536  # characters in which the delimiter is searched


@dataclass(frozen=True, slots=True)
class _TableField:
    """A field of a record.

    column: number of its column.
    begin, end: characters of its value in the file, without quotation marks.
    text: value.
    quoted: the value is between quotation marks.
    """

    column: int
    begin: int
    end: int
    text: str
    quoted: bool


def read_csv(data: bytes, *, columns: Sequence[str] = ()) -> Document:
    """Return the texts of a table whose fields are separated by commas, semicolons, tabs or bars.

    data: bytes of the file.
    columns: names of the columns to be translated, from the first record, or their numbers; default: all.

    A first record of names for programs stays, and so does one whose columns are chosen. Raises Unreadable.
    """
    file = decode_guessed(data)
    return _read(file, _delimiter(file.text[:MAX_HEAD_CHARACTERS]), columns)


def read_tsv(data: bytes, *, columns: Sequence[str] = ()) -> Document:
    """Return the texts of a table with tabs, like `read_csv`."""
    file = decode_guessed(data)
    return _read(file, "\t", columns)


def _read(file: DecodedText, delimiter: str, columns: Sequence[str]) -> Document:
    head, values = list[str](), list[Value]()
    chosen: frozenset[int] | None = None
    for number, record in enumerate(_records(file.text, delimiter)):
        if number == 0:
            head = [field.text.strip() for field in record]
            chosen = _chosen(head, columns) if columns else None
            if columns or all(map(NAME.fullmatch, head)):
                continue
        for field in record:
            name = head[field.column] if field.column < len(head) else ""
            if chosen is not None and field.column not in chosen:
                continue
            if not is_for_programs(name, field.text) and not field.text.startswith(FORMULA):
                write = partial(_written, delimiter=delimiter, quoted=field.quoted)
                values.append(Value(field.begin, field.end, Message(field.text), write))
    return messages_document(file.text, values, file.encode, file.notices)


def _records(text: str, delimiter: str) -> Iterator[list[_TableField]]:
    """Yield the fields of each record. Raises Unreadable on a quotation mark that is not closed."""
    pattern, record = FIELDS[re.escape(delimiter)], list[_TableField]()
    position = len(text) - len(text.removeprefix("\ufeff"))
    while position < len(text) or record:
        match = pattern.match(text, position)
        if match is None:
            raise unreadable("a table with commas or tabs")
        quoted = match[1] is not None
        raw = match[1] if quoted else match[2]
        begin, end = match.span(1 if quoted else 2)
        record.append(_TableField(len(record), begin, end, raw.replace('""', '"') if quoted else raw, quoted))
        position = match.end()
        if match[3] != delimiter:
            yield record
            record = []


def _delimiter(head: str) -> str:
    """Return the delimiter that the first line has most often outside of quotation marks."""
    outside = re.sub(r"\"[^\"]*+\"", "", head).lstrip("\ufeff\r\n").splitlines() or [""]
    return max(DELIMITERS, key=outside[0].count)


def _chosen(head: Sequence[str], columns: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the columns with these names or numbers. Raises Unreadable on another."""
    found, named = set[int](), dict[str, list[int]]()
    for number, name in enumerate(head):
        named.setdefault(name, []).append(number)
    for column in columns:
        if column in named:
            found.update(named[column])
        elif column.isdecimal() and len(column) <= NUMBER_DIGITS and 0 < int(column) <= len(head):
            found.add(int(column) - 1)
        else:
            raise Unreadable(f"the table has no column {column[:80]!r}; its first line is {head!r:.300}")
    return frozenset(found)


def _written(text: str, delimiter: str, quoted: bool) -> str:
    """Return a value in the syntax of the file; quotation marks are added if it needs them."""
    escaped = text.replace('"', '""')
    needs = any(sign in text for sign in (delimiter, "\r", "\n")) or text.startswith('"')
    return escaped if quoted else f'"{escaped}"' if needs else text
