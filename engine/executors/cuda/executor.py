"""One lane of a model in torch, with captured steps."""

from __future__ import annotations

from typing import Final

from engine.backends import LaneSize
from engine.executors.cuda.captured_slots import CapturedSlots
from engine.executors.cuda.stepper import CapturedStepper, open_stepper
from engine.executors.cuda.streams import LaneStreams
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.models.model import Model
from engine.search.executor import StepInput, TopK

# source positions and target columns of blocks at first; blocks grow when a request needs more
INITIAL_POSITIONS: Final = 256


class CapturedExecutor(CapturedSlots, TorchExecutor):
    """Of a model in torch."""

    def __init__(
        self,
        model: Model,
        lane: LaneSize,
        work: LaneStreams,
        kernels: Kernels | None = None,
        *,
        warm: bool = False,
    ) -> None:
        """Take a model that lies on the device already, in the type that it computes in.

        warm: capture common steps before the first request.
        """
        with work.decoding():
            TorchExecutor.__init__(self, model, *lane, work.device, kernels)
            self.packs = kernels is not None and model.packs
            self._begin(work, self._run_encoder, self.dtype, INITIAL_POSITIONS, warm=warm)

    def run(
        self, inputs: StepInput, width: int, columns: int, attention: bool, *, followed: bool = False
    ) -> TopK:
        past = self.history.advance(inputs.parents, inputs.positions, columns, followed=followed)
        memory = self.memory.prefix(inputs.tokens.shape[0], width)
        top, new = self._forward(inputs, past, memory, attention, merged=not followed)
        self.history.store(new, inputs.positions, followed=followed)
        return top

    def stepper(self) -> CapturedStepper:
        return open_stepper(self)
