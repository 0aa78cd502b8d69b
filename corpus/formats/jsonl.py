"""JSON lines: one object a line. The members of the input are copied byte by byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from corpus.formats.text import decode
from corpus.line import BadLine, LineStatus


class JsonLines:
    """Objects; one member is the text.

    names: keys of the added members.
    key: name of the member with the text.
    """

    quoted = False

    def __init__(self, names: Sequence[str], key: str) -> None:
        self._names, self._key = names, key
        self.header = b""

    def read(self, raw: bytes) -> str | None:
        line = decode(raw)
        if not line.strip():
            raise BadLine(LineStatus.EMPTY, "an empty line")
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadLine(LineStatus.MALFORMED, f"not JSON: {error}") from None
        if not isinstance(value, dict):
            raise BadLine(LineStatus.MALFORMED, "not an object")
        taken = [name for name in self._names if name in value]
        if taken:
            raise BadLine(
                LineStatus.MALFORMED, f"has a member {taken[0]!r} already: give the new one another name"
            )
        text = value.get(self._key, 0)
        if text is None or isinstance(text, str):
            return text
        what = "no member" if self._key not in value else "no text in"
        raise BadLine(LineStatus.MALFORMED, f"{what} {self._key!r}")

    def write(self, raw: bytes, values: Sequence[Any], *, whole: bool) -> bytes:
        added = json.dumps(dict(zip(self._names, values, strict=True)), ensure_ascii=False).encode()
        if not whole:
            return added
        body = raw.strip()[:-1].rstrip()
        return body + (b"" if body == b"{" else b", ") + added[1:]
