"""Read Marian's binary format (.bin, version 1): floats, and intgemm's integers with their multipliers.

Little-endian: version and number of items; four numbers for each item (bytes of its name, type, dimensions,
bytes of its data); names; shapes; padding; the data of all items. Arrays are views of the file; every size
is compared with the file's.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.bundle.weights import QuantizedWeight
from engine.errors import CheckpointError

Item = NDArray[Any] | QuantizedWeight

BINARY_VERSION: Final = 1
DIMENSIONS: Final = 8
ITEM_TYPES: Final = {0x0101: "<i1", 0x0402: "<f2", 0x0404: "<f4", 0x0408: "<f8", 0x4101: "<i1", 0x4102: "<i2"}
INTGEMM8, INTGEMM16 = 0x4101, 0x4102
# FBGEMM packs weights for one kind of processor
PACKED_TYPES: Final = {0x0802: "packed16", 0x1801: "packed8avx2", 0x2801: "packed8avx512"}
MULTIPLIER: Final = 4  # bytes of the multiplier after the integers


def read_binary(data: bytes) -> dict[str, Item]:
    """Return all items of a file by name.

    Raises CheckpointError, UnicodeDecodeError or ValueError if the file is damaged.
    """
    reader = _BinaryReader(data)
    version, count = reader.numbers("Q", 2)
    if version != BINARY_VERSION:
        raise CheckpointError(f"version {version} of the binary format is unknown, {BINARY_VERSION} is read")
    if count > len(data) // 32:
        raise ValueError("the file is cut short")
    headers = [reader.numbers("Q", 4) for _ in range(count)]
    names = [_name(reader.take(length)) for length, *_ in headers]
    if len(set(names)) != len(names):
        raise CheckpointError(f"{next(n for n in names if names.count(n) > 1)} occurs twice")
    shapes = [reader.shape(dimensions) for _, _, dimensions, _ in headers]
    reader.take(*reader.numbers("Q", 1))
    items = {
        name: _item(name, kind, shape, reader.take(size))
        for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True)
    }
    if reader.at != len(data):
        raise ValueError(f"{len(data) - reader.at} bytes lie beyond the last item")
    return items


def _name(data: memoryview) -> str:
    if not data or data[-1] != 0:
        raise ValueError("a name does not end")
    return bytes(data[:-1]).decode("utf-8")


def _item(name: str, kind: int, shape: tuple[int, ...], data: memoryview) -> Item:
    """Return the array or quantised weight of an item."""
    if kind in PACKED_TYPES:
        raise CheckpointError(
            f"{name} is packed by FBGEMM ({PACKED_TYPES[kind]}) for one kind of processor; use the file "
            "of fp32 or intgemm8 that it was made of"
        )
    if kind not in ITEM_TYPES:
        raise CheckpointError(f"{name} is of the type {kind:#06x}, which is unknown; use the file of fp32")
    dtype, count = np.dtype(ITEM_TYPES[kind]), math.prod(shape)
    integers = kind in (INTGEMM8, INTGEMM16)
    if count * dtype.itemsize + (MULTIPLIER if integers else 0) > len(data):
        raise ValueError(f"{name} has fewer bytes than its shape {list(shape)} needs")
    values = np.frombuffer(data, dtype, count)
    return _integers(name, kind, shape, values, data) if integers else values.reshape(shape)


def _integers(name: str, kind: int, shape: tuple[int, ...], values: NDArray[Any], data: memoryview) -> Item:
    """Return intgemm's integers as a weight. Matrices, except embeddings, are stored transposed."""
    (multiplier,) = struct.unpack_from("<f", data, values.nbytes)
    if not 0 < multiplier < math.inf or len(shape) != 2:
        raise CheckpointError(
            f"{name}: quantised with {multiplier} in the shape {list(shape)}, which is not a matrix"
        )
    whole = values.reshape(shape) if "Wemb" in name else values.reshape(shape[::-1]).T
    scale = np.float32(1) / np.float32(multiplier)
    if kind == INTGEMM16:
        return whole.astype(np.float32) * scale
    weight = QuantizedWeight(whole, np.array([scale], np.float32))
    for problem in weight.problems():  # the first one is raised
        raise CheckpointError(f"{name} {problem}")
    return weight


class _BinaryReader:
    """Reads bytes in order. Raises ValueError at the end of the file."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = memoryview(data), 0

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError("the file is cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, kind: str, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}{kind}", self.take(count * struct.calcsize("<" + kind)))

    def shape(self, dimensions: int) -> tuple[int, ...]:
        """Return the shape of an item. Raises ValueError if it is impossible."""
        if dimensions > DIMENSIONS:
            raise ValueError(f"an item has {dimensions} dimensions")
        shape = self.numbers("i", dimensions)
        if min(shape, default=0) < 0:
            raise ValueError(f"an item has the shape {list(shape)}")
        return shape
