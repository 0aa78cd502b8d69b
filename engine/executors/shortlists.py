"""The shortlists of one lane: the tokens with which each slot may go on (`engine.bundle.shortlist`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.bundle.shortlist import Ids, Shortlist
from engine.executors.memory import ceil

AMONG_MULTIPLE: Final = 64  # sums over a list are bit-equal for any padding to such a width
NONE: Final = -1  # fills a list up


class Among:
    """lists: int64 [slots, width], each ascending and filled up with NONE; always on the host."""

    def __init__(self, shortlist: Shortlist, slots: int) -> None:
        self.shortlist = shortlist
        self.counts = [0] * slots
        self.lists: Ids = np.full((slots, AMONG_MULTIPLE), NONE, np.int64)

    def place(self, slot: int, ids: Ids) -> None:
        width = ceil(len(ids), AMONG_MULTIPLE)
        if width > self.lists.shape[1]:
            self._resize(width)
        self.lists[slot] = NONE
        self.lists[slot, : len(ids)] = ids
        self.counts[slot] = len(ids)

    def move(self, source: int, target: int) -> None:
        self.lists[target] = self.lists[source]
        self.counts[target] = self.counts[source]

    def view(self, n: int, forced: NDArray[Any] | None) -> Ids:
        """Return the lists of the first n slots, no wider than the longest of them needs.

        A forced token [n, beams] that its slot's list lacks counts as one more; None: none is lacking.
        """
        width = ceil(max(self.counts[:n]), AMONG_MULTIPLE)
        if width < self.lists.shape[1]:  # the longest list has left: stop paying for it
            self._resize(width)
        lists = self.lists[:n]
        if forced is None or (forced < 0).all():
            return lists
        lacking = (forced >= 0) & ~(lists[:, None, :] == forced[:, :, None]).any(2)
        if not lacking.any():
            return lists
        more = [np.unique(row[missing]) for row, missing in zip(forced, lacking, strict=True)]
        width = max(count + len(extra) for count, extra in zip(self.counts[:n], more, strict=True))
        union = np.full((n, ceil(width, AMONG_MULTIPLE)), NONE, np.int64)
        for slot, (count, extra) in enumerate(zip(self.counts[:n], more, strict=True)):
            union[slot, :count] = lists[slot, :count]
            union[slot, count : count + len(extra)] = extra
        return union

    def _resize(self, width: int) -> None:
        lists = np.full((len(self.lists), width), NONE, np.int64)
        shared = min(width, self.lists.shape[1])
        lists[:, :shared] = self.lists[:, :shared]
        self.lists = lists
