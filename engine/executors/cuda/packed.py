"""Encoding of sources that lie packed one behind the other: one batch for all that come together, whatever
their lengths, and a CUDA graph for each of a few numbers of positions.

A source begins at a multiple of `PACKED_GROUP`. Positions of a sequence meet in kernels that keep within its
bounds, in an order of sums that is its own; all else is row by row. In fp32 all batches have as many
positions, so that products have as many rows and an encoding does not depend on who is beside it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from engine.executors.cuda.encoders import Place, SourceEncoders
from engine.executors.cuda.placing import EncodedRow
from engine.executors.cuda.streams import words_of
from engine.executors.memory import ceil
from engine.kernels.calls import PACKED_GROUP, PackedSequences

EXACT_POSITIONS: Final = (256,)  # of a batch in fp32
# likewise in narrower types
NARROW_POSITIONS: Final = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
LONG_MULTIPLE: Final = 256  # a source that is longer than all these has a batch of such a multiple
BOUNDS: Final = 2  # numbers before the tokens of a group: where its source begins and ends
WARM_LENGTH: Final = 64  # of sources, for so many of which batches are captured at the start


class PackedEncoders(SourceEncoders):
    """inputs: [groups, 2 + PACKED_GROUP], of each group its source's bounds and the tokens."""

    @property
    def sizes(self) -> Sequence[int]:
        """List the positions that a batch may have."""
        return EXACT_POSITIONS if self.dtype == torch.float32 else NARROW_POSITIONS

    def warm(self, together: int) -> None:
        most = min(self.limits.source, WARM_LENGTH) * together
        for size in self.sizes[: bisect_left(self.sizes, most) + 1]:
            self._batch([[self.limits.pad]], size, [])

    def __call__(self, sources: Sequence[Sequence[int]]) -> list[EncodedRow]:
        rows, most, begin, used = list[EncodedRow](), self.sizes[-1], 0, 0
        for i, source in enumerate(sources):
            width = -(-len(source) // PACKED_GROUP) * PACKED_GROUP
            if used and used + width > most:
                rows += self._encode_some(sources[begin:i], used)
                begin, used = i, 0
            used += width
        return rows + self._encode_some(sources[begin:], used)

    def _encode_some(self, sources: Sequence[Sequence[int]], used: int) -> list[EncodedRow]:
        """used: positions that they take."""
        at = bisect_left(self.sizes, used)
        size = self.sizes[at] if at < len(self.sizes) else ceil(used, LONG_MULTIPLE)
        begins = list[int]()
        block = self._batch(sources, size, begins)
        address = block.data_ptr()
        return [EncodedRow(block, 0, size, address, begin) for begin in begins]

    def _batch(self, sources: Sequence[Sequence[int]], size: int, begins: list[int]) -> Tensor:
        """Memory [1, elements] of sources; `begins` gets the first position of each. Groups behind them hold
        whatever they held."""
        paddings = [[self.limits.pad] * more for more in range(PACKED_GROUP)]
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

    def _make_place(self, key: tuple[int, ...]) -> Place:
        (size,) = key
        memory = self._room(size, self.sizes[-1]).view(1, -1)
        shape = size // PACKED_GROUP, BOUNDS + PACKED_GROUP
        inputs = torch.zeros(shape, dtype=torch.int64, device=self.work.device)
        inputs[:, 1] = 1  # no group is without anything that it reads
        place = self._places[key] = Place(inputs.view(-1), memory, partial(self._encode, inputs, memory))
        return place

    @torch.no_grad()
    def _encode(self, inputs: Tensor, memory: Tensor) -> None:
        """What a graph holds."""
        bounds, tokens = inputs[:, :BOUNDS].contiguous(), inputs[:, BOUNDS:].reshape(1, -1)
        column = torch.arange(tokens.shape[1], device=self.work.device).view(-1, PACKED_GROUP)
        positions = (column - bounds[:, :1]).clamp(min=0, max=self.limits.source - 1).view(1, -1)
        real = (column < bounds[:, 1:]).to(torch.float32).view(1, -1)
        packed = PackedSequences(bounds, ceil(self.limits.source, PACKED_GROUP))
        self._write(self.encode(tokens, positions, real, packed), memory)
