"""Random initialisation of models sets every weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.models import build
from tests.support.models import CONFIGS


@pytest.fixture
def memory_full_of_nan() -> Iterator[None]:
    """Let torch fill new tensors without values with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def both_sides(**options: Any) -> Any:
    config = CONFIGS["transformer"]
    assert config.encoder is not None
    encoder, decoder = (replace(side, **options) for side in (config.encoder, config.decoder))
    if options.get("relative_positions"):
        decoder = replace(decoder, kernel_sizes=(8,) * decoder.layers)
    return replace(config, encoder=encoder, decoder=decoder)


@pytest.mark.usefixtures("memory_full_of_nan")
@pytest.mark.parametrize(
    "config",
    [
        *(pytest.param(config, id=name) for name, config in CONFIGS.items()),
        pytest.param(both_sides(relative_span=6), id="bias by distance"),
        pytest.param(both_sides(relative_span=6, relative_each=True), id="bias by distance in each layer"),
        pytest.param(both_sides(relative_positions=4), id="relative positions"),
    ],
)
def test_initialise_sets_every_weight(config: Any) -> None:
    net = build(config)
    net.initialise(seed=3)
    tensors = [*net.named_parameters(), *net.named_buffers()]
    assert [name for name, tensor in tensors if not tensor.isfinite().all()] == []
