"""A step's host work in one call of the native library before its graph, and one or two behind it.

For beam search, greedy search and, but for the draw itself, sampling: over the very arrays of
`engine.search.beam` and `engine.executors.history`, which stay the reference, serve every other option, and
may take any step in between.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.bundle.graph_io import (
    CACHE,
    COLUMN,
    INDEX,
    LM_WEIGHT,
    STATE,
    history_inputs,
    io_name,
    lane_inputs,
    step_fields,
)
from engine.bundle.specs import StateSpec
from engine.executors.base import SlotExecutor
from engine.executors.onnx.held_session import Binding, HeldSession
from engine.executors.onnx.sessions import Sessions
from engine.native.step_arrays import (
    POINTER,
    STATE_FIELDS,
    STEP_INPUTS,
    WHOLE,
    HeldColumn,
    RowIndex,
    StepArrays,
)
from engine.search.executor import TopK
from engine.search.kind import Kind
from engine.search.stepper import CompletedStep, PlainStepper
from engine.types import CANDIDATES

BANNED: Final = 2  # tokens of each row: pad, and the end while it is too early
DIRECT: Final = frozenset({"mask", "among", LM_WEIGHT})  # inputs that a lane keeps besides memory and state


@cache
def _functions(library: Path) -> Mapping[str, Callable[..., None]]:
    loaded, functions = ctypes.CDLL(str(library)), {}
    for name, numbers in (("prepare", 2), ("remember", 2), ("absorb", 1)):
        function = loaded[f"convoy_{name}"]
        function.argtypes, function.restype = [POINTER, *[WHOLE] * numbers], None
        functions[name] = function
    return functions


def _address(array: NDArray[Any]) -> int:
    assert array.flags.c_contiguous
    return array.ctypes.data


class BoundStep:
    """A step of so many slots and candidates, its graph bound to arrays that the library fills and reads."""

    def __init__(
        self,
        executor: SlotExecutor,
        specs: Sequence[StateSpec],
        search: Any,
        binding: Binding,
        candidates: int,
    ) -> None:
        state, history = search.state, executor.history
        fed, columns = binding.arrays, binding.outputs
        rings, caches = history.rings, history.caches
        self.binding = binding
        self.scores, self.ids, self.attention = columns["scores"], columns["ids"], columns.get("attention")
        self.columns = {s.name: columns[io_name(COLUMN, s.name)] for s in specs}
        states = [
            HeldColumn(
                _address(fed[io_name(CACHE if s.heads else STATE, s.name)]),
                _address(self.columns[s.name]),
                s.window,
                s.dim,
                s.heads,
            )
            for s in specs
        ]
        indices = [RowIndex(_address(fed[io_name(INDEX, window)]), window) for window in rings.windows]
        # the structure points to these, and they to arrays that binding, state and history keep
        self._parts = (HeldColumn * len(states))(*states), (RowIndex * len(indices))(*indices)
        self._arrays = StepArrays(
            *(executor.beams, search.columns, candidates, executor.pad, executor.eos),
            *(_address(getattr(state, name)) for name in STATE_FIELDS),
            _address(search.taken),
            *(_address(fed[name]) for name in STEP_INPUTS),
            *(_address(self.scores), _address(self.ids)),
            *(_address(rings.ancestors), rings.ancestors.shape[2]),
            *(ctypes.addressof(self._parts[1]), len(indices), ctypes.addressof(self._parts[0]), len(states)),
            *((None, 0, None) if caches is None else self._of(caches, fed)),
        )
        self.address = ctypes.addressof(self._arrays)

    @staticmethod
    def _of(caches: Any, fed: Mapping[str, NDArray[Any]]) -> tuple[int, int, int]:
        return _address(caches.writers), caches.writers.shape[2], _address(fed["lineage"])


class NativeStepper(PlainStepper):
    """See `engine.search.executor.Stepper`."""

    executor: SlotExecutor

    def __init__(self, executor: SlotExecutor, sessions: Sessions) -> None:
        """Make a stepper of a lane of these sessions, which are of native graphs on numpy's arrays."""
        super().__init__(executor)
        assert isinstance(sessions.step, HeldSession) and sessions.operators is not None
        self._calls, self._session = _functions(sessions.operators), sessions.step
        self._states, self._asked = sessions.states, step_fields(sessions.config)
        self._names = ["scores", "ids", *(io_name(COLUMN, s.name) for s in sessions.states)]
        self._steps: dict[tuple[int, int, bool], BoundStep] = {}
        self._places: Sequence[Any] = ()  # what they are bound to
        self._which: tuple[int, ...] = ()  # and its numbers

    def launch(self, n: int, *, attention: bool) -> CompletedStep:
        kind, began, steps, weights = self.search.kind(n), time.perf_counter(), 0, list[Any]()
        while True:
            step = self._bind_step(n, kind, attention=attention) if kind.plain else None
            if step is None:
                break
            clock = self.executor.history.rings.clock
            self._calls["prepare"](step.address, n, clock)
            self._session.run_binding(step.binding)
            self._remember(step, n, clock)
            if step.attention is not None:
                weights.append(step.attention.copy())
            if kind.sampled:  # numpy's exponentials decide what is drawn
                topk = TopK(step.scores.copy(), step.ids.copy(), None)
                return CompletedStep(self.search.advance(topk, n).copy(), weights)
            self._calls["absorb"](step.address, n)
            steps += 1
            flags = self.search.state.done[:n].copy()
            if flags.any() or time.perf_counter() - began >= self.patience:
                return CompletedStep(flags, weights, steps)
        if steps:  # the next one is the reference's
            return CompletedStep(np.zeros(n, np.bool_), weights, steps)
        return super().launch(n, attention=attention)

    def _remember(self, step: BoundStep, n: int, clock: int) -> None:
        history = self.executor.history
        if history.caches is not None:
            writers = history.caches.writers
            history.caches.grow(n)
            if history.caches.writers is not writers:  # caches lie elsewhere now
                history.store(step.columns, self.search.state.step[:n, None])
                return
        self._calls["remember"](step.address, n, clock)
        history.rings.clock += 1

    def _bind_step(self, n: int, kind: Kind, *, attention: bool) -> BoundStep | None:
        """None where the step is for the reference: a forced token that a shortlist lacks."""
        executor, history = self.executor, self.executor.history
        caches, lists = history.caches, None
        if executor.among:
            forced = None  # every list has end-of-sentence
            if kind.prefixed:
                state = self.search.state
                tokens = state.plan[np.arange(n), state.step[:n]][:, None]
                forced = np.broadcast_to(tokens, (n, executor.beams))
            lists = executor.among.view(n, forced)
            if lists.base is not executor.among.lists:
                return None
        columns = 0 if caches is None else caches.fit(n)
        memory, _ = executor.memory.view(n)  # which may move it
        places = executor.memory.mask, caches and caches.writers, executor.among and executor.among.lists
        which = tuple(map(id, places))  # no other has the number of an array that is kept
        if which != self._which:
            self._steps, self._places, self._which = {}, places, which
        count = max(2 * executor.beams, CANDIDATES if kind.sampled else 0)
        candidates = min(count, executor.limits.vocab)
        if candidates < 2:
            return None
        key = n, candidates, attention and bool(memory)
        if key not in self._steps:
            self._steps[key] = self._bind(key, columns, lists)
        return self._steps[key]

    def _bind(self, key: tuple[int, int, bool], columns: int, lists: NDArray[Any] | None) -> BoundStep:
        """Bind the graph to the lane's arrays.

        key: slots, candidates, and whether attention is wanted.
        columns: of the caches.
        lists: the shortlists of the slots' sources.
        """
        n, candidates, attention = key
        executor, caches = self.executor, self.executor.history.caches
        feeds = _blank(n, executor.beams, candidates)
        rings, rows = executor.history.rings.view(n)
        held = {} if caches is None else caches.view(n, columns)
        feeds |= lane_inputs(*executor.memory.view(n), rings, held)
        entries = (n, executor.beams, columns * executor.beams)
        feeds |= history_inputs(rows, None if caches is None else np.zeros(entries, np.float32))
        if lists is not None:
            feeds["among"] = lists
        if LM_WEIGHT in self._asked:
            feeds[LM_WEIGHT] = self.search.state.lm_weight[:n]
        names = [*self._names, *(["attention"] if attention else [])]
        binding = self._session.bind(names, feeds, DIRECT)
        return BoundStep(executor, self._states, self.search, binding, candidates)


def _blank(n: int, beams: int, candidates: int) -> dict[str, NDArray[Any]]:
    """Places for what the search asks of a step."""
    feeds: dict[str, NDArray[Any]] = {name: np.zeros((n, beams), np.int64) for name in ("tokens", "forced")}
    feeds |= {name: np.zeros(n, np.float32) for name in ("temperature", "unk_penalty", "eos_penalty")}
    feeds["positions"] = np.zeros((n, 1), np.int64)
    feeds["banned"] = np.zeros((n, beams, BANNED), np.int64)
    feeds["k"] = np.array([candidates], np.int64)
    return feeds
