"""One lane of a model in torch, with captured steps."""

from __future__ import annotations

from functools import partial
from typing import Final

import torch
from torch import Tensor

from engine.backends import LaneSize
from engine.bundle.shortlist import Shortlist
from engine.executors.cuda.captured_slots import CapturedSlots
from engine.executors.cuda.shortlists import DeviceShortlists
from engine.executors.cuda.stepper import CapturedStepper, open_stepper
from engine.executors.cuda.streams import LaneStreams
from engine.executors.history import SlotPast
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.kernels.deferred import DeferredTensor, Lineage
from engine.models.model import Model
from engine.search.executor import StepInput, TopK

# initial source positions and target columns of the blocks, which grow when a request needs more
INITIAL_POSITIONS: Final = 256


class CapturedExecutor(CapturedSlots, TorchExecutor):
    """One lane of a model in torch, with steps as CUDA graphs."""

    def __init__(
        self,
        model: Model,
        lane: LaneSize,
        streams: LaneStreams,
        kernels: Kernels | None = None,
        shortlist: Shortlist | None = None,
        *,
        warm: bool = False,
    ) -> None:
        """Make a lane of a model that is on the device, in the dtype of its computations.

        kernels: kernels of the device; None computes in plain torch.
        shortlist: tokens that answers may have, by source; None: all.
        warm: capture common steps before the first request.
        """
        with streams.decoding():
            TorchExecutor.__init__(self, model, *lane, streams.device, kernels, shortlist)
            self.packs = kernels is not None and model.packs
            self._begin(streams, self._run_encoder, self.dtype, INITIAL_POSITIONS, warm=warm)

    def run(
        self, inputs: StepInput, width: int, columns: int, attention: bool, *, rings_advanced: bool = False
    ) -> TopK:
        past = self._advance(inputs.parents, inputs.positions, columns, rings_advanced=rings_advanced)
        memory = self.memory.prefix(inputs.tokens.shape[0], width)
        top, new = self._forward(inputs, past, memory, attention, merged=not rings_advanced)
        self.history.store(new, inputs.positions, rings_advanced=rings_advanced)
        return top

    def _advance(self, parents: Tensor, positions: Tensor, columns: int, *, rings_advanced: bool) -> SlotPast:
        """Do the work of `History.advance`; with kernels, one kernel advances the caches."""
        caches, kernels, n = self.history.caches, self.kernels, parents.shape[0]
        by_kernel = caches is not None and kernels is not None
        past = self.history.advance(
            parents, positions, columns, rings_advanced=rings_advanced, caches_advanced=by_kernel
        )
        if caches is None or kernels is None:
            return past
        writers = caches.writers[:n, :, :columns]
        kernels.advance_caches(writers, parents, positions)
        lineage = Lineage(writers, positions, partial(caches.lineage, positions, columns))
        like = next(iter(past.caches.values()))
        shape = n, self.beams, columns * self.beams
        return past._replace(lineage=DeferredTensor(lineage, shape, like))

    def listed(self, inputs: StepInput) -> Tensor | None:
        """Do the work of `TorchExecutor.listed` on the device, so that a graph can capture it."""
        if not isinstance(self.shortlists, DeviceShortlists):
            return None
        # forced tokens are allowed at their step; they come first, since lists are padded at their end
        return torch.cat([inputs.forced, self.shortlists.block[: inputs.forced.shape[0]]], 1)

    def stepper(self) -> CapturedStepper:
        return open_stepper(self)
