"""The CUDA kernels as functions of torch tensors: which one, with which grid, block and arguments.

What runs a call is given: a CUDA device (`engine.kernels.launch`), or, in tests, a CPU that runs the same
source. What each function computes is said by `engine.kernels.reference` and `engine.models.select`; sums are
fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

import torch
from torch import Tensor

ELEMENTS: Final = {torch.float32: "float", torch.float16: "fp16", torch.bfloat16: "bf16"}
WARP: Final = 32
WIDEST: Final = 16  # bytes that a thread loads at once
CHUNK: Final = 64  # threads of a step's block along the channels
TILE: Final = 32  # time steps of a block of whole sequences
# as in attend.cu and select.cu
BEAMS: Final = 8
WARPS: Final = 4
ROOM: Final = 1024
COLUMNS: Final = 256  # threads that select; each row's columns
MOST: Final = 1024  # threads of a block


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry of a .cu file, compiled for one type of element and one number of elements loaded at once."""

    file: str
    entry: str
    element: str
    vector: int

    @property
    def defines(self) -> dict[str, str]:
        return {"CONVOY_ELEMENT": self.element, "CONVOY_VECTOR": str(self.vector)}


@dataclass(frozen=True, slots=True)
class Call:
    """One launch. shared: bytes of dynamic shared memory. arguments: in the kernel's order; a tensor stands
    for its address and None for a null one, int is a 32-bit integer and float a 32-bit float."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Tensor | int | float | None, ...]


Run = Callable[[Call], None]


class Kernels:
    """The kernels on one device. All tensors are contiguous, of one element type unless said otherwise."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def dynamic_conv_step(
        self, x: Tensor, taps: Tensor, ring: Tensor | None, index: Tensor | None, *, softmax: bool = False
    ) -> Tensor:
        """See `reference.dynamic_conv_step`; softmax: over each kernel's taps, before they are applied."""
        y = torch.empty_like(x)
        kernel = Kernel(
            "dynamic_conv_step.cu", "dynamic_conv_step", *_form(_per_head(x, taps), x, taps, ring)
        )
        sizes = _convolution(x.shape[1], x.shape[2], taps)
        grid, block = _step_geometry(x.shape[0], x.shape[1], x.shape[2], kernel.vector)
        self.run(Call(kernel, grid, block, 0, (x, taps, ring, index, *sizes, int(softmax), y)))
        return y

    def dynamic_conv_step_append(
        self, x: Tensor, taps: Tensor, past: tuple[Tensor, Tensor, Tensor], *, softmax: bool, glu: bool
    ) -> Tensor:
        """The same with the newest input written into the ring.

        past: ring, index and clock (int64 [1], on the device); column clock % (K - 1) of the ring is
        replaced. glu: x is [slots, beams, 2 * channels], and what is convolved and remembered is its GLU;
        only where taps do not depend on that (LightConv).
        """
        ring, index, clock = past
        slots, beams, doubled = x.shape
        channels = doubled // (2 if glu else 1)
        y = x.new_empty((slots, beams, channels))
        form = _form(channels // taps.shape[-2], x, taps, ring)
        kernel = Kernel("dynamic_conv_step.cu", "dynamic_conv_step_append", *form)
        sizes = _convolution(beams, channels, taps)
        grid, block = _step_geometry(slots, beams, channels, kernel.vector)
        flags = int(softmax), int(glu)
        self.run(Call(kernel, grid, block, 0, (x, taps, index, clock, *sizes, *flags, ring, y)))
        return y

    def dynamic_conv(self, x: Tensor, taps: Tensor, left: int, *, softmax: bool = False) -> Tensor:
        """See `reference.dynamic_conv`; softmax: over each kernel's taps, before they are applied."""
        batch, time, channels = x.shape
        y = torch.empty_like(x)
        kernel = Kernel("dynamic_conv.cu", "dynamic_conv", *_form(_per_head(x, taps), x, taps, most=4))
        heads, width, fixed = _convolution(0, channels, taps)[2:]
        chunk = WARP * kernel.vector
        grid = ceil_div(channels, chunk), ceil_div(time, TILE), batch
        shared = (TILE + width - 1) * chunk * 4
        scalars = time, channels, heads, width, left, fixed, int(softmax), TILE
        self.run(Call(kernel, grid, (WARP, 8, 1), shared, (x, taps, *scalars, y)))
        return y

    def attend(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """See `reference.attend`; mask is float32. weights: whether their mean, float32, is wanted.

        Memory may be the first columns of blocks that have room for more: keys, values and mask alike.
        """
        slots, beams, _ = q.shape
        heads, width, source = keys.shape[1:]
        context = torch.empty_like(q)
        pitch = keys.stride(2)
        assert _strided(keys, heads * width * pitch, width * pitch, pitch, 1)
        assert _strided(values, heads * width * pitch, width * pitch, width, 1)
        assert _strided(mask, pitch, 1)
        form = _form(gcd(source, width, pitch), q, keys, values, most=4, contiguous=False)
        kernel = Kernel("attend.cu", "attend", *form)
        each = q.new_empty((slots, heads, beams, source), dtype=torch.float32) if weights else None
        shared = BEAMS * (source + width) + WARPS * BEAMS * WARP * kernel.vector
        grid = heads, ceil_div(beams, BEAMS), slots
        scalars = beams, heads, width, source, pitch
        arguments = q, keys, values, mask, *scalars, context, each
        self.run(Call(kernel, grid, (WARPS * WARP, 1, 1), shared * 4, arguments))
        if each is None:
            return context, None
        mean = q.new_empty((slots, beams, source), dtype=torch.float32)
        size, averaging = beams * source, Kernel("attend.cu", "mean_heads", *form)
        grid = ceil_div(size, 128), slots, 1
        self.run(Call(averaging, grid, (128, 1, 1), 0, (each, heads, size, mean)))
        return context, mean

    def select(
        self, logits: Tensor, rules: Sequence[Tensor], unk: int | None, eos: int, k: int
    ) -> tuple[Tensor, Tensor]:
        """See `engine.models.select`, of logits [slots, beams, vocab] instead of their log-softmax; rules:
        its `Rules`, penalties float32. Returns scores float32; ids are 0 where a score is -inf."""
        forced, banned, unk_penalty, eos_penalty = rules
        slots, beams, vocab = logits.shape
        threads = max(COLUMNS, ceil_div(k, WARP) * WARP)
        if threads > MOST:
            raise ValueError(f"{k} candidates of a row; the kernel selects at most {MOST}")
        kernel = Kernel("select.cu", "select_best", *_form(vocab, logits))
        scores = logits.new_empty((slots, beams, k), dtype=torch.float32)
        ids = logits.new_empty((slots, beams, k), dtype=torch.int64)
        shared = 8 * (threads + ROOM) + 4 * k + 4 * ceil_div(vocab, 32)
        scalars = beams, vocab, banned.shape[2], -1 if unk is None else unk, eos, k
        arguments = logits, forced, banned, unk_penalty, eos_penalty, *scalars, scores, ids
        self.run(Call(kernel, (slots * beams, 1, 1), (threads, 1, 1), shared, arguments))
        return scores, ids

    def add_norm(
        self, x: Tensor, residual: Tensor | None, norm: tuple[Tensor, Tensor, float], *, total: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Layer norm of x + residual over the last axis. norm: gain, bias, epsilon. total: whether the sum
        itself is wanted. Returns it and its norm."""
        gain, bias, epsilon = norm
        dim = x.shape[-1]
        kernel = Kernel("add_norm.cu", "add_norm", *_form(dim, x, residual, gain, bias))
        sum_, y = torch.empty_like(x) if total else None, torch.empty_like(x)
        threads = min(256, ceil_div(dim, kernel.vector * WARP) * WARP)
        arguments = x, residual, gain, bias, dim, epsilon, sum_, y
        self.run(Call(kernel, (x.numel() // dim, 1, 1), (threads, 1, 1), dim * 4, arguments))
        return sum_, y


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _strided(tensor: Tensor, *strides: int) -> bool:
    """Whether it lies in memory like that; how far apart the only entry of an axis is does not matter."""
    axes = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or have == want for size, have, want in axes)


def _form(axis: int, *tensors: Tensor | None, most: int = WIDEST, contiguous: bool = True) -> tuple[str, int]:
    """Element type and vector of a kernel that loads along an axis of this size. most: elements at once."""
    there = [t for t in tensors if t is not None]
    size = there[0].element_size()
    assert all((not contiguous or t.is_contiguous()) and t.dtype == there[0].dtype for t in there)
    vector = min(WIDEST // size, most)
    while axis % vector or any(t.data_ptr() % (vector * size) for t in there):
        vector //= 2
    return ELEMENTS[there[0].dtype], vector


def _per_head(x: Tensor, taps: Tensor) -> int:
    return x.shape[2] // taps.shape[-2]


def _convolution(beams: int, channels: int, taps: Tensor) -> tuple[int, int, int, int, int]:
    """beams, channels, heads, width and whether taps are the same at each step."""
    return beams, channels, taps.shape[-2], taps.shape[-1], int(taps.dim() == 2)


def _step_geometry(
    slots: int, beams: int, channels: int, vector: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    return (ceil_div(channels, CHUNK * vector), slots, 1), (CHUNK, min(beams, MOST // CHUNK), 1)
