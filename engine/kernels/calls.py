"""The CUDA kernels as functions of torch tensors: which one, with which grid, block and arguments.

What runs a call is given: a CUDA device (`engine.kernels.launch`), or, in tests, a CPU that runs the same
source. What each function computes is said by `engine.kernels.reference` and `engine.models.select`; sums are
fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Final

import torch
from torch import Tensor

ELEMENTS: Final = {torch.float32: "float", torch.float16: "fp16", torch.bfloat16: "bf16"}
WARP: Final = 32
WIDEST: Final = 16  # bytes that a thread loads at once
THREADS: Final = 512  # of a block of a step of the convolution
TILE: Final = 32  # time steps of a block of whole sequences
# as in attend.cu and select.cu
BEAMS: Final = (1, 2, 4, 8)
WARPS: Final = 4
ROOM: Final = 1024
COLUMNS: Final = 256  # threads that select; each row's columns
MOST: Final = 1024  # threads of a block
RANKED: Final = 512  # candidates of all parts of a row, at most
PARTS: Final = 32  # of a vocabulary
ROWS: Final = (1, 2, 4, 8)  # of our own products; cuBLAS has those of more
STAGED: Final = 96 * 1024  # bytes of rows that such a product may hold
PRODUCERS: Final = 8  # warps of its block
SPLIT: Final = 256  # a warp's share of a sum, at least, where a pair of outputs has several
SIZES: Final = {"product": "CONVOY_ROWS", "attend": "CONVOY_BEAMS"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry of a .cu file, compiled for one type of element and one number of elements loaded at once."""

    file: str
    entry: str
    element: str
    vector: int
    size: int | None = None  # what else its loops are unrolled for: rows, or beams

    @property
    def defines(self) -> dict[str, str]:
        more = {} if self.size is None else {SIZES[self.entry]: str(self.size)}
        return {"CONVOY_ELEMENT": self.element, "CONVOY_VECTOR": str(self.vector)} | more


SCATTER: Final = Kernel("scatter.cu", "scatter", "float", 1)


@dataclass(frozen=True, slots=True)
class Call:
    """One launch.

    shared: bytes of dynamic shared memory.
    arguments: in the kernel's order; a tensor stands for its address and None for a null one, int is a 32-bit
        integer and float a 32-bit float.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Tensor | int | float | None, ...]


Run = Callable[[Call], None]


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm over the last axis; gain and shift [dim]."""

    gain: Tensor
    shift: Tensor
    epsilon: float


@dataclass(frozen=True, slots=True)
class Finish:
    """What becomes of a product's sums, in this order.

    factor: multiplies them.
    activation: "relu", "glu" (the first half of the outputs is gated by the second) or none.
    residual: added, in fp32 or as the weights.
    wide: the result is fp32.
    """

    factor: float = 1.0
    activation: str | None = None
    residual: Tensor | None = None
    wide: bool = False


ACTIVATIONS: Final = {None: 0, "relu": 1, "glu": 2}


class Kernels:
    """The kernels on one device. All tensors are contiguous, of one element type unless said otherwise."""

    def __init__(self, run: Run, processors: int = 132) -> None:
        """processors: multiprocessors of the device, which decide how work is shared but no result."""
        self.run, self.processors = run, processors

    def fits(self, x: Tensor, weight: Tensor) -> bool:
        """Tell whether `product` takes rows [..., dim] by weights [outputs, dim]."""
        dim = weight.shape[1]
        rows = x.numel() // max(dim, 1)
        return 0 < rows <= ROWS[-1] and _rung(ROWS, rows) * dim * weight.element_size() <= STAGED

    def product(
        self,
        x: Tensor,
        weights: tuple[Tensor, Tensor | None],
        finish: Finish,
        norm: Norm | None = None,
        heat: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute a linear map of few rows, what goes before and after it included.

        x: [slots, beams, dim], in fp32 or as the weights.
        weights: [outputs, dim], and a bias [outputs] or none.
        norm: of x.
        heat: float32 [slots], what each slot's rows are divided by.

        Returns the result [slots, beams, outputs] (half as many after a GLU) and, where there is a norm and
        no heat, the normalised x.
        """
        weight, bias = weights
        outputs, dim = weight.shape
        rows, glu = x.numel() // dim, finish.activation == "glu"
        element, vector = _form(dim, weight)
        kernel = Kernel("product.cu", "product", element, vector, _rung(ROWS, rows))
        kind = torch.float32 if finish.wide else weight.dtype
        y = x.new_empty((*x.shape[:-1], outputs // 2 if glu else outputs), dtype=kind)
        normed = torch.empty_like(x, dtype=weight.dtype) if norm and heat is None else None
        residual = finish.residual
        assert x.is_contiguous() and (
            residual is None or (residual.is_contiguous() and residual.shape == y.shape)
        )
        pairs, split = ceil_div(outputs, 2), 1
        # as many warps as all multiprocessors hold, as long as each has something to sum
        while split < PRODUCERS and pairs * split < 16 * self.processors and dim >= 2 * split * SPLIT:
            split *= 2
        grid = min(ceil_div(pairs * split, PRODUCERS), 4 * self.processors), 1, 1
        wide = (int(t is not None and t.dtype != weight.dtype) for t in (x, residual, y))
        sizes = rows, dim, outputs, split, x.shape[-2], ACTIVATIONS[finish.activation], *wide
        parts = (norm.gain, norm.shift, norm.epsilon) if norm else (None, None, 0.0)
        tensors = x, weight, bias, residual, *parts[:2], heat
        shared = (kernel.size or 1) * dim * weight.element_size()
        arguments = *tensors, *sizes, float(parts[2]), float(finish.factor), normed, y
        self.run(Call(kernel, grid, (PRODUCERS * WARP, 1, 1), shared, arguments))
        return y, normed

    def embed(
        self, tokens: Tensor, table: Tensor, scale: float, signals: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Look up rows of `table` [vocab, dim] for tokens int64 [slots, beams], and scale them.

        Rows of a table of positions, for int64 [slots, 1], are added.
        """
        positions, signal = signals or (None, None)
        dim = table.shape[1]
        y = table.new_empty((*tokens.shape, dim))
        kernel = Kernel("embed.cu", "embed", *_form(dim, table, signal))
        threads = min(256, ceil_div(dim, kernel.vector * WARP) * WARP)
        scalars = tokens.shape[1], dim, float(scale)
        arguments = tokens.contiguous(), table, positions, signal, *scalars, y
        self.run(Call(kernel, (tokens.numel(), 1, 1), (threads, 1, 1), 0, arguments))
        return y

    def dynamic_conv_step(
        self, x: Tensor, taps: Tensor, ring: Tensor | None, index: Tensor | None, *, softmax: bool = False
    ) -> Tensor:
        """See `reference.dynamic_conv_step`.

        softmax: over each kernel's taps, before they are applied.
        """
        y = torch.empty_like(x)
        kernel = Kernel(
            "dynamic_conv_step.cu", "dynamic_conv_step", *_form(_per_head(x, taps), x, taps, ring)
        )
        sizes, geometry = (
            _convolution(x.shape[1], x.shape[2], taps),
            _geometry(x, taps, kernel),
        )
        self.run(Call(kernel, *geometry, (x, taps, ring, index, *sizes, int(softmax), y)))
        return y

    def dynamic_conv_step_append(
        self, x: Tensor, taps: Tensor, past: tuple[Tensor, Tensor, Tensor], *, softmax: bool = False
    ) -> Tensor:
        """Do as `dynamic_conv_step`, and write the newest input into the ring.

        past: ring, index and clock (int64 [1], on the device); column clock % (K - 1) of the ring is
            replaced.
        """
        ring, index, clock = past
        y = torch.empty_like(x)
        form = _form(_per_head(x, taps), x, taps, ring)
        kernel = Kernel("dynamic_conv_step.cu", "dynamic_conv_step_append", *form)
        sizes, geometry = (
            _convolution(x.shape[1], x.shape[2], taps),
            _geometry(x, taps, kernel),
        )
        self.run(Call(kernel, *geometry, (x, taps, index, clock, *sizes, int(softmax), ring, y)))
        return y

    def ssru_step(
        self, candidate: Tensor, gate: Tensor, ring: Tensor, index: Tensor, *, append: bool
    ) -> tuple[Tensor, Tensor]:
        """See `reference.ssru_step`; ring and cells are float32.

        append: write the cells into the ring.
        """
        slots, beams, dim = candidate.shape
        assert ring.dtype == torch.float32 and ring.is_contiguous() and index.is_contiguous()
        kernel = Kernel("ssru_step.cu", "ssru_step", ELEMENTS[candidate.dtype], 1)
        cells, y = torch.empty_like(candidate, dtype=torch.float32), torch.empty_like(candidate)
        threads = min(256, ceil_div(dim, WARP) * WARP)
        arguments = candidate, gate, index, beams, dim, int(append), ring, cells, y
        self.run(Call(kernel, (ceil_div(dim, threads), slots, 1), (threads, 1, 1), 0, arguments))
        return cells, y

    def dynamic_conv(self, x: Tensor, taps: Tensor, left: int, *, softmax: bool = False) -> Tensor:
        """See `reference.dynamic_conv`; softmax as for `dynamic_conv_step`."""
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
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, weights: bool, shown: int = 0
    ) -> tuple[Tensor, Tensor | None]:
        """See `reference.attend`; mask is float32.

        weights: whether their mean, float32, is wanted.

        Memory may be the first columns of blocks that have room for more: keys, values and mask alike.
        """
        slots, beams, _ = q.shape
        heads, width, source = keys.shape[1:]
        context = torch.empty_like(q)
        pitch = keys.stride(2)
        assert _has_strides(keys, heads * width * pitch, width * pitch, pitch, 1)
        assert _has_strides(values, heads * width * pitch, width * pitch, width, 1)
        assert _has_strides(mask, pitch, 1)
        form = _form(gcd(source, width, pitch), q, keys, values, most=4, contiguous=False)
        group = _rung(BEAMS, beams)
        kernel = Kernel("attend.cu", "attend", *form, group)
        each = q.new_empty((slots, heads, beams, source), dtype=torch.float32) if weights else None
        shared = group * (source + width + WARPS * WARP * kernel.vector)
        grid = heads, ceil_div(beams, group), slots
        scalars = beams, heads, width, source, pitch
        arguments = q, keys, values, mask, *scalars, context, each
        self.run(Call(kernel, grid, (WARPS * WARP, 1, 1), shared * 4, arguments))
        if each is None:
            return context, None
        if shown:
            heads, each = shown, each[:, :shown].contiguous()
        mean = q.new_empty((slots, beams, source), dtype=torch.float32)
        size, averaging = beams * source, Kernel("attend.cu", "mean_heads", *form)
        grid = ceil_div(size, 128), slots, 1
        self.run(Call(averaging, grid, (128, 1, 1), 0, (each, heads, size, mean)))
        return context, mean

    def select(
        self, logits: Tensor, rules: Sequence[Tensor], unk: int | None, eos: int, k: int
    ) -> tuple[Tensor, Tensor]:
        """See `engine.models.select`, of logits [slots, beams, vocab] instead of their log-softmax.

        rules: its `Rules`, penalties float32.

        Returns scores float32; ids are 0 where a score is -inf.
        """
        forced, banned, unk_penalty, eos_penalty = rules
        slots, beams, vocab = logits.shape
        threads = max(COLUMNS, ceil_div(k, WARP) * WARP)
        if threads > MOST:
            raise ValueError(f"{k} candidates of a row; the kernel selects at most {MOST}")
        kernel = Kernel("select.cu", "select_best", *_form(vocab, logits))
        rows, wide = slots * beams, logits.new_empty((slots, beams, k), dtype=torch.float32)
        scores, ids = wide, torch.empty_like(wide, dtype=torch.int64)
        # a row's parts are so many that all multiprocessors have something to read
        parts = max(1, min(PARTS, RANKED // k, self.processors // rows, vocab // COLUMNS))
        shared = 8 * (threads + ROOM) + 4 * k + 4 * ceil_div(vocab, 32)
        rare = -1 if unk is None else unk, eos, k
        penalties = unk_penalty, eos_penalty
        scanned: tuple[Tensor, Tensor, Tensor | None] = scores, ids, None
        if parts > 1:
            values = logits.new_empty((rows, parts, k), dtype=torch.float32)
            masses = logits.new_empty((rows, parts, 2), dtype=torch.float32)
            scanned = values, torch.empty_like(values, dtype=torch.int64), masses
        scalars = beams, vocab, banned.shape[2], *rare
        arguments = logits, forced, banned, *penalties, *scalars, *scanned
        self.run(Call(kernel, (rows, parts, 1), (threads, 1, 1), shared, arguments))
        if parts > 1:
            merging = Kernel("select.cu", "merge_best", kernel.element, kernel.vector)
            merged = logits, forced, *penalties, *scanned, beams, vocab, *rare, parts, scores, ids
            self.run(Call(merging, (rows, 1, 1), (COLUMNS, 1, 1), 8 * parts * k, merged))
        return scores, ids

    def scatter(self, plan: Tensor, items: Tensor, chunks: int) -> None:
        """Make copies of memory, the same for each item; plan and items are int64 on the device.

        plan: [terms, copies, 7], what each term of an item [items, terms] adds to each copy's target, source
            (0: zeros), rows, bytes of a row, bytes of it that are written, and from row to row in target and
            source.
        chunks: blocks that share a copy.
        """
        terms, copies, _ = plan.shape
        grid = copies * items.shape[0], chunks, 1
        self.run(Call(SCATTER, grid, (256, 1, 1), 0, (plan, items, terms, copies)))

    def add_norm(
        self, x: Tensor, residual: Tensor | None, norm: tuple[Tensor, Tensor, float], *, total: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Compute x + residual and its layer norm over the last axis.

        norm: gain, bias, epsilon.
        total: whether the sum itself is wanted.
        """
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


def _has_strides(tensor: Tensor, *strides: int) -> bool:
    """Whether it lies in memory like that; how far apart the only entry of an axis is does not matter."""
    axes = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or have == want for size, have, want in axes)


def _form(axis: int, *tensors: Tensor | None, most: int = WIDEST, contiguous: bool = True) -> tuple[str, int]:
    """Element type and vector of a kernel that loads along an axis of this size, `most` at once."""
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


def step_geometry(
    slots: Any, beams: int, channels: int, width: int, vector: int
) -> tuple[tuple[int, Any, int], tuple[int, int, int], int]:
    """Compute grid, block and shared bytes of a step of the convolution.

    They follow from the width of its kernels and of its loads. slots may be an expression of TensorRT's.
    """
    together = min(beams, 4)
    parts = 1
    while parts < width and 2 * parts * together * WARP <= THREADS:
        parts *= 2
    block = WARP, parts, together
    shared = together * parts * WARP * (vector + 1) * 4
    return (ceil_div(channels, WARP * vector), slots, 1), block, shared


def _geometry(
    x: Tensor, taps: Tensor, kernel: Kernel
) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
    slots, beams, channels = x.shape
    return step_geometry(slots, beams, channels, taps.shape[-1], kernel.vector)


def _rung(ladder: Sequence[int], size: int) -> int:
    """The first of a ladder that is not below a size, or its last."""
    return next((rung for rung in ladder if rung >= size), ladder[-1])
