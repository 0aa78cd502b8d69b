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
        # a reader at the other end of a pipe gets each line when it is made
        sys.stdout.reconfigure(encoding="utf-8", newline="\n", line_buffering=True)  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    with _replacing(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as out:
        yield out


def write(path: Path, content: bytes) -> None:
    """The whole file or nothing."""
    with _replacing(path) as partial:
        partial.write_bytes(content)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place when all went well."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
