"""Encoding in batches of a few sizes, each a CUDA graph: padded, for encoders that can't be packed
(`engine.executors.cuda.packed`).

A source is padded by its own length alone. In fp32 all batches of a width have as many rows, so that an
encoding does not depend on the others of its batch; in narrower types products differ by more than that
anyway, and few sources take a smaller batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.bundle.specs import SOURCE, MemorySpec
from engine.executors.cuda.graphs import Graphs
from engine.executors.cuda.placing import EncodedRow
from engine.executors.cuda.streams import LaneStreams
from engine.executors.memory import ENCODER_MULTIPLE, Ends, ceil

Encode = Callable[..., dict[str, Tensor]]  # a model's own, of its arguments
EXACT_SIZES: Final = (8,)  # sources of a batch in fp32
NARROW_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)  # in narrower types
MAX_BATCH_POSITIONS: Final = 4096  # of a batch, padding included
MAX_GRAPHS: Final = 128  # graphs
WARM_POSITIONS: Final = 64  # widths up to this are captured at the start


class Place(NamedTuple):
    """The place of batches of one shape.

    flat: inputs, int64 on the device.
    memory: [rows, elements]; batches of all shapes share it.
    encode: computes the memory of the inputs.
    """

    flat: Tensor
    memory: Tensor
    encode: Callable[[], None]


class SourceEncoders(ABC):
    """The encoder of one lane's model. What it keeps between calls lies on the device: a place for the
    largest batch, and the inputs of each shape."""

    def __init__(
        self, encode: Encode, specs: Sequence[MemorySpec], work: LaneStreams, limits: Ends, dtype: torch.dtype
    ) -> None:
        """encode: on the current stream, of tokens, positions and real, as `Model.encode`.
        dtype: of memory.
        """
        self.encode, self.specs, self.work, self.limits, self.dtype = encode, specs, work, limits, dtype
        self._each = sum(int(np.prod([1 if d == SOURCE else d for d in s.shape])) for s in specs)
        self._memory: Tensor | None = None
        self._places: dict[Any, Place] = {}
        self._graphs = Graphs(work, MAX_GRAPHS)

    @abstractmethod
    def warm(self, together: int) -> None:
        """Capture all common batches, for at most so many sources that come together."""

    @abstractmethod
    def __call__(self, sources: Sequence[Sequence[int]]) -> list[EncodedRow]:
        """Encode sources on the current stream; rows are right once it has come so far."""

    def _run(self, key: tuple[int, ...], parts: Sequence[NDArray[np.int64]]) -> Tensor:
        """Memory [rows, elements] of a batch.

        key: the shape of the batch.
        parts: of its inputs, which may end before the place for them does.
        """
        place = self._places.get(key) or self._make_place(key)
        self.work.upload(parts, place.flat)
        self._graphs.run(key, place.encode, after=1)
        return self.work.clone(place.memory)

    @abstractmethod
    def _make_place(self, key: tuple[int, ...]) -> Place:
        """Make and keep the place of a shape."""

    def _room(self, positions: int, most: int) -> Tensor:
        """Memory of a batch, [elements].

        positions: of the batch.
        most: of the largest batch there is.
        """
        if self._memory is None or self._memory.numel() < positions * self._each:
            self._graphs.clear()  # they write into the one that goes
            self._places.clear()
            elements = self._each * max(positions, most)
            self._memory = torch.zeros(elements, dtype=self.dtype, device=self.work.device)
        return self._memory[: positions * self._each]

    def _write(self, encoded: dict[str, Tensor], memory: Tensor) -> None:
        parts = [encoded[s.name].reshape(memory.shape[0], -1).to(self.dtype) for s in self.specs]
        torch.cat(parts, 1, out=memory)


class Encoders(SourceEncoders):
    """Of padded batches. inputs: [size, width + 1], tokens and the number of them that are read."""

    def __init__(
        self, encode: Encode, specs: Sequence[MemorySpec], work: LaneStreams, limits: Ends, dtype: torch.dtype
    ) -> None:
        """See `SourceEncoders`. `sizes` may be cut, where batches are to be smaller."""
        super().__init__(encode, specs, work, limits, dtype)
        self.sizes: Sequence[int] = EXACT_SIZES if dtype == torch.float32 else NARROW_SIZES
        self._width_of = [self.width(length) for length in range(limits.source + 1)]

    def warm(self, together: int) -> None:
        for width in range(ENCODER_MULTIPLE, min(WARM_POSITIONS, self._widest) + 1, ENCODER_MULTIPLE):
            sizes = self._fitting(width)
            for size in sizes[: bisect_left(sizes, together) + 1]:
                self([[self.limits.pad] * width] * size)

    def __call__(self, sources: Sequence[Sequence[int]]) -> list[EncodedRow]:
        rows: list[EncodedRow | None] = [None] * len(sources)
        by_width: dict[int, list[int]] = {}
        for i, source in enumerate(sources):
            by_width.setdefault(self._width_of[len(source)], []).append(i)
        for width, members in by_width.items():
            sizes = self._fitting(width)
            for begin in range(0, len(members), sizes[-1]):
                part = members[begin : begin + sizes[-1]]
                size = sizes[bisect_left(sizes, len(part))]
                block = self._batch([sources[i] for i in part], size, width)
                begin_of, pitch = block.data_ptr(), block.stride(0) * block.element_size()
                for row, i in enumerate(part):
                    rows[i] = EncodedRow(block, row, width, begin_of + row * pitch)
        return [row for row in rows if row is not None]

    def _fitting(self, width: int) -> Sequence[int]:
        """How many sources of a width a batch may have."""
        return self.sizes[: bisect_right(self.sizes, MAX_BATCH_POSITIONS // width)] or (1,)

    def width(self, length: int) -> int:
        """Count the positions that a source of this length is padded to: a multiple of 8, fewer than 8 more
        than the length or less than a quarter more.
        """
        step = ENCODER_MULTIPLE
        while step * ENCODER_MULTIPLE < length:
            step *= 2
        return min(ceil(length, step), max(self._widest, ceil(length, ENCODER_MULTIPLE)))

    @property
    def _widest(self) -> int:
        return ceil(self.limits.source, ENCODER_MULTIPLE)

    def _batch(self, sources: Sequence[Sequence[int]], size: int, width: int) -> Tensor:
        """Memory [size, elements] of sources of one width; rows beyond them hold nothing of use."""
        packed = np.full((size, width + 1), self.limits.pad, np.int64)  # tokens, and how many are read
        packed[:, width] = 1
        for row, source in enumerate(sources):
            packed[row, : len(source)] = source
            packed[row, width] = max(len(source) - self.limits.unread, 1)
        return self._run((size, width), [packed.reshape(-1)])

    def _make_place(self, key: tuple[int, ...]) -> Place:
        size, width = key
        memory = self._room(size * width, min(MAX_BATCH_POSITIONS, self.sizes[-1] * self._widest))
        inputs = torch.zeros((size, width + 1), dtype=torch.int64, device=self.work.device)
        rows = memory.view(size, -1)
        place = self._places[key] = Place(inputs.view(-1), rows, partial(self._encode, inputs, rows))
        return place

    @torch.no_grad()
    def _encode(self, inputs: Tensor, memory: Tensor) -> None:
        """What a graph holds."""
        device, width = self.work.device, inputs.shape[1] - 1
        column = torch.arange(width, device=device)
        positions = column.clamp(max=self.limits.source - 1)  # what lies beyond is masked
        real = (column < inputs[:, width:]).to(torch.float32)
        self._write(self.encode(inputs[:, :width].contiguous(), positions, real), memory)
