"""Encoding in padded batches of a few sizes, each a CUDA graph, for encoders that can't be packed
(`engine.executors.cuda.packed`).

The padding of a source depends only on its length. In fp32 all batches of a width have equally many rows, so
that an encoding does not depend on the other sources of its batch; in narrower types products differ by more
than that anyway, and few sources get a smaller batch.
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
from engine.executors.memory import ENCODER_MULTIPLE, SourceLimits, ceil

Encode = Callable[..., dict[str, Tensor]]  # `Model.encode`
EXACT_SIZES: Final = (8,)  # sources of a batch in fp32
NARROW_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)  # sources of a batch in narrower types
MAX_BATCH_POSITIONS: Final = 4096  # padding included
MAX_GRAPHS: Final = 128
WARM_POSITIONS: Final = 64  # widths up to this are captured at the start


class BatchBuffers(NamedTuple):
    """Device memory of the batches of one shape.

    flat: inputs, int64.
    memory: output [rows, elements]; batches of all shapes share it.
    encode: computes `memory` from the inputs.
    """

    flat: Tensor
    memory: Tensor
    encode: Callable[[], None]


class SourceEncoders(ABC):
    """The encoder of one lane's model, with its buffers on the device."""

    def __init__(
        self,
        encode: Encode,
        specs: Sequence[MemorySpec],
        streams: LaneStreams,
        limits: SourceLimits,
        dtype: torch.dtype,
    ) -> None:
        """Make encoders without buffers.

        encode: computes memory from tokens, positions and real, as `Model.encode`, on the current stream.
        dtype: dtype of the memory.
        """
        self.encode, self.specs, self.streams, self.limits, self.dtype = encode, specs, streams, limits, dtype
        # elements that one source position has in all memory arrays
        self._position_elements = sum(int(np.prod([1 if d == SOURCE else d for d in s.shape])) for s in specs)
        self._memory: Tensor | None = None
        self._buffers: dict[Any, BatchBuffers] = {}
        self._graphs = Graphs(streams, MAX_GRAPHS)

    @abstractmethod
    def warm(self, max_sources: int) -> None:
        """Capture the graphs of common batches of at most `max_sources` sources."""

    @abstractmethod
    def __call__(self, sources: Sequence[Sequence[int]]) -> list[EncodedRow]:
        """Encode sources on the current stream. Rows are complete once the stream has run this work."""

    def _run(self, key: tuple[int, ...], parts: Sequence[NDArray[np.int64]]) -> Tensor:
        """Return the memory [rows, elements] of a batch.

        key: shape of the batch.
        parts: inputs, one after the other; they may be shorter than the buffer.
        """
        buffers = self._buffers.get(key) or self._buffers.setdefault(key, self._make_buffers(key))
        self.streams.upload(parts, buffers.flat)
        self._graphs.run(key, buffers.encode, after=1)
        return self.streams.clone(buffers.memory)

    @abstractmethod
    def _make_buffers(self, key: tuple[int, ...]) -> BatchBuffers:
        """Make the buffers of a shape."""

    def _memory_of(self, positions: int, usual: int) -> Tensor:
        """Return the part of the shared memory that a batch writes. The memory grows if it is too small.

        positions: number of positions of the batch.
        usual: number of positions of the largest usual batch, for which the first call makes room.
        """
        if self._memory is None or self._memory.numel() < positions * self._position_elements:
            self._graphs.clear()  # they write to the old memory
            self._buffers.clear()
            elements = self._position_elements * max(positions, usual)
            self._memory = torch.zeros(elements, dtype=self.dtype, device=self.streams.device)
        return self._memory[: positions * self._position_elements]

    def _write(self, encoded: dict[str, Tensor], memory: Tensor) -> None:
        """Write the parts of an encoding into `memory` [rows, elements], one behind the other in each row."""
        parts = [encoded[s.name].reshape(memory.shape[0], -1).to(self.dtype) for s in self.specs]
        torch.cat(parts, 1, out=memory)


class Encoders(SourceEncoders):
    """Encodes padded batches. Inputs are [size, width + 1]: tokens, and the number of them that are read."""

    def __init__(
        self,
        encode: Encode,
        specs: Sequence[MemorySpec],
        streams: LaneStreams,
        limits: SourceLimits,
        dtype: torch.dtype,
    ) -> None:
        """Take the arguments of `SourceEncoders`. Callers may set `batch_sizes`, the ascending
        numbers of sources that a batch may have."""
        super().__init__(encode, specs, streams, limits, dtype)
        self.batch_sizes: Sequence[int] = EXACT_SIZES if dtype == torch.float32 else NARROW_SIZES
        self._width_of = [self.width(length) for length in range(limits.source + 1)]

    def warm(self, max_sources: int) -> None:
        for width in range(ENCODER_MULTIPLE, min(WARM_POSITIONS, self._widest) + 1, ENCODER_MULTIPLE):
            sizes = self._batch_sizes_at(width)
            for size in sizes[: bisect_left(sizes, max_sources) + 1]:
                self([[self.limits.pad] * width] * size)

    def __call__(self, sources: Sequence[Sequence[int]]) -> list[EncodedRow]:
        """Encode sources in batches of equal padded width; return their rows in the order of the sources."""
        rows: dict[int, EncodedRow] = {}  # by index of the source
        by_width: dict[int, list[int]] = {}
        for i, source in enumerate(sources):
            by_width.setdefault(self._width_of[len(source)], []).append(i)
        for width, indices in by_width.items():
            batch_sizes = self._batch_sizes_at(width)
            for begin in range(0, len(indices), batch_sizes[-1]):
                members = indices[begin : begin + batch_sizes[-1]]
                batch_size = batch_sizes[bisect_left(batch_sizes, len(members))]
                memory = self._batch([sources[i] for i in members], batch_size, width)
                address, row_bytes = memory.data_ptr(), memory.stride(0) * memory.element_size()
                for row, i in enumerate(members):
                    rows[i] = EncodedRow(memory, row, width, address + row * row_bytes)
        return [rows[i] for i in range(len(sources))]

    def _batch_sizes_at(self, width: int) -> Sequence[int]:
        """Return the ascending batch sizes with at most `MAX_BATCH_POSITIONS` positions of this width."""
        return self.batch_sizes[: bisect_right(self.batch_sizes, MAX_BATCH_POSITIONS // width)] or (1,)

    def width(self, length: int) -> int:
        """Return the positions to which a source of this length is padded: a multiple of 8, fewer than 8 more
        than the length or less than a quarter more.
        """
        step = ENCODER_MULTIPLE  # 8 for at most 64 tokens, 16 for at most 128, and so on
        while step * ENCODER_MULTIPLE < length:
            step *= 2
        return min(ceil(length, step), max(self._widest, ceil(length, ENCODER_MULTIPLE)))

    @property
    def _widest(self) -> int:
        """Return the width of the longest source that the model accepts."""
        return ceil(self.limits.source, ENCODER_MULTIPLE)

    def _batch(self, sources: Sequence[Sequence[int]], size: int, width: int) -> Tensor:
        """Return the memory [size, elements] of sources of one width; rows beyond the sources are unused."""
        packed = np.full((size, width + 1), self.limits.pad, np.int64)  # tokens, and the number of read ones
        packed[:, width] = 1  # an unused row too reads at least one position
        for row, source in enumerate(sources):
            packed[row, : len(source)] = source
            packed[row, width] = max(len(source) - self.limits.unread, 1)
        return self._run((size, width), [packed.reshape(-1)])

    def _make_buffers(self, key: tuple[int, ...]) -> BatchBuffers:
        """Return buffers for a batch; `key` is its number of rows and its width."""
        size, width = key
        usual = min(MAX_BATCH_POSITIONS, self.batch_sizes[-1] * self._widest)
        memory = self._memory_of(size * width, usual)
        inputs = torch.zeros((size, width + 1), dtype=torch.int64, device=self.streams.device)
        rows = memory.view(size, -1)
        return BatchBuffers(inputs.view(-1), rows, partial(self._encode, inputs, rows))

    @torch.no_grad()
    def _encode(self, inputs: Tensor, memory: Tensor) -> None:
        """Encode the inputs into `memory`; a graph captures this."""
        device, width = self.streams.device, inputs.shape[1] - 1
        column = torch.arange(width, device=device)
        positions = column.clamp(max=self.limits.source - 1)  # later positions are masked
        real = (column < inputs[:, width:]).to(torch.float32)
        self._write(self.encode(inputs[:, :width].contiguous(), positions, real), memory)
