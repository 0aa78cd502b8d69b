"""Snapshots on their way to the host: the hypotheses of finished slots, followed back by a kernel
(hypotheses.cu), and the search state of running slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.executors.cuda.streams import Mark
from engine.search.executor import SlotRequest
from engine.search.finished import attention_of, best_ends
from engine.search.state import SNAPSHOT
from engine.types import Hypothesis

WORD_BYTES = 8


class FetchedRows(NamedTuple):
    """Pinned host memory that a snapshot is copied into: one row for each finished slot, then one for each
    running slot.

    words: int64, the whole copy.
    finished: dtype of a finished slot's row (`finished_dtype`).
    begin: index of the word with which the rows of running slots begin.
    running: dtype of a running slot's row; None without such slots.
    """

    words: NDArray[np.int64]
    finished: np.dtype[Any]
    begin: int
    running: np.dtype[Any] | None


class KernelSnapshot:
    """Implements `engine.search.executor.Snapshot`.

    fetched: memory that the rows are copied into, set when the copy is launched.
    mark: point of the stream after which the rows are complete.
    """

    def __init__(
        self, done: Sequence[int], running: Sequence[int], columns: int, launch: Callable[[], None]
    ) -> None:
        """Name the slots to copy at the next launch.

        done: finished slots; the copy holds their finished hypotheses.
        running: running slots; the copy holds their search state.
        columns: number of columns that the longest of these slots has reached.
        launch: launches the copy, if no step has been launched since.
        """
        self.done, self.running, self.columns, self._launch = done, running, columns, launch
        self.fetched: FetchedRows | None = None
        self.mark: Mark | None = None

    def hypotheses(self, finished: Sequence[SlotRequest]) -> list[list[Hypothesis]]:
        if not self.done:
            return []
        words, row, *_ = self._wait()
        size = len(self.done) * row.itemsize // WORD_BYTES
        return hypotheses_of(words[:size].view(row), finished)

    def rows(self) -> tuple[Any, Sequence[int]]:
        words, _, begin, row = self._wait()
        assert row is not None
        count = len(self.running)
        rows = words[begin : begin + count * row.itemsize // WORD_BYTES].view(row)
        return SimpleNamespace(**{name: rows[name] for name in SNAPSHOT}), range(count)

    def _wait(self) -> FetchedRows:
        """Return the fetched rows once they are complete; launch their copy first if necessary."""
        if self.mark is None:
            self._launch()
        assert self.fetched is not None and self.mark is not None
        self.mark.synchronize()
        return self.fetched


@lru_cache(64)
def finished_dtype(beams: int, columns: int) -> np.dtype[Any]:
    """Return the dtype of a row that hypotheses.cu writes for a finished slot.

    beams: beams of the slot.
    columns: columns of a hypothesis, that of the initial token included.
    """
    end = [("total", np.float64), ("step", np.int64), ("uncovered", np.float64)]
    pool = [("count", np.int64), ("longest", np.int64), ("ends", end, (beams,))]
    place = [("token", np.int32), ("row", np.int32)]
    fields: list[Any] = [("pool", pool), ("places", place, (beams, columns))]
    return np.dtype([*fields, ("scores", np.float64, (beams, columns))])


def hypotheses_of(rows: NDArray[Any], finished: Sequence[SlotRequest]) -> list[list[Hypothesis]]:
    """Return the n_best hypotheses of each finished slot, best first.

    rows: array of `finished_dtype`, one row for each slot.
    finished: options and attention of each slot.
    """
    pool, places, scores = rows["pool"], rows["places"], rows["scores"]
    ends, tokens, beams, hypotheses = pool["ends"], places["token"], places["row"], []
    # plain lists, because the fields of one nested record are slow to read
    numbers = pool["count"], pool["longest"], ends["total"], ends["step"], ends["uncovered"]
    listed = zip(finished, *[column.tolist() for column in numbers], strict=True)
    for slot, (request, count, longest, totals, steps, uncovered) in enumerate(listed):
        slot_hypotheses = []
        if count < len(steps):
            totals, steps, uncovered = totals[:count], steps[:count], uncovered[:count]
        for score, index in best_ends(totals, steps, uncovered, longest, request.options):
            step, weights = steps[index], request.attention
            if weights is not None:
                weights = attention_of(weights, beams[slot, index, : step + 1].tolist())
            slot_hypotheses.append(
                Hypothesis(
                    tokens[slot, index, 1 : step + 1].tolist(),
                    score,
                    scores[slot, index, : step + 1].tolist(),
                    "length" if step == longest else "stop",
                    weights,
                )
            )
        hypotheses.append(slot_hypotheses)
    return hypotheses
