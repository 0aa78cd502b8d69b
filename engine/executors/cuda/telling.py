"""What the search knew of slots, on its way to the host: finished hypotheses, followed back by a kernel
(hypotheses.cu), and the state of slots that go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.executors.cuda.streams import Mark
from engine.search.executor import Ended
from engine.search.finished import attention_of, best_ends
from engine.search.state import SNAPSHOT
from engine.types import Hypothesis

WORD_BYTES = 8


class ToldRows(NamedTuple):
    """Where rows lie in what comes down.

    words: int64, all of it, on the host.
    answers: the type of the rows of slots that are done, which come first.
    begin: the word with which the rows of the others begin.
    state: the type of these; None where there are none.
    """

    words: NDArray[np.int64]
    answers: np.dtype[Any]
    begin: int
    state: np.dtype[Any] | None


class Told:
    """See `engine.search.executor.Snapshot`."""

    def __init__(
        self, done: Sequence[int], going: Sequence[int], columns: int, begin: Callable[[], None]
    ) -> None:
        """Note what is to be told.

        done: slots of which finished hypotheses are asked for.
        going: slots of which the state is.
        columns: that any of them has reached.
        begin: sends it on its way, where no step was launched since.
        """
        self.done, self.going, self.columns, self._begin = done, going, columns, begin
        self.told: ToldRows | None = None
        self.mark: Mark | None = None  # once it is reached, rows are right

    def hypotheses(self, ended: Sequence[Ended]) -> list[list[Hypothesis]]:
        if not self.done:
            return []
        words, answers, *_ = self._wait()
        size = len(self.done) * answers.itemsize // WORD_BYTES
        return hypotheses_of(words[:size].view(answers), ended)

    def rows(self) -> tuple[Any, Sequence[int]]:
        words, _, begin, state = self._wait()
        assert state is not None
        count = len(self.going)
        rows = words[begin : begin + count * state.itemsize // WORD_BYTES].view(state)
        return SimpleNamespace(**{name: rows[name] for name in SNAPSHOT}), range(count)

    def _wait(self) -> ToldRows:
        if self.mark is None:
            self._begin()
        assert self.told is not None and self.mark is not None
        self.mark.synchronize()
        return self.told


@lru_cache(64)
def answer_dtype(beams: int, columns: int) -> np.dtype[Any]:
    """Make the type of a row that hypotheses.cu writes.

    beams: of the slot.
    columns: of a hypothesis, the first token's own included.
    """
    end = [("total", np.float64), ("step", np.int64), ("uncovered", np.float64)]
    pool = [("count", np.int64), ("longest", np.int64), ("ends", end, (beams,))]
    place = [("token", np.int32), ("row", np.int32)]
    fields: list[Any] = [("pool", pool), ("places", place, (beams, columns))]
    return np.dtype([*fields, ("scores", np.float64, (beams, columns))])


def hypotheses_of(rows: NDArray[Any], ended: Sequence[Ended]) -> list[list[Hypothesis]]:
    """Make hypotheses of rows: of each slot the n_best, best first.

    rows: of `answer_dtype`, for each slot that is done.
    ended: what each of them was asked for.
    """
    pool, places, scores = rows["pool"], rows["places"], rows["scores"]
    ends, tokens, lines, hypotheses = pool["ends"], places["token"], places["row"], []
    # plain lists: what is left of a nested record is slow to read
    numbers = pool["count"], pool["longest"], ends["total"], ends["step"], ends["uncovered"]
    listed = zip(ended, *[column.tolist() for column in numbers], strict=True)
    for slot, (of, count, longest, totals, steps, uncovered) in enumerate(listed):
        found = []
        if count < len(steps):
            totals, steps, uncovered = totals[:count], steps[:count], uncovered[:count]
        for score, place in best_ends(totals, steps, uncovered, longest, of.options):
            step, weights = steps[place], of.attention
            if weights is not None:
                weights = attention_of(weights, lines[slot, place, : step + 1].tolist())
            found.append(
                Hypothesis(
                    tokens[slot, place, 1 : step + 1].tolist(),
                    score,
                    scores[slot, place, : step + 1].tolist(),
                    "length" if step == longest else "stop",
                    weights,
                )
            )
        hypotheses.append(found)
    return hypotheses
