"""Read files that may be packed by gzip or Zstandard, with limits on their unpacked size."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, Any, Final

from engine.errors import CheckpointError

PACKED_SUFFIXES: Final = (".gz", ".zst")
MAX_UNPACKED_BYTES: Final = 2**31
# ratio of unpacked to packed bytes: weights have 2, word lists 20, archives made to fill memory 1,000
MOST_EXPANSION: Final = 100
CHUNK_BYTES: Final = 2**20


def plain_name(path: Path) -> str:
    """Return a file's name without the suffix of its packing."""
    return path.name.removesuffix(path.suffix) if path.suffix in PACKED_SUFFIXES else path.name


def contents(path: Path) -> bytes:
    """Return the content of a file, unpacked if its suffix says so.

    Raises CheckpointError that names the file, also if its unpacked size exceeds the limit.
    """
    try:
        size = path.stat().st_size
        most = (
            min(MAX_UNPACKED_BYTES, MOST_EXPANSION * size + CHUNK_BYTES)
            if path.suffix in PACKED_SUFFIXES
            else MAX_UNPACKED_BYTES
        )
        if size > MAX_UNPACKED_BYTES:
            raise CheckpointError(
                f"{path}: has {size:,} bytes, more than any model's file; is it the right one?"
            )
        with open_packed(path) as file:
            return _read_at_most(file, most, path)
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(
            f"{path}: not readable, damaged or incomplete ({error}); download it again"
        ) from error


def _read_at_most(file: IO[bytes], most: int, path: Path) -> bytes:
    """Read a file to its end. Raises CheckpointError for more than `most` bytes."""
    data = bytearray()
    while chunk := file.read(CHUNK_BYTES):
        data += chunk
        if len(data) > most:
            raise CheckpointError(
                f"{path}: unpacks to more than {most:,} bytes, so it is not a file of a model"
            )
    return bytes(data)


def open_packed(path: Path) -> Any:
    """Open a file to read its unpacked content, by the suffix of its packing."""
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return _open_zstandard(path) if path.suffix == ".zst" else path.open("rb")


def _open_zstandard(path: Path) -> Any:
    """Open a file packed by Zstandard."""
    import zstandard

    file = path.open("rb")
    try:
        # the file decides the size of the window: allow zstd's own limit without --long
        reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
            file, read_across_frames=True, closefd=True
        )
    except BaseException:
        file.close()
        raise
    return _Frames(reader)


class _Frames:
    """Reads Zstandard frames and raises OSError like gzip."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader

    def __enter__(self) -> _Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()

    def read(self, size: int) -> bytes:
        import zstandard

        try:
            return bytes(self.reader.read(size))
        except zstandard.ZstdError as error:
            raise OSError(str(error)) from error
