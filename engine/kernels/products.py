"""Products of few rows as functions of torch tensors: which kernel, with which grid, block and arguments."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor

from engine.kernels.launches import (
    ELEMENTS,
    LOAD_BYTES,
    WARP,
    Address,
    Call,
    Kernel,
    Run,
    bucket_of,
    ceil_div,
    load_form,
)
from engine.kernels.linear import ACTIVATIONS, EmbeddingLookup, Epilogue, Norm

ROW_BUCKETS: Final = (1, 2, 4, 8)  # of product.cu
TILED_ROW_BUCKETS: Final = (*ROW_BUCKETS, 16)  # of tiled_product.cu; cuBLAS has products of more rows
MAX_STAGED_BYTES: Final = 96 * 1024  # bytes of rows that such a product may hold
PRODUCT_WARPS: Final = 8  # warps of its block
MIN_WARP_SHARE: Final = 256  # a warp's share of a sum, at least, where a pair of outputs has several
# as in tiled_product.cu
TILE_OUTPUTS: Final = 16  # outputs that a block computes at a time, or pairs of a GLU
TILE_DEPTH: Final = 32  # what dim is a multiple of
TILE_PAD: Final = 32  # elements behind each row that is staged
MAX_NORMED: Final = 1024  # dim of rows that are normalised
LONG_DIM: Final = 2048  # beyond it 16 warps share a sum, else 8
MAX_TILED_BYTES: Final = 80 * 1024  # bytes of staged rows; more are read where they lie
MAX_AHEAD_BYTES: Final = 8 * 2**20  # bytes of weights that are fetched ahead; caches hold a few times as much
LONG_ENTRIES: Final = ("tiled_long", "tiled_unstaged")  # of 16 warps


class _Launch(NamedTuple):
    """A kernel and how much of the device it gets.

    shared: bytes of dynamic shared memory.
    """

    kernel: Kernel
    blocks: int
    threads: int
    shared: int


class Products:
    """Matrix products of up to 16 rows, with what stands before and behind them."""

    def __init__(self, run: Run, processors: int = 132, *, tensor_cores: bool = True) -> None:
        """Take what runs calls.

        run: on the device.
        processors: its multiprocessors, which decide how work is shared but no result.
        tensor_cores: whether these have the instructions of tiled_product.cu.
        """
        self.run, self.processors, self.tensor_cores = run, processors, tensor_cores
        self._last_weight, self._weight_after = 0, dict[int, Tensor]()

    def fits(
        self,
        x: Tensor,
        weight: Tensor,
        norm: Norm | None = None,
        *,
        constant: bool = False,
        glu: bool = False,
    ) -> bool:
        """Tell whether `product` takes rows: up to 8 where all can be staged, up to 16 by tensor cores.

        x: [..., dim], whose values need not be there.
        weight: [outputs, dim].
        norm: of x.
        constant: as of `product`.
        glu: whether a GLU follows.
        """
        dim = weight.shape[1]
        rows = x.numel() // max(dim, 1)
        if rows > ROW_BUCKETS[-1]:
            return constant and self._tile_entry(rows, weight, norm, glu=glu) is not None
        staged = bucket_of(ROW_BUCKETS, rows) * dim * weight.element_size()
        return rows > 0 and staged <= MAX_STAGED_BYTES

    def takes_lookup(self, fed: EmbeddingLookup, weight: Tensor, *, glu: bool = False) -> bool:
        """Tell whether `product` takes rows of a table before they are there.

        fed: the rows.
        weight: [outputs, dim], which no kernel writes.
        glu: whether a GLU follows.
        """
        tables = fed.table, *(() if fed.position_rows is None else fed.position_rows[1:])
        return (
            self._tile_entry(fed.tokens.numel(), weight, None, glu=glu)
            in ("tiled_product", "tiled_glu", "tiled_long")
            and all(t.dtype == weight.dtype and t.is_contiguous() for t in tables)
            and not any(t.data_ptr() % LOAD_BYTES for t in tables)
        )

    def product(
        self,
        x: Tensor | EmbeddingLookup,
        weights: tuple[Tensor, Tensor | None],
        epilogue: Epilogue,
        norm: Norm | None = None,
        temperature: Tensor | None = None,
        *,
        constant: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute a linear map of few rows with what goes before and after it.

        x: [slots, beams, dim], in fp32 or as the weights; or, without norm and heat, what `takes_lookup`.
        weights: [outputs, dim], and a bias [outputs] or none.
        finish: what becomes of the sums.
        norm: of x.
        heat: float32 [slots], divisors of each slot's rows.
        constant: whether no kernel writes the weights, so that they may be read before others have ended.

        Returns the result [slots, beams, outputs] (half as many after a GLU) and, where there is a norm and
        no heat, the normalised x; of a lookup its rows.
        """
        (weight, bias), residual = weights, epilogue.residual
        outputs, dim = weight.shape
        normed = (
            weight.new_empty(x.shape)
            if isinstance(x, EmbeddingLookup) or (norm and temperature is None)
            else None
        )
        fed, (x, of_lookup) = x.shape, _split_lookup(x)
        rows, glu = math.prod(fed[:-1]), epilogue.activation == "glu"
        kind = torch.float32 if epilogue.float32 else weight.dtype
        y = weight.new_empty((*fed[:-1], outputs // 2 if glu else outputs), dtype=kind)
        assert x.is_contiguous()
        if rows > ROW_BUCKETS[-1] and x.data_ptr() % LOAD_BYTES:
            x = x.clone()  # a part of something; nobody but tensor cores takes it
        tiles = constant and x.data_ptr() % LOAD_BYTES == 0
        entry = self._tile_entry(rows, weight, norm, glu=glu) if tiles else None
        assert temperature is None or entry != "tiled_unstaged"
        x = x.to(weight.dtype) if entry == "tiled_unstaged" else x
        assert of_lookup[0] is None or (norm is None and temperature is None and entry)
        assert residual is None or (residual.is_contiguous() and residual.shape == y.shape)
        float32 = (int(t is not None and t.dtype != weight.dtype) for t in (x, residual, y))
        options = fed[-2], ACTIVATIONS[epilogue.activation], *float32
        parts = (norm.gain, norm.shift, norm.epsilon) if norm else (None, None, 0.0)
        tensors = x, weight, bias, residual, *parts[:2], temperature
        sizes, factors = (rows, dim, outputs), (float(parts[2]), float(epilogue.factor))
        if entry is None:
            pairs = ceil_div(outputs, 2)
            split = self._split(pairs, dim)
            launch = self._warp_launch(weight, rows, pairs * split)
            arguments = *tensors, *sizes, split, *options, *factors, normed, y
        else:
            launch = self._tile_launch(entry, weight, rows, y.shape[-1])
            prefetch = self._next_weight(weight)
            arguments = *tensors, *of_lookup, *sizes, *options, *factors, *prefetch, normed, y
        blocks, threads = (launch.blocks, 1, 1), (launch.threads, 1, 1)
        self.run(Call(launch.kernel, blocks, threads, launch.shared, arguments))
        return y, normed

    def _warp_launch(self, weight: Tensor, rows: int, warps: int) -> _Launch:
        """The launch of product.cu for a product of so many rows, by so many warps where the device has room
        for them."""
        dim, size = weight.shape[1], bucket_of(ROW_BUCKETS, rows)
        assert rows <= size
        kernel = Kernel("product.cu", "product", *load_form(dim, weight), size)
        blocks = min(ceil_div(warps, PRODUCT_WARPS), 4 * self.processors)
        return _Launch(kernel, blocks, PRODUCT_WARPS * WARP, size * dim * weight.element_size())

    def _tile_launch(self, entry: str, weight: Tensor, rows: int, columns: int) -> _Launch:
        """The launch of an entry of tiled_product.cu for a product of so many rows, whose result has so many
        columns."""
        dim, size, each = weight.shape[1], bucket_of(TILED_ROW_BUCKETS, rows), weight.element_size()
        assert rows <= size
        kernel = Kernel("tiled_product.cu", entry, ELEMENTS[weight.dtype], LOAD_BYTES // each, size)
        blocks = min(ceil_div(columns, TILE_OUTPUTS), 2 * self.processors)
        threads = (2 if entry in LONG_ENTRIES else 1) * PRODUCT_WARPS * WARP
        shared = 0 if entry == "tiled_unstaged" else size * (dim + TILE_PAD) * each
        return _Launch(kernel, blocks, threads, shared)

    def _next_weight(self, weight: Tensor) -> tuple[Address, int]:
        """Tell where the weight of the product behind this one lies, and how many bytes to fetch ahead.

        weight: of this one, which no kernel writes.

        Each step makes the same products, so it is what came behind this one when it was last made; a wrong
        guess costs nothing but its bytes. Weights that have been seen are kept, so the address is good.
        """
        self._weight_after[self._last_weight] = weight
        self._last_weight = weight.data_ptr()
        behind = self._weight_after.get(self._last_weight)
        if behind is None:
            return Address(0), 0
        return Address(behind.data_ptr()), min(behind.numel() * behind.element_size(), MAX_AHEAD_BYTES)

    def _tile_entry(self, rows: int, weight: Tensor, norm: Norm | None, *, glu: bool) -> str | None:
        """The kernel by tensor cores for a product of so many rows; None where it has none."""
        dim, size = weight.shape[1], bucket_of(TILED_ROW_BUCKETS, rows)
        read = (weight,) if norm is None else (weight, norm.gain, norm.shift)
        takes = (
            self.tensor_cores
            and rows <= size
            and weight.dtype in (torch.float16, torch.bfloat16)
            and dim % TILE_DEPTH == 0
            and (norm is None or dim <= MAX_NORMED)
            and not any(t.data_ptr() % LOAD_BYTES for t in read)
        )
        if not takes:
            return None
        if size * (dim + TILE_PAD) * weight.element_size() > MAX_TILED_BYTES:
            return None if glu or norm is not None else "tiled_unstaged"
        return "tiled_glu" if glu else "tiled_long" if dim > LONG_DIM else "tiled_product"

    def _split(self, pairs: int, dim: int) -> int:
        """Warps that share the sums of a pair of outputs: as many as all multiprocessors hold, as long as
        each has something to sum."""
        split, room = 1, 16 * self.processors
        while split < PRODUCT_WARPS and pairs * split < room and dim >= 2 * split * MIN_WARP_SHARE:
            split *= 2
        return split


def _split_lookup(
    x: Tensor | EmbeddingLookup,
) -> tuple[Tensor, tuple[Tensor | None, Tensor | None, Tensor | None, float]]:
    """Rows, or the table that they come from, and tokens, positions, signals and scale of a lookup."""
    if not isinstance(x, EmbeddingLookup):
        return x, (None, None, None, 1.0)
    positions, position_rows = x.position_rows or (None, None)
    return x.table, (x.tokens.contiguous(), positions, position_rows, float(x.scale))
