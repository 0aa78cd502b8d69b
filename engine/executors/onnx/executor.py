"""One lane on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.backends import LaneSize
from engine.bundle.graph_io import COLUMN, history_inputs, io_name, lane_inputs, step_fields
from engine.bundle.specs import Specs
from engine.executors.base import SlotExecutor
from engine.executors.memory import EncoderBatch
from engine.executors.onnx.in_place import InPlaceSession
from engine.executors.onnx.native_step import NativeStepper
from engine.executors.onnx.sessions import Sessions
from engine.search.executor import StepInput, Stepper, TopK

# replacing memory and bindings for each request costs as much as two steps
MAX_EXCESS: Final = 4


class OnnxExecutor(SlotExecutor):
    """One lane."""

    def __init__(self, sessions: Sessions, beams: int, slots: int) -> None:
        specs, lane = Specs(sessions.memory, sessions.states), LaneSize(beams, slots)
        super().__init__(sessions.config, specs, lane, sessions.arrays, sessions.shortlist)
        self.sessions = sessions
        self._step_fields = step_fields(sessions.config)
        if sessions.operators is not None:  # our operators skip padding
            self.pad_to_longest, self.memory.max_excess = True, MAX_EXCESS
        self._columns = [io_name(COLUMN, s.name) for s in sessions.states]

    def stepper(self) -> Stepper:
        if self.sessions.operators is None or not isinstance(self.sessions.step, InPlaceSession):
            return super().stepper()
        return NativeStepper(self, self.sessions)

    def _encode(self, batch: EncoderBatch) -> Mapping[str, Any]:
        assert self.sessions.encoder is not None
        names = [spec.name for spec in self.sessions.memory]
        inputs = {"tokens": batch.tokens, "positions": batch.positions, "real": batch.real}
        feeds = {name: self.namespace.asarray(a, device=self.device) for name, a in inputs.items()}
        return dict(zip(names, self.sessions.encoder.run(names, feeds), strict=True))

    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        past = self.history.advance(inputs.parents, inputs.positions)
        memory, mask = self.memory.view(n)
        feeds = {name: getattr(inputs, name) for name in self._step_fields}
        feeds["k"] = np.array([min(inputs.k, self.limits.vocab)], np.int64)
        if self.shortlists:
            feeds["among"] = self.shortlists.view(n, inputs.forced)
        feeds |= lane_inputs(memory, mask, past.rings, past.caches)
        feeds |= history_inputs(past.rows, past.lineage)
        attention = attention and bool(memory)
        output_names = ["scores", "ids", *(["attention"] if attention else []), *self._columns]
        scores, ids, *rest = self.sessions.step.run(output_names, feeds)
        weights = rest.pop(0) if attention else None
        columns = {s.name: c for s, c in zip(self.sessions.states, rest, strict=True)}
        self.history.write(columns, inputs.positions)
        return TopK(scores, ids, weights)
