"""The table of architectures: the only classes that a bundle can name. No bundle can import other code.

model         interface of every model: encode, step, specs
stack         encoders and decoders of residual layers
residual      their layers, without the mixers
layers        shared building blocks
select        end of every step: projection, rules, best tokens
dynamicconv   dynamic and lightweight convolutions
transformer   self-attention
cnn           full convolutions
aan           averaged attention
ssru          simpler simple recurrent units
convs2s       gated convolutions, with attention in every layer
slicenet      separable convolutions
separable     kernels of separable convolutions
lightconv_lm  language models
adaptive      adaptive softmax and input
ensemble      several models as one
fusion        a language model beside a translation model
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from engine.bundle.config import ModelConfig
from engine.errors import BundleError
from engine.models.aan import AverageAttention
from engine.models.cnn import Cnn
from engine.models.convs2s import ConvS2S
from engine.models.dynamicconv import DynamicConv
from engine.models.ensemble import Ensemble
from engine.models.fusion import Fusion
from engine.models.lightconv_lm import LightConvLM
from engine.models.model import Dropout, Model
from engine.models.slicenet import SliceNet
from engine.models.ssru import SimplerRecurrent
from engine.models.transformer import Transformer

ARCHITECTURES: Final[dict[str, type[Model]]] = {
    "aan": AverageAttention,
    "cnn": Cnn,
    "convs2s": ConvS2S,
    "dynamicconv": DynamicConv,
    "lightconv_lm": LightConvLM,
    "slicenet": SliceNet,
    "ssru": SimplerRecurrent,
    "transformer": Transformer,
}


def build(config: ModelConfig, dropout: Dropout | None = None) -> Model:
    """Build a model with uninitialised weights, in evaluation mode.

    config: configuration of the model.
    dropout: dropout rates for training.
    """
    if config.language_model is not None:
        translation = build(replace(config, language_model=None), dropout)
        return Fusion(config, translation, build(config.language_model, dropout)).eval()
    if config.members:
        return Ensemble(config, [build(member, dropout) for member in config.members]).eval()
    return ARCHITECTURES[config.architecture](config, dropout).eval()


def load(config: ModelConfig, weights: Mapping[str, NDArray[np.float32]]) -> Model:
    """Build a model and load its weights (names of `weight_shapes`).

    Raises BundleError that names every missing, unknown or misshapen weight.
    """
    model = build(config)
    problems = shape_errors(weight_shapes(model), {name: w.shape for name, w in weights.items()})
    if problems:
        raise BundleError("weights do not fit the configuration: " + "; ".join(problems))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(np.array(weights[name], dtype=np.float32)))
    return model


def weight_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by name; a shared weight only under its first name."""
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def shape_errors(shapes: Mapping[str, tuple[int, ...]], others: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return an error for each weight of `others` that is missing, not in `shapes`, or has another shape."""
    problems = [f"{name} is missing" for name in sorted(set(shapes) - set(others))]
    problems += [f"{name} is not part of the model" for name in sorted(set(others) - set(shapes))]
    both = (name for name in shapes if name in others)
    return problems + [
        f"{n} has shape {tuple(others[n])}, not {shapes[n]}" for n in both if tuple(others[n]) != shapes[n]
    ]
