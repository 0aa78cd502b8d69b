"""What executors share: slots with their memory and history, filled from batches of encoded sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.config import ModelConfig
from engine.executor import StepInput, Stepper, TopK
from engine.executors.among import Among
from engine.executors.history import History
from engine.executors.memory import EncoderBatch, Ends, Memory, Staged, encoder_batches
from engine.shortlist import Shortlist
from engine.specs import MemorySpec, StateSpec
from engine.stepper import PlainStepper


@dataclass(frozen=True, slots=True)
class Arrays:
    """Where a lane's arrays live: an array namespace, a device of it and the type of memory and state."""

    namespace: Any
    device: Any
    dtype: Any


HELD: Final = ("memory", "state", "cache")  # inputs of a step that an executor keeps between steps


def dtype_of_held(types: Mapping[str, Any], wide: Any) -> Any:
    """One type for all that a step of these inputs remembers: theirs where they agree, else `wide` (running
    sums stay fp32 in a graph of a narrower type)."""
    held = {kind for name, kind in types.items() if name.partition(".")[0] in HELD}
    return held.pop() if len(held) == 1 else wide


class SlotExecutor(ABC):
    """One lane without its arithmetic (see `engine.executor.Executor`): a backend adds `_encode`, `step`."""

    def __init__(
        self,
        config: ModelConfig,
        specs: tuple[Sequence[MemorySpec], Sequence[StateSpec]],
        lane: tuple[int, int],
        arrays: Arrays,
        shortlist: Shortlist | None = None,
    ) -> None:
        """specs: what each slot holds. lane: beams and slots. shortlist: for a step that reads lists."""
        self.beams, self.slots = lane
        self.pad, self.eos, self.start = config.pad, config.eos, config.first_token
        self.limits = config.limits(self.beams, shortlisted=shortlist is not None)
        self.namespace, self.device = arrays.namespace, arrays.device
        memory, states = specs
        where = arrays.namespace, arrays.device, arrays.dtype
        self.memory = Memory(memory, self.slots, *where)
        self.history = History(states, self.slots, self.beams, *where)
        self.among = None if shortlist is None else Among(shortlist, self.slots)

    def encode(self, sources: Sequence[Sequence[int]]) -> Staged:
        memory: list[dict[str, Any]] = [{} for _ in sources]
        if not self.memory.specs:  # a language model
            return Staged([len(s) for s in sources], memory)
        for batch in encoder_batches(sources, Ends(self.pad, self.limits.source)):
            outputs = self._encode(batch)
            for row, i in enumerate(batch.members):
                memory[i] = {name: output[row] for name, output in outputs.items()}
        listed = [self.among.shortlist.of(source) for source in sources] if self.among else ()
        return Staged([len(s) for s in sources], memory, listed)

    def place(self, encoded: Staged, i: int, slot: int) -> None:
        self.memory.place(slot, encoded.lengths[i], encoded.memory[i])
        self.history.clear(slot)
        if self.among:
            self.among.place(slot, encoded.listed[i])

    def move(self, source: int, target: int) -> None:
        self.memory.move(source, target)
        self.history.move(source, target)
        if self.among:
            self.among.move(source, target)

    def stepper(self) -> Stepper:
        return PlainStepper(self)

    @abstractmethod
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """See `engine.executor.Executor`."""

    @abstractmethod
    def _encode(self, batch: EncoderBatch) -> Mapping[str, Any]:
        """Memory of a batch, [batch, *shape] by the names of the memory specs."""
