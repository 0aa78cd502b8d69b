"""TSV without quotes, and CSV (RFC 4180). The columns of the input are copied byte by byte."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, Final

from corpus.formats.text import decode, tab_free, to_cell
from corpus.line import BadLine, LineStatus
from engine.api import InvalidRequest

LINE_END: Final = "\r\n"  # both characters, so that cells with either are quoted


class Delimited:
    """Rows of cells; one cell is the text.

    names: header cells of the added columns.
    column: column of the text: its name, or its number from 1 in a file without a header.
    header: first row of the file; empty: no header.
    quoted: CSV instead of TSV.
    """

    def __init__(self, names: Sequence[str], column: str, header: bytes, *, quoted: bool) -> None:
        self.quoted = quoted
        self._width = 0
        self.header = b""
        if not header:
            self._index = int(column) - 1
            return
        columns = self._cells(_decode_header(header))
        taken = sorted(set(columns) & set(names))
        if column not in columns:
            raise InvalidRequest(f"has no column {column!r}, but {', '.join(columns)}")
        if taken:
            raise InvalidRequest(
                f"has a column {taken[0]!r} already: give the new one another name, as in --columns "
                f"{taken[0]}=new_{taken[0]}"
            )
        self._index, self._width = columns.index(column), len(columns)
        self.header = header + self._added_cells(names) + b"\n"

    def read(self, raw: bytes) -> str | None:
        cells = self._cells(decode(raw))
        if self._index >= len(cells) or (self._width and len(cells) != self._width):
            expected = self._width or f"at least {self._index + 1}"
            raise BadLine(LineStatus.MALFORMED, f"{len(cells)} cells instead of {expected}")
        return cells[self._index]

    def write(self, raw: bytes, values: Sequence[Any], *, whole: bool) -> bytes:
        if not whole:
            cells = self._cells(raw.decode("utf-8", "replace"), strict=False)
            if self._width:  # pad or cut a malformed row to the columns of the header
                cells = [*cells, *[""] * self._width][: self._width]
            raw = self._join(cells)
        return raw + self._added_cells(values)

    def _cells(self, row: str, *, strict: bool = True) -> list[str]:
        """Return the cells of a row; if `strict`, raise BadLine on broken quotes."""
        if not self.quoted:
            return row.split("\t")
        try:
            return next(csv.reader(io.StringIO(row, newline=""), strict=strict), [""])
        except csv.Error as error:
            raise BadLine(LineStatus.MALFORMED, str(error)) from None

    def _added_cells(self, values: Sequence[Any]) -> bytes:
        separator = b"," if self.quoted else b"\t"
        return separator + self._join([to_cell(value) for value in values])

    def _join(self, cells: Sequence[str]) -> bytes:
        """Return the cells as a row without a line end."""
        if not self.quoted:
            return "\t".join(map(tab_free, cells)).encode()
        out = io.StringIO()
        csv.writer(out, lineterminator=LINE_END).writerow(cells)
        return out.getvalue().removesuffix(LINE_END).encode()


def is_number(column: str) -> bool:
    """Return whether a column is given by its number; the file then has no header."""
    return column.isascii() and column.isdecimal() and int(column) > 0


def _decode_header(header: bytes) -> str:
    try:
        return header.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("the header is not UTF-8: convert the file, for instance with iconv") from None
