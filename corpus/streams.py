"""Bytes of a file wherever it lies, decompressed, with bombs and truncations noticed."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from typing import IO, Any, Final, cast

BUFFER_BYTES: Final = 1 << 20
ZSTD_PIECE_BYTES: Final = 1 << 10  # of input at a time: it may become 32,768 times as much
ZSTD_WINDOW_BYTES: Final = 1 << 27
# a file that has become this much, and this many times its size, is no text that somebody wrote
BOMB_BYTES: Final = 1 << 28
BOMB_EXPANSION: Final = 200
# how files begin that are not what their names say
SIGNATURES: Final = {
    b"\x1f\x8b": ("gzip", "let its name end with .gz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "let its name end with .zst"),
    b"BZh": ("bzip2", "decompress it, or compress it with gzip or zstd"),
    b"\xfd7zXZ": ("xz", "decompress it, or compress it with gzip or zstd"),
    b"PK\x03\x04": ("a zip archive", "unpack it"),
    b"PAR1": ("Parquet", "let its name end with .parquet"),
    b"\xff\xfe": ("UTF-16", "convert it to UTF-8, for instance with iconv"),
    b"\xfe\xff": ("UTF-16", "convert it to UTF-8, for instance with iconv"),
}
DAMAGED: Final = (EOFError, gzip.BadGzipFile, zlib.error)


class DamagedInput(Exception):
    """A file that can't be read, or not to its end; the message says why."""


class DecompressionBomb(DamagedInput):
    """A file that becomes far more than text would; nothing of it is wanted."""


def is_remote(path: str) -> bool:
    return "://" in path


def open_bytes(path: str) -> IO[bytes]:
    """Open a file for reading, here or at a URL that fsspec knows. Raises OSError."""
    if not is_remote(path):
        return open(path, "rb")  # noqa: SIM115 - the caller closes it
    import fsspec

    return cast(IO[bytes], fsspec.open(path, "rb").open())


def size_of(path: str) -> int:
    """Tell how many bytes a file has. Raises OSError."""
    if not is_remote(path):
        return os.stat(path).st_size
    import fsspec

    filesystem, inner = fsspec.core.url_to_fs(path)
    return int(filesystem.size(inner) or 0)


def open_stream(path: str, compression: str) -> io.BufferedReader:
    """Open a file's bytes, decompressed.

    path: here, or a URL.
    compression: "gz", "zst" or none ("").

    Raises OSError, and DamagedInput when its content is of another kind than its name says. Reading raises
    DamagedInput where the file is damaged, ends too early, or is a bomb.
    """
    raw = open_bytes(path)
    try:
        begin = raw.read(8)
        raw.seek(0)
        _check_kind(begin, compression)
        if not compression:
            return io.BufferedReader(cast(io.RawIOBase, raw), BUFFER_BYTES)
        unpacked = gzip.GzipFile(fileobj=raw) if compression == "gz" else _Zstd(raw)
        return io.BufferedReader(_Guarded(unpacked, raw, size_of(path)), BUFFER_BYTES)
    except BaseException:
        raw.close()
        raise


def _check_kind(begin: bytes, compression: str) -> None:
    expected = {"gz": "gzip", "zst": "zstd"}.get(compression)
    for signature, (kind, remedy) in SIGNATURES.items():
        if begin.startswith(signature) and kind != expected:
            raise DamagedInput(f"is {kind}: {remedy}")


class _Guarded(io.RawIOBase):
    """Decompressed bytes; what is wrong with them becomes DamagedInput."""

    def __init__(self, unpacked: gzip.GzipFile | _Zstd, packed: IO[bytes], size: int) -> None:
        self._unpacked, self._packed, self._size, self._count = unpacked, packed, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            block = self._unpacked.read1(len(view))  # what comes before the damage is whole
        except DAMAGED as error:
            raise DamagedInput(f"damaged or cut off: {error}") from None
        self._count += len(block)
        if self._count > BOMB_BYTES and self._count > BOMB_EXPANSION * self._size:
            raise DecompressionBomb(
                f"{self._size:,} bytes have become {self._count:,}: a decompression bomb? Decompress it first"
            )
        view[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._packed.close()
        super().close()


class _Zstd:
    """Reads zstd; `ZstdDecompressor.stream_reader` takes a file that was cut off for a whole one."""

    def __init__(self, packed: IO[bytes]) -> None:
        try:
            import zstandard
        except ModuleNotFoundError:
            packed.close()
            raise
        self._packed, self._left = packed, b""
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._frame: Any = None
        self._unpacked = io.BytesIO()
        self._error: type[Exception] = zstandard.ZstdError

    def read1(self, count: int) -> bytes:
        while not (block := self._unpacked.read(count)):
            piece = self._left or self._packed.read(ZSTD_PIECE_BYTES)
            if not piece:
                if self._frame is not None:
                    raise EOFError("zstd ended before the end of its frame")
                return b""
            self._frame = self._frame or self._decompressor.decompressobj()
            try:
                self._unpacked = io.BytesIO(self._frame.decompress(piece))
            except self._error as error:
                raise EOFError(str(error)) from None
            self._left = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        return block
