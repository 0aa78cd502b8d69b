"""Reads and writes lines: strict UTF-8, and files that are complete or missing."""

from __future__ import annotations

import codecs
import gzip
import os
import queue
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Final, TextIO

from engine.errors import InvalidRequest

GZIP: Final = b"\x1f\x8b"
BLOCK: Final = 1 << 20  # bytes read at a time
MAX_ARRIVED: Final = 4_096  # lines of a slow stream that are read and not answered


def read(path: Path | None) -> Iterator[str]:
    """Yield the lines of a file, or of standard input, without their ends. Only a line feed ends a line.

    Raises InvalidRequest with the number of the line if it is not UTF-8.
    """
    if path is None:
        # not sys.stdin: Python can't end while a thread reads it
        with open(sys.stdin.fileno(), "rb", closefd=False) as stream:
            yield from _decode(stream, "standard input")
        return
    with path.open("rb") as stream:
        yield from _decode(stream, str(path))


def _decode(stream: IO[bytes], name: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 stream without line ends. Raises InvalidRequest."""
    for number, line in enumerate(stream, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"{name}, line {number}: not UTF-8; convert it, for instance with iconv"
            ) from None


def arrives_slowly(path: Path | None) -> bool:
    """Return whether a file, or standard input if None, is a terminal, a pipe or another stream."""
    mode = os.fstat(sys.stdin.fileno()).st_mode if path is None else path.stat().st_mode
    return not stat.S_ISREG(mode)


def arriving(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield the lines of a slow stream as they arrive: all that have been read since the last time.

    A thread reads the lines, so that an answer does not wait for the next line.
    """
    arrived: queue.Queue[str | Exception | None] = queue.Queue(MAX_ARRIVED)

    def feed() -> None:
        """Queue the lines, then None, or the error that ended them."""
        try:
            for line in lines:
                arrived.put(line)
        except Exception as error:  # noqa: BLE001 - raised in its turn
            arrived.put(error)
        else:
            arrived.put(None)

    threading.Thread(target=feed, name="convoy-lines", daemon=True).start()
    last: str | Exception | None = ""
    while isinstance(last, str):
        items = [arrived.get()]
        while not arrived.empty() and len(items) < MAX_ARRIVED:
            items.append(arrived.get())
        batch = [item for item in items if isinstance(item, str)]
        if batch:
            yield batch
        last = items[-1]
    if last is not None:
        raise last


def table(path: Path) -> list[str]:
    """Return all lines of a file, gzipped or not; only a line feed ends a line.

    Raises InvalidRequest if the file is not UTF-8.
    """
    data = path.read_bytes()
    if data.startswith(GZIP):
        data = gzip.decompress(data)
    try:
        # `splitlines` would also split at other separators
        return data.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None


def columns(rows: list[str], path: Path, source: int, target: int) -> list[tuple[str, str]]:
    """Return two columns of tab separated rows of a file.

    rows: lines with cells separated by tabs.
    path: name of the file in error messages.
    source, target: numbers of the columns, from 0.

    Raises InvalidRequest on a row with too few columns.
    """
    pairs = []
    for number, row in enumerate(rows, 1):
        cells = row.split("\t")
        if len(cells) <= max(source, target):
            raise InvalidRequest(
                f"{path}, line {number}: only {len(cells)} columns; choose --source-column and "
                "--target-column, or give references by --reference"
            )
        pairs.append((cells[source], cells[target]))
    return pairs


@contextmanager
def writing(path: Path | None) -> Iterator[TextIO]:
    """Yield a stream to standard output, or to a file that gets its name when it is complete."""
    if path is None:
        # the reader of a pipe gets each line at once
        sys.stdout.reconfigure(encoding="utf-8", newline="\n", line_buffering=True)  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    with _replacing(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as out:
        yield out


def write(path: Path, content: bytes) -> None:
    """Write a file; after an error there is no file."""
    with _replacing(path) as partial:
        partial.write_bytes(content)


def count(path: Path | None) -> int | None:
    """Return the number of lines of a file; None for standard input, and if no progress bar is shown."""
    if path is None or not path.is_file() or not sys.stderr.isatty():
        return None
    lines, last = 0, b"\n"
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces `path` unless there is an error."""
    from engine.bundle.folder import replacing_file

    if path.is_dir():
        raise InvalidRequest(f"{path}: is a folder; give a file")
    if not path.parent.is_dir():
        raise InvalidRequest(f"{path}: folder {path.parent} does not exist; make it first")
    with _unwound_by_sigterm():
        try:
            with replacing_file(path) as partial:
                yield partial
        except OSError as error:
            if Path(error.filename or "").suffix == ".partial":
                error.filename = str(path)  # the path of the user
            raise


@contextmanager
def _unwound_by_sigterm() -> Iterator[None]:
    """Have SIGTERM raise SystemExit, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
