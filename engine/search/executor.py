"""The protocol of executors: a backend owns the tensors of one lane on one device, and nothing else.

Shapes use n active slots (always the prefix 0..n-1), B beams a slot, K candidates a row. Arrays live on the
executor's device in its array namespace (numpy, or torch), the one that the search computes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.types import DecodeOptions, Hypothesis, Limits, Request


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
    scanned: what a search by kernels makes scores and ids of (`engine.kernels.selection.Scanned`), in whose
        place it stands; None everywhere else.

    K may be below the k asked for when the vocabulary is smaller.
    """

    scores: Any
    ids: Any
    attention: Any
    scanned: Any = None


class EncodedBatch(Protocol):
    """A batch of encoded sources that wait for slots. Opaque but to its executor."""

    def __len__(self) -> int: ...

    def ready(self) -> bool:
        """Tell whether placing a source would no longer wait for the device. Never waits."""


class PendingStep(Protocol):
    """One step under way or several, of the same slots. Both methods wait until the last is over.

    steps: number of steps; a slot that is done before the last stays as it is.
    """

    @property
    def steps(self) -> int: ...

    def done(self) -> NDArray[np.bool_]:
        """Tell of each of the slots whether it is done, on the host."""

    def attention(self) -> Sequence[Any]:
        """Return the attention of each step as of TopK, on the host; none where it was not asked for."""


@dataclass(slots=True, eq=False)
class Ended:
    """What a slot that is done was asked for.

    options: of its request.
    attention: a host array [B, S] of each step so far, or none; each hypothesis gets its rows by its trail.
    """

    options: DecodeOptions
    attention: list[Any] | None


class Snapshot(Protocol):
    """What the search knew of some slots, on its way to the host. Both methods wait for it."""

    def hypotheses(self, ended: Sequence[Ended]) -> list[list[Hypothesis]]:
        """List the n_best finished hypotheses of each slot that was done, best first; maybe none.

        ended: what each of these slots was asked for.
        """

    def rows(self) -> tuple[Any, Sequence[int]]:
        """Return the fields `engine.search.state.SNAPSHOT` and, for each slot that goes on, its row in
        them."""


class Stepper(Protocol):
    """Executor and search together: what a lane does with its slots.

    late: number of steps that are launched before the flags of the first are read.
    ahead: number of sources that may be encoded before there are slots for them.
    patience: seconds for which a launch may go on with further steps while no slot is done, where the stepper
        can take several.
    """

    late: int
    ahead: int
    patience: float
    search: Any  # engine.search.beam.BeamSearch

    def place(
        self, encoded: Any, members: Sequence[int], slots: Sequence[int], requests: Sequence[Request]
    ) -> None:
        """Put sources into slots, and begin to search.

        encoded: a batch that the executor encoded.
        members: places of the sources in the batch.
        slots: of each source, idle ones.
        requests: of each source.
        """

    def launch(self, n: int, *, attention: bool) -> PendingStep:
        """Begin a step of slots 0..n-1, or several (`patience`). Slots that are done already stay as they
        are."""

    def snapshot(self, done: Sequence[int], going: Sequence[int]) -> Snapshot:
        """Note what the search knows of some slots now. Where `late` is 0 it must be read before slots move.

        done: slots whose finished hypotheses are asked for.
        going: slots whose state is.
        """

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
        """Put a source into a slot, and zero the slot's decoder state.

        encoded: a batch that this executor encoded.
        i: the source's place in the batch.
        slot: any.
        prefix: tokens that the targets will begin with; they may name a language to a shortlist.
        """

    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """Reorder beams by `parents`, feed `tokens`, return the K best of each row.

        n: active slots, 0..n-1.
        inputs: what the search asks.
        attention: whether its weights are wanted.
        """

    def move(self, source: int, target: int) -> None:
        """Copy one slot (memory, state, ancestors) over another, so that active slots stay a prefix."""

    def stepper(self) -> Stepper:
        """Make a stepper of its slots with a search over them."""

    def is_device_lost(self, error: BaseException) -> bool:
        """Return whether this process can never use the device again after an error of this executor."""
