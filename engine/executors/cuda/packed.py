"""Encoding of sources packed one behind the other: one batch for sources of any lengths, and a CUDA graph for
each of a few numbers of positions.

    positions   0    1    2    3    4    5    6    7  | 8    9   ...        (PACKED_GROUP = 8)
    tokens      a0   a1   a2   eos  pad  pad  pad  pad| b0   b1  ...

A source begins at a multiple of `PACKED_GROUP`. Kernels that combine positions stay within the bounds of a
source and sum in an order that depends on it alone; all other work is row by row. In fp32 all batches have
equally many positions, so that an encoding does not depend on the other sources of its batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from engine.executors.cuda.encoders import BatchBuffers, SourceEncoders
from engine.executors.cuda.placing import EncodedRow
from engine.executors.cuda.streams import words_of
from engine.executors.memory import ceil
from engine.kernels.calls import PACKED_GROUP, PackedSequences

EXACT_POSITIONS: Final = (256,)  # positions of a batch in fp32
# positions of a batch in narrower types
NARROW_POSITIONS: Final = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
LONG_MULTIPLE: Final = 256  # a longer source has its own batch, of a multiple of this many positions
BOUNDS: Final = 2  # numbers before the tokens of a group: begin and end of its source
WARM_LENGTH: Final = 64  # batches of sources up to this length are captured at the start


class PackedEncoders(SourceEncoders):
    """Encodes packed batches. Inputs are [groups, BOUNDS + PACKED_GROUP]: the bounds of the group's source,
    and its tokens."""

    @property
    def sizes(self) -> Sequence[int]:
        """Return the numbers of positions that a batch may have."""
        return EXACT_POSITIONS if self.dtype == torch.float32 else NARROW_POSITIONS

    def warm(self, max_sources: int) -> None:
        max_positions = min(self.limits.source, WARM_LENGTH) * max_sources
        # a graph depends only on the number of positions, so one short source captures it
        for size in self.sizes[: bisect_left(self.sizes, max_positions) + 1]:
            self._batch([[self.limits.pad]], size, [])

    def __call__(self, sources: Sequence[Sequence[int]]) -> list[EncodedRow]:
        """Encode sources in their order, as many in a batch as fit, and return their rows."""
        rows, max_positions, begin, positions = list[EncodedRow](), self.sizes[-1], 0, 0
        for i, source in enumerate(sources):
            width = -(-len(source) // PACKED_GROUP) * PACKED_GROUP
            if positions and positions + width > max_positions:
                rows += self._encode_batch(sources[begin:i], positions)
                begin, positions = i, 0
            positions += width
        return rows + self._encode_batch(sources[begin:], positions)

    def _encode_batch(self, sources: Sequence[Sequence[int]], positions: int) -> list[EncodedRow]:
        """Encode sources together; their padded lengths add up to `positions`."""
        at = bisect_left(self.sizes, positions)
        size = self.sizes[at] if at < len(self.sizes) else ceil(positions, LONG_MULTIPLE)
        begins = list[int]()
        block = self._batch(sources, size, begins)
        address = block.data_ptr()
        return [EncodedRow(block, 0, size, address, begin) for begin in begins]

    def _batch(self, sources: Sequence[Sequence[int]], size: int, begins: list[int]) -> Tensor:
        """Return the memory [1, elements] of sources; append the first position of each source to `begins`.
        Groups behind the sources are unused."""
        paddings = [[self.limits.pad] * count for count in range(PACKED_GROUP)]
        bounds, tokens, begin, unread = list[int](), list[int](), 0, self.limits.unread
        for source in sources:
            begins.append(begin)
            length = len(source)
            tokens += source
            tokens += paddings[-length % PACKED_GROUP]
            end = begin + (length - unread if length > unread else 1)
            bounds += (begin, end) * ((len(tokens) - begin) // PACKED_GROUP)
            begin = len(tokens)
        groups = np.empty((begin // PACKED_GROUP, BOUNDS + PACKED_GROUP), np.int64)
        groups[:, :BOUNDS] = words_of(bounds).reshape(-1, BOUNDS)
        groups[:, BOUNDS:] = words_of(tokens).reshape(-1, PACKED_GROUP)
        return self._run((size,), [groups.reshape(-1)])

    def _make_buffers(self, key: tuple[int, ...]) -> BatchBuffers:
        """Return buffers for a batch; `key` is its number of positions."""
        (size,) = key
        memory = self._memory_of(size, self.sizes[-1]).view(1, -1)
        shape = size // PACKED_GROUP, BOUNDS + PACKED_GROUP
        inputs = torch.zeros(shape, dtype=torch.int64, device=self.streams.device)
        inputs[:, 1] = 1  # an unused group too reads at least one position
        return BatchBuffers(inputs.view(-1), memory, partial(self._encode, inputs, memory))

    @torch.no_grad()
    def _encode(self, inputs: Tensor, memory: Tensor) -> None:
        """Encode the inputs into `memory`; a graph captures this."""
        bounds, tokens = inputs[:, :BOUNDS].contiguous(), inputs[:, BOUNDS:].reshape(1, -1)
        column = torch.arange(tokens.shape[1], device=self.streams.device).view(-1, PACKED_GROUP)
        positions = (column - bounds[:, :1]).clamp(min=0, max=self.limits.source - 1).view(1, -1)
        real = (column < bounds[:, 1:]).to(torch.float32).view(1, -1)
        packed = PackedSequences(bounds, ceil(self.limits.source, PACKED_GROUP))
        self._write(self.encode(tokens, positions, real, packed), memory)
