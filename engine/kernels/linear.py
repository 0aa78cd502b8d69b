"""What comes before and after a linear map in one launch with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm over the last axis; gain and shift [dim]."""

    gain: Tensor
    shift: Tensor
    epsilon: float


@dataclass(frozen=True, slots=True)
class Finish:
    """What becomes of a product's sums, in this order.

    factor: multiplies them.
    activation: "relu", "glu" (the first half of the outputs is gated by the second) or none.
    residual: added, in fp32 or as the weights.
    wide: the result is fp32.
    """

    factor: float = 1.0
    activation: str | None = None
    residual: Tensor | None = None
    wide: bool = False


ACTIVATIONS: Final = {None: 0, "relu": 1, "glu": 2}
