"""What a backend must offer: it owns the tensors of one lane on one device, and nothing else.

Shapes use n active slots (always the prefix 0..n-1), B beams a slot, K candidates a row. Arrays live on the
executor's device in its array namespace (numpy, or torch), the one that the search computes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from engine.types import Limits


class StepInput(NamedTuple):
    """What the search asks of one decoding step.

    tokens: int64 [n, B], fed to the decoder.
    positions: int64 [n, 1], 0 at a hypothesis's first step.
    parents: int64 [n, B], slot-local beam that each row continues.
    forced: int64 [n, B], the only token allowed, or -1.
    banned: int64 [n, B, M], tokens not allowed, filled up with pad (always banned itself).
    temperature, unk_penalty, eos_penalty: float32 [n]; penalties are subtracted from log-probabilities.
    lm_weight: float32 [n], of the language model beside the model; read only where there is one.
    k: candidates wanted of each row.
    """

    tokens: Any
    positions: Any
    parents: Any
    forced: Any
    banned: Any
    temperature: Any
    unk_penalty: Any
    eos_penalty: Any
    lm_weight: Any
    k: int


class TopK(NamedTuple):
    """The best tokens of each row.

    scores: float32 [n, B, K] log-probabilities, descending; -inf where nothing is allowed.
    ids: int64 [n, B, K].
    attention: float32 [n, B, S] (the first columns are the source's tokens, in order), or None when it was
        not asked for.

    K may be below the k asked for when the vocabulary is smaller.
    """

    scores: Any
    ids: Any
    attention: Any


class EncodedBatch(Protocol):
    """A batch of encoded sources, staged until each is placed. Opaque to everybody but its executor."""

    def __len__(self) -> int: ...

    def ready(self) -> bool:
        """Tell whether placing it would wait for the device no more. Never waits."""


class PendingStep(Protocol):
    """A step under way, or several. Both methods wait until it is over.

    steps: how many there are, each of the same slots, none of which was done before the last.
    """

    @property
    def steps(self) -> int: ...

    def done(self) -> list[bool]:
        """Tell of each slot that it covered whether it is done."""

    def attention(self) -> Any:
        """Return the attention as of TopK, on the host."""


class Snapshot(Protocol):
    """What the search knows of some slots, on its way to the host."""

    def rows(self) -> tuple[Any, Sequence[int]]:
        """Wait for the fields `engine.search.state.SNAPSHOT`, and which row each slot asked for is."""


class Stepper(Protocol):
    """Executor and search together: what a lane does with its slots.

    late: how many steps are launched before the flags of the first are read.
    ahead: how many sources may be encoded before there are slots for them.
    patience: seconds for which a launch may go on with further steps while no slot is done; a stepper that
        takes one at a time need not look at it.
    """

    late: int
    ahead: int
    patience: float
    search: Any  # engine.search.beam.BeamSearch

    def place(self, encoded: Any, i: int, slot: int, request: Any) -> None:
        """Put source i of an encoded batch, of that request, into a slot, and begin to search."""

    def launch(self, n: int, *, attention: bool) -> PendingStep:
        """Begin a step of slots 0..n-1, or several (`patience`). Slots that are done already stay as they
        are."""

    def snapshot(self, slots: Sequence[int]) -> Snapshot:
        """Return what is known of some slots now. Without lateness its rows are read before slots move."""

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy slots over others, (source, target) each; no slot is both."""


class Executor(Protocol):
    slots: int
    beams: int
    limits: Limits
    pad: int
    eos: int
    start: int  # the token that every hypothesis is fed first
    namespace: Any  # array namespace for the search: numpy, or torch by array_api_compat
    device: Any  # where that namespace creates arrays

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedBatch:
        """Encode sources (each ends with end-of-sentence). Touches no slot."""

    def place(self, encoded: Any, i: int, slot: int, prefix: Sequence[int] = ()) -> None:
        """Put source i of a batch that this executor encoded into a slot, and zero its decoder state.

        prefix: what its targets will begin with, which may name their language to a shortlist.
        """

    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """Reorder beams by `parents`, feed `tokens`, return the K best of each row."""

    def move(self, source: int, target: int) -> None:
        """Copy one slot (memory, state, ancestors) over another, so that active slots stay a prefix."""

    def stepper(self) -> Stepper:
        """Make a stepper of its slots with a search over them."""
