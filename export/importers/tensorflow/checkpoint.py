"""Read TensorFlow's checkpoints without TensorFlow.

A checkpoint of the second format (since TensorFlow 0.12) is an index, a LevelDB table whose values are
protocol buffers, and shards of plain numbers. Every size, offset and checksum is compared with the file
before memory is allocated. Variables may also be in an .npz file.
Formats: tensorflow/core/util/tensor_bundle, core/lib/io/format.cc and core/protobuf/tensor_bundle.proto.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import google_crc32c
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from engine.errors import CheckpointError

Variables = dict[str, NDArray[Any]]
MAGIC: Final = 0xDB4775248B80FB57
FOOTER: Final = 48  # bytes
TRAILER: Final = 5  # bytes after a block: kind of compression, checksum
LARGEST_INDEX: Final = 1 << 26
MAX_AXES: Final = 8
DTYPES: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    14: np.dtype(ml_dtypes.bfloat16),
    19: np.dtype("<f2"),
}
NEWEST: Final = re.compile(r'^model_checkpoint_path: "([^"]+)"', re.MULTILINE)
# variables of training: moments and powers of optimisers, averages, the number of the step
TRAINING: Final = re.compile(
    r"(^|/)(Adam\w*|Adafactor\w*|Momentum|vr|vc|v|m|beta[12]_power|global_step|loss_scale\w*)$|^(training|losses_avg)/"
)


class DamagedFile(Exception):
    """The content of a file is inconsistent."""


class Entry(NamedTuple):
    """Index entry of a variable.

    dtype: TensorFlow's id of the type.
    shard: number of the file.
    offset, size: position and length in the file, in bytes.
    checksum: masked CRC-32C of the bytes.
    sliced: whether the variable is stored in slices.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


def read_variables(folder: Path, checkpoint: str | None) -> tuple[Path, Variables]:
    """Return the path of a folder's checkpoint, and its floating-point variables without those of training.

    folder: folder of the model.
    checkpoint: name of the checkpoint ("model.ckpt-250000", "weights.npz"); None: the one that the file
        `checkpoint` names, or the only one.

    Raises CheckpointError that names a missing or damaged file.
    """
    path = _find(folder, checkpoint)
    try:
        reader = _read_npz if path.suffix == ".npz" else _read_checkpoint
        return path, reader(path, lambda name: not TRAINING.search(name))
    except (DamagedFile, OSError, ValueError, zipfile.BadZipFile, struct.error) as error:
        raise CheckpointError(f"{path}: not a readable checkpoint ({error}); copy it again") from error


def _find(folder: Path, checkpoint: str | None) -> Path:
    """Return the index file or .npz of a checkpoint. Raises CheckpointError if it is missing or ambiguous."""
    if checkpoint is None and (folder / "checkpoint").is_file():
        text = (folder / "checkpoint").read_bytes()[:65536].decode("utf-8", "replace")
        named = NEWEST.search(text)
        checkpoint = Path(named[1]).name if named else None
    if checkpoint is not None:
        for path in (folder / f"{checkpoint}.index", folder / checkpoint):
            if path.is_file():
                return path
        raise CheckpointError(
            f"{folder}: there is no checkpoint {checkpoint!r}, neither {checkpoint}.index nor .npz"
        )
    paths = sorted([*folder.glob("*.index"), *folder.glob("*.npz")])
    if len(paths) == 1:
        return paths[0]
    if not paths:
        raise CheckpointError(f"{folder}: holds no checkpoint, neither *.index nor *.npz")
    names = [path.name for path in paths]
    raise CheckpointError(f"{folder}: holds several checkpoints {names}; name one with --checkpoint")


def _read_npz(path: Path, predicate: Callable[[str], bool]) -> Variables:
    """Return the float arrays of a numpy archive whose names pass `predicate`."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise DamagedFile("it holds a member twice")
    with np.load(path, allow_pickle=False) as arrays:
        return {n: arrays[n] for n in arrays.files if predicate(n) and arrays[n].dtype.kind == "f"}


def _read_checkpoint(index: Path, predicate: Callable[[str], bool]) -> Variables:
    """Return the variables of a checkpoint whose names pass `predicate`. Raises DamagedFile."""
    if index.stat().st_size > LARGEST_INDEX:
        raise DamagedFile(f"an index of more than {LARGEST_INDEX} bytes")
    entries = dict(_table(index.read_bytes()))
    shards = _shards(entries.pop(b"", b""))
    variables: Variables = {}
    for key, value in entries.items():
        name, entry = key.decode("utf-8"), _entry(value)
        if entry.dtype not in DTYPES or not predicate(name):
            continue
        if entry.sliced:
            raise DamagedFile(f"{name} is cut in slices, which are not read")
        if entry.shard >= shards:
            raise DamagedFile(f"{name} is in shard {entry.shard} of {shards}")
        shard = index.with_suffix(f".data-{entry.shard:05d}-of-{shards:05d}")
        variables[name] = _numbers(shard, name, entry)
    return variables


def _numbers(shard: Path, name: str, entry: Entry) -> NDArray[Any]:
    """Return a variable of a shard. Raises DamagedFile if its bytes or its checksum are wrong."""
    dtype = DTYPES[entry.dtype]
    if entry.size != math.prod(entry.shape) * dtype.itemsize:
        raise DamagedFile(f"{name} has {entry.size} bytes, but the shape {entry.shape}")
    if entry.offset + entry.size > shard.stat().st_size:
        raise DamagedFile(f"{name} ends after the end of {shard.name}")
    with shard.open("rb") as stream:
        stream.seek(entry.offset)
        data = stream.read(entry.size)
    if _masked_crc(data) != entry.checksum:
        raise DamagedFile(f"{name} has a wrong checksum in {shard.name}")
    return np.frombuffer(data, dtype).reshape(entry.shape)


def _masked_crc(data: bytes) -> int:
    """Return LevelDB's masked CRC-32C: rotated and shifted, since data may itself contain checksums."""
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a LevelDB table: its footer leads to a block of handles of the others."""
    footer = data[-FOOTER:]
    if len(footer) < FOOTER or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise DamagedFile("no index of TensorFlow")
    at = _handle(footer, 0)[1]  # past the index of metadata
    (offset, size), _ = _handle(footer, at)
    for _, handle in _block(data, offset, size):
        yield from _block(data, *_handle(handle, 0)[0])


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Return offset and size in bytes of the block of a handle, and the position after the handle."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a block of a LevelDB table."""
    end = offset + size
    if size < 4 or end + TRAILER > len(data):
        raise DamagedFile("a block ends after the end of the file")
    if data[end]:
        raise DamagedFile("a compressed block, which TensorFlow doesn't write")
    if _masked_crc(data[offset : end + 1]) != int.from_bytes(data[end + 1 : end + TRAILER], "little"):
        raise DamagedFile("a block has a wrong checksum")
    restarts = int.from_bytes(data[end - 4 : end], "little")
    last, key = end - 4 - 4 * restarts, b""
    if last < offset:
        raise DamagedFile("a block without room for its entries")
    at = offset
    while at < last:
        shared, at = _varint(data, at)
        own, at = _varint(data, at)
        length, at = _varint(data, at)
        if shared > len(key) or at + own + length > last:
            raise DamagedFile("an entry ends after the end of its block")
        # a key stores only the bytes in which it differs from the previous one
        key = key[:shared] + data[at : at + own]
        yield key, data[at + own : at + own + length]
        at += own + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at a position, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise DamagedFile("it ends within a number")
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise DamagedFile("a number of more than ten bytes")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value (integer or bytes) of each field of a protocol buffer."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7  # 0: variable-length integer, 1 and 5: 8 and 4 bytes, 2: length and bytes
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        length, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), at)
        if length < 0 or at + length > len(data):
            raise DamagedFile("a field ends after the end of its message")
        part = data[at : at + length]
        yield tag >> 3, part if kind == 2 else int.from_bytes(part, "little")
        at += length


def _shards(header: bytes) -> int:
    """Return the number of shards of a checkpoint (BundleHeaderProto)."""
    fields = dict(_fields(header))
    shards = fields.get(1, 1)
    if fields.get(2, 0) != 0 or not isinstance(shards, int) or not 0 < shards < 100_000:
        raise DamagedFile("numbers of a big-endian machine, or no header")
    return shards


def _entry(data: bytes) -> Entry:
    """Parse a BundleEntryProto; its field numbers are those of tensor_bundle.proto."""
    values: dict[int, Any] = dict.fromkeys((1, 3, 4, 5, 6), 0)
    shape: list[int] = []
    sliced = False
    for number, value in _fields(data):
        if isinstance(value, bytes) != (number in (2, 7)):
            raise DamagedFile("a field of another type")
        if number == 2:
            shape = [size for n, dim in _fields(value) if n == 2 for size in _sizes(dim)]
        sliced |= number == 7
        values[number] = value
    if len(shape) > MAX_AXES:
        raise DamagedFile(f"a variable of {len(shape)} axes")
    return Entry(values[1], tuple(shape), values[3], values[4], values[5], values[6], sliced)


def _sizes(dim: Any) -> Iterator[int]:
    """Yield the size in a TensorShapeProto.Dim."""
    if not isinstance(dim, bytes):
        raise DamagedFile("a field of another type")
    size = dict(_fields(dim)).get(1, 0)
    if not isinstance(size, int) or size >= 1 << 40:
        raise DamagedFile(f"an axis of the size {size}")
    yield size
