"""Plain text: one text a line. Several columns are separated by tabs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from corpus.line import BadLine, LineStatus

BREAKS: Final = re.compile(r"[\r\n]+")


class TextLines:
    """The format of lines that are texts."""

    quoted = False

    def __init__(self, names: Sequence[str]) -> None:
        self._alone = len(names) == 1
        self.header = b""

    def read(self, raw: bytes) -> str | None:
        return decode(raw)

    def write(self, raw: bytes, values: Sequence[Any], *, whole: bool) -> bytes:
        if self._alone:
            return BREAKS.sub(" ", to_cell(values[0])).encode()
        return "\t".join(tab_free(to_cell(value)) for value in values).encode()


def decode(raw: bytes) -> str:
    """Decode UTF-8. Raises BadLine."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadLine(LineStatus.ENCODING, f"not UTF-8: {error.reason} at byte {error.start}") from None


def to_cell(value: Any) -> str:
    """Return a value as text: lists as JSON, None as an empty text."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)


def tab_free(cell: str) -> str:
    return BREAKS.sub(" ", cell).replace("\t", " ")
