"""Floors for the figures: the rates of the device, and the bytes and operations that a model needs.

Rates are of copies, and of matrix products of a large square and of a decoder's shapes. The needs of a model
are counted while its own code runs once, for any architecture.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from engine.bundle.config import ModelConfig
from engine.executors.torch.executor import TorchExecutor
from engine.models import build
from engine.models.model import Model
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Request
from loadtest.engine.gpu_bench.clock import reason, seconds
from loadtest.engine.gpu_bench.sentences import FIRST_WORD, SizedSentence
from loadtest.engine.gpu_bench.setting import BYTES, Setting

TYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SAMPLES: Final = 9
SHAPES: Final = {"feed-forward": (1_024, 4_096), "output": (1_024, 32_768)}  # in, out
ROWS: Final = (
    1,
    4,
    64,
    1_024,
)  # rows of 1 sentence with beam 1 and 4, and of 16 and 256 sentences with beam 4
CACHES: Final = 512 << 20  # bytes of alternating weights, more than caches hold
LOOKUPS: Final = {"aten::embedding"}  # operators that read rows of a table


def device_floors(setting: Setting) -> dict[str, Any]:
    """Measure the rates of the device with random data, because zeros run faster.

    Returns bandwidth (bytes read and written a second), matrix (operations a second by precision) and shapes
    (products of a decoder with operations and bytes of weights a second).
    """
    device, scale = setting.device, setting.scale
    rates: dict[str, Any] = {"bandwidth": _copy_bandwidth(device, scale.copy), "matrix": {}, "shapes": []}
    rates["tf32_allowed"] = torch.backends.cuda.matmul.allow_tf32
    for precision, kind in TYPES.items():
        try:
            a, b = (torch.randn(scale.square, scale.square, device=device).to(kind) for _ in range(2))
            rates["matrix"][precision] = 2 * scale.square**3 / _median(device, partial(torch.matmul, a, b))
            del a, b
            rates["shapes"] += _shapes(setting, precision, kind)
        except RuntimeError as error:
            rates.setdefault("not_run", {})[precision] = reason(error)
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    return rates


def _copy_bandwidth(device: str, size: int) -> float:
    """Return the bandwidth of copying, bytes read and written a second."""
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _median(device, lambda: target.copy_(source), 3)


def _shapes(setting: Setting, precision: str, kind: torch.dtype) -> list[dict[str, Any]]:
    """Return a row for each shape and number of rows: its seconds, operations and bytes a second."""
    rows = []
    for name, (inputs, outputs) in SHAPES.items():
        if setting.scale.tiny:
            inputs, outputs = inputs // 32, outputs // 32
        size = inputs * outputs * kind.itemsize
        copies = 2 if setting.scale.tiny else max(2, CACHES // size)
        weights = [torch.randn(outputs, inputs, device=setting.device).to(kind) for _ in range(copies)]
        for count in ROWS[:2] if setting.scale.tiny else ROWS:
            x = torch.randn(count, inputs, device=setting.device).to(kind)
            duration = _product(setting.device, x, weights)
            rate = 2 * count * inputs * outputs / duration  # a multiplication and an addition a weight
            shape = [count, inputs, outputs]
            rows.append({"what": name, "precision": precision, "shape": shape, "seconds": duration})
            rows[-1] |= {"operations": rate, "bytes": size / duration}
    return rows


def _product(device: str, x: Tensor, weights: list[Tensor]) -> float:
    """Return the seconds of one product with weights that are not in a cache."""
    turn = cycle(weights)
    return _median(device, lambda: torch.nn.functional.linear(x, next(turn)), len(weights))


def _median(device: str, call: Callable[[], object], times: int = 5) -> float:
    """Return the seconds of one call. Each sample is `times` calls, captured in a graph on CUDA so that
    launching is not measured."""
    repeat = _capture(device, call, times)
    repeat()
    return statistics.median(seconds(device, repeat) for _ in range(SAMPLES)) / times


def _capture(device: str, call: Callable[[], object], times: int) -> Callable[[], None]:
    """Return a function that calls `times` times; on CUDA it replays a graph of the calls."""

    def call_repeatedly() -> None:
        for _ in range(times):
            call()

    if not device.startswith("cuda"):
        return call_repeatedly
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):  # libraries must be loaded before capturing
        call_repeatedly()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call_repeatedly()
    return graph.replay


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a source and its decoding with one hypothesis.

    source: number of source tokens.
    weights: number of weights that a step reads.
    step: floating-point operations of the products of a step; a Transformer's self-attention counts as at the
        first step, which is too low.
    encoder: floating-point operations of the encoder's products.
    """

    source: int
    weights: int
    step: int
    encoder: int

    def step_seconds(self, precision: str, bandwidth: float) -> float:
        """Return the seconds to read the weights of a step at a bandwidth in bytes a second."""
        return self.weights * BYTES[precision] / bandwidth

    def operations(self, sentences: Sequence[SizedSentence], beam: int) -> float:
        """Return the operations of whole translations, from source lengths and numbers of steps."""
        sources = sum(len(s.source) for s in sentences)
        steps = sum(s.target + 1 for s in sentences)  # one more for end-of-sentence
        return self.encoder / self.source * sources + self.step * beam * steps


class _Reads(TorchDispatchMode):
    """Records the parameters that operators read, except embedding tables."""

    def __init__(self, model: Model) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sizes = {id(p): p.numel() for p in model.parameters()}
        self.read_sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator, and record the parameters among its arguments."""
        if func._schema.name not in LOOKUPS:
            for argument in args:
                for tensor in argument if isinstance(argument, list | tuple) else [argument]:
                    if id(tensor) in self._sizes:
                        self.read_sizes[id(tensor)] = self._sizes[id(tensor)]
        return func(*args, **(kwargs or {}))


def cost(config: ModelConfig, source: int = 32) -> Cost:
    """Count the cost by running the encoder and one step on the CPU with weights of zero.

    config: configuration of the model.
    source: number of source tokens; a multiple of 32 avoids padding.
    """
    model = build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    lane = Lane(TorchExecutor(model, 1, 1), lambda _, outcome: None)
    tokens = [*[FIRST_WORD] * (source - 1), config.eos]
    request = Request(tokens, DecodeOptions(1, min_length=9), lambda _: None)
    with FlopCounterMode(display=False) as encoding:
        lane.admit([request])
    reads = _Reads(model)
    with FlopCounterMode(display=False) as stepping, reads:
        lane.step()
    weights = sum(reads.read_sizes.values())
    return Cost(source, weights, stepping.get_total_flops(), encoding.get_total_flops())
