"""What a captured step is made of, and how long it takes: nodes counted, times from a model that is fitted to
an H100. No GPU needed.

    python -m loadtest.engine.step_model --model dynamicconv-200M

The step's own code runs once with kernels that do nothing, and every operator of torch that launches one
counts. The times of nodes are those of the H100 (docs/lab/gpu.md, where each figure stands), between them
a line: own products by their shape and rows, other nodes by their bytes, operations, rows or slots. Steps
of the DynamicConv of 200 M parameters come out within 12 % of what was measured, those of more than 8 rows
within 5 % (tests/loadtest/test_step_model.py), with the kernels of then (`MEASURED` in `kernel_times`). What
it says of kernels that no device has run (`PREDICTED` there), and of other models, is a prediction.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from engine.backends import LaneSize
from engine.bundle.config import ModelConfig
from engine.executors.cuda import executor as cuda_executor
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.step_kernels import Bucket, StepKernels
from engine.kernels import fused
from engine.kernels import products as kernel_products
from engine.kernels.calls import Kernels
from engine.kernels.launches import HEAD_PRODUCTS, PRODUCTS, Call
from engine.kernels.products import MAX_AHEAD_BYTES
from engine.kernels.selection import Scanned
from engine.models import build
from engine.search.beam import BeamSearch
from engine.search.kind import usual
from loadtest.engine.gpu_bench.models import MODELS, SIX, config_of
from loadtest.engine.kernel_times import (
    BANDWIDTH,
    CACHE_BANDWIDTH,
    DISTINCT_WINDOWS,
    EMPTY_US,
    FOREIGN_BANDWIDTH,
    FOREIGN_RATE,
    FOREIGN_US,
    FROM_CACHE,
    PREDICTED,
    PREPARE_US,
    PRODUCTS_US,
    ROW_SHARES,
    SECOND_EIGHT_US,
    STREAMED_BANDWIDTH,
    TILED_US,
    TORCH_US,
    KernelTimes,
    ProductTimes,
)
from loadtest.engine.nothing import Nothing

MATRIX: Final = ("aten::mm", "aten::addmm", "aten::_addmm_activation", "aten::linear", "aten::bmm")
# they make no kernel: views, and memory
FREE: Final = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::detach", "aten::t", "aten::slice")
LOOKUPS: Final = ("embed", "aten::embedding")  # read rows of a table


class KernelsApart(Kernels):
    """As they were when an H100 ran them: queries, taps, embeddings and merges are kernels of their own."""

    def takes_queries(self, *_: Any) -> bool:
        return False

    def takes_taps(self, *_: Any) -> bool:
        return False

    def takes_lookup(self, *_: Any, **__: Any) -> bool:
        return False

    def scan(self, *given: Any) -> tuple[Tensor, Tensor]:
        found = super().scan(*given)
        return self.merge(found) if isinstance(found, Scanned) else found


@dataclass(frozen=True, slots=True)
class Node:
    """A kernel of a step.

    name: of the kernel or operator.
    bytes: that it reads and writes, once each.
    operations: of a matrix product.
    rows: of the step, slots x beams.
    slots: of the step.
    shape: of a product's weight, (dim, outputs).
    own: whether it is a kernel of ours.
    normed: whether a norm is in front of the product.
    looked_up: whether its rows are looked up.
    ahead: bytes that were asked for ahead, or that a norm asks for; of windows those that are read.
    candidates: that `end_step` merges of each row, for each 8 beams.
    """

    name: str
    bytes: int
    operations: int = 0
    rows: int = 1
    slots: int = 1
    shape: tuple[int, int] | None = None
    own: bool = True
    normed: bool = False
    looked_up: bool = False
    ahead: int = 0
    candidates: int = 0

    def seconds(self, times: KernelTimes = PREDICTED) -> float:
        """Return what the model says that it takes.

        times: of the kernels that were changed.
        """
        return 1e-6 * (self._own_us(times) if self.own else self._foreign_us())

    def _own_us(self, times: KernelTimes) -> float:
        if self.name == "product":
            assert self.shape is not None
            return _product_us(PRODUCTS_US, self.shape, self.rows)
        if self.shape is not None and times.products is not None:
            return self._ahead_us(times.products, self.shape) + self.looked_up * times.lookup
        if self.shape is not None:
            return _product_us(TILED_US, self.shape, self.rows)
        if self.name.startswith("attend"):
            least, each, counted = times.attend
            waited = (self.bytes - self.ahead) / BANDWIDTH + self.ahead / CACHE_BANDWIDTH
            foreign = self.rows > kernel_products.TILED_ROW_BUCKETS[-1]
            copied = times.bias[0] + times.bias[1] * self.rows if foreign else 0.0
            return least + each * self.slots + counted * 1e6 * waited + copied
        if self.name.startswith("dynamic_conv"):
            least, each, limit = times.convolution
            sooner = 1e6 * self.ahead * (1 / BANDWIDTH - 1 / CACHE_BANDWIDTH)
            return least + max(each * self.rows - sooner, limit * self.rows)
        for name, (least, each), count in (
            ("select_best", times.select, self.bytes / 1e6),
            *((name, values, self.slots) for name, values in times.search.items()),
        ):
            if self.name.startswith(name):
                merging = times.merge[0] + times.merge[1] * self.candidates if self.candidates else 0.0
                return least + each * count + merging
        fixed = times.fixed.get(self.name, TORCH_US) + bool(self.ahead) * times.ahead
        return fixed + 1e6 * self.bytes / (CACHE_BANDWIDTH if self.name in FROM_CACHE else BANDWIDTH)

    def _ahead_us(self, products: Mapping[str, tuple[float, float]], shape: tuple[int, int]) -> float:
        """Of a product whose weight the one in front has asked for: it waits for its rows, or for its bytes,
        which come from the cache as far as they were asked for."""
        one, eight = products.get(self.name) or products["normed" if self.normed else "plain"]
        size = 2 * math.prod(shape)
        ahead = min(size, MAX_AHEAD_BYTES)
        weight = EMPTY_US + 1e6 * (ahead / CACHE_BANDWIDTH + (size - ahead) / STREAMED_BANDWIDTH)
        waiting = one + _share(self.rows) * (eight - one) + (self.rows > max(ROW_SHARES)) * SECOND_EIGHT_US
        return max(waiting, weight + waiting - one)

    def _foreign_us(self) -> float:
        if self.operations:
            return FOREIGN_US + 1e6 * max(self.bytes / FOREIGN_BANDWIDTH, self.operations / FOREIGN_RATE)
        return TORCH_US + 1e6 * self.bytes / BANDWIDTH


def _product_us(times: ProductTimes, shape: tuple[int, int], rows: int) -> float:
    """Microseconds of a product of up to 16 rows. Of a shape that was not measured, what comes beside the
    bytes stays, and the rest is in proportion to the nearest that was."""
    share = _share(rows)
    more = SECOND_EIGHT_US if rows > max(ROW_SHARES) else 0.0
    measured = min(times, key=lambda s: (s != shape, abs(math.log(math.prod(s) / math.prod(shape)))))
    one, eight = times[measured]
    scale = math.prod(shape) / math.prod(measured)
    return PREPARE_US + scale * (one + share * (eight - one) - PREPARE_US) + more


def _share(rows: int) -> float:
    """How far between 1 row and 8."""
    return next((share for most, share in ROW_SHARES.items() if rows <= most), 1.0)


class _Counting(TorchDispatchMode):
    """Notes what launches a kernel. Matrix products are not computed."""

    def __init__(self, beams: int, slots: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[Node] = []
        self.rows, self.slots, self.asked = beams * slots, slots, 0  # asked: bytes that were asked for last

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if name in MATRIX:
            shapes = tree_map_only(Tensor, lambda t: torch.empty_like(t, device="meta"), (args, kwargs or {}))
            result = torch.empty(func(*shapes[0], **shapes[1]).shape, dtype=inputs[0].dtype)
            operations = 2 * result.numel() * inputs[-1].shape[0]
            self.nodes.append(Node(name, _bytes([*inputs, result]), operations, own=False))
            return result
        result = func(*args, **(kwargs or {}))
        outputs = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        views = all(
            any(t.untyped_storage()._cdata == i.untyped_storage()._cdata for i in inputs) for t in outputs
        )
        if not name.startswith(FREE) and (func._schema.is_mutable or not views):
            operands = outputs if name in LOOKUPS else inputs
            self.nodes.append(Node(name, _bytes([*operands, *outputs]), own=False))
        return result

    def wide(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """As `wide_product` on CUDA: one product of narrow inputs, which the CPU has not."""
        with torch._C._DisableTorchDispatch():
            y = x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float32)
            operations = 2 * y.numel() * x.shape[-1]
            self.nodes.append(Node("aten::mm", _bytes([x, weight, y]), operations, own=False))
        return y if bias is None else y + bias

    def call(self, call: Call) -> None:
        with torch._C._DisableTorchDispatch():
            tensors = [a for a in call.arguments if isinstance(a, Tensor)]
            entry = call.kernel.entry
            operands = tensors[-1:] * 3 if entry in LOOKUPS else tensors
            multiplies = entry in (*PRODUCTS, *HEAD_PRODUCTS)
            shape = (tensors[1].shape[1], tensors[1].shape[0]) if multiplies else None
            normed = entry in PRODUCTS and call.arguments[4] is not None
            node = Node(entry, _bytes(operands), 0, self.rows, self.slots, shape, normed=normed)
            match entry:
                case "tiled_product" | "tiled_glu" | "tiled_long" if call.arguments[7] is not None:
                    node = replace(node, bytes=_bytes([tensors[1], *tensors[-2:]]), looked_up=True)
                case "add_norm":
                    self.asked, whole = _asked(call)
                    node = replace(node, bytes=node.bytes - whole, ahead=self.asked)
                case "attend_tiled" | "dynamic_conv_step_append":
                    node, self.asked = replace(node, ahead=self.asked), 0
                case "end_step" if call.arguments[2] is not None:
                    node = replace(node, candidates=tensors[0].shape[-1] * -(-self.rows // self.slots // 8))
            self.nodes.append(node)


def _asked(call: Call) -> tuple[int, int]:
    """Count the bytes that a norm asks for, and those of the tensors that they are a part of."""
    memory, windows = ([t for t in call.arguments[i : i + 2] if isinstance(t, Tensor)] for i in (8, 14))
    blocks, *sizes = (n for i in (10, 16, 17, 18) if isinstance(n := call.arguments[i], int))
    if memory:
        return blocks * _bytes([tensor[0, 0] for tensor in memory]), _bytes(memory)
    return int(DISTINCT_WINDOWS * math.prod(sizes)), _bytes(windows)


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def nodes(
    config: ModelConfig,
    lane: tuple[int, int],
    width: int,
    dtype: torch.dtype,
    kernels_of: type[Kernels] = Kernels,
) -> list[Node]:
    """List the nodes of one plain step of all slots of a lane.

    config: of the model, whose weights are whatever memory holds.
    lane: beams and slots.
    width: positions of memory.
    dtype: of the weights.
    kernels_of: what kernels there are.
    """
    counting = _Counting(*lane)
    with torch.no_grad():
        with torch.device("meta"):
            model = build(config).to(dtype)
        model = model.to_empty(device="cpu")  # nothing reads the weights, so nothing draws them
        with patch.object(cuda_executor, "INITIAL_POSITIONS", width):  # else all would be filled with zeros
            executor = CapturedExecutor(model, LaneSize(*lane), Nothing(), kernels_of(counting.call))
        search = BeamSearch(executor, tight=False)
        kernels = StepKernels(executor, search)
        steps = executor.columns(width)
        executor.reserve(width, steps)
        count = torch.zeros(1, dtype=torch.int64)
        counting.nodes.clear()
        bucket = Bucket(lane[1], executor.width(width), steps, usual(search.columns), attention=False)
        with patch.object(fused, "wide_product", counting.wide), counting:
            kernels.step(count, bucket)
    return counting.nodes


def kinds(listed: Sequence[Node]) -> Mapping[str, int]:
    """Count the nodes of each name."""
    return Counter(node.name for node in listed)


def predict(listed: Sequence[Node], times: KernelTimes = PREDICTED) -> float:
    """Predict the seconds of a step.

    listed: its nodes.
    times: of the kernels that were changed.
    """
    return sum(node.seconds(times) for node in listed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", choices=sorted(MODELS), default=SIX)
    parser.add_argument("--width", type=int, default=32, help="positions of memory")
    parser.add_argument("--steps", type=int, default=28, help="tokens of an answer, its end included")
    options = parser.parse_args()
    config = config_of(options.model)
    for beams, slots in ((1, 1), (5, 1), (4, 4), (4, 16), (4, 256)):
        listed = nodes(config, (beams, slots), options.width, torch.bfloat16)
        traffic, seconds = sum(n.bytes for n in listed), predict(listed)
        share = traffic / BANDWIDTH / seconds
        rates = f"{slots / seconds:,.0f} tokens/s, {slots / options.steps / seconds:,.0f} sentences/s"
        print(
            f"{slots} x {beams}: {len(listed)} nodes, {traffic / 1e6:.0f} MB, {seconds * 1e6:.0f} us a step"
        )
        print(f"  {share:.0%} of the bandwidth's floor, {rates} of the device alone")
        for name, count in sorted(kinds(listed).items(), key=lambda item: -item[1]):
            own = sum(n.seconds() for n in listed if n.name == name)
            print(f"  {count:4} {name}: {own * 1e6:.0f} us")


if __name__ == "__main__":
    main()
