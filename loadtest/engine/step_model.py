"""What a captured step is made of, and how long it takes: nodes counted, times from a model that is fitted to
an H100. No GPU needed.

    python -m loadtest.engine.step_model --model dynamicconv-200M

The step's own code runs once with kernels that do nothing, and every operator of torch that launches one
counts. The times of nodes are those of the H100 (docs/lab/gpu.md, where each figure stands), between them
a line: own products by their shape and rows, other nodes by their bytes, operations, rows or slots. Steps
of the DynamicConv of 200 M parameters come out within 12 % of what was measured, those of more than 8 rows
within 6 % (tests/loadtest/test_step_model.py), with the kernels of then (`MEASURED`). What it says of
kernels that no device has run (`PREDICTED`), and of other models, is a prediction.
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
from engine.kernels.calls import Kernels
from engine.kernels.launches import HEAD_PRODUCTS, PRODUCTS, Call
from engine.kernels.products import MAX_AHEAD_BYTES, TILED_ROW_BUCKETS
from engine.kernels.selection import Scanned
from engine.models import build
from engine.search.beam import BeamSearch
from engine.search.kind import usual
from loadtest.engine.gpu_bench.models import MODELS, SIX, config_of
from loadtest.engine.nothing import Nothing

MATRIX: Final = ("aten::mm", "aten::addmm", "aten::_addmm_activation", "aten::linear", "aten::bmm")
# they make no kernel: views, and memory
FREE: Final = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::detach", "aten::t", "aten::slice")
LOOKUPS: Final = ("embed", "aten::embedding")  # read rows of a table
ProductTimes = Mapping[tuple[int, int], tuple[float, float]]  # by (dim, outputs): of 1 row, and of 5 to 8
PRODUCTS_US: Final[ProductTimes] = {  # microseconds of product.cu
    (1024, 2048): (5.6, 26.0),
    (1024, 496): (3.3, 9.5),
    (1024, 1024): (4.3, 11.5),  # the mean of those with a norm and those with a residual
    (1024, 4096): (7.3, 26.5),
    (4096, 1024): (8.2, 58.0),
    (1024, 32768): (30.9, 66.5),
}
# microseconds of the prototype of tiled_product.cu
TILED_US: Final[ProductTimes] = {
    (1024, 2048): (3.1, 5.5),
    (1024, 496): (2.0, 2.6),
    (1024, 1024): (2.5, 4.2),  # likewise
    (1024, 4096): (4.3, 7.2),
    (4096, 1024): (4.5, 6.3),
    (1024, 32768): (24.3, 27.9),
}
PREPARE_US: Final = 1.9  # of a product without a norm that multiplies nothing
ROW_SHARES: Final = {1: 0.0, 2: 0.08, 4: 0.47, 8: 1.0}  # how far between these two, by the kernel's rows
# Predicted: of a product for 9 to 16 rows besides what 8 take. Between 5 and 8 rows the prototype took up to
# 0.13 for each row more; weights are read as often, a warp stages two rows at once, and has two mma for one.
SECOND_EIGHT_US: Final = 1.0
# Of a product of cuBLAS's besides its bytes and operations: the median of six that were measured alone
FOREIGN_US: Final = 4.2
FOREIGN_BANDWIDTH: Final = 3.0e12  # bytes a second of such a product: a part lies in the second-level cache
FOREIGN_RATE: Final = 6.0e14  # operations a second, at 1,024 rows
TORCH_US: Final = 2.5  # of an operator of torch's
BANDWIDTH: Final = 2.41e12  # bytes a second of copies
STREAMED_BANDWIDTH: Final = 2.8e12  # likewise of the logits' weight, by the prototype
EMPTY_US: Final = 1.0  # of a kernel that does nothing
# Assumed, from what others measured on such a device: bytes a second from the second-level cache
CACHE_BANDWIDTH: Final = 5.5e12
# Operators that read what the one in front just wrote, which lies in that cache, and leave theirs there
FROM_CACHE: Final = ("add_norm", "glu")
# The share of windows, counted for each beam, that is read: ncu saw 19.8 MB at 256 x 4, of which inputs and
# taps are 2.7; the windows of six layers are 39.1 on average
DISTINCT_WINDOWS: Final = 0.44


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Microseconds of kernels.

    attend: of a launch, for each slot, and whether its bytes count beside these.
    convolution: of a launch, and for each row; and what a row takes at least, wherever its window comes from.
    select: of a launch, and for each megabyte of logits.
    search: of `begin_step` and `end_step`, and for each slot.
    fixed: of others, beside their bytes.
    lookup: of a product that looks its rows up, besides.
    bias: of its copy to all rows of queries that cuBLAS makes, of a launch, and for each row.
    ahead: of a norm that asks memory for something, besides.
    merge: of `end_step` where it merges parts of the vocabulary, besides; and for each candidate of 8 beams.
    products: of own ones by tensor cores whose weights were fetched ahead, without and with a norm, and of a
        head's own ones by entry: of 1 row and of 5 to 8. None: `TILED_US`.
    """

    attend: tuple[float, float, bool]
    convolution: tuple[float, float, float]
    select: tuple[float, float]
    search: Mapping[str, tuple[float, float]]
    fixed: Mapping[str, float]
    lookup: float = 0.0
    bias: tuple[float, float] = (0.0, 0.0)
    ahead: float = 0.0
    merge: tuple[float, float] = (0.0, 0.0)
    products: Mapping[str, tuple[float, float]] | None = None


MEASURED: Final = KernelTimes(
    attend=(8.2, 0.227, False),
    convolution=(6.1, 0.0224, 0.0224),
    select=(11.5, 0.74),
    search={"begin_step": (6.3, 0.0), "end_step": (6.0, 0.0087)},
    fixed={"embed": 3.5, "merge_best": 7.6, "add_norm": 2.7},
    bias=(2.5, 0.0029),  # an operator of torch's that took 5.47 at 1,024 rows
)
# Predicted, each as an empty kernel's 1.0, 0.8 for each time that a thread waits for memory before it can go
# on, and what it computes; where that was measured, by what is left of the instructions of a thread.
# - attend_tiled: the mask, keys, values, and what it writes; its bytes at the rate of copies, but those that
#   the norm two kernels in front asked for, which come from the cache: 24 MiB take 10.4 at that rate, and
#   those two take 11.1, in which hardly anything else comes from memory. It asks in 60 instructions (0.3).
# - dynamic_conv_step: taps with indices beside them, inputs, 0.7 at barriers. Of 1,024 rows ncu saw 19.8 MB
#   read, 0.0080 for a row at the rate of copies; their blocks are all resident, and the 700 instructions of
#   a warp take half of that (0.0040). 0.0090 is taken, and 0.0050 where all comes from the cache. The norm in
#   front of its inputs asks for 32 MiB, counted for each beam: what is read of them takes 6.1 at the rate of
#   copies, inputs and taps take 13. It asks in 30 instructions beside the row (0.3).
# - glu: inputs, what it writes. By these figures it takes what torch's took (2.5); it may begin early.
# - select_best: logits no longer wait for bans (0.8), columns are ranked by about 50 comparisons where there
#   were 256 (1.8 for two warps a scheduler), a part's normaliser is added up beside the ranking (0.3). 19
#   instructions for a logit of 40 are less than its bytes take at the rate of copies, which is what counts.
# - merge_best: the parts' lists, what it writes, 1.2 for 32 masses added one after the other.
# - begin_step: two waits of six, what it writes, 0.3 at barriers. end_step: one wait of six, what it writes,
#   1.2 for ranking and what one thread decides; where it merges, 0.2 at barriers, and 240 clocks for a
#   candidate that 5 exchanges of a warp find (0.14).
# - a lookup: tokens are waited for before rows (0.8). add_norm: gain and bias no longer wait for sums (0.8).
# - products: what the prototype took for 1024 x 1024, whose bytes are hidden behind those in front (2.3 and
#   3.0, with a norm 2.8 and 5.3), less 0.2 for the residual, or gain and shift, that no longer wait for the
#   sums; of 5 to 8 rows less 0.3 for rows that are copied 16 bytes at a time, and 1.5 for a norm in fewer
#   instructions (the kernel of 8 rows has 1,800 of 8,200).
# - attend_product: rows, beside which keys and values come (0.8), the norm (0.3; 1.1), the product and its
#   barriers (0.4), what a warp computes of attention (0.8), what it writes (0.8).
# - dynamic_conv_tiled: indices and windows (1.6), beside which rows are multiplied; softmax and barriers
#   0.9, what is applied to the window 0.4.
PREDICTED: Final = KernelTimes(
    attend=(4.2, 0.0, True),
    convolution=(3.3, 0.0090, 0.0050),
    select=(8.6, 0.42),
    search={"begin_step": (3.7, 0.0), "end_step": (3.8, 0.0087)},
    fixed={"embed": 3.5, "merge_best": 3.8, "add_norm": 1.9, "glu": 2.6},
    lookup=0.8,
    ahead=0.3,
    merge=(0.2, 0.14),
    products={
        "plain": (2.1, 2.5),
        "normed": (2.6, 3.6),
        "attend_product": (4.1, 4.9),
        "dynamic_conv_tiled": (3.9, 4.1),
    },
)


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
            copied = times.bias[0] + times.bias[1] * self.rows if self.rows > TILED_ROW_BUCKETS[-1] else 0.0
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
                case "add_norm" if call.arguments[8] is not None:
                    keys, values, blocks = call.arguments[8:11]
                    assert isinstance(keys, Tensor) and isinstance(values, Tensor) and isinstance(blocks, int)
                    self.asked = blocks * _bytes([keys[0, 0], values[0, 0]])
                    node = replace(node, bytes=node.bytes - _bytes([keys, values]), ahead=self.asked)
                case "add_norm" if call.arguments[14] is not None:
                    ring, index, hypotheses, older, row_size = call.arguments[14:19]
                    assert isinstance(ring, Tensor) and isinstance(index, Tensor)
                    assert (
                        isinstance(hypotheses, int) and isinstance(older, int) and isinstance(row_size, int)
                    )
                    self.asked = int(DISTINCT_WINDOWS * hypotheses * older * row_size)
                    node = replace(node, bytes=node.bytes - _bytes([ring, index]), ahead=self.asked)
                case "attend_tiled" | "dynamic_conv_step_append":
                    node, self.asked = replace(node, ahead=self.asked), 0
                case "end_step" if call.arguments[2] is not None:
                    node = replace(node, candidates=tensors[0].shape[-1] * -(-self.rows // self.slots // 8))
            self.nodes.append(node)


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
