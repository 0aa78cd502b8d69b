"""Small random models of every shape the architecture allows, and executors that run them."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from engine.config import ModelConfig, StackConfig
from engine.executor import Executor
from engine.executors.onnx import OnnxExecutor, Sessions, open_sessions
from engine.executors.torch import TorchExecutor
from engine.models import build
from engine.models.model import Model
from export.onnx import graphs

ENCODER = StackConfig(embed_dim=32, conv_dim=48, ffn_dim=40, heads=4, kernel_sizes=(3, 7))
DECODER = StackConfig(embed_dim=32, conv_dim=48, ffn_dim=40, heads=4, kernel_sizes=(3, 6))


def _config(encoder: dict | None = None, decoder: dict | None = None, **rest: object) -> ModelConfig:
    def stack(base: StackConfig, changes: dict | None) -> StackConfig:
        values = {f: getattr(base, f) for f in base.__dataclass_fields__}
        return StackConfig(**values | (changes or {}))

    sizes = {"source_vocab": 53, "target_vocab": 47, "max_source": 96, "max_target": 40}
    values = {"architecture": "dynamicconv"} | sizes | rest
    return ModelConfig(encoder=stack(ENCODER, encoder), decoder=stack(DECODER, decoder), **values)


def _transformer(encoder: dict | None = None, decoder: dict | None = None, **rest: object) -> ModelConfig:
    base = {"mixer": "attention", "conv_dim": 32, "kernel_sizes": (0, 0)}
    return _config(base | (encoder or {}), base | (decoder or {}), architecture="transformer", **rest)


CONFIGS = {
    "glu": _config(),
    "plain": _config({"glu": False}, {"glu": False}),
    "light": _config({"mixer": "lightweight"}, {"mixer": "lightweight"}),
    "mixed": _config({"mixer": "lightweight"}, {"glu": False, "normalize_before": True}),
    "pre-norm": _config({"normalize_before": True}, {"normalize_before": True}),
    "learned": _config({"learned_positions": True}, {"learned_positions": True}),
    "no positions": _config(token_positions=False),
    "raw kernels": _config({"weight_softmax": False}, {"weight_softmax": False}),
    "raw light kernels": _config(
        {"weight_softmax": False, "mixer": "lightweight"},
        {"weight_softmax": False, "mixer": "lightweight"},
    ),
    "widths": _config(decoder={"input_dim": 24, "output_dim": 20, "kernel_sizes": (1, 4, 9)}),
    "shared": _config(source_vocab=47, share_embeddings=True, share_output=True),
    "odd limit": _config(max_source=61),
    "narrow": _config({"kernel_sizes": (1,)}, {"kernel_sizes": (1,)}),
    "depthwise": _config(
        {"mixer": "lightweight", "weight_softmax": False, "conv_heads": 48, "glu": False},
        {"mixer": "lightweight", "weight_softmax": False, "conv_heads": 48, "glu": False},
    ),
    "transformer": _transformer(),
    "transformer pre-norm": _transformer(
        {"normalize_before": True, "activation": "gelu", "embedding_norm": True},
        {"normalize_before": True, "activation": "swish", "embedding_norm": True},
        output_bias=True,
        scale_embeddings=False,
        first_position=0,
    ),
    "windowed": _transformer({"kernel_sizes": (3, 7)}, {"kernel_sizes": (3, 1, 6)}),
    "two widths": _transformer({"embed_dim": 24, "conv_dim": 24}, zero_start=True, source_bias=True),
}
MEMBERS = ("glu", "transformer", "light")
CONFIGS["ensemble"] = ModelConfig(
    architecture="ensemble",
    source_vocab=53,
    target_vocab=47,
    encoder=None,
    decoder=None,
    max_source=96,
    max_target=40,
    members=tuple(CONFIGS[name] for name in MEMBERS),
)


@cache
def model(name: str) -> Model:
    made = build(CONFIGS[name])
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
