"""Calls of the kernels of a plain step's search (search.cu, two kernels) and of its finished hypotheses
(hypotheses.cu), on the arrays of the search."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from engine.kernels.launches import Address, Call, Kernel, Run, addresses_of, argument
from engine.kernels.selection import merged_bytes
from engine.search.executor import TopK
from engine.search.state import SearchState

MAX_BEAMS: Final = 32  # the same as in search.cu
SAMPLED_CANDIDATES: Final = 64  # candidates of a row that samples, the same as in search.cu
SEARCH_BLOCK: Final = (256, 1, 1)  # threads of a block in search.cu
BLOCK: Final = (128, 1, 1)  # threads of a block in hypotheses.cu
FOLLOW_BACK: Final = Kernel("hypotheses.cu", "follow_back", "float", 1)


class Tokens(NamedTuple):
    """Tokens that a step bans.

    pad: always banned.
    eos: banned while a hypothesis is too short.
    """

    pad: int
    eos: int


class RingArrays(NamedTuple):
    """Arrays of `engine.executors.history.Rings` that `begin_step` advances.

    windows: int64 [windows, 2], size of each window and address of its rows.
    """

    ancestors: Tensor
    clock: Tensor
    windows: Tensor


class SearchKernels:
    """The kernels of one lane. All arrays are contiguous, and begin with slot 0."""

    def __init__(self, run: Run, state: SearchState, tokens: Tokens) -> None:
        self.run, self.state, self.tokens = run, state, tokens
        self.slots, self.beams = state.total.shape
        self.columns = state.plan.shape[1]
        tables = state.tokens, state.scores, state.trail
        pool = state.kept_scores, state.kept_trail, state.kept_steps, state.kept_coverage, state.kept_count
        # arguments of `follow_back` that change with each call
        self._finished, self._reached, self._rows = argument(None), argument(0), argument(None)
        pools = (*tables, *pool, state.longest, state.word_reward, self.beams, self.columns)
        self._following = (self._finished, *map(argument, pools), self._reached, self._rows)
        self._addresses = addresses_of(self._following)
        self._forced = torch.full_like(state.current, -1)
        self._banned = torch.full_like(state.current, tokens.pad)[:, :, None].repeat(1, 1, 2)

    def supports(self, k: int) -> bool:
        """Return whether the kernels can search rows of k candidates."""
        return bool(
            2 * self.beams <= k <= max(2 * self.beams, SAMPLED_CANDIDATES) and self.beams <= MAX_BEAMS
        )

    def begin_step(self, count: Tensor, rings: RingArrays, n: int) -> tuple[Tensor, Tensor]:
        """Do the work of `BeamSearch.idle`, `BeamSearch.inputs` and `Rings.advance` for slots 0..n-1. Return
        the forced tokens [n, beams] and the banned ones [n, beams, 2].

        count: int64 [1] on the device, number of active slots.
        rings: ring arrays of the lane.
        n: number of slots of the graph.
        """
        state, longest = self.state, rings.ancestors.shape[2]
        sizes = self.beams, self.columns, longest, rings.windows.shape[0], *self.tokens
        inputs = count, state.parents, state.plan, state.shortest, rings.clock, rings.windows
        outputs = state.done, state.step, rings.ancestors, self._forced, self._banned
        self._call("begin_step", n, 8 * self.beams * longest, (*inputs, *sizes, *outputs))
        return self._forced[:n], self._banned[:n]

    def end_step(self, top: TopK, clock: Tensor) -> None:
        """Do the work of `BeamSearch.absorb`, and advance the clock of the rings.

        top: candidates; only `scanned` if few rows were selected from.
        clock: clock of the rings, int64 [1].
        """
        state, beams, partial = self.state, self.beams, top.scanned
        scores, ids, merging = top.scores, top.ids, 0
        # the kernel's arguments for a partial selection; without one: null pointers, no unk, one part
        scanned: tuple[Any, ...] = None, None, None, None, None, 0, -1, 1
        if partial is not None:
            assert partial.logits.dtype == torch.float32
            scores, ids = (a.unflatten(0, (-1, beams)) for a in (partial.scores, partial.ids))
            parts, k = scores.shape[2:]
            scanned = (
                partial.normalisers,
                partial.logits,
                partial.forced,
                *partial.penalties,
                partial.logits.shape[2],
            )
            scanned = *scanned, partial.unk, parts
            merging = merged_bytes(beams, parts, k)
        n, k = scores.shape[0], scores.shape[-1]
        rules: tuple[Any, ...] = state.width, state.longest, state.free, state.narrowing
        rules += state.sampling, state.seed, state.top_k, state.top_p
        hypotheses = state.kept_scores, state.kept_trail, state.kept_steps
        rows = state.total, state.current, state.parents
        outputs = (
            state.tokens,
            state.scores,
            state.trail,
            *hypotheses,
            *rows,
            state.kept_count,
            state.done,
            state.step,
            clock,
        )
        sizes = beams, k, self.columns, *self.tokens
        # 8 bytes for the rank and 8 for the token of each of 2 * beams candidates of every beam
        shared = 2 * 8 * 2 * beams * beams + merging
        self._call("end_step", n, shared, (scores, ids, *scanned, *rules, *sizes, *outputs))

    def follow_back(self, finished: Address, count: int, columns: int, rows: Tensor) -> None:
        """Write the finished hypotheses of slots, followed back to their first tokens.

        finished: address of int64 [count] on the device, the finished slots.
        count: number of these slots.
        columns: columns of a row, at least as many as the longest hypothesis has.
        rows: memory for the rows, of dtype `engine.executors.cuda.snapshots.finished_dtype`.
        """
        self._finished.value, self._reached.value, self._rows.value = finished, columns, rows.data_ptr()
        self.run(Call(FOLLOW_BACK, (count, 1, 1), BLOCK, 0, self._following, self._addresses))

    def _call(self, entry: str, n: int, shared: int, arguments: tuple[Any, ...]) -> None:
        assert all(a.is_contiguous() for a in arguments if isinstance(a, Tensor))
        self.run(Call(Kernel("search.cu", entry, "float", 1), (n, 1, 1), SEARCH_BLOCK, shared, arguments))
