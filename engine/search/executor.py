"""The protocol of executors: a backend owns the tensors of one lane on one device, and nothing more.

Shapes use n active slots (always the prefix 0..n-1), B beams per slot, K candidates per row. Arrays are on
the executor's device, in its array namespace (numpy or torch), in which the search computes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.types import DecodeOptions, Hypothesis, Limits, Request


class StepInput(NamedTuple):
    """Inputs of one decoding step.

    tokens: int64 [n, B], fed to the decoder.
    positions: int64 [n, 1], 0 at a hypothesis's first step.
    parents: int64 [n, B], slot-local beam that each row continues.
    forced: int64 [n, B], the only token allowed, or -1.
    banned: int64 [n, B, M], tokens not allowed, filled up with pad (which is always banned).
    temperature, unk_penalty, eos_penalty: float32 [n]; penalties are subtracted from log-probabilities.
    lm_weight: float32 [n], weight of a separate language model; ignored without one.
    k: number of candidates per row.
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
    attention: float32 [n, B, S], the first columns of which are the source's tokens in order; None unless it
        was requested.
    scanned: partial results (`engine.kernels.selection.PartialSelection`) in place of scores and ids, for a
        search by kernels; None otherwise.

    K is smaller than the requested k if the vocabulary is.
    """

    scores: Any
    ids: Any
    attention: Any
    scanned: Any = None


class EncodedBatch(Protocol):
    """A batch of encoded sources that wait for slots. Only its executor reads it."""

    def __len__(self) -> int: ...

    def ready(self) -> bool:
        """Return whether a source can be placed without waiting for the device. Never waits."""


class PendingStep(Protocol):
    """One or more launched steps of the same slots. Both methods block until the last step has finished.

    steps: number of steps; a slot that is done before the last one is not changed by the later ones.
    """

    @property
    def steps(self) -> int: ...

    def done(self) -> NDArray[np.bool_]:
        """Return bool [n] on the host: whether each slot is done."""

    def attention(self) -> Sequence[Any]:
        """Return the attention (see TopK) of each step, on the host; empty unless it was requested."""


@dataclass(slots=True, eq=False)
class SlotRequest:
    """The request of a slot.

    options: decoding options.
    attention: host array [B, S] of each step so far; None if the answer needs no attention.
    """

    options: DecodeOptions
    attention: list[Any] | None


class Snapshot(Protocol):
    """A copy of some slots' search state, on its way to the host. Both methods wait for it."""

    def hypotheses(self, finished: Sequence[SlotRequest]) -> list[list[Hypothesis]]:
        """Return the n_best finished hypotheses of each finished slot, best first; possibly none.

        finished: requests of these slots.
        """

    def rows(self) -> tuple[Any, Sequence[int]]:
        """Return the fields `engine.search.state.SNAPSHOT`, and the row of each running slot in them."""


class Stepper(Protocol):
    """Executor and search together: runs the steps of a lane.

    flag_delay: number of further steps that are launched before the done flags of a step are read.
    encode_ahead: number of sources that may be encoded before slots are free for them.
    launch_seconds: time after which a launch takes no further step; it also ends when a slot is done.
    """

    flag_delay: int
    encode_ahead: int
    launch_seconds: float
    search: Any  # engine.search.beam.BeamSearch

    def place(
        self, encoded: Any, members: Sequence[int], slots: Sequence[int], requests: Sequence[Request]
    ) -> None:
        """Put sources into slots, and start their searches.

        encoded: batch of the executor's `encode`.
        members: index of each source in the batch.
        slots: idle slot of each source.
        requests: request of each source.
        """

    def launch(self, n: int, *, attention: bool) -> PendingStep:
        """Begin one or more steps of slots 0..n-1 (`launch_seconds`). Slots that are done are not changed."""

    def snapshot(self, done: Sequence[int], running: Sequence[int]) -> Snapshot:
        """Copy the search state of some slots. If `flag_delay` is 0, read the snapshot before slots move.

        done: slots whose finished hypotheses are wanted.
        running: slots whose state is wanted.
        """

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy slots over other slots. Each move is (source, target); no slot is both."""


class LaneNumbers(Protocol):
    """Sizes and tokens of a lane, from which a search makes its arrays."""

    slots: int
    beams: int
    limits: Limits
    pad: int
    eos: int
    start: int  # the first token fed to the decoder
    namespace: Any  # array namespace for the search: numpy, or torch by array_api_compat
    device: Any  # device on which that namespace creates arrays


class Executor(LaneNumbers, Protocol):
    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedBatch:
        """Encode sources (each ends with end-of-sentence). Changes no slot."""

    def place(self, encoded: Any, i: int, slot: int, prefix: Sequence[int] = ()) -> None:
        """Put a source into a slot, and zero the slot's decoder state.

        encoded: batch of this executor's `encode`.
        i: index of the source in the batch.
        slot: number of the slot.
        prefix: tokens with which the targets begin; a shortlist may read their language there.
        """

    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """Reorder beams by `parents`, feed `tokens`, return the K best of each row.

        n: number of active slots, 0..n-1.
        inputs: inputs from the search.
        attention: return attention weights too.
        """

    def move(self, source: int, target: int) -> None:
        """Copy one slot (memory, state, ancestors) over another, so that active slots stay a prefix."""

    def stepper(self) -> Stepper:
        """Make a stepper with a search over this executor's slots."""

    def is_device_lost(self, error: BaseException) -> bool:
        """Return whether this process can never use the device again after an error of this executor."""
