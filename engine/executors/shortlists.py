"""The shortlists of one lane: the tokens that each slot may produce (`engine.bundle.shortlist`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.bundle.shortlist import Ids, Shortlist
from engine.executors.memory import ceil

WIDTH_MULTIPLE: Final = 64  # sums over a list are bit-equal for any padding to a multiple of this
NO_TOKEN: Final = -1  # pads a list


class SlotShortlists:
    """Allowed tokens of each slot.

    lists: int64 [slots, width] on the host, ascending and padded with NO_TOKEN.
    """

    def __init__(self, shortlist: Shortlist, slots: int) -> None:
        self.shortlist = shortlist
        self.counts = [0] * slots
        self.lists: Ids = np.full((slots, WIDTH_MULTIPLE), NO_TOKEN, np.int64)

    def place(self, slot: int, ids: Ids) -> None:
        """Give a slot the list of allowed tokens `ids`, ascending."""
        width = ceil(len(ids), WIDTH_MULTIPLE)
        if width > self.lists.shape[1]:
            self._resize(width)
        self.lists[slot] = NO_TOKEN
        self.lists[slot, : len(ids)] = ids
        self.counts[slot] = len(ids)

    def move(self, source: int, target: int) -> None:
        self.lists[target] = self.lists[source]
        self.counts[target] = self.counts[source]

    def view(self, n: int, forced: NDArray[Any] | None) -> Ids:
        """Return the lists of the first n slots, no wider than the longest of them needs.

        n: number of slots.
        forced: forced tokens [n, beams], added to their slot's list; None if all lists contain them.
        """
        width = ceil(max(self.counts[:n]), WIDTH_MULTIPLE)
        if width < self.lists.shape[1]:  # the slot with the longest list was freed
            self._resize(width)
        lists = self.lists[:n]
        if forced is None or (forced < 0).all():
            return lists
        # forced tokens (-1: none) that the list of their slot lacks
        absent = (forced >= 0) & ~(lists[:, None, :] == forced[:, :, None]).any(2)
        if not absent.any():
            return lists
        added = [np.unique(tokens[where]) for tokens, where in zip(forced, absent, strict=True)]
        width = max(count + len(new_ids) for count, new_ids in zip(self.counts[:n], added, strict=True))
        union = np.full((n, ceil(width, WIDTH_MULTIPLE)), NO_TOKEN, np.int64)
        for slot, (count, new_ids) in enumerate(zip(self.counts[:n], added, strict=True)):
            union[slot, :count] = lists[slot, :count]
            union[slot, count : count + len(new_ids)] = new_ids
        return union

    def _resize(self, width: int) -> None:
        """Change the width of all lists."""
        lists = np.full((len(self.lists), width), NO_TOKEN, np.int64)
        shared = min(width, self.lists.shape[1])
        lists[:, :shared] = self.lists[:, :shared]
        self.lists = lists
