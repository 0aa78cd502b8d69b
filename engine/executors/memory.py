"""Encoded sources: batches that wait for slots, and the memory of slots for the decoder's cross-attention."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.bundle.specs import SOURCE, MemorySpec

ENCODER_MULTIPLE: Final = 8  # a source is padded to a multiple of this, whatever the others in its batch
MEMORY_MULTIPLE: Final = 32  # sums over the source are bit-equal for any padding to a multiple of this


class StagedBatch:
    """Encoded sources that wait for slots.

    lengths: tokens of each source.
    memory: memory of each source, [*shape] by the name of its spec.
    sources: tokens of the sources, if there is a shortlist.
    """

    def __init__(
        self, lengths: list[int], memory: list[dict[str, Any]], sources: Sequence[Sequence[int]] = ()
    ) -> None:
        self.lengths, self.memory, self.sources = lengths, memory, sources

    def __len__(self) -> int:
        return len(self.lengths)

    def ready(self) -> bool:
        return True


class SourceLimits(NamedTuple):
    """Padding and sizes of sources.

    pad: token that pads a batch.
    source: number of positions of the model.
    unread: number of tokens at a source's end that the model does not read.
    """

    pad: int
    source: int
    unread: int = 0


class EncoderBatch:
    """Sources of equal padded length.

    members: index of each source in the list of all sources.
    tokens: int64 [batch, width].
    real: float32 [batch, width], 1 for tokens.
    positions: int64 [width].
    """

    def __init__(
        self, sources: Sequence[Sequence[int]], members: list[int], width: int, limits: SourceLimits
    ) -> None:
        column = np.arange(width, dtype=np.int64)
        # padding may exceed the model's positions; it is masked
        self.members, self.positions = members, np.minimum(column, limits.source - 1)
        self.tokens: NDArray[np.int64] = np.full((len(members), width), limits.pad, np.int64)
        for row, i in enumerate(members):
            self.tokens[row, : len(sources[i])] = sources[i]
        lengths = np.array([len(sources[i]) for i in members])
        self.real = (column < np.maximum(lengths - limits.unread, 1)[:, None]).astype(np.float32)


def encoder_batches(
    sources: Sequence[Sequence[int]], limits: SourceLimits, *, pad_to_longest: bool = False
) -> Iterator[EncoderBatch]:
    """Yield batches of sources with equal padded length.

    sources: tokens of each source.
    limits: padding and sizes of the model's sources.
    pad_to_longest: pad a batch only to its longest source, for an encoder whose results are bit-equal for any
        padding.
    """
    by_width: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        by_width.setdefault(ceil(len(source), ENCODER_MULTIPLE), []).append(i)
    for width, members in by_width.items():
        longest = max(len(sources[i]) for i in members)
        yield EncoderBatch(sources, members, longest if pad_to_longest else width, limits)


class Memory:
    """Cross-attention memory of one lane in the array namespace `xp`.

    blocks: memory [slots, *shape] by name, as wide as the longest active source needs; columns past a source
        are zero.
    mask: float32 [slots, width], 0 for tokens and -inf for padding.
    width: number of source positions of blocks and mask.
    lengths: tokens of each slot's source.
    """

    max_excess = 1  # blocks this many times as wide as needed are kept; above 1 if padding costs nothing

    def __init__(
        self, specs: Sequence[MemorySpec], slots: int, xp: Any, device: Any, dtype: Any, *, unread: int = 0
    ) -> None:
        """Make the memory of empty slots; `unread` tokens at a source's end are masked."""
        self.unread = unread
        self.specs, self.slots, self.xp, self.device, self.dtype = specs, slots, xp, device, dtype
        self.lengths = array("q", [0] * slots)
        self._allocate(MEMORY_MULTIPLE)

    def place(self, slot: int, length: int, parts: Mapping[str, Any]) -> None:
        """Copy an encoded source into a slot.

        slot: number of the slot.
        length: number of tokens of the source.
        parts: arrays of the encoded source, by name of spec.
        """
        self.lengths[slot] = length
        if ceil(length, MEMORY_MULTIPLE) > self.width:
            slots_in_use = max(i + 1 for i, count in enumerate(self.lengths) if count)
            self._resize(ceil(length, MEMORY_MULTIPLE), slots_in_use)
        for spec in self.specs:
            block = self.blocks[spec.name][slot]
            block[...] = 0.0
            block[_until(spec, length)] = parts[spec.name][_until(spec, length)]
        self.mask[slot] = -self.xp.inf
        self.mask[slot, : max(length - self.unread, 1)] = 0.0

    def view(self, n: int) -> tuple[dict[str, Any], Any]:
        """Return blocks and mask of the first n slots, shrunk if wider than `max_excess` allows.

        Calls with an equal n return the same objects until the blocks are resized.
        """
        width = ceil(max(self.lengths[:n]), MEMORY_MULTIPLE)
        if self.max_excess * width < self.width:  # the slot with the longest source was freed
            self._resize(width, n)  # later slots are empty
        if n not in self._views:
            self._views[n] = {name: block[:n] for name, block in self.blocks.items()}, self.mask[:n]
        return self._views[n]

    def prefix(self, n: int, width: int) -> tuple[dict[str, Any], Any]:
        """Return views of the first `width` positions of the first n slots' blocks and mask. Nothing is
        resized.
        """
        parts = {spec.name: self.blocks[spec.name][(slice(n), *_until(spec, width))] for spec in self.specs}
        return parts, self.mask[:n, :width]

    def reserve(self, width: int) -> bool:
        """Make the blocks at least `width` positions wide. Return whether they have moved."""
        if width <= self.width:
            return False
        self._resize(width, self.slots)
        return True

    def move(self, sources: Any, targets: Any) -> None:
        """Copy the memory of slots over other slots.

        sources: slot to copy, or an int64 array of such slots on the device. The host does not read an array,
            so the caller of captured moves calls `move_on_host` too.
        targets: slot to overwrite, or an array of as many slots.
        """
        for block in self.blocks.values():
            block[targets] = block[sources]
        self.mask[targets] = self.mask[sources]
        if isinstance(sources, int):
            self.move_on_host(sources, targets)

    def move_on_host(self, source: int, target: int) -> None:
        """Copy the length of a slot, which only the host holds, over that of another slot."""
        self.lengths[target] = self.lengths[source]

    def _allocate(self, width: int) -> None:
        """Replace blocks and mask by empty ones with `width` source positions."""
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
        self.mask[:, 0] = 0.0  # a wholly masked row would make NaN

    def _resize(self, width: int, slots: int) -> None:
        """Change the width, and keep the contents of the first `slots` slots. The others are not written, so
        that the system maps no memory for them.
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
    """Return the index of the first `length` source positions in a slot's memory block."""
    return tuple(slice(0, length) if d == SOURCE else slice(None) for d in spec.shape)
