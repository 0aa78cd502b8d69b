"""Matrix products of few rows as functions of torch tensors."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor

from engine.kernels.int8 import Int8Weight, bytes_of, stored
from engine.kernels.launches import (
    ELEMENTS,
    LOAD_BYTES,
    WARP,
    Call,
    Kernel,
    Run,
    bucket_of,
    ceil_div,
    load_form,
)
from engine.kernels.linear import ACTIVATIONS, EmbeddingLookup, Epilogue, Norm

ROW_BUCKETS: Final = (1, 2, 4, 8)  # compiled numbers of rows of product.cu
TILED_ROW_BUCKETS: Final = (*ROW_BUCKETS, 16)  # compiled numbers of rows of tiled_product.cu
FIRST_WIDE_ROWS: Final = TILED_ROW_BUCKETS[-1] + 1
WIDE_ROW_BUCKETS: Final = (32, 64)  # of wide_product.cu; cuBLAS computes more rows
MAX_STAGED_BYTES: Final = 96 * 1024  # shared memory for rows in product.cu, if a block can have as much
PRODUCT_WARPS: Final = 8  # warps of a block
MIN_WARP_SHARE: Final = 256  # least number of terms for each of several warps that share a sum
USUAL_SHARED_BYTES: Final = 227 * 1024  # shared memory of a block from compute capability 9.0 on
STATIC_BYTES: Final = 1024  # static shared memory of product.cu and attend.cu, at most
# as in tiled_product.cu
TILE_OUTPUTS: Final = 16  # outputs, or pairs of a GLU, that a block computes at once
TILE_DEPTH: Final = 32  # dim must be a multiple of this
TILE_PAD: Final = 32  # padding of a staged row, in elements
MAX_NORMED: Final = 1024  # largest dim of normalised rows
LONG_DIM: Final = 2048  # above this dim 16 warps share a sum instead of 8
MAX_TILED_BYTES: Final = 80 * 1024  # staged rows in shared memory; larger rows stay in global memory
WIDE_PAD: Final = 4  # padding of a row of partial sums in wide_product.cu, in floats
# largest number of bytes that the blocks of wide_product.cu read of their rows, by prediction; 0 leaves these
# products to cuBLAS. To read 16 MiB from an H100's cache takes 3 us, and cuBLAS needs 4 us besides its bytes
MAX_REREAD_BYTES: Final = 16 << 20
MAX_ROW_GROUPS: Final = 2  # blocks of wide_product.cu that share the rows of a weight with few tiles; 1 or 2
LONG_ENTRIES: Final = ("tiled_long", "tiled_unstaged")  # entries with 16 warps


class _Launch(NamedTuple):
    """A kernel and its share of the device.

    shared: bytes of dynamic shared memory of a block.
    """

    kernel: Kernel
    blocks: int
    threads: int
    shared: int


class Products:
    """Matrix products of up to 64 rows, fused with the operations before and after them."""

    def __init__(
        self,
        run: Run,
        processors: int = 132,
        *,
        tensor_cores: bool = True,
        shared_bytes: int = USUAL_SHARED_BYTES,
    ) -> None:
        """run: launches a kernel on the device.
        processors: number of multiprocessors; it changes how work is divided, never a result.
        tensor_cores: the device has the instructions of tiled_product.cu.
        shared_bytes: bytes of shared memory that a block can have on the device.
        """
        self.run, self.processors, self.tensor_cores = run, processors, tensor_cores
        self.dynamic_bytes = shared_bytes - STATIC_BYTES  # what a launch may ask for

    def fits(
        self,
        x: Tensor,
        weight: Tensor,
        norm: Norm | None = None,
        *,
        constant: bool = False,
        glu: bool = False,
    ) -> bool:
        """Return whether `product` accepts x: up to 8 rows that fit in shared memory, 16 with tensor cores,
        and 64 without a norm if the weight is small. A weight of 8 bits needs tensor cores.

        x: [..., dim]; only the shape is used.
        weight: [outputs, dim].
        norm: layer norm of x before the product, or None.
        constant: no kernel writes the weight.
        glu: a GLU follows the product.
        """
        dim = weight.shape[1]
        rows = x.numel() // max(dim, 1)
        if rows > ROW_BUCKETS[-1] or bytes_of(weight):
            tiled = self._tile_entry(rows, weight, norm, glu=glu) is not None
            return rows > 0 and constant and (tiled or (norm is None and self._takes_wide(rows, weight)))
        staged = bucket_of(ROW_BUCKETS, rows) * dim * weight.element_size()
        return rows > 0 and staged <= min(MAX_STAGED_BYTES, self.dynamic_bytes)

    def takes_lookup(self, lookup: EmbeddingLookup, weight: Tensor, *, glu: bool = False) -> bool:
        """Return whether `product` accepts a lookup as its rows.

        lookup: rows of a table.
        weight: [outputs, dim], a constant.
        glu: a GLU follows the product.
        """
        tables = lookup.table, *(() if lookup.position_rows is None else lookup.position_rows[1:])
        return (
            self._tile_entry(lookup.tokens.numel(), weight, None, glu=glu)
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
        """Compute a linear map of few rows with the operations before and after it.

        x: [slots, beams, dim], in fp32 or in the type of the weights; or a lookup accepted by `takes_lookup`.
        weights: weight [outputs, dim] and bias [outputs] or None.
        epilogue: operations on the sums.
        norm: layer norm of x, or None; not with a lookup, or more than 16 rows.
        temperature: float32 [slots], divisors of the rows of each slot, or None; as the norm.
        constant: no kernel writes the weights, so they may be read before earlier kernels have ended.

        Returns the result [slots, beams, outputs] (half as many after a GLU), and the input of the product if
        the kernel computed it: the normalised x without temperature, or the rows of a lookup; None otherwise.
        """
        (weight, bias), residual = weights, epilogue.residual
        outputs, dim = weight.shape
        memory, numbers = stored(weight), bytes_of(weight)
        computed = isinstance(x, EmbeddingLookup) or (norm and temperature is None)
        normed = memory.new_empty(x.shape, dtype=weight.dtype) if computed else None
        shape, (x, lookup) = x.shape, _split_lookup(x)
        rows, glu = math.prod(shape[:-1]), epilogue.activation == "glu"
        if rows >= FIRST_WIDE_ROWS and norm is None and temperature is None:
            return self._wide_product(x, weights, epilogue), None
        kind = torch.float32 if epilogue.float32 else weight.dtype
        y = memory.new_empty((*shape[:-1], outputs // 2 if glu else outputs), dtype=kind)
        assert x.is_contiguous()
        # rows of a view may be unaligned
        x = x.clone() if (rows > ROW_BUCKETS[-1] or numbers) and x.data_ptr() % LOAD_BYTES else x
        tiles = constant and x.data_ptr() % LOAD_BYTES == 0
        entry = self._tile_entry(rows, weight, norm, glu=glu) if tiles else None
        assert temperature is None or entry != "tiled_unstaged"
        x = x.to(weight.dtype) if entry == "tiled_unstaged" else x
        assert lookup[0] is None or (norm is None and temperature is None and entry)
        assert residual is None or (residual.is_contiguous() and residual.shape == y.shape)
        # the kernel's flags: whether x, residual and result are float32 instead of the weight's type
        float32 = (int(t is not None and t.dtype != weight.dtype) for t in (x, residual, y))
        options = shape[-2], ACTIVATIONS[epilogue.activation], *float32
        parts = (norm.gain, norm.shift, norm.epsilon) if norm else (None, None, 0.0)
        tensors = bias, residual, *parts[:2], temperature
        sizes, factors = (rows, dim, outputs), (float(parts[2]), float(epilogue.factor))
        if entry is None:
            pairs = ceil_div(outputs, 2)
            split = self._split(pairs, dim)
            launch = self._warp_launch(weight, rows, pairs * split)
            assert numbers is None
            arguments = x, weight, *tensors, *sizes, split, *options, *factors, normed, y
        else:
            launch = self._tile_launch(entry, weight, rows, y.shape[-1])
            scales = numbers and numbers.scales
            arguments = x, memory, scales, *tensors, *lookup, *sizes, *options, *factors, normed, y
        self.run(Call(launch.kernel, (launch.blocks, 1, 1), (launch.threads, 1, 1), launch.shared, arguments))
        return y, normed

    def takes_list(self, x: Tensor, weight: Tensor, norm: Norm | None) -> bool:
        """Return whether `listed_product` accepts x.

        x: [slots, beams, dim]; only the shape is used.
        weight: [vocab, dim], a constant.
        norm: layer norm of x before the product, or None.
        """
        return self._tile_entry(x.shape[1], weight, norm, glu=False) == "tiled_product"

    def listed_product(
        self,
        x: Tensor,
        weights: tuple[Tensor, Tensor | None],
        among: Tensor,
        norm: Norm | None = None,
        temperature: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the logits of the listed tokens of each slot.

        x: [slots, beams, dim], in fp32 or in the type of the weights, accepted by `takes_list`.
        weights: weight [vocab, dim] and bias [vocab] or None, constants.
        among: int64 [slots, W], tokens of each slot: a forced one for each beam, or a negative number, then a
            list with negative numbers behind it.
        norm: layer norm of x, or None.
        temperature: float32 [slots], divisors of the rows of each slot, or None.

        Returns logits [slots, beams, vocab] in float32, -inf for other tokens, and the normalised x without
        temperature if the kernel computed it.
        """
        (weight, bias), (slots, beams, dim), numbers = weights, x.shape, bytes_of(weights[0])
        vocab, listed = weight.shape[0], among.shape[1]
        x = x.clone() if x.data_ptr() % LOAD_BYTES else x
        assert x.is_contiguous() and among.is_contiguous() and among.shape[0] == slots
        y = x.new_full((slots, beams, vocab), -torch.inf, dtype=torch.float32)
        normed = x.new_empty(x.shape, dtype=weight.dtype) if norm and temperature is None else None
        launch = self._tile_launch("tiled_listed", weight, beams, listed)
        gain, shift, epsilon = (norm.gain, norm.shift, norm.epsilon) if norm else (None, None, 0.0)
        tensors = x, stored(weight), numbers and numbers.scales, bias, gain, shift, temperature, among
        scalars = dim, listed, beams, vocab, int(x.dtype != weight.dtype), float(epsilon)
        grid, block = (launch.blocks, slots, 1), (launch.threads, 1, 1)
        self.run(Call(launch.kernel, grid, block, launch.shared, (*tensors, *scalars, normed, y)))
        return y, normed

    def expand(self, weight: Int8Weight) -> Tensor:
        """Return a weight of 8 bits in its type, for a product of many rows by torch."""
        (values, scales), dim = weight.parts, weight.shape[1]
        y = values.new_empty(values.shape, dtype=weight.dtype)
        kernel = Kernel("expand.cu", "expand", *load_form(math.gcd(dim, values.data_ptr()), y))
        threads = min(256, ceil_div(dim, kernel.vector * WARP) * WARP)
        arguments = values, scales, dim, y
        self.run(Call(kernel, (values.shape[0], 1, 1), (threads, 1, 1), 0, arguments))
        return y

    def _takes_wide(self, rows: int, weight: Tensor) -> bool:
        """Return whether wide_product.cu computes a product: 17 to 64 rows, and a weight with few tiles."""
        size, (outputs, dim) = bucket_of(WIDE_ROW_BUCKETS, rows), weight.shape
        reread_bytes = ceil_div(outputs, TILE_OUTPUTS) * size * dim * weight.element_size()
        return (
            self.tensor_cores
            and FIRST_WIDE_ROWS <= rows <= size
            and weight.dtype in (torch.float16, torch.bfloat16)
            and dim % TILE_DEPTH == 0
            and stored(weight).data_ptr() % LOAD_BYTES == 0
            and reread_bytes <= MAX_REREAD_BYTES
        )

    def _wide_product(self, x: Tensor, weights: tuple[Tensor, Tensor | None], epilogue: Epilogue) -> Tensor:
        """Compute `product` of 17 to 64 rows x [..., dim]."""
        (weight, bias), residual, glu = weights, epilogue.residual, epilogue.activation == "glu"
        (outputs, dim), rows = weight.shape, x.numel() // x.shape[-1]
        width = outputs // 2 if glu else outputs
        kind, numbers = torch.float32 if epilogue.float32 else weight.dtype, bytes_of(weight)
        y = x.new_empty((*x.shape[:-1], width), dtype=kind)
        assert x.is_contiguous() and self._takes_wide(rows, weight)
        assert residual is None or (residual.is_contiguous() and residual.shape == y.shape)
        x = x.to(weight.dtype)
        x = x.clone() if x.data_ptr() % LOAD_BYTES else x  # a view; the kernel needs aligned rows
        tiles, entry = ceil_div(width, TILE_OUTPUTS), "wide_glu" if glu else "wide_product"
        size = self._wide_rows(rows, tiles)
        vector = LOAD_BYTES // weight.element_size()
        int8, scales = numbers is not None, numbers and numbers.scales
        kernel = Kernel("wide_product.cu", entry, ELEMENTS[weight.dtype], vector, size, int8)
        float32 = (int(t is not None and t.dtype != weight.dtype) for t in (residual, y))
        scalars = rows, dim, outputs, ACTIVATIONS[epilogue.activation], *float32, float(epilogue.factor)
        blocks = min(tiles, 2 * self.processors), ceil_div(rows, size), 1
        shared = PRODUCT_WARPS * (2 if glu else 1) * TILE_OUTPUTS * (size + WIDE_PAD) * 4
        arguments = x, stored(weight), scales, bias, residual, *scalars, y
        self.run(Call(kernel, blocks, (PRODUCT_WARPS * WARP, 1, 1), shared, arguments))
        return y

    def _wide_rows(self, rows: int, tiles: int) -> int:
        """Return the number of rows of a block of wide_product.cu: half of them if half of the
        multiprocessors would have no block."""
        size = bucket_of(WIDE_ROW_BUCKETS, rows)
        shared = size > WIDE_ROW_BUCKETS[0] and MAX_ROW_GROUPS * tiles <= self.processors
        return size // MAX_ROW_GROUPS if shared else size

    def _warp_launch(self, weight: Tensor, rows: int, warps: int) -> _Launch:
        """Return the launch of product.cu.

        weight: [outputs, dim].
        rows: number of rows.
        warps: number of warps; the number of blocks is limited by the size of the device.
        """
        dim, size = weight.shape[1], bucket_of(ROW_BUCKETS, rows)
        assert rows <= size
        kernel = Kernel("product.cu", "product", *load_form(dim, weight), size)
        blocks = min(ceil_div(warps, PRODUCT_WARPS), 4 * self.processors)
        return _Launch(kernel, blocks, PRODUCT_WARPS * WARP, size * dim * weight.element_size())

    def _tile_launch(self, entry: str, weight: Tensor, rows: int, columns: int) -> _Launch:
        """Return the launch of an entry of tiled_product.cu.

        entry: name of the entry.
        weight: [outputs, dim].
        rows: number of rows.
        columns: number of columns of the result.
        """
        dim, size, element_bytes = weight.shape[1], bucket_of(TILED_ROW_BUCKETS, rows), weight.element_size()
        assert rows <= size
        vector, int8 = LOAD_BYTES // element_bytes, bytes_of(weight) is not None
        kernel = Kernel("tiled_product.cu", entry, ELEMENTS[weight.dtype], vector, size, int8)
        blocks = min(ceil_div(columns, TILE_OUTPUTS), 2 * self.processors)
        threads = (2 if entry in LONG_ENTRIES else 1) * PRODUCT_WARPS * WARP
        shared = 0 if entry == "tiled_unstaged" else size * (dim + TILE_PAD) * element_bytes
        return _Launch(kernel, blocks, threads, shared)

    def _tile_entry(self, rows: int, weight: Tensor, norm: Norm | None, *, glu: bool) -> str | None:
        """Return the entry of tiled_product.cu for a product, or None if tensor cores can't compute it.

        rows: number of rows.
        weight: [outputs, dim].
        norm: layer norm of the rows, or None.
        glu: a GLU follows the product.
        """
        dim, size = weight.shape[1], bucket_of(TILED_ROW_BUCKETS, rows)
        loaded = stored(weight), *(norm.tensors if norm else ())
        supported = (
            self.tensor_cores
            and rows <= size
            and weight.dtype in (torch.float16, torch.bfloat16)
            and dim % TILE_DEPTH == 0
            and (norm is None or dim <= MAX_NORMED)
            and not any(t.data_ptr() % LOAD_BYTES for t in loaded)
        )
        if not supported:
            return None
        if size * (dim + TILE_PAD) * weight.element_size() > MAX_TILED_BYTES:
            return None if glu or norm is not None else "tiled_unstaged"
        return "tiled_glu" if glu else "tiled_long" if dim > LONG_DIM else "tiled_product"

    def _split(self, pairs: int, dim: int) -> int:
        """Return the number of warps that share the sums of a pair of outputs: enough to fill the device, if
        each has MIN_WARP_SHARE terms."""
        split, room = 1, 16 * self.processors
        while split < PRODUCT_WARPS and pairs * split < room and dim >= 2 * split * MIN_WARP_SHARE:
            split *= 2
        return split


def _split_lookup(
    x: Tensor | EmbeddingLookup,
) -> tuple[Tensor, tuple[Tensor | None, Tensor | None, Tensor | None, float]]:
    """Return rows without a lookup, or the table of a lookup with its tokens, positions and scale."""
    if not isinstance(x, EmbeddingLookup):
        return x, (None, None, None, 1.0)
    positions, position_rows = x.position_rows or (None, None)
    return x.table, (x.tokens.contiguous(), positions, position_rows, float(x.scale))
