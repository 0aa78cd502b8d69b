"""What a model must read and compute: counted while its own code runs once, of whatever architecture it
is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from engine.bundle.config import ModelConfig
from engine.executors.torch import TorchExecutor
from engine.models import build
from engine.models.model import Model
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Request
from loadtest.engine.gpu_bench.sentences import FIRST_WORD, SizedSentence
from loadtest.engine.gpu_bench.setting import BYTES

LOOKUPS: Final = {"aten::embedding"}  # read a row, not the table


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one source of `source` tokens and its decoding, one hypothesis: weights that a step reads (numbers),
    floating-point operations of the matrix products of a step and of the encoder. Transformers' attention to
    their own past is counted at its first step, so too low."""

    source: int
    weights: int
    step: int
    encoder: int

    def step_seconds(self, precision: str, bandwidth: float) -> float:
        """Return the floor of a step of one row: its weights at the measured bandwidth (bytes a second)."""
        return self.weights * BYTES[precision] / bandwidth

    def operations(self, sentences: Sequence[SizedSentence], beam: int) -> float:
        """Count the operations of whole translations, by the source's length and the steps of each."""
        sources = sum(len(s.source) for s in sentences)
        steps = sum(s.target + 1 for s in sentences)
        return self.encoder / self.source * sources + self.step * beam * steps


class _Reads(TorchDispatchMode):
    """Notes the parameters that operators take, tables of look-ups apart."""

    def __init__(self, model: Model) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sizes = {id(p): p.numel() for p in model.parameters()}
        self.found: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func._schema.name not in LOOKUPS:
            for argument in args:
                for one in argument if isinstance(argument, list | tuple) else [argument]:
                    if id(one) in self._sizes:
                        self.found[id(one)] = self._sizes[id(one)]
        return func(*args, **(kwargs or {}))


def cost(config: ModelConfig, source: int = 32) -> Cost:
    """Run the encoder once and one step on the CPU. The weights' values do not matter, so there are none.

    source: tokens with end-of-sentence; multiples of 8 are not padded by the encoder, of 32 by the memory.
    """
    model = build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    lane = Lane(TorchExecutor(model, 1, 1), lambda _, outcome: None)
    request = Request([*[FIRST_WORD] * (source - 1), config.eos], DecodeOptions(1, min_length=9), _nobody)
    with FlopCounterMode(display=False) as encoding:
        lane.admit([request])
    reads = _Reads(model)
    with FlopCounterMode(display=False) as stepping, reads:
        lane.step()
    return Cost(source, sum(reads.found.values()), stepping.get_total_flops(), encoding.get_total_flops())


def _nobody(outcome: object) -> None:
    """The answer does not matter."""
