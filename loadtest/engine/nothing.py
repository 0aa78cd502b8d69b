"""A device that does nothing, so that only the host's work remains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.executors.cuda.streams import Mark, Replay
from engine.kernels.launches import Call

NOWHERE: Final = nullcontext()


class ReachedMark:
    """An event that has already occurred."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Nothing:
    """A `Work` and a `Run` of kernels on the CPU. `step` writes the values that a step of the device would
    leave."""

    device = "cpu"

    def __call__(self, call: Call) -> None:
        if call.kernel.entry == "end_step":  # the last kernel of a step that is not captured yet
            self.step()

    def step(self) -> None:
        """Do nothing after each step, captured or not."""

    def __init__(self) -> None:
        self._decoding = True

    def decoding(self) -> AbstractContextManager[Any]:
        self._decoding = True
        return NOWHERE

    def encoding(self) -> AbstractContextManager[Any]:
        self._decoding = False
        return NOWHERE

    def capture(self, step: Callable[[], None]) -> Replay:
        return self.step if self._decoding else _encode_nothing

    def renew(self) -> None:
        pass

    def mark(self) -> Mark:
        return ReachedMark()

    def wait(self, mark: Mark, tensors: Sequence[Tensor]) -> None:
        pass

    def to_device(self, tensor: Tensor) -> Tensor:
        return tensor

    def upload(self, parts: Sequence[NDArray[np.int64]], target: Tensor) -> None:
        pass

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype)

    def fetch(self, tensor: Tensor, target: Tensor) -> None:
        target.copy_(tensor)

    def clone(self, tensor: Tensor) -> Tensor:
        return tensor

    def to_host(self, tensor: Tensor) -> Tensor:
        return tensor.clone()


def _encode_nothing() -> None:
    pass
