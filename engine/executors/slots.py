"""What executors share: slots with their memory and history, filled from batches of encoded sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.config import ModelConfig
from engine.executor import StepInput, TopK
from engine.executors.history import History
from engine.executors.memory import EncoderBatch, Ends, Memory, Staged, encoder_batches
from engine.specs import MemorySpec, StateSpec
from engine.types import Limits


@dataclass(frozen=True, slots=True)
class Arrays:
    """Where a lane's arrays live: an array namespace, a device of it and the type of memory and state."""

    namespace: Any
    device: Any
    dtype: Any


class SlotExecutor(ABC):
    """One lane without its arithmetic (see `engine.executor.Executor`): a backend adds `_encode`, `step`."""

    def __init__(
        self,
        config: ModelConfig,
        specs: tuple[Sequence[MemorySpec], Sequence[StateSpec]],
        lane: tuple[int, int],
        arrays: Arrays,
    ) -> None:
        """specs: what each slot holds. lane: beams and slots."""
        self.beams, self.slots = lane
        self.pad, self.eos, self.start = config.pad, config.eos, config.first_token
        lengths = config.max_source, config.max_target - 1
        self.limits = Limits(self.beams, *lengths, config.target_vocab, config.reads_source)
        self.namespace, self.device = arrays.namespace, arrays.device
        memory, states = specs
        where = arrays.namespace, arrays.device, arrays.dtype
        self.memory = Memory(memory, self.slots, *where)
        self.history = History(states, self.slots, self.beams, *where)

    def encode(self, sources: Sequence[Sequence[int]]) -> Staged:
        memory: list[dict[str, Any]] = [{} for _ in sources]
        if not self.memory.specs:  # a language model
            return Staged([len(s) for s in sources], memory)
        for batch in encoder_batches(sources, Ends(self.pad, self.limits.source)):
            outputs = self._encode(batch)
            for row, i in enumerate(batch.members):
                memory[i] = {name: output[row] for name, output in outputs.items()}
        return Staged([len(s) for s in sources], memory)

    def place(self, encoded: Staged, i: int, slot: int) -> None:
        self.memory.place(slot, encoded.lengths[i], encoded.memory[i])
        self.history.clear(slot)

    def move(self, source: int, target: int) -> None:
        self.memory.move(source, target)
        self.history.move(source, target)

    @abstractmethod
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """See `engine.executor.Executor`."""

    @abstractmethod
    def _encode(self, batch: EncoderBatch) -> Mapping[str, Any]:
        """Memory of a batch, [batch, *shape] by the names of the memory specs."""
