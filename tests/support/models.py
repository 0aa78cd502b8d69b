"""Small random models of every architecture, and executors that run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from engine.bundle.adaptive import AdaptiveConfig, Bands
from engine.bundle.bundle import graph_name, graph_parts
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import ConvStack, SliceStack, StackConfig
from engine.bundle.weights import ALPHA, SCALE, Weights
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import Sessions, open_sessions
from engine.executors.torch.executor import TorchExecutor
from engine.models import build, load
from engine.models.model import Model
from engine.native import library
from engine.search.executor import Executor
from export.graphs.onnx import graphs
from tests.support.emulated import Emulation, Replayed
from tests.support.thorough import some_of

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


def _average(encoder: dict | None = None, decoder: dict | None = None, **rest: object) -> ModelConfig:
    """Return an averaged attention network: sums in the decoder, self-attention in the encoder."""
    base = {"conv_dim": 32, "kernel_sizes": (0, 0), "norm_eps": 1e-6}
    sides = base | {"mixer": "attention"} | (encoder or {}), base | {"mixer": "average"} | (decoder or {})
    options = {"zero_start": True, "source_bias": True, "first_position": 0} | rest
    return _config(*sides, architecture="aan", **options)


def _student(both: dict | None = None, **rest: object) -> ModelConfig:
    """Return a configuration like Firefox's: self-attention in the encoder, SSRU in the decoder."""
    base = {"conv_dim": 32, "kernel_sizes": (0, 0), "glu": False, "norm_eps": 1e-6} | (both or {})
    options = {"zero_start": True, "first_position": 0, "output_bias": True} | rest
    sides = base | {"mixer": "attention"}, base | {"mixer": "ssru", "kernel_sizes": (0, 0, 0)}
    return _config(*sides, architecture="ssru", **options)


def _language_model(decoder: dict | None = None, **rest: object) -> ModelConfig:
    base = {"normalize_before": True, "final_norm": False}
    made = _config(decoder=base | (decoder or {}))
    return replace(made, architecture="lightconv_lm", encoder=None, source_vocab=47, **rest)


_MARIAN = {
    "normalize_before": True,
    "activation": "swish",
    "average_ffn": 40,
    "average_depth": 2,
    "average_activation": "swish",
    "gate": "separate",
}
BANDS = Bands((12, 28))
_CNN = {"mixer": "convolution", "glu": False}


def _convs2s(encoder: dict | None = None, decoder: dict | None = None, **rest: object) -> ModelConfig:
    base = {"embed_dim": 32, "widths": (24, 24, 40), "kernel_sizes": (3, 5, 1), "residuals": (1, 1, 1)}
    values = {"architecture": "convs2s", "source_vocab": 53, "target_vocab": 47, "output_bias": True}
    values |= {"max_source": 96, "max_target": 40, "scale_embeddings": False} | rest
    return ModelConfig(
        encoder=ConvStack(**base | (encoder or {})),
        decoder=ConvStack(**base | {"attention": (0, 1, 2), "output_dim": 20} | (decoder or {})),
        **values,
    )


def _slicenet(decoder: dict | None = None, both: dict | None = None, **rest: object) -> ModelConfig:
    stack = {"embed_dim": 36, "kernel_sizes": (3, 5, 7, 9)} | (both or {})
    attends = {"attention": "transformer", "heads": 4, "target_space": 5} | (decoder or {})
    values = {"source_vocab": 53, "target_vocab": 47, "max_source": 96, "max_target": 40} | rest
    return ModelConfig(
        architecture="slicenet",
        encoder=None if attends["attention"] == "none" else SliceStack(layers=2, **stack),
        decoder=SliceStack(layers=2, **stack | attends),
        **values,
    )


_PLAIN_ATTENTION = {"attention": "inner_product", "heads": 1}
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
    "transformer as marian": _transformer(
        {"activation": "gelu_sigmoid"},
        {"activation": "gelu_sigmoid"},
        output_bias=True,
        first_position=0,
        paper_sinusoids=True,
        start=46,
    ),
    "windowed": _transformer({"kernel_sizes": (3, 7)}, {"kernel_sizes": (3, 1, 6)}),
    "aan": _average(decoder={"average_ffn": 40}),
    "aan without feed-forward": _average(),
    "aan pre-norm": _average({"normalize_before": True}, {"normalize_before": True, "average_ffn": 40}),
    "aan without norm": _average(decoder={"normalize_before": True, "average_norm": False}),
    "aan as marian": _average({"normalize_before": True}, _MARIAN, output_bias=True, source_bias=False),
    "aan no gate": _average(decoder={"gate": "none", "average_ffn": 32, "average_projection": False}),
    "aan both": _average({"mixer": "average", "average_ffn": 40}, {"average_ffn": 40}),
    "aan both pre-norm": _average(
        {"mixer": "average", "normalize_before": True, "gate": "separate"},
        {"kernel_sizes": (0, 0, 0), "gate": "none"},
        zero_start=False,
    ),
    "ssru": _student(),
    "ssru pre-norm": _student({"normalize_before": True}, zero_start=False, output_bias=False),
    "ssru of a file's int8": _student(
        source_vocab=47, share_embeddings=True, share_output=True, quantization="alphas"
    ),
    "cnn": _config(_CNN, _CNN, architecture="cnn"),
    "cnn pre-norm": _config(
        _CNN | {"normalize_before": True, "kernel_sizes": (1, 5)},
        _CNN | {"normalize_before": True, "kernel_sizes": (1, 3, 4)},
        architecture="cnn",
    ),
    "two widths": _transformer({"embed_dim": 24, "conv_dim": 24}, zero_start=True, source_bias=True),
    "convs2s": _convs2s(),
    "convs2s skipping": _convs2s(
        {"residuals": (0, 2, 2), "widths": (40, 24, 24), "kernel_sizes": (2, 4, 1)},
        {"residuals": (1, 2, 0), "widths": (20, 28, 20), "kernel_sizes": (4, 1, 2), "attention": (1,)},
    ),
    "convs2s shared": _convs2s(
        {"residuals": (1, 0, 3)},
        {"output_dim": None},
        source_vocab=47,
        share_embeddings=True,
        share_output=True,
    ),
    "convs2s bare": _convs2s({"learned_positions": False}, token_positions=False, output_bias=False),
    "slicenet": _slicenet(source_vocab=47, share_embeddings=True, share_output=True),
    "slicenet separable": _slicenet(both={"separability": 0}),
    "slicenet full": _slicenet(both={"separability": 1, "kernel_sizes": (3, 1, 3), "dilations": (2, 1, 3)}),
    "slicenet sub-separable": _slicenet(both={"separability": 4, "kernel_sizes": (3, 3, 3, 3)}),
    "slicenet super-separable 1": _slicenet(both={"separability": -1}, scale_embeddings=False),
    "slicenet dilated": _slicenet(both={"kernel_sizes": (3, 3, 3, 3), "dilations": (1, 2, 4, 8)}),
    "slicenet dilated groups": _slicenet(
        both={"separability": 2, "kernel_sizes": (3, 3, 5), "dilations": (1, 3, 2)}
    ),
    "slicenet of five": _slicenet(both={"kernel_sizes": (3, 7, 15, 1, 31), "dilations": (1,) * 5}),
    "slicenet inner product": _slicenet(_PLAIN_ATTENTION, share_output=True),
    "slicenet language model": _slicenet({"attention": "none", "heads": 1}, source_vocab=47),
    "lm plain": _language_model({"final_norm": True}, output_bias=True),
    "lm shared": _language_model({"mixer": "lightweight"}, share_output=True),
    "lm adaptive softmax": _language_model(
        {"input_dim": 24, "output_dim": 40}, adaptive=AdaptiveConfig(softmax=Bands((11, 30)))
    ),
    "lm adaptive input": _language_model(
        {"input_dim": 40, "output_dim": 20}, adaptive=AdaptiveConfig(input=Bands((20,), 2.0))
    ),
    "lm adaptive": _language_model(
        {"glu": False}, adaptive=AdaptiveConfig(Bands((11, 30)), Bands((9, 20, 46), 2.5))
    ),
    "lm tied": _language_model(adaptive=AdaptiveConfig(BANDS, BANDS, tie_weights=True)),
    "lm tied projections": _language_model(
        {"mixer": "lightweight"},
        adaptive=AdaptiveConfig(BANDS, BANDS, tie_weights=True, tie_projections=True),
    ),
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
CONFIGS["lm ensemble"] = replace(
    CONFIGS["ensemble"],
    source_vocab=47,
    members=tuple(CONFIGS[name] for name in ("lm plain", "lm tied projections")),
)
CONFIGS["fused"] = replace(CONFIGS["glu"], language_model=CONFIGS["lm plain"])


def some_models(part: int) -> list[str]:
    """Return all models in a thorough run, otherwise each `part`-th and the first of each architecture."""
    first = {config.architecture: name for name, config in reversed(CONFIGS.items())}
    chosen = {*some_of(list(CONFIGS), part), *first.values()}
    return [name for name in CONFIGS if name in chosen]


@cache
def model(name: str) -> Model:
    made = build(CONFIGS[name])
    made.initialise(seed=7)
    with torch.no_grad():  # biases and norms away from their neutral start, so that dropping one shows
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    if CONFIGS[name].quantization == "none":
        return made
    return load(CONFIGS[name], quantized({k: p.detach().numpy() for k, p in made.named_parameters()}))


def weights(name: str) -> Mapping[str, np.ndarray]:
    floats = {k: p.detach().numpy() for k, p in model(name).named_parameters()}
    return floats if CONFIGS[name].quantization == "none" else quantized(floats)


def quantized(floats: Mapping[str, np.ndarray], alpha: float = 127 / 6) -> Weights:
    """Return weights like a quantised file: int8 matrices with one scale each, and alphas."""
    stored: dict[str, np.ndarray] = {}
    for name, weight in floats.items():
        if weight.ndim == 1:
            stored[name] = weight
            continue
        scale = np.float32(np.abs(weight).max() / 127)
        values = np.clip(np.rint(weight / scale), -127, 127).astype(np.int8)
        stored |= {name: values, name + SCALE: np.array([scale]), name + ALPHA: np.array([alpha], np.float32)}
    return Weights(stored)


@cache
def graph_files(name: str, precision: str, kernels: str) -> dict[str, bytes]:
    return graphs(CONFIGS[name], (precision,), (kernels,))


@cache
def sessions(
    name: str, precision: str = "fp32", threads: int = 1, kernels: str = "pure", device: str | None = None
) -> Sessions:
    files = graph_files(name, precision, kernels)
    parts = {part: files[graph_name(part, precision, kernels)] for part in graph_parts(CONFIGS[name])}
    operators = library() if kernels == "native" else None
    return open_sessions(CONFIGS[name], parts, weights(name), threads, operators, device)


def executor(backend: str, name: str, beams: int, slots: int) -> Executor:
    if backend == "torch":
        return TorchExecutor(model(name), beams, slots)
    if backend == "cuda-emulated":
        return Replayed(model(name), (beams, slots), Emulation())
    kernels = "native" if backend == "onnx-native" else "pure"
    device = "cpu" if backend == "onnx-bound" else None
    return OnnxExecutor(sessions(name, kernels=kernels, device=device), beams, slots)


NEEDS_LIBRARY = pytest.mark.skipif(library() is None, reason="no native operators: make native")
KERNELS = ["pure", pytest.param("native", marks=NEEDS_LIBRARY)]
BACKENDS = ["onnx-pure", pytest.param("onnx-native", marks=NEEDS_LIBRARY), "torch"]
BESIDE = ["onnx-bound", "cuda-emulated"]  # what no backend is, but CUDA runs
EXECUTORS = [*BACKENDS, *BESIDE]
