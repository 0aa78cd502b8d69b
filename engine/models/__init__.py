"""The table of architectures. A bundle names one of these; nothing is ever imported by a name it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.errors import BundleError
from engine.models.aan import AverageAttention
from engine.models.cnn import Cnn
from engine.models.convs2s import ConvS2S
from engine.models.dynamicconv import DynamicConv
from engine.models.ensemble import Ensemble
from engine.models.lightconv_lm import LightConvLM
from engine.models.model import Dropout, Model
from engine.models.slicenet import SliceNet
from engine.models.transformer import Transformer

ARCHITECTURES: Final[dict[str, type[Model]]] = {
    "aan": AverageAttention,
    "cnn": Cnn,
    "convs2s": ConvS2S,
    "dynamicconv": DynamicConv,
    "lightconv_lm": LightConvLM,
    "slicenet": SliceNet,
    "transformer": Transformer,
}


def build(config: ModelConfig, dropout: Dropout | None = None) -> Model:
    """A model with uninitialised weights, in evaluation mode. dropout: rates for training."""
    if config.members:
        return Ensemble(config, [build(member, dropout) for member in config.members]).eval()
    return ARCHITECTURES[config.architecture](config, dropout).eval()


def load(config: ModelConfig, weights: Mapping[str, NDArray[np.float32]]) -> Model:
    """A model with these weights (names of `weight_shapes`). Raises BundleError naming every weight that is
    missing, left over, or of another shape."""
    model = build(config)
    problems = misfits(weight_shapes(model), {name: w.shape for name, w in weights.items()})
    if problems:
        raise BundleError("weights do not fit the configuration: " + "; ".join(problems))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(np.array(weights[name], dtype=np.float32)))
    return model


def weight_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights a bundle holds; shared ones once, under their first name."""
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def misfits(wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Every weight of `found` that is missing, left over, or of another shape, as messages."""
    problems = [f"{name} is missing" for name in sorted(set(wanted) - set(found))]
    problems += [f"{name} is not part of the model" for name in sorted(set(found) - set(wanted))]
    both = (name for name in wanted if name in found)
    return problems + [
        f"{n} has shape {tuple(found[n])}, not {wanted[n]}" for n in both if tuple(found[n]) != wanted[n]
    ]
