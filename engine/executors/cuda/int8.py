"""Models on a GPU with large weights of 8 bits and inputs of 16 bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.bundle.recipes import quantize_weight
from engine.kernels.int8 import Bytes, Int8Weight
from engine.kernels.products import TILE_DEPTH
from engine.models.model import Model, ProjectionModel

LEAST_NUMBERS: Final = 128 * 1024  # smaller weights take less time than a launch
TAPS: Final = "weight_linear"  # product of a convolution's taps, which its own kernel computes


def move_as_int8(model: Model, weights: Mapping[str, NDArray[Any]], device: str, dtype: torch.dtype) -> Model:
    """Move a model to a device, with large weights of linear maps as int8 with a scale for each output, the
    numbers of the CPU's int8. Tables of embeddings are stored in `dtype` too.

    model: model with the weights, in float32 on the CPU.
    weights: weights of the bundle by name.
    device: name of the device.
    dtype: type of all other weights.
    """
    linear = {id(weight) for weight in _linear_weights(model)}
    looked_up = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    numbers = {
        id(parameter): _bytes_of(name, weights, device)
        for name, parameter in model.named_parameters()
        if id(parameter) in linear
    }
    places = [
        (module, name, id(parameter))
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if id(parameter) in numbers
    ]
    for module, name, key in places:
        if key not in looked_up:
            module._parameters[name] = None  # not moved in its own type
    model = model.to(device, dtype)
    made: dict[int, Int8Weight] = {}
    for module, name, key in places:
        table = module._parameters[name]
        if key not in made:
            made[key] = Int8Weight(numbers[key], dtype, table)
        module._parameters[name] = made[key]  # type: ignore[assignment]
    return model


def _linear_weights(model: Model) -> Iterator[Tensor]:
    """Yield the weights of linear maps that are large, and that tensor cores can read."""
    for name, module in model.named_modules():
        found = []
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] != TAPS:
            found.append(module.weight)
        if isinstance(module, ProjectionModel) and module.config.adaptive is None:
            found.append(module.output[0])
        yield from (w for w in found if w.numel() >= LEAST_NUMBERS and w.shape[1] % TILE_DEPTH == 0)


def _bytes_of(name: str, weights: Mapping[str, NDArray[Any]], device: str) -> Bytes:
    quantized = quantize_weight(name, weights)
    values, scales = torch.from_numpy(quantized.values.copy()), torch.from_numpy(quantized.scales.copy())
    return Bytes(values.to(device), scales.to(device))
