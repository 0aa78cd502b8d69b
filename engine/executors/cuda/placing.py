"""Requests on their way into slots: their encoded rows, and what their searches begin with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.bundle.specs import SOURCE, MemorySpec
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


# a request on its way into a slot: its row (a language model's has none), tokens of its source, its options
PlacedRequest = tuple[EncodedRow | None, int, DecodeOptions]


class KnownStart(NamedTuple):
    """What a search begins with.

    row: int64 words, packed.
    longest: tokens of the longest target.
    forced: int64 [longest + 1], the tokens forced at each step, or -1; None where that is only the end.
    """

    row: NDArray[np.int64]
    longest: int
    forced: NDArray[np.int64] | None


class Starts:
    """What searches begin with, a packed row for each; the search itself writes them.

    begins, used: by the name of a field, where it begins in a row, and its bytes.
    bytes: of a row.
    """

    def __init__(self, search: BeamSearch) -> None:
        """search: of the lane; gives numbers and types."""
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
        self.bytes, self.used = int(ends[-1]), sizes
        self._row = np.zeros((1, self.bytes), np.uint8)
        for name in ROW_FIELDS:
            part = self._row[:, self.begins[name] : self.begins[name] + sizes[name]]
            setattr(blank, name, part.view(getattr(blank, name).dtype).reshape(1, *shapes[name]))
        self._known: dict[DecodeOptions, dict[int, KnownStart]] = {}
        self._count = 0  # of those
        for name in ZERO_FIELDS:
            setattr(blank, name, np.zeros((1, 1, 1)))  # the kernel clears them

    def begin(self, placed: Iterable[PlacedRequest]) -> list[KnownStart]:
        """List what searches of requests begin with. Most are like one before."""
        starts, of, known = list[KnownStart](), None, dict[int, KnownStart]()
        for _, length, options in placed:
            if options is not of:  # neighbours often have the same
                of, known = options, self._known.setdefault(options, {})
            start = known.get(length)
            if start is None:
                start, of = self._write(options, length), None  # all that is known may be forgotten by it
            starts.append(start)
        return starts

    def _write(self, options: DecodeOptions, length: int) -> KnownStart:
        self._row[:] = 0
        self._search.start(0, options, length)
        if self._count == MAX_KNOWN_STARTS:
            self._known.clear()
            self._count = 0
        longest = int(self._search.state.longest[0])
        forced = self._search.state.plan[0, : longest + 1].copy() if options.prefix else None
        row = self._row[0].copy().view(np.int64)
        known = self._known.setdefault(options, {})[length] = KnownStart(row, longest, forced)
        self._count += 1
        return known
