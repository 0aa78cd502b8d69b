"""The shortlists of a lane on a GPU: a block of token lists that graphs of steps read."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from engine.bundle.shortlist import Ids, Shortlist
from engine.executors.cuda.streams import LaneStreams
from engine.executors.memory import ceil
from engine.executors.shortlists import NO_TOKEN, WIDTH_MULTIPLE, SlotShortlists

INITIAL_TOKENS: Final = 2048  # initial number of columns of the block, which doubles for a longer list


class DeviceShortlists(SlotShortlists):
    """Allowed tokens of each slot, with a copy on the device.

    block: int64 [slots, columns] on the device, lists padded with NO_TOKEN; replaced when it grows.
    """

    def __init__(self, shortlist: Shortlist, slots: int, vocab: int, streams: LaneStreams) -> None:
        """vocab: size of the target vocabulary, the longest possible list.
        streams: streams of the lane.
        """
        super().__init__(shortlist, slots)
        self._streams, self._longest = streams, ceil(vocab, WIDTH_MULTIPLE)
        self._stale: set[int] = set()  # slots with another list on the device
        self.block = self._blank(min(INITIAL_TOKENS, self._longest))

    def place(self, slot: int, ids: Ids) -> None:
        super().place(slot, ids)
        self._stale.add(slot)

    def move(self, source: int, target: int) -> None:
        super().move(source, target)
        self._stale.add(target)

    def upload(self) -> bool:
        """Copy changed lists to the device, on the current stream. Return whether the block has moved."""
        columns = self.block.shape[1]
        while columns < self.lists.shape[1]:
            columns = min(2 * columns, self._longest)
        grown = columns > self.block.shape[1]
        if grown:
            self.block = self._blank(columns)
            self._stale = set(range(len(self.counts)))
        padding = np.full(columns - self.lists.shape[1], NO_TOKEN, np.int64)
        for slot in self._stale:
            self._streams.upload([self.lists[slot], padding], self.block[slot])
        self._stale.clear()
        return grown

    def _blank(self, columns: int) -> Tensor:
        """Return a block without tokens."""
        shape = len(self.counts), columns
        return torch.full(shape, NO_TOKEN, dtype=torch.int64, device=self._streams.device)
