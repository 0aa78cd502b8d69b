"""Small random models of every shape the architecture allows, and executors that run them."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from engine.config import ModelConfig, StackConfig
from engine.executor import Executor
from engine.executors.onnx import OnnxExecutor, Sessions, open_sessions
from engine.executors.torch import TorchExecutor
from engine.models import ARCHITECTURES
from engine.models.dynamicconv import DynamicConv
from export.onnx import graphs

ENCODER = StackConfig(embed_dim=32, conv_dim=48, ffn_dim=40, heads=4, kernel_sizes=(3, 7))
DECODER = StackConfig(embed_dim=32, conv_dim=48, ffn_dim=40, heads=4, kernel_sizes=(3, 6))


def _config(encoder: dict | None = None, decoder: dict | None = None, **rest: object) -> ModelConfig:
    def stack(base: StackConfig, changes: dict | None) -> StackConfig:
        values = {f: getattr(base, f) for f in base.__dataclass_fields__}
        return StackConfig(**values | (changes or {}))

    values = {"source_vocab": 53, "target_vocab": 47, "max_source": 96, "max_target": 40} | rest
    return ModelConfig(
        architecture="dynamicconv", encoder=stack(ENCODER, encoder), decoder=stack(DECODER, decoder), **values
    )


CONFIGS = {
    "glu": _config(),
    "plain": _config({"glu": False}, {"glu": False}),
    "light": _config({"conv_type": "lightweight"}, {"conv_type": "lightweight"}),
    "mixed": _config({"conv_type": "lightweight"}, {"glu": False, "normalize_before": True}),
    "pre-norm": _config({"normalize_before": True}, {"normalize_before": True}),
    "learned": _config({"learned_positions": True}, {"learned_positions": True}),
    "no positions": _config(token_positions=False),
    "raw kernels": _config({"weight_softmax": False}, {"weight_softmax": False}),
    "raw light kernels": _config(
        {"weight_softmax": False, "conv_type": "lightweight"},
        {"weight_softmax": False, "conv_type": "lightweight"},
    ),
    "widths": _config(decoder={"input_dim": 24, "output_dim": 20, "kernel_sizes": (1, 4, 9)}),
    "shared": _config(source_vocab=47, share_embeddings=True, share_output=True),
    "odd limit": _config(max_source=61),
    "narrow": _config({"kernel_sizes": (1,)}, {"kernel_sizes": (1,)}),
}


@cache
def model(name: str) -> DynamicConv:
    made = ARCHITECTURES["dynamicconv"](CONFIGS[name]).eval()
    made.initialise(seed=7)
    with torch.no_grad():  # biases and norms away from their neutral start, so that dropping one shows
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return made


def weights(name: str) -> dict[str, np.ndarray]:
    return {k: p.detach().numpy() for k, p in model(name).named_parameters()}


@cache
def sessions(name: str, precision: str = "fp32", threads: int = 1) -> Sessions:
    made = graphs(CONFIGS[name])
    parts = {part: made[f"onnx/{part}.{precision}.onnx"] for part in ("encoder", "step")}
    return open_sessions(CONFIGS[name], parts, weights(name), threads)


def executor(backend: str, name: str, beams: int, slots: int) -> Executor:
    if backend == "torch":
        return TorchExecutor(model(name), beams, slots)
    return OnnxExecutor(sessions(name), beams, slots)
