"""Encoded sources: staged in batches, then held once per slot for the decoder's cross-attention."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.bundle.specs import SOURCE, MemorySpec

ENCODER_MULTIPLE: Final = 8  # a source is padded by its own length only, so neighbours can't change it
MEMORY_MULTIPLE: Final = 32  # sums over the source are bit-equal for any padding to such a length


class StagedBatch:
    """Encoded sources waiting for their slots: of each its length and memory, [*shape] by name.

    sources: their tokens, where a shortlist asks for them.
    """

    def __init__(
        self, lengths: list[int], memory: list[dict[str, Any]], sources: Sequence[Sequence[int]] = ()
    ) -> None:
        self.lengths, self.memory, self.sources = lengths, memory, sources

    def __len__(self) -> int:
        return len(self.lengths)

    def ready(self) -> bool:
        return True


class Ends(NamedTuple):
    """pad: the token that fills up a batch.
    source: how many positions there are.
    unread: how many tokens at a source's end the model does not read.
    """

    pad: int
    source: int
    unread: int = 0


class EncoderBatch:
    """Sources of equal padded length.

    members: their places in the list they came from.
    tokens: int64 [batch, width].
    real: float32 [batch, width], 1 for tokens.
    positions: int64 [width].
    """

    def __init__(
        self, sources: Sequence[Sequence[int]], members: list[int], width: int, limits: Ends
    ) -> None:
        column = np.arange(width, dtype=np.int64)
        # padding may reach past the last position there is; what it holds is masked
        self.members, self.positions = members, np.minimum(column, limits.source - 1)
        self.tokens: NDArray[np.int64] = np.full((len(members), width), limits.pad, np.int64)
        for row, i in enumerate(members):
            self.tokens[row, : len(sources[i])] = sources[i]
        lengths = np.array([len(sources[i]) for i in members])
        self.real = (column < np.maximum(lengths - limits.unread, 1)[:, None]).astype(np.float32)


def encoder_batches(
    sources: Sequence[Sequence[int]], limits: Ends, *, tight: bool = False
) -> Iterator[EncoderBatch]:
    """Group sources so that each batch needs no padding but its members' own.

    sources: tokens of each.
    limits: of the model.
    tight: whether a batch is padded to its longest member only, for an encoder whose results are bit-equal
        for any padding.
    """
    by_width: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        by_width.setdefault(ceil(len(source), ENCODER_MULTIPLE), []).append(i)
    for width, members in by_width.items():
        longest = max(len(sources[i]) for i in members)
        yield EncoderBatch(sources, members, longest if tight else width, limits)


class Memory:
    """Cross-attention memory of one lane in the array namespace `xp`.

    blocks: by name, [slots, *shape], as wide as the longest active source needs.
    mask: float32 [slots, width], 0 for tokens and -inf for padding. Columns past a source are zero, never
        another request's.
    width: source positions of both.
    lengths: tokens of each slot's source.
    """

    spare = 1  # how many times as wide as needed the blocks may stay, where padding costs nothing

    def __init__(
        self, specs: Sequence[MemorySpec], slots: int, xp: Any, device: Any, dtype: Any, *, unread: int = 0
    ) -> None:
        """unread: how many tokens at a source's end are hidden from the decoder too."""
        self.unread = unread
        self.specs, self.slots, self.xp, self.device, self.dtype = specs, slots, xp, device, dtype
        self.lengths = array("q", [0] * slots)
        self._allocate(MEMORY_MULTIPLE)

    def place(self, slot: int, length: int, parts: Mapping[str, Any]) -> None:
        self.lengths[slot] = length
        if ceil(length, MEMORY_MULTIPLE) > self.width:
            used = max(i + 1 for i, count in enumerate(self.lengths) if count)
            self._resize(ceil(length, MEMORY_MULTIPLE), used)
        for spec in self.specs:
            block = self.blocks[spec.name][slot]
            block[...] = 0.0
            block[_until(spec, length)] = parts[spec.name][_until(spec, length)]
        self.mask[slot] = -self.xp.inf
        self.mask[slot, : max(length - self.unread, 1)] = 0.0

    def view(self, n: int) -> tuple[dict[str, Any], Any]:
        """Return blocks and mask of the first n slots, no wider than the longest needs, but for `spare`.

        They are the very same arrays as long as that width stays.
        """
        width = ceil(max(self.lengths[:n]), MEMORY_MULTIPLE)
        if self.spare * width < self.width:  # the longest source has left: stop paying for it
            self._resize(width, n)  # nothing is in the later slots
        if n not in self._views:
            self._views[n] = {name: block[:n] for name, block in self.blocks.items()}, self.mask[:n]
        return self._views[n]

    def prefix(self, n: int, width: int) -> tuple[dict[str, Any], Any]:
        """Return blocks and mask of the first n slots and columns, where they lie.

        Nothing is copied or resized.
        """
        parts = {spec.name: self.blocks[spec.name][(slice(n), *_until(spec, width))] for spec in self.specs}
        return parts, self.mask[:n, :width]

    def reserve(self, width: int) -> bool:
        """Make the blocks at least so wide; whether they lie elsewhere now."""
        if width <= self.width:
            return False
        self._resize(width, self.slots)
        return True

    def move(self, source: Any, target: Any) -> None:
        for block in self.blocks.values():
            block[target] = block[source]
        self.mask[target] = self.mask[source]
        if isinstance(source, int):
            self.move_on_host(source, target)

    def move_on_host(self, source: int, target: int) -> None:
        """Do the host's part of `move`, which is left to the caller where slots are named on the device."""
        self.lengths[target] = self.lengths[source]

    def _allocate(self, width: int) -> None:
        self.width = width
        self._views: dict[int, tuple[dict[str, Any], Any]] = {}
        self.blocks = {
            spec.name: self.xp.zeros(
                (self.slots, *(width if d == SOURCE else d for d in spec.shape)),
                dtype=self.dtype,
                device=self.device,
            )
            for spec in self.specs
        }
        self.mask = self.xp.full((self.slots, width), -self.xp.inf, dtype=self.xp.float32, device=self.device)
        self.mask[:, 0] = 0.0  # a row without any source would make NaN of its slot

    def _resize(self, width: int, slots: int) -> None:
        """slots: how many of the first are in use. The others need not be kept, and while nothing is written
        into them the system gives them no memory.
        """
        blocks, mask = self.blocks, self.mask
        shared = min(width, mask.shape[1])
        self._allocate(width)
        self.mask[:slots, :shared] = mask[:slots, :shared]
        for spec in self.specs:
            part = (slice(slots), *_until(spec, shared))
            self.blocks[spec.name][part] = blocks[spec.name][part]


def ceil(value: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def _until(spec: MemorySpec, length: int) -> tuple[slice, ...]:
    """Index of the first `length` source positions of a memory block without its slot axis."""
    return tuple(slice(0, length) if d == SOURCE else slice(None) for d in spec.shape)
