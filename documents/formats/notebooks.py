"""Notebooks of Jupyter (.ipynb): the Markdown of their cells; code, outputs and metadata stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from documents.document import Document, unreadable
from documents.formats.markdown import read_markdown
from documents.formats.plain import decode
from documents.spans import Segment

TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"(\s*+:)?|[{}\[\]]')
CELL_DEPTH: Final = 3  # brackets around the fields of a cell: {"cells": [{...}]}


@dataclass(slots=True)
class _Cell:
    """A cell of a notebook.

    kind: type of the cell.
    strings: characters [begin, end) of each string of its source.
    is_list: the source is a list of lines, and not one string.
    """

    kind: str = ""
    strings: list[tuple[int, int]] = field(default_factory=list)
    is_list: bool = False


def read_ipynb(data: bytes) -> Document:
    """Return the prose of the Markdown cells of a notebook. Raises Unreadable."""
    file = decode(data)
    _check_version(file.text)
    escaped = file.text.isascii() and "\\u" in file.text
    cells = [cell for cell in _cells(file.text) if cell.kind == "markdown" and cell.strings]
    sources = ["".join(json.loads(file.text[begin:end]) for begin, end in cell.strings) for cell in cells]
    pages = [read_markdown(source.encode("utf-8", "replace")) for source in sources]

    def write(segments: Sequence[Segment]) -> bytes:
        rest, parts, position = iter(segments), list[str](), 0
        for cell, page in zip(cells, pages, strict=True):
            new = list(islice(rest, len(page.segments)))
            if all(after is before for after, before in zip(new, page.segments, strict=True)):
                continue
            source = page.write(new).decode()
            begin, end = cell.strings[0][0], cell.strings[-1][1]
            parts += [file.text[position:begin], _strings(file.text, cell, source, escaped)]
            position = end
        return file.encode("".join([*parts, file.text[position:]]))

    return Document([segment for page in pages for segment in page.segments], write)


def _check_version(text: str) -> None:
    """Raise Unreadable unless a text is a notebook of version 4, which has cells."""
    try:
        book = json.loads(text)
    except (ValueError, RecursionError):
        raise unreadable("a notebook") from None
    if not isinstance(book, dict) or not isinstance(book.get("cells"), list):
        raise unreadable("a notebook of version 4")


def _strings(text: str, cell: _Cell, source: str, escaped: bool) -> str:
    """Return the source of a cell in JSON: one string, or a list of lines with the indentation of the old.

    text: the file.
    cell: the cell.
    source: new source.
    escaped: letters outside of ASCII are escaped.
    """
    if not cell.is_list:
        return json.dumps(source, ensure_ascii=escaped)
    before = text[: cell.strings[0][0]]
    space = before[len(before.rstrip()) :]
    lines = source.splitlines(keepends=True) or [""]
    return f",{space}".join(json.dumps(line, ensure_ascii=escaped) for line in lines)


def _cells(text: str) -> Iterator[_Cell]:
    """Yield the cells of a notebook that `json` has parsed."""
    keys, depth, cell = dict[int, str](), 0, _Cell()
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in "{[":
            depth += 1
            if depth == CELL_DEPTH:
                cell = _Cell()
            cell.is_list = cell.is_list or (depth == CELL_DEPTH + 1 and keys.get(CELL_DEPTH) == "source")
        elif token in "}]":
            if depth == CELL_DEPTH and keys.get(1) == "cells":
                yield cell
            depth -= 1
        elif match[1] is not None:
            keys[depth] = json.loads(token[: -len(match[1])])
        elif depth in (CELL_DEPTH, CELL_DEPTH + 1) and keys.get(CELL_DEPTH) == "source":
            cell.strings.append(match.span())
        elif depth == CELL_DEPTH and keys.get(depth) == "cell_type":
            cell.kind = json.loads(token)
