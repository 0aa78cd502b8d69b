"""What the device itself can do: copying, and matrix products of a large square and of a decoder's shapes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any, Final

import torch
from torch import Tensor

from loadtest.engine.gpu_bench.clock import reason, seconds
from loadtest.engine.gpu_bench.setting import Setting

TYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SAMPLES: Final = 9
SHAPES: Final = {"feed-forward": (1_024, 4_096), "output": (1_024, 32_768)}  # in, out
ROWS: Final = (1, 4, 64, 1_024)  # one sentence of beam 1 and 4; 16 and 256 sentences of beam 4
CACHES: Final = 512 << 20  # products take turns over weights of more bytes than caches hold


def floors(setting: Setting) -> dict[str, Any]:
    """Measure what the device itself can do. bandwidth: bytes a second, read and written; matrix: operations
    a second by precision; shapes: of the decoder's products, each with operations and bytes of weights a
    second. Random data: zeros run faster."""
    device, scale = setting.device, setting.scale
    record: dict[str, Any] = {"bandwidth": _copy(device, scale.copy), "matrix": {}, "shapes": []}
    record["tf32_allowed"] = torch.backends.cuda.matmul.allow_tf32
    for precision, kind in TYPES.items():
        try:
            a, b = (torch.randn(scale.square, scale.square, device=device).to(kind) for _ in range(2))
            record["matrix"][precision] = 2 * scale.square**3 / _median(device, partial(torch.matmul, a, b))
            del a, b
            record["shapes"] += _shapes(setting, precision, kind)
        except RuntimeError as error:
            record.setdefault("not_run", {})[precision] = reason(error)
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    return record


def _copy(device: str, size: int) -> float:
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _median(device, lambda: target.copy_(source), 3)


def _shapes(setting: Setting, precision: str, kind: torch.dtype) -> list[dict[str, Any]]:
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
            rate = 2 * count * inputs * outputs / duration
            shape = [count, inputs, outputs]
            rows.append({"what": name, "precision": precision, "shape": shape, "seconds": duration})
            rows[-1] |= {"operations": rate, "bytes": size / duration}
    return rows


def _product(device: str, x: Tensor, weights: list[Tensor]) -> float:
    turn = cycle(weights)
    return _median(device, lambda: torch.nn.functional.linear(x, next(turn)), len(weights))


def _median(device: str, call: Callable[[], object], times: int = 5) -> float:
    """Seconds of one call; each sample is `times` of them, captured in a graph on CUDA so that launching them
    is not what is measured."""
    repeat = _capture(device, call, times)
    repeat()
    return statistics.median(seconds(device, repeat) for _ in range(SAMPLES)) / times


def _capture(device: str, call: Callable[[], object], times: int) -> Callable[[], None]:
    def several() -> None:
        for _ in range(times):
            call()

    if not device.startswith("cuda"):
        return several
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):  # capturing wants libraries that are open already
        several()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        several()
    return graph.replay
