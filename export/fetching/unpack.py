"""Unpack files of gzip and Zstandard, with limits on their unpacked size."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Final

from engine.errors import CheckpointError
from export.importers.marian.compressed import MAX_UNPACKED_BYTES, MOST_EXPANSION, open_packed

CHUNK: Final = 2**20  # bytes


def unpack(packed: Path, target: Path, size: int | None) -> None:
    """Unpack a file by the suffix of its name.

    packed: packed file, *.gz or *.zst.
    target: unpacked file.
    size: number of unpacked bytes; None: unknown, then a limit depends on the packed size.

    Raises CheckpointError if the file is damaged or unpacks to more bytes; `target` is then incomplete.
    """
    most = size if size is not None else MOST_EXPANSION * packed.stat().st_size + CHUNK
    most, written = min(most, MAX_UNPACKED_BYTES), 0
    try:
        with open_packed(packed) as file, target.open("wb") as out:
            while chunk := file.read(CHUNK):
                written += len(chunk)
                if written > most:
                    raise CheckpointError(f"{packed.name}: unpacks to more than {most:,} bytes")
                out.write(chunk)
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CheckpointError(f"{packed.name}: damaged, or the disk is full ({error})") from error
