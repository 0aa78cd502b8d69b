"""Text in and out: strict UTF-8, one line each, files never half written."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

from engine.errors import InvalidRequest


def read(path: Path | None) -> Iterator[str]:
    """Lines of a file, or of standard input, without their ends. Only a line feed ends a line.

    Raises InvalidRequest that names the line when it is not UTF-8.
    """
    if path is None:
        yield from _decode(sys.stdin.buffer, "standard input")
        return
    with path.open("rb") as stream:
        yield from _decode(stream, str(path))


def _decode(stream: IO[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(stream, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"{name}, line {number}: not UTF-8; convert it, for instance with iconv"
            ) from None


@contextmanager
def writing(path: Path | None) -> Iterator[TextIO]:
    """A stream to a file that appears complete or not at all, or to standard output."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as out:
            yield out
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
