"""What a captured step is made of, and how long it should take: nodes counted, times from a model. No GPU
needed.

    python -m loadtest.engine.step_model --model dynamicconv-213M

The step's own code runs once with kernels that do nothing, and every operator of torch that launches one
counts. A node takes as long as its bytes at the bandwidth, or its operations at the matrix rate, and a part
that neither explains: its launch behind the node before, and the way to memory and back. Those parts are
estimates. A product of few rows fetches its weights while the node before it ends: where that works, the
longer of the two parts counts.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from engine.backends import LaneSize
from engine.bundle.config import ModelConfig
from engine.executors.cuda_graph import CapturedExecutor, plain
from engine.executors.step_kernels import Bucket, StepKernels
from engine.kernels import fused
from engine.kernels.calls import Call, Kernels
from engine.models import build
from engine.search.beam import BeamSearch
from loadtest.engine.gpu_bench.models import MODELS, config_of
from loadtest.engine.nothing import Nothing

MATRIX: Final = ("aten::mm", "aten::addmm", "aten::_addmm_activation", "aten::linear", "aten::bmm")
# they make no kernel: views, and memory
FREE: Final = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::detach", "aten::t", "aten::slice")
LATENCY: Final = {
    "product": 1.6,
    "dynamic_conv_step_append": 1.9,
    "attend": 2.6,
    "select_best": 2.6,
}  # microseconds
OTHERS: Final = 1.6
OUTSIDE: Final = 2.2  # of an operator of torch's or cuBLAS's, which does not begin early
REACHED: Final = 0.85  # the share of the bandwidth that a node is taken to reach
LOOKUPS: Final = ("embed", "aten::embedding")  # read rows of a table


@dataclass(frozen=True, slots=True)
class Machine:
    """bandwidth: bytes a second.
    rate: floating-point operations a second of matrix products.
    """

    bandwidth: float
    rate: float


H200: Final = Machine(4.3e12, 6.5e14)


@dataclass(frozen=True, slots=True)
class Node:
    """bytes: that it reads and writes, once each.
    operations: of a matrix product.
    """

    name: str
    bytes: int
    operations: int = 0
    own: bool = True

    def seconds(self, device: Machine, *, early: bool = False) -> float:
        """Return what the model says that it takes.

        early: its weights are fetched while the node before it ends.
        """
        least = 1e-6 * (LATENCY.get(self.name, OTHERS) if self.own else OUTSIDE)
        work = max(self.bytes / device.bandwidth / REACHED, self.operations / device.rate / 0.7)
        return max(least, work) if early and self.name == "product" else least + work


class _Counting(TorchDispatchMode):
    """Notes what launches a kernel. Matrix products are not computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[Node] = []

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
            operands = tensors[-1:] * 3 if call.kernel.entry in LOOKUPS else tensors
            self.nodes.append(Node(call.kernel.entry, _bytes(operands)))


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def nodes(config: ModelConfig, lane: tuple[int, int], width: int, dtype: torch.dtype) -> list[Node]:
    """List the nodes of one plain step of all slots of a lane (beams, slots), with memory of `width`
    positions."""
    counting = _Counting()
    with torch.no_grad():
        model = build(config).to(dtype)
        executor = CapturedExecutor(model, LaneSize(*lane), Nothing(), Kernels(counting.call))
        search = BeamSearch(executor, tight=False)
        kernels = StepKernels(executor, search)
        steps = executor.columns(width)
        executor.reserve(width, steps)
        count = torch.zeros(1, dtype=torch.int64)
        counting.nodes.clear()
        bucket = Bucket(lane[1], executor.width(width), steps, plain(search.columns), attention=False)
        with patch.object(fused, "wide_product", counting.wide), counting:
            kernels.step(count, bucket)
    return counting.nodes


def kinds(listed: Sequence[Node]) -> Mapping[str, int]:
    """Count the nodes of each name."""
    return Counter(node.name for node in listed)


def predict(listed: Sequence[Node], device: Machine = H200, *, early: bool = False) -> float:
    """Predict the seconds of a step.

    early: see `Node.seconds`.
    """
    return sum(node.seconds(device, early=early) for node in listed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", choices=sorted(MODELS), default="dynamicconv-213M")
    parser.add_argument("--width", type=int, default=32, help="positions of memory")
    parser.add_argument("--steps", type=int, default=28, help="tokens of an answer, its end included")
    options = parser.parse_args()
    config = config_of(options.model)
    for beams, slots in ((1, 1), (4, 256)):
        listed = nodes(config, (beams, slots), options.width, torch.bfloat16)
        traffic = sum(n.bytes for n in listed)
        print(f"{beams * slots} rows: {len(listed)} nodes, {traffic / 1e6:.0f} MB")
        for early in (False, True):
            seconds = predict(listed, early=early)
            share = traffic / H200.bandwidth / seconds
            what = f"{seconds * 1e6:.0f} us a step{', weights fetched early' if early else ''}"
            rates = f"{slots / seconds:,.0f} tokens/s, {slots / options.steps / seconds:,.0f} sentences/s"
            print(f"  {what}: {share:.0%} of the bandwidth's floor, {rates} of the device alone")
        for name, count in sorted(kinds(listed).items(), key=lambda item: -item[1]):
            own = sum(n.seconds(H200) for n in listed if n.name == name)
            print(f"  {count:4} {name}: {own * 1e6:.0f} us")


if __name__ == "__main__":
    main()
