"""What executors share: slots with their memory and history, filled from batches of encoded sources."""

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
from engine.executors.memory import EncoderBatch, Ends, Memory, StagedBatch, encoder_batches
from engine.executors.shortlists import Among
from engine.search.executor import StepInput, Stepper, TopK
from engine.search.stepper import PlainStepper


@dataclass(frozen=True, slots=True)
class Arrays:
    """Where a lane's arrays live: an array namespace, a device of it and the type of memory and state."""

    namespace: Any
    device: Any
    dtype: Any


class SlotExecutor(ABC):
    """One lane without its arithmetic (see `Executor`): a backend adds `_encode`, `step`."""

    tight = False  # whether `_encode` gives the same bits for any padding

    def __init__(
        self,
        config: ModelConfig,
        specs: Specs,
        lane: LaneSize,
        arrays: Arrays,
        shortlist: Shortlist | None = None,
    ) -> None:
        """config: of the model.
        specs: what each slot holds.
        lane: its beams and slots.
        arrays: where they live.
        shortlist: for a step that reads lists.
        """
        self.beams, self.slots = lane
        self.pad, self.eos, self.start = config.pad, config.eos, config.first_token
        self.limits = config.limits(self.beams, shortlisted=shortlist is not None)
        self.namespace, self.device = arrays.namespace, arrays.device
        where = arrays.namespace, arrays.device, arrays.dtype
        self.unread = 0 if config.source_end else 1
        self.memory = Memory(specs.memory, self.slots, *where, unread=self.unread)
        self.history = History(specs.states, self.slots, self.beams, *where)
        self.among = None if shortlist is None else Among(shortlist, self.slots)

    def encode(self, sources: Sequence[Sequence[int]]) -> StagedBatch:
        memory: list[dict[str, Any]] = [{} for _ in sources]
        if not self.memory.specs:  # a language model
            return StagedBatch([len(s) for s in sources], memory)
        ends = Ends(self.pad, self.limits.source, self.unread)
        for batch in encoder_batches(sources, ends, tight=self.tight):
            outputs = self._encode(batch)
            for row, i in enumerate(batch.members):
                memory[i] = {name: output[row] for name, output in outputs.items()}
        return StagedBatch([len(s) for s in sources], memory, sources if self.among else ())

    def place(self, encoded: StagedBatch, i: int, slot: int, prefix: Sequence[int] = ()) -> None:
        self.memory.place(slot, encoded.lengths[i], encoded.memory[i])
        self.history.clear(slot)
        if self.among:
            self.among.place(slot, self.among.shortlist.of(encoded.sources[i], prefix))

    def move(self, source: int, target: int) -> None:
        self.memory.move(source, target)
        self.history.move(source, target)
        if self.among:
            self.among.move(source, target)

    def stepper(self) -> Stepper:
        return PlainStepper(self)

    def is_device_lost(self, error: BaseException) -> bool:
        return is_device_lost(error)

    @abstractmethod
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """Run one step, as `engine.search.executor.Executor.step`.

        n: active slots, 0..n-1.
        inputs: of the search.
        attention: whether its weights are wanted.
        """

    @abstractmethod
    def _encode(self, batch: EncoderBatch) -> Mapping[str, Any]:
        """Memory of a batch, [batch, *shape] by the names of the memory specs."""
