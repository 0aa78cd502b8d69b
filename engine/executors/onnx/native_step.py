"""The host's work of plain steps by the native library: one call before a step's graph, one or two after it.

It covers beam search, greedy search and sampling except the draw. The library works on the arrays of
`engine.search.beam` and `engine.executors.history`, which remain the reference, run steps with any other
option, and can take over at any step.
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
from engine.executors.onnx.in_place import Binding, InPlaceSession
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

BANNED: Final = 2  # banned tokens of each row: pad, and end-of-sentence while a hypothesis is too short
# inputs that are bound in place, in addition to memory and state
DIRECT: Final = frozenset({"mask", "among", LM_WEIGHT})


@cache
def _functions(library: Path) -> Mapping[str, Callable[..., None]]:
    """Return the functions of the library, by name."""
    loaded, functions = ctypes.CDLL(str(library)), {}
    # each takes the address of a `StepArrays`, then this many integers
    for name, numbers in (("prepare", 2), ("remember", 2), ("absorb", 1)):
        function = loaded[f"convoy_{name}"]
        function.argtypes, function.restype = [POINTER, *[WHOLE] * numbers], None
        functions[name] = function
    return functions


def _address(array: NDArray[Any]) -> int:
    assert array.flags.c_contiguous
    return array.ctypes.data


class BoundStep:
    """A step with a fixed number of slots and candidates: a binding of its graph, and the C structure with
    the addresses of all arrays that the library reads and writes.

    columns: column that the step adds to each state, by name.
    address: address of the structure.
    """

    def __init__(
        self,
        executor: SlotExecutor,
        specs: Sequence[StateSpec],
        search: Any,
        binding: Binding,
        candidates: int,
    ) -> None:
        state, history = search.state, executor.history
        inputs, columns = binding.arrays, binding.outputs
        rings, caches = history.rings, history.caches
        self.binding = binding
        self.scores, self.ids, self.attention = columns["scores"], columns["ids"], columns.get("attention")
        self.columns = {s.name: columns[io_name(COLUMN, s.name)] for s in specs}
        states = [
            HeldColumn(
                data=_address(inputs[io_name(CACHE if s.heads else STATE, s.name)]),
                column=_address(self.columns[s.name]),
                window=s.window,
                dim=s.dim,
                heads=s.heads,
            )
            for s in specs
        ]
        indices = [RowIndex(rows=_address(inputs[io_name(INDEX, w)]), window=w) for w in rings.windows]
        # kept alive, because the structure has only their addresses; binding, state and history keep the
        # arrays
        self._held = (HeldColumn * len(states))(*states)
        self._indices = (RowIndex * len(indices))(*indices)
        self._arrays = StepArrays(
            beams=executor.beams,
            state_columns=search.columns,
            candidates=candidates,
            pad=executor.pad,
            eos=executor.eos,
            **{name: _address(getattr(state, name)) for name in STATE_FIELDS},
            taken=_address(search.taken),
            **{f"fed_{name}": _address(inputs[name]) for name in STEP_INPUTS},
            best=_address(self.scores),
            ids=_address(self.ids),
            ancestors=_address(rings.ancestors),
            memory_of_ancestors=rings.ancestors.shape[2],
            indices=ctypes.addressof(self._indices),
            index_count=len(indices),
            held=ctypes.addressof(self._held),
            held_count=len(states),
        )
        if caches is not None:
            self._arrays.writers = _address(caches.writers)
            self._arrays.cache_columns = caches.writers.shape[2]
            self._arrays.lineage = _address(inputs["lineage"])
        self.address = ctypes.addressof(self._arrays)


class NativeStepper(PlainStepper):
    """Implements `engine.search.executor.Stepper`."""

    executor: SlotExecutor

    def __init__(self, executor: SlotExecutor, sessions: Sessions) -> None:
        """Make the stepper of a lane; its sessions must run native graphs on numpy arrays."""
        super().__init__(executor)
        assert isinstance(sessions.step, InPlaceSession) and sessions.operators is not None
        self._calls, self._session = _functions(sessions.operators), sessions.step
        self._states, self._step_fields = sessions.states, step_fields(sessions.config)
        self._names = ["scores", "ids", *(io_name(COLUMN, s.name) for s in sessions.states)]
        self._steps: dict[tuple[int, int, bool], BoundStep] = {}
        self._bound_arrays: Sequence[Any] = ()  # arrays of the lane to which `_steps` are bound
        self._bound_ids: tuple[int, ...] = ()  # their `id`s

    def launch(self, n: int, *, attention: bool) -> CompletedStep:
        """Run plain steps by the library for at most `launch_seconds`; the reference runs any other step."""
        kind, start_time, steps, weights = self.search.kind(n), time.perf_counter(), 0, list[Any]()
        while True:
            step = self._bind_step(n, kind, attention=attention) if kind.plain else None
            if step is None:
                break
            clock = self.executor.history.rings.clock
            self._calls["prepare"](step.address, n, clock)
            self._session.run_binding(step.binding)
            self._store_columns(step, n, clock)
            if step.attention is not None:
                weights.append(step.attention.copy())
            if kind.sampled:  # the draw uses numpy's exponential
                topk = TopK(step.scores.copy(), step.ids.copy(), None)
                return CompletedStep(self.search.advance(topk, n).copy(), weights)
            self._calls["absorb"](step.address, n)
            steps += 1
            flags = self.search.state.done[:n].copy()
            if flags.any() or time.perf_counter() - start_time >= self.launch_seconds:
                return CompletedStep(flags, weights, steps)
        if steps:  # the reference runs the next step
            return CompletedStep(np.zeros(n, np.bool_), weights, steps)
        return super().launch(n, attention=attention)

    def _store_columns(self, step: BoundStep, n: int, clock: int) -> None:
        """Store the step's columns of slots 0..n-1 in rings and caches, and advance the rings' clock."""
        history = self.executor.history
        if history.caches is not None:
            writers = history.caches.writers
            history.caches.grow(n)
            if history.caches.writers is not writers:  # the caches have moved
                history.store(step.columns, self.search.state.step[:n, None])
                return
        self._calls["remember"](step.address, n, clock)
        history.rings.clock += 1

    def _bind_step(self, n: int, kind: Kind, *, attention: bool) -> BoundStep | None:
        """Return the bound step of slots 0..n-1, or None if only the reference can run it: a shortlist lacks
        a forced token, or there is only one candidate."""
        executor, history = self.executor, self.executor.history
        caches, lists = history.caches, None
        if executor.shortlists:
            forced = None  # every list contains end-of-sentence
            if kind.prefixed:
                state = self.search.state
                tokens = state.plan[np.arange(n), state.step[:n]][:, None]
                forced = np.broadcast_to(tokens, (n, executor.beams))
            lists = executor.shortlists.view(n, forced)
            if lists.base is not executor.shortlists.lists:  # a copy with forced tokens added
                return None
        columns = 0 if caches is None else caches.fit(n)
        memory, _ = executor.memory.view(n)  # may move the memory
        arrays = (
            executor.memory.mask,
            caches and caches.writers,
            executor.shortlists and executor.shortlists.lists,
        )
        # `_bound_arrays` keeps the arrays, so that no other one gets the same id
        ids = tuple(map(id, arrays))
        if ids != self._bound_ids:
            self._steps, self._bound_arrays, self._bound_ids = {}, arrays, ids
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

        key: number of slots, number of candidates, and whether attention is returned.
        columns: number of columns of the caches.
        lists: shortlists of the slots.
        """
        n, candidates, attention = key
        executor, caches = self.executor, self.executor.history.caches
        feeds = _search_inputs(n, executor.beams, candidates)
        rings, rows = executor.history.rings.view(n)
        blocks = {} if caches is None else caches.view(n, columns)
        feeds |= lane_inputs(*executor.memory.view(n), rings, blocks)
        entries = (n, executor.beams, columns * executor.beams)
        feeds |= history_inputs(rows, None if caches is None else np.zeros(entries, np.float32))
        if lists is not None:
            feeds["among"] = lists
        if LM_WEIGHT in self._step_fields:
            feeds[LM_WEIGHT] = self.search.state.lm_weight[:n]
        names = [*self._names, *(["attention"] if attention else [])]
        binding = self._session.bind(names, feeds, DIRECT)
        return BoundStep(executor, self._states, self.search, binding, candidates)


def _search_inputs(n: int, beams: int, candidates: int) -> dict[str, NDArray[Any]]:
    """Return empty arrays for the inputs of a step that the search writes."""
    feeds: dict[str, NDArray[Any]] = {name: np.zeros((n, beams), np.int64) for name in ("tokens", "forced")}
    feeds |= {name: np.zeros(n, np.float32) for name in ("temperature", "unk_penalty", "eos_penalty")}
    feeds["positions"] = np.zeros((n, 1), np.int64)
    feeds["banned"] = np.zeros((n, beams, BANNED), np.int64)
    feeds["k"] = np.array([candidates], np.int64)
    return feeds
