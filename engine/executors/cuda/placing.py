"""Requests on their way into slots: their encoded rows, and what their searches begin with."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.bundle.specs import SOURCE, MemorySpec
from engine.executors.cuda.streams import LaneStreams
from engine.search.beam import BeamSearch
from engine.search.state import FIELDS
from engine.types import DecodeOptions

# fields of a SearchState that stay as the last request left them, since nobody reads beyond the count
STALE_FIELDS: Final = (
    *("tokens", "scores", "trail", "kept_scores", "kept_trail", "kept_steps", "kept_coverage"),
)
ZERO_FIELDS: Final = ("attended", "overlap")  # fields that a request finds zero
START_FIELDS: Final = tuple(name for name in FIELDS if name not in (*STALE_FIELDS, *ZERO_FIELDS))
ROW_FIELDS: Final = tuple(name for name in START_FIELDS if name != "plan")  # most plans force nothing
ALIGNED_BYTES: Final = 16  # bytes that are copied at once
MAX_KNOWN_STARTS: Final = 1024  # beginnings that are kept, of options and length of a source


class EncodedRow(NamedTuple):
    """An encoded source: some positions of row `at` of a block [batch, elements], in which each part of
    memory lies after the other, `width` positions long.

    address: of that row.
    begin: the source's first position there.
    """

    block: Tensor
    at: int
    width: int
    address: int
    begin: int = 0

    def parts(self, specs: Sequence[MemorySpec], length: int) -> dict[str, Tensor]:
        """Return views of it, [*shape] by the names of the specs.

        specs: of the memory.
        length: positions that are viewed.
        """
        views, begin, flat = {}, 0, self.block[self.at]
        for spec in specs:
            shape = [self.width if d == SOURCE else d for d in spec.shape]
            size = int(np.prod(shape))
            whole = flat[begin : begin + size].view(shape)
            views[spec.name] = whole.narrow(spec.source_axis, self.begin, length)
            begin += size
        return views


class KnownStart(NamedTuple):
    """What a search begins with.

    address: of its packed row on the device.
    longest: tokens of the longest target.
    forced: int64 [longest + 1], the tokens forced at each step, or -1; None where that is only the end.
    """

    address: int
    longest: int
    forced: NDArray[np.int64] | None


class Starts:
    """What searches begin with, a packed row for each; the search itself writes them. The device keeps them
    for whoever begins alike.

    begins, used: by the name of a field, where it begins in a row, and its bytes.
    """

    def __init__(self, search: BeamSearch, work: LaneStreams, slots: int) -> None:
        """Make a table without rows, on the device of the current stream.

        search: of the lane; gives numbers and types.
        work: the lane's.
        slots: of the lane; so many at most begin together.
        """
        numbers = SimpleNamespace(
            slots=1, beams=search.beams, limits=search.limits, pad=search.pad, eos=search.eos
        )
        numbers.start, numbers.namespace, numbers.device = search.first, np, "cpu"
        self._search = BeamSearch(numbers)
        blank, shapes = self._search.state, {}
        for name in ROW_FIELDS:
            shape = getattr(blank, name).shape[1:]
            shapes[name] = (search.beams, 1) if name == "history" else shape  # its first column
        sizes = {name: int(np.prod(s)) * getattr(blank, name).itemsize for name, s in shapes.items()}
        padded = [-(-size // ALIGNED_BYTES) * ALIGNED_BYTES for size in sizes.values()]
        ends = np.cumsum(padded)
        self.begins = dict(zip(ROW_FIELDS, (ends - padded).tolist(), strict=True))
        self.used = sizes
        self._row = np.zeros((1, int(ends[-1])), np.uint8)
        for name in ROW_FIELDS:
            part = self._row[:, self.begins[name] : self.begins[name] + sizes[name]]
            setattr(blank, name, part.view(getattr(blank, name).dtype).reshape(1, *shapes[name]))
        self._work, self._known = work, dict[DecodeOptions, dict[int, KnownStart]]()
        self._count = 0  # rows of those
        self._most = max(MAX_KNOWN_STARTS, slots)
        self._row_bytes = self._row.size
        shape = self._most, self._row_bytes // 8
        self._table = torch.empty(shape, dtype=torch.int64, device=work.device)
        self._address = self._table.data_ptr()
        self._fresh: list[NDArray[np.int64]] = []  # rows that the device has yet to be given
        for name in ZERO_FIELDS:
            setattr(blank, name, np.zeros((1, 1, 1)))  # the kernel clears them

    def has_room(self, count: int) -> bool:
        """Tell whether so many more may be written before all are forgotten."""
        return self._count + count <= self._most

    def forget(self) -> None:
        """Forget all rows: kernels that read them have been launched."""
        self._known.clear()
        self._count = 0

    def known(self, options: DecodeOptions) -> dict[int, KnownStart]:
        """Return what searches with these options begin with, by tokens of the source, as far as written."""
        return self._known.setdefault(options, {})

    def upload(self) -> None:
        """Give the device the rows that were written since."""
        if self._fresh:
            rows = self._table[self._count - len(self._fresh) : self._count]
            self._work.upload(self._fresh, rows.view(-1))
            self._fresh.clear()

    def write(self, options: DecodeOptions, length: int) -> KnownStart:
        """Write what a search with these options and so many tokens of a source begins with."""
        self._row[:] = 0
        self._search.start(0, options, length)
        longest = int(self._search.state.longest[0])
        forced = self._search.state.plan[0, : longest + 1].copy() if options.prefix else None
        self._fresh.append(self._row[0].copy().view(np.int64))
        address = self._address + self._count * self._row_bytes
        self._count += 1
        start = self._known[options][length] = KnownStart(address, longest, forced)
        return start
