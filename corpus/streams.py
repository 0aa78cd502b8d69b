"""Decompressed bytes of a local or remote file; bombs and truncated files raise an error."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from typing import IO, Any, Final, cast

BUFFER_BYTES: Final = 1 << 20
ZSTD_PIECE_BYTES: Final = 1 << 10  # bytes decompressed at a time: they may become 32,768 times as many
ZSTD_WINDOW_BYTES: Final = 1 << 27
# a file that becomes larger than both limits is no text written by people
BOMB_BYTES: Final = 1 << 28
BOMB_EXPANSION: Final = 200
# first bytes of formats that a name without their ending hides
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
    """A file can't be read to its end; the message is the reason."""


class DecompressionBomb(DamagedInput):
    """A file expands far more than text would; none of its lines are used."""


def is_remote(path: str) -> bool:
    return "://" in path


def open_bytes(path: str) -> IO[bytes]:
    """Open a local file, or a URL that fsspec supports, for reading. Raises OSError."""
    if not is_remote(path):
        return open(path, "rb")  # noqa: SIM115 - the caller closes it
    import fsspec

    return cast(IO[bytes], fsspec.open(path, "rb").open())


def size_of(path: str) -> int:
    """Return the number of bytes of a file. Raises OSError."""
    if not is_remote(path):
        return os.stat(path).st_size
    import fsspec

    filesystem, inner = fsspec.core.url_to_fs(path)
    return int(filesystem.size(inner) or 0)


def open_stream(path: str, compression: str) -> io.BufferedReader:
    """Return a stream of the decompressed bytes of a file.

    path: local path, or a URL.
    compression: "gz", "zst" or none ("").

    Raises OSError, and DamagedInput if the content has another format than the name promises. Reading raises
    DamagedInput if the file is damaged, truncated, or a bomb.
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
    """Check that a file has the format that its name promises.

    begin: first bytes of the file.
    compression: format by the file name: "gz", "zst" or none ("").

    Raises DamagedInput if the bytes are the signature of another format.
    """
    expected = {"gz": "gzip", "zst": "zstd"}.get(compression)
    for signature, (kind, remedy) in SIGNATURES.items():
        if begin.startswith(signature) and kind != expected:
            raise DamagedInput(f"is {kind}: {remedy}")


class _Guarded(io.RawIOBase):
    """A stream of decompressed bytes. Raises DamagedInput for damaged data and for bombs; counts the bytes
    that it returned."""

    def __init__(self, unpacked: gzip.GzipFile | _Zstd, packed: IO[bytes], size: int) -> None:
        self._unpacked, self._packed, self._size, self._count = unpacked, packed, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read unpacked bytes. Raises DamagedInput and DecompressionBomb."""
        view = memoryview(buffer)
        try:
            block = self._unpacked.read1(len(view))  # the bytes before the damage are correct
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
    """Reads zstd and detects truncated files, unlike `ZstdDecompressor.stream_reader`."""

    def __init__(self, packed: IO[bytes]) -> None:
        try:
            import zstandard
        except ModuleNotFoundError:
            packed.close()
            raise
        self._packed, self._left = packed, b""  # _left: compressed bytes after the last frame
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._frame: Any = None
        self._unpacked = io.BytesIO()
        self._error: type[Exception] = zstandard.ZstdError

    def read1(self, count: int) -> bytes:
        """Return at most `count` unpacked bytes of one or more frames; empty: the end."""
        while not (block := self._unpacked.read(count)):
            piece = self._left or self._packed.read(ZSTD_PIECE_BYTES)
            if not piece:
                if self._frame is not None:
                    raise EOFError("zstd ended before the end of its frame")
                return b""
            # a file may have several frames, one after the other
            self._frame = self._frame or self._decompressor.decompressobj()
            try:
                self._unpacked = io.BytesIO(self._frame.decompress(piece))
            except self._error as error:
                raise EOFError(str(error)) from None
            self._left = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        return block
