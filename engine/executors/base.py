"""Base class of executors: slots with memory and history, filled from batches of encoded sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.backends import LaneSize
from engine.bundle.config import ModelConfig
from engine.bundle.shortlist import Shortlist
from engine.bundle.specs import Specs
from engine.executors.device_errors import is_device_lost
from engine.executors.history import History
from engine.executors.memory import EncoderBatch, Memory, SourceLimits, StagedBatch, encoder_batches
from engine.executors.shortlists import SlotShortlists
from engine.search.executor import StepInput, Stepper, TopK
from engine.search.stepper import PlainStepper


@dataclass(frozen=True, slots=True)
class Arrays:
    """Namespace, device and dtype of a lane's arrays.

    namespace: numpy or torch.
    dtype: dtype of memory and state.
    """

    namespace: Any
    device: Any
    dtype: Any


class SlotExecutor(ABC):
    """One lane without its arithmetic: a backend adds `_encode` and `step`."""

    pad_to_longest = False  # allowed if `_encode` returns the same bits for any padding

    def __init__(
        self,
        config: ModelConfig,
        specs: Specs,
        lane: LaneSize,
        arrays: Arrays,
        shortlist: Shortlist | None = None,
    ) -> None:
        """Make a lane with empty slots.

        specs: specs of the memory and state of a slot.
        arrays: namespace, device and dtype of the arrays.
        shortlist: shortlist of the bundle, for a step graph that reads one.
        """
        self.beams, self.slots = lane
        self.pad, self.eos, self.start = config.pad, config.eos, config.first_token
        self.limits = config.limits(self.beams, shortlisted=shortlist is not None)
        self.namespace, self.device = arrays.namespace, arrays.device
        where = arrays.namespace, arrays.device, arrays.dtype
        self.unread = 0 if config.source_end else 1
        self.memory = Memory(specs.memory, self.slots, *where, unread=self.unread)
        self.history = History(specs.states, self.slots, self.beams, *where)
        self.shortlists = None if shortlist is None else SlotShortlists(shortlist, self.slots)

    def encode(self, sources: Sequence[Sequence[int]]) -> StagedBatch:
        """Encode sources in batches of equal padded length, and return them in their order."""
        memory: list[dict[str, Any]] = [{} for _ in sources]
        if not self.memory.specs:  # a language model
            return StagedBatch([len(s) for s in sources], memory)
        limits = SourceLimits(self.pad, self.limits.source, self.unread)
        for batch in encoder_batches(sources, limits, pad_to_longest=self.pad_to_longest):
            outputs = self._encode(batch)
            for row, i in enumerate(batch.members):
                memory[i] = {name: output[row] for name, output in outputs.items()}
        return StagedBatch([len(s) for s in sources], memory, sources if self.shortlists else ())

    def place(self, encoded: StagedBatch, i: int, slot: int, prefix: Sequence[int] = ()) -> None:
        self.memory.place(slot, encoded.lengths[i], encoded.memory[i])
        self.history.clear(slot)
        if self.shortlists:
            self.shortlists.place(slot, self.shortlists.shortlist.of(encoded.sources[i], prefix))

    def move(self, source: int, target: int) -> None:
        self.memory.move(source, target)
        self.history.move(source, target)
        if self.shortlists:
            self.shortlists.move(source, target)

    def stepper(self) -> Stepper:
        return PlainStepper(self)

    def is_device_lost(self, error: BaseException) -> bool:
        return is_device_lost(error)

    @abstractmethod
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK: ...

    @abstractmethod
    def _encode(self, batch: EncoderBatch) -> Mapping[str, Any]:
        """Return the memory of a batch, [batch, *shape] by the name of each memory spec."""
