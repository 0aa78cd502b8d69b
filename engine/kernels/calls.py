"""The CUDA kernels as functions of torch tensors, which choose kernel, grid, block and arguments.

A `Run` launches the kernels: a CUDA device (`engine.kernels.launch`), or in tests a CPU that runs the same
source. `engine.kernels.reference` and `engine.models.select` define the results; sums are fp32.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from engine.kernels.caches import CacheKernels
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
    has_strides,
    load_form,
)
from engine.kernels.linear import Norm
from engine.kernels.reference import QKV
from engine.kernels.selection import Selection
from engine.kernels.taps import TapProducts

CONVOLUTION_THREADS: Final = 512  # most threads of a block in a step of the convolution
RESIDENT_THREADS: Final = 1024  # threads that saturate the memory bandwidth of a multiprocessor
TILE_STEPS: Final = 32  # time steps of a block in the convolution of whole sequences
# as in attend.cu
BEAM_BUCKETS: Final = (1, 2, 4, 8)
ATTEND_WARPS: Final = 4
PACKED_GROUP: Final = 8  # packed sequences start at multiples of this many positions, as in common.cuh
TILED_BEAMS: Final = 8  # as in attend_tiled.cu; so are these
MAX_HEAD_WIDTH: Final = 64  # width of an attention head, a multiple of 16
TILED_POSITIONS: Final = 64  # source positions that a warp processes at once
TILED_PARTS: Final = 18  # floats of a thread in shared memory, if several warps share a source
MAX_TILED_WARPS: Final = 8  # warps that share a long source
SHARED_SOURCE_WARPS: Final = 8  # the same on each multiprocessor; with more blocks each has one warp

Memory = tuple[Tensor, Tensor, Tensor]

SCATTER: Final = Kernel("scatter.cu", "scatter", "float", 1)


class PackedSequences(NamedTuple):
    """Bounds of sequences packed one after another, each starting at a multiple of `PACKED_GROUP`.

    bounds: int64 [positions / 8, 2], for each group of positions the first position of its sequence and the
        one after the last that is read.
    longest: largest number of positions of a sequence.
    """

    bounds: Tensor
    longest: int


class Scatter:
    """A kernel that copies blocks of memory by a plan, for many items in one launch."""

    def __init__(self, run: Run, plan: Tensor) -> None:
        """run: launches a kernel.
        plan: int64 [terms, copies, 7] on the device. Term t of an item times plan[t, c] is summed into the
            seven numbers of copy c: target, source (0: zeros), rows, bytes of a row, bytes to write of it,
            and distance of rows in target and in source.
        """
        terms, self._copies, _ = plan.shape
        self._run, self._plan, self._items = run, plan, argument(None)
        self._arguments = argument(plan), self._items, argument(terms), argument(self._copies)
        self._addresses = addresses_of(self._arguments)

    def __call__(self, items: int, count: int, chunks: int) -> None:
        """Run the copies of all items.

        items: address of int64 [count, terms] on the device.
        count: number of items.
        chunks: number of blocks that share a copy.
        """
        self._items.value = items
        grid = self._copies * count, chunks, 1
        self._run(Call(SCATTER, grid, (256, 1, 1), 0, self._arguments, self._addresses))


class Kernels(CacheKernels, TapProducts, Selection):
    """The kernels of one device. Tensors are contiguous and of one element type unless noted otherwise."""

    def embed(
        self, tokens: Tensor, table: Tensor, scale: float, position_rows: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Look up embeddings, scale them and add positions.

        tokens: int64 [slots, beams].
        table: [vocab, dim].
        scale: factor of the embeddings.
        position_rows: row numbers int64 [slots, 1] and a table of positions, or None.
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

        x: newest inputs [slots, beams, channels].
        taps: taps of the reference.
        ring: earlier inputs [slots, K - 1, beams, channels]; None for K = 1.
        index: rows of ring.flatten(0, 2), oldest first, int64 [slots, beams, K - 1].
        softmax: normalise the taps of each head by a softmax.
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
        """Compute `dynamic_conv_step` and write the newest input into the ring.

        x: newest inputs [slots, beams, channels].
        taps: taps of the reference.
        past: ring, index and clock (int64 [1] on the device); column clock % (K - 1) of the ring is replaced.
        softmax: normalise the taps of each head by a softmax.
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
        """Return grid, block and bytes of shared memory for a step of the convolution on this device."""
        slots, beams, channels = x.shape
        blocks = slots * ceil_div(channels, WARP * kernel.vector)
        max_threads = self.processors * RESIDENT_THREADS // max(blocks, 1)
        if x.dtype == torch.float32:  # the order of sums must not depend on other slots
            max_threads = CONVOLUTION_THREADS
        return step_geometry(
            slots, beams, channels, (taps.shape[-2], taps.shape[-1]), kernel.vector, max_threads
        )

    def ssru_step(
        self, candidate: Tensor, gate: Tensor, ring: Tensor, index: Tensor, *, append: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute `reference.ssru_step`.

        candidate, gate, index: arguments of the reference.
        ring: cells of the previous step, float32.
        append: write the new cells into the ring.

        Returns the cells in float32 and the outputs.
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
        taps: taps of the reference.
        left: number of taps before a position.
        packed: bounds of sequences packed in a batch of one, or None.
        softmax: normalise the taps of each head by a softmax.
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

    def attend_packed(self, qkv: QKV, packed: PackedSequences, heads: int, *, scale: float = 1.0) -> Tensor:
        """Compute `reference.attend_whole` for packed sequences.

        qkv: queries, keys and values of the reference, a batch of one.
        packed: bounds of the sequences.
        heads: number of heads.
        scale: factor of the queries.
        """
        _, positions, dim = qkv.q.shape
        context, width = torch.empty_like(qkv.q), dim // heads
        kernel = Kernel("attend.cu", "attend_packed", *load_form(width, *qkv, most=4), PACKED_GROUP)
        longest = min(packed.longest, positions)
        shared = PACKED_GROUP * (longest + width + ATTEND_WARPS * WARP * kernel.vector) * 4
        grid, block = (heads, positions // PACKED_GROUP, 1), (ATTEND_WARPS * WARP, 1, 1)
        scalars = heads, width, longest, float(scale)
        self.run(Call(kernel, grid, block, shared, (*qkv, packed.bounds, *scalars, context)))
        return context

    def attend(
        self,
        q: Tensor,
        memory: Memory,
        *,
        weights: bool,
        mean_heads: int = 0,
        scale: float = 1.0,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute `reference.attend`; the weights are None unless requested.

        q: queries of the reference.
        memory: keys, values and float32 mask of the reference, possibly the first columns of larger blocks.
        weights: return the mean of the weights over heads, float32.
        mean_heads: number of heads, from the first, in the mean; 0: all.
        scale: factor of the queries.
        """
        (slots, beams, _), (keys, values, mask) = q.shape, memory
        heads, width, source = keys.shape[1:]
        context = torch.empty_like(q)
        pitch = keys.stride(2)
        assert _is_memory(keys, values) and has_strides(mask, pitch, 1)
        scalars = beams, heads, width, source, pitch, float(scale)
        tiles = self.tensor_cores and not weights and q.data_ptr() % LOAD_BYTES == 0
        if tiles and _attends_by_tiles(q.dtype, *memory):
            tiled = Kernel("attend_tiled.cu", "attend_tiled", ELEMENTS[q.dtype], 8)
            grid = heads, ceil_div(beams, TILED_BEAMS), slots
            warps = self._tiled_warps(prod(grid), source)
            shared = warps * WARP * TILED_PARTS * 4 if warps > 1 else 0
            self.run(
                Call(tiled, grid, (warps * WARP, 1, 1), shared, (q, keys, values, mask, *scalars, context))
            )
            return context, None
        form = load_form(gcd(source, width, pitch), q, keys, values, most=4, contiguous=False)
        beam_bytes = 4 * (source + width + ATTEND_WARPS * WARP * form[1])
        group = bucket_of(BEAM_BUCKETS, beams)
        while group > 1 and group * beam_bytes > self.dynamic_bytes:  # a long source: fewer beams at once
            group //= 2
        kernel = Kernel("attend.cu", "attend", *form, group)
        head_weights = q.new_empty((slots, heads, beams, source), dtype=torch.float32) if weights else None
        grid = heads, ceil_div(beams, group), slots
        arguments = q, keys, values, mask, *scalars, context, head_weights
        self.run(Call(kernel, grid, (ATTEND_WARPS * WARP, 1, 1), group * beam_bytes, arguments))
        if head_weights is None:
            return context, None
        if mean_heads:
            heads, head_weights = mean_heads, head_weights[:, :mean_heads].contiguous()
        mean = q.new_empty((slots, beams, source), dtype=torch.float32)
        size, averaging = beams * source, Kernel("attend.cu", "mean_heads", *form)
        grid = ceil_div(size, 128), slots, 1
        self.run(Call(averaging, grid, (128, 1, 1), 0, (head_weights, heads, size, mean)))
        return context, mean

    def _tiled_warps(self, blocks: int, source: int) -> int:
        """Return the number of warps that share a source: one for each tile, as far as `blocks` blocks leave
        room on the device."""
        room = SHARED_SOURCE_WARPS * self.processors // max(blocks, 1)
        return max(1, min(ceil_div(source, TILED_POSITIONS), MAX_TILED_WARPS, room))

    def glu(self, x: Tensor) -> Tensor:
        """Compute torch's `glu` of x [..., 2 * dim] over the last axis."""
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
    ) -> tuple[Tensor | None, Tensor]:
        """Compute x + residual and its norm over the last axis.

        x: [..., dim]; [slots, beams, dim] with a temperature.
        residual: tensor of the shape of x, or None.
        norm: layer norm or root-mean-square norm.
        total: return the sum too.
        temperature: float32 [slots], divisor of the normalised rows of each slot, or None.
        """
        dim, rows = x.shape[-1], x.numel() // x.shape[-1]
        kernel = Kernel("add_norm.cu", "add_norm", *load_form(dim, x, residual, norm.gain, norm.shift))
        sum_, y = torch.empty_like(x) if total else None, torch.empty_like(x)
        threads = min(256, ceil_div(dim, kernel.vector * WARP) * WARP)
        beams = x.shape[1] if x.dim() == 3 else 1
        tensors = x, residual, norm.gain, norm.shift, temperature
        arguments = *tensors, dim, beams, norm.epsilon, sum_, y
        self.run(Call(kernel, (rows, 1, 1), (threads, 1, 1), dim * 4, arguments))
        return sum_, y


def _attends_by_tiles(dtype: torch.dtype, keys: Tensor, values: Tensor, mask: Tensor) -> bool:
    """Return whether tensor cores can attend: heads of at most 64 channels, and loads of 16 aligned bytes.

    dtype: type of the model.
    keys, values, mask: memory of `reference.attend`.
    """
    width, source, pitch = keys.shape[2], keys.shape[3], keys.stride(2)
    return (
        dtype in (torch.float16, torch.bfloat16)
        and width % 16 == 0
        and width <= MAX_HEAD_WIDTH
        and source % 8 == 0
        and pitch % 8 == 0
        and not any(t.data_ptr() % LOAD_BYTES for t in (keys, values, mask))
    )


def _is_memory(keys: Tensor, values: Tensor) -> bool:
    """Return whether `Kernels.attend` accepts the layout: the first positions of blocks of one size.

    keys: [slots, heads, width, source].
    values: [slots, heads, source, width].
    """
    _, heads, width, _ = keys.shape
    pitch = keys.stride(2)
    whole = heads * width * pitch, width * pitch
    return has_strides(keys, *whole, pitch, 1) and has_strides(values, *whole, width, 1)


def _head_channels(x: Tensor, taps: Tensor) -> int:
    return x.shape[2] // taps.shape[-2]


def _conv_sizes(beams: int, channels: int, taps: Tensor) -> tuple[int, int, int, int, int]:
    """Return beams, channels, heads, width, and 1 if the taps are the same at each step, else 0."""
    return beams, channels, taps.shape[-2], taps.shape[-1], int(taps.dim() == 2)


def step_geometry(
    slots: Any,
    beams: int,
    channels: int,
    kernels: tuple[int, int],
    vector: int,
    most: int = CONVOLUTION_THREADS,
) -> tuple[tuple[int, Any, int], tuple[int, int, int], int]:
    """Return grid, block and bytes of shared memory for a step of the convolution.

    slots: number of slots, or an expression of TensorRT.
    beams: number of beams of a slot.
    channels: number of channels.
    kernels: number of heads and number of taps of each.
    vector: number of channels per load.
    most: largest number of threads of a block; with more threads each has fewer taps.
    """
    heads, width = kernels
    block_beams = min(beams, 4)
    parts = 1  # threads that share the taps of a channel, as many as the block has room for
    while parts < width and 2 * parts * block_beams * WARP <= min(most, CONVOLUTION_THREADS):
        parts *= 2
    block = WARP, parts, block_beams
    block_heads = min(WARP, (WARP * vector - 1) // (channels // heads) + 2)  # as in dynamic_conv_step.cu
    shared = block_beams * (parts * WARP * (vector + 1) + (block_heads + 1) * width) * 4
    return (ceil_div(channels, WARP * vector), slots, 1), block, shared
