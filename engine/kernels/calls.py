"""The CUDA kernels as functions of torch tensors: which one, with which grid, block and arguments.

What runs a call is given: a CUDA device (`engine.kernels.launch`), or, in tests, a CPU that runs the same
source. What each function computes is said by `engine.kernels.reference` and `engine.models.select`; sums are
fp32.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from engine.kernels.heads import HeadProducts, Memory, can_attend_by_tiles
from engine.kernels.launches import (
    ELEMENTS,
    LOAD_BYTES,
    WARP,
    Call,
    Kernel,
    Run,
    addresses_of,
    argument,
    bucket_of,
    ceil_div,
    load_form,
)
from engine.kernels.linear import Norm
from engine.kernels.prefetch import Prefetch, has_strides, is_memory, prefetch_arguments
from engine.kernels.reference import QKV
from engine.kernels.selection import Selection

CONVOLUTION_THREADS: Final = 512  # of a block of a step of the convolution, at most
RESIDENT_THREADS: Final = 1024  # threads of a multiprocessor that fetch as much as it can take
TILE_STEPS: Final = 32  # time steps of a block of whole sequences
# as in attend.cu
BEAM_BUCKETS: Final = (1, 2, 4, 8)
ATTEND_WARPS: Final = 4
PACKED_GROUP: Final = 8  # positions; sequences that lie packed begin at multiples of this, as in common.cuh
TILED_BEAMS: Final = 8  # as in attend_tiled.cu

SCATTER: Final = Kernel("scatter.cu", "scatter", "float", 1)


class PackedSequences(NamedTuple):
    """Sequences that lie packed one behind the other, each from a multiple of `PACKED_GROUP` on.

    bounds: int64 [positions / 8, 2], of each group of positions the first one of its sequence, and the one
        behind the last that is read.
    longest: positions of a sequence, at most.
    """

    bounds: Tensor
    longest: int


class Scatter:
    """Copies of memory, the same for each item of a launch."""

    def __init__(self, run: Run, plan: Tensor) -> None:
        """Take a plan for as long as it is launched.

        run: what launches are given to.
        plan: int64 [terms, copies, 7] on the device: how much each term of an item adds to each copy's
            target, source (0: zeros), rows, bytes of a row, bytes of it that are written, and distance of
            rows in target and source.
        """
        terms, self._copies, _ = plan.shape
        self._run, self._plan, self._items = run, plan, argument(None)
        self._arguments = argument(plan), self._items, argument(terms), argument(self._copies)
        self._addresses = addresses_of(self._arguments)

    def __call__(self, items: int, count: int, chunks: int) -> None:
        """Make the copies.

        items: address of int64 [count, terms] on the device.
        count: of the items.
        chunks: blocks that share a copy.
        """
        self._items.value = items
        grid = self._copies * count, chunks, 1
        self._run(Call(SCATTER, grid, (256, 1, 1), 0, self._arguments, self._addresses))


class Kernels(HeadProducts, Selection):
    """The kernels on one device. All tensors are contiguous, of one element type unless said otherwise."""

    def embed(
        self, tokens: Tensor, table: Tensor, scale: float, position_rows: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Look up embeddings, scale them and add positions.

        tokens: int64 [slots, beams].
        table: [vocab, dim].
        scale: factor of the embeddings.
        signals: a table of positions and the row of each slot, int64 [slots, 1].
        """
        positions, signal = position_rows or (None, None)
        dim = table.shape[1]
        y = table.new_empty((*tokens.shape, dim))
        kernel = Kernel("embed.cu", "embed", *load_form(dim, table, signal))
        threads = min(256, ceil_div(dim, kernel.vector * WARP) * WARP)
        scalars = tokens.shape[1], dim, float(scale)
        arguments = tokens.contiguous(), table, positions, signal, *scalars, y
        self.run(Call(kernel, (tokens.numel(), 1, 1), (threads, 1, 1), 0, arguments))
        return y

    def dynamic_conv_step(
        self, x: Tensor, taps: Tensor, ring: Tensor | None, index: Tensor | None, *, softmax: bool = False
    ) -> Tensor:
        """Compute `reference.dynamic_conv_step`.

        x: [slots, beams, channels], the newest inputs.
        taps: as of `reference.dynamic_conv_step`.
        ring: [slots, K - 1, beams, channels] of earlier inputs; None for K = 1.
        index: int64 [slots, beams, K - 1], rows of ring.flatten(0, 2), oldest first.
        softmax: over each kernel's taps, before they are applied.
        """
        y = torch.empty_like(x)
        kernel = Kernel(
            "dynamic_conv_step.cu",
            "dynamic_conv_step",
            *load_form(_head_channels(x, taps), x, taps, ring),
        )
        sizes, geometry = (
            _conv_sizes(x.shape[1], x.shape[2], taps),
            self._step_geometry(x, taps, kernel),
        )
        self.run(Call(kernel, *geometry, (x, taps, ring, index, *sizes, int(softmax), y)))
        return y

    def dynamic_conv_step_append(
        self, x: Tensor, taps: Tensor, past: tuple[Tensor, Tensor, Tensor], *, softmax: bool = False
    ) -> Tensor:
        """Compute `dynamic_conv_step`, and write the newest input into the ring.

        x: [slots, beams, channels], the newest inputs.
        taps: as of `reference.dynamic_conv_step`.
        past: ring, index and clock (int64 [1], on the device); column clock % (K - 1) of the ring is
            replaced.
        softmax: over each kernel's taps, before they are applied.
        """
        ring, index, clock = past
        y = torch.empty_like(x)
        form = load_form(_head_channels(x, taps), x, taps, ring)
        kernel = Kernel("dynamic_conv_step.cu", "dynamic_conv_step_append", *form)
        sizes, geometry = (
            _conv_sizes(x.shape[1], x.shape[2], taps),
            self._step_geometry(x, taps, kernel),
        )
        self.run(Call(kernel, *geometry, (x, taps, index, clock, *sizes, int(softmax), ring, y)))
        return y

    def _step_geometry(
        self, x: Tensor, taps: Tensor, kernel: Kernel
    ) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        slots, beams, channels = x.shape
        blocks = slots * ceil_div(channels, WARP * kernel.vector)
        most = self.processors * RESIDENT_THREADS // max(blocks, 1)
        if x.dtype == torch.float32:  # the order of sums depends on no other slot
            most = CONVOLUTION_THREADS
        return step_geometry(slots, beams, channels, (taps.shape[-2], taps.shape[-1]), kernel.vector, most)

    def ssru_step(
        self, candidate: Tensor, gate: Tensor, ring: Tensor, index: Tensor, *, append: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute `reference.ssru_step`.

        candidate: as of the reference.
        gate: likewise.
        ring: likewise, float32.
        index: likewise.
        append: whether the cells are written into the ring.

        Returns the cells in float32, and the outputs.
        """
        slots, beams, dim = candidate.shape
        assert ring.dtype == torch.float32 and ring.is_contiguous() and index.is_contiguous()
        kernel = Kernel("ssru_step.cu", "ssru_step", ELEMENTS[candidate.dtype], 1)
        cells, y = torch.empty_like(candidate, dtype=torch.float32), torch.empty_like(candidate)
        threads = min(256, ceil_div(dim, WARP) * WARP)
        arguments = candidate, gate, index, beams, dim, int(append), ring, cells, y
        self.run(Call(kernel, (ceil_div(dim, threads), slots, 1), (threads, 1, 1), 0, arguments))
        return cells, y

    def dynamic_conv(
        self,
        x: Tensor,
        taps: Tensor,
        left: int,
        packed: PackedSequences | None = None,
        *,
        softmax: bool = False,
    ) -> Tensor:
        """Compute `reference.dynamic_conv`.

        x: [batch, time, channels].
        taps: as of the reference.
        left: number of inputs before each output that its kernel reaches.
        packed: of sequences that lie one behind the other in a batch of one.
        softmax: over each kernel's taps, before they are applied.
        """
        batch, time, channels = x.shape
        y = torch.empty_like(x)
        entry = "dynamic_conv" if packed is None else "dynamic_conv_packed"
        kernel = Kernel("dynamic_conv.cu", entry, *load_form(_head_channels(x, taps), x, taps, most=4))
        heads, width, fixed = _conv_sizes(0, channels, taps)[2:]
        chunk = WARP * kernel.vector
        grid = ceil_div(channels, chunk), ceil_div(time, TILE_STEPS), batch
        shared = (TILE_STEPS + width - 1) * chunk * 4
        scalars = time, channels, heads, width, left, fixed, int(softmax), TILE_STEPS
        bounds = () if packed is None else (packed.bounds,)
        self.run(Call(kernel, grid, (WARP, 8, 1), shared, (x, taps, *bounds, *scalars, y)))
        return y

    def attend_packed(self, own: QKV, packed: PackedSequences, heads: int, *, scale: float = 1.0) -> Tensor:
        """Compute `reference.attend_whole` of sequences that lie packed one behind the other.

        own: as of the reference, of a batch of one.
        packed: the sequences.
        heads: of the attention.
        scale: of the queries, besides.
        """
        _, positions, dim = own.q.shape
        context, width = torch.empty_like(own.q), dim // heads
        kernel = Kernel("attend.cu", "attend_packed", *load_form(width, *own, most=4), PACKED_GROUP)
        longest = min(packed.longest, positions)
        shared = PACKED_GROUP * (longest + width + ATTEND_WARPS * WARP * kernel.vector) * 4
        grid, block = (heads, positions // PACKED_GROUP, 1), (ATTEND_WARPS * WARP, 1, 1)
        scalars = heads, width, longest, float(scale)
        self.run(Call(kernel, grid, block, shared, (*own, packed.bounds, *scalars, context)))
        return context

    def attend(
        self,
        q: Tensor,
        memory: Memory,
        *,
        weights: bool,
        shown: int = 0,
        scale: float = 1.0,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute `reference.attend`. Memory may be the first columns of blocks that have room for more:
        keys, values and mask alike.

        q: as of the reference.
        memory: keys, values and mask, likewise; the mask is float32.
        weights: whether their mean over heads, float32, is wanted.
        shown: number of first heads that the mean is over; 0 for all.
        scale: of the queries, besides.
        """
        (slots, beams, _), (keys, values, mask) = q.shape, memory
        heads, width, source = keys.shape[1:]
        context = torch.empty_like(q)
        pitch = keys.stride(2)
        assert is_memory(keys, values) and has_strides(mask, pitch, 1)
        scalars = beams, heads, width, source, pitch, float(scale)
        tiles = self.tensor_cores and not weights and q.data_ptr() % LOAD_BYTES == 0
        if tiles and can_attend_by_tiles(q.dtype, *memory):
            tiled = Kernel("attend_tiled.cu", "attend_tiled", ELEMENTS[q.dtype], 8)
            grid = heads, ceil_div(beams, TILED_BEAMS), slots
            self.run(Call(tiled, grid, (WARP, 1, 1), 0, (q, keys, values, mask, *scalars, context)))
            return context, None
        form = load_form(gcd(source, width, pitch), q, keys, values, most=4, contiguous=False)
        group = bucket_of(BEAM_BUCKETS, beams)
        kernel = Kernel("attend.cu", "attend", *form, group)
        each = q.new_empty((slots, heads, beams, source), dtype=torch.float32) if weights else None
        shared = group * (source + width + ATTEND_WARPS * WARP * kernel.vector)
        grid = heads, ceil_div(beams, group), slots
        arguments = q, keys, values, mask, *scalars, context, each
        self.run(Call(kernel, grid, (ATTEND_WARPS * WARP, 1, 1), shared * 4, arguments))
        if each is None:
            return context, None
        if shown:
            heads, each = shown, each[:, :shown].contiguous()
        mean = q.new_empty((slots, beams, source), dtype=torch.float32)
        size, averaging = beams * source, Kernel("attend.cu", "mean_heads", *form)
        grid = ceil_div(size, 128), slots, 1
        self.run(Call(averaging, grid, (128, 1, 1), 0, (each, heads, size, mean)))
        return context, mean

    def glu(self, x: Tensor) -> Tensor:
        """Compute torch's `glu` over the last axis.

        x: [..., 2 * dim].
        """
        dim, rows = x.shape[-1] // 2, x.numel() // x.shape[-1]
        y = x.new_empty((*x.shape[:-1], dim))
        kernel = Kernel("glu.cu", "glu", *load_form(dim, x))
        threads = min(256, ceil_div(dim, kernel.vector * WARP) * WARP)
        self.run(Call(kernel, (rows, 1, 1), (threads, 1, 1), 0, (x, dim, y)))
        return y

    def add_norm(
        self,
        x: Tensor,
        residual: Tensor | None,
        norm: Norm,
        *,
        total: bool = False,
        temperature: Tensor | None = None,
        prefetch: Prefetch | None = None,
    ) -> tuple[Tensor | None, Tensor]:
        """Compute x + residual and its layer norm over the last axis.

        x: [..., dim].
        residual: likewise, or none.
        norm: what it is normalised by.
        total: whether the sum itself is wanted.
        heat: float32 [slots], by which the norm of each slot's rows is divided; x is [slots, beams, dim].
        ahead: what memory is asked for; for windows x is [slots, beams, dim] too.
        """
        dim, rows = x.shape[-1], x.numel() // x.shape[-1]
        kernel = Kernel("add_norm.cu", "add_norm", *load_form(dim, x, residual, norm.gain, norm.shift))
        sum_, y = torch.empty_like(x) if total else None, torch.empty_like(x)
        threads = min(256, ceil_div(dim, kernel.vector * WARP) * WARP)
        beams = x.shape[1] if x.dim() == 3 else 1
        tensors = x, residual, norm.gain, norm.shift, temperature
        arguments = *tensors, dim, beams, norm.epsilon, *prefetch_arguments(prefetch, threads), sum_, y
        self.run(Call(kernel, (rows, 1, 1), (threads, 1, 1), dim * 4, arguments))
        return sum_, y


def _head_channels(x: Tensor, taps: Tensor) -> int:
    return x.shape[2] // taps.shape[-2]


def _conv_sizes(beams: int, channels: int, taps: Tensor) -> tuple[int, int, int, int, int]:
    """beams, channels, heads, width and whether taps are the same at each step."""
    return beams, channels, taps.shape[-2], taps.shape[-1], int(taps.dim() == 2)


def step_geometry(
    slots: Any,
    beams: int,
    channels: int,
    kernels: tuple[int, int],
    vector: int,
    most: int = CONVOLUTION_THREADS,
) -> tuple[tuple[int, Any, int], tuple[int, int, int], int]:
    """Compute grid, block and shared bytes of a step of the convolution.

    slots: may be an expression of TensorRT's.
    beams: of each slot.
    channels: of x.
    kernels: number of heads, and taps of each.
    vector: channels that a thread loads at once.
    most: threads of a block for which the taps are shared among more of them.
    """
    heads, width = kernels
    together = min(beams, 4)
    parts = 1
    while parts < width and 2 * parts * together * WARP <= min(most, CONVOLUTION_THREADS):
        parts *= 2
    block = WARP, parts, together
    touched = min(WARP, (WARP * vector - 1) // (channels // heads) + 2)  # as in dynamic_conv_step.cu
    shared = together * (parts * WARP * (vector + 1) + (touched + 1) * width) * 4
    return (ceil_div(channels, WARP * vector), slots, 1), block, shared
