"""CUDA graphs emulated on the CPU.

A replay runs the captured operators one by one, without the Python code of the step, on the tensors of the
capture. As in a real graph, values of the host are frozen, changed shapes and addresses are ignored, and
tensors made by the capture hold garbage before each replay. So a replay is right only if a real graph is. The
emulation does not detect `tolist()` and `numpy()` in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from engine.executors.cuda.executor import CapturedExecutor
from engine.kernels.launches import Call, Run
from engine.search.executor import StepInput, TopK

# operators that wait for the device, have a shape that depends on values, or copy new values from the host
FORBIDDEN = {
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::equal",
    "aten::is_nonzero",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::bincount",
    "aten::repeat_interleave.Tensor",
    "aten::lift_fresh",
    "aten::lift_fresh_copy",
    "aten::_assert_async.msg",
    "aten::rand",
    "aten::randn",
    "aten::bernoulli",
}
GARBAGE = {torch.int64: -(2**40), torch.int32: -(2**30), torch.int8: -100}


class Forbidden(AssertionError):
    """A step ran an operator that a graph can't capture."""


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class Recording(TorchDispatchMode):
    """Runs operators and records them; `undo` restores the older tensors that the operators changed."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Callable[[], None]] = []
        self.made: dict[int, Tensor] = {}  # storages of the capture's own tensors
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # changed older tensors, and copies from before
        self.statics: dict[int, tuple[Tensor, int]] = {}
        self.alive: list[Any] = []  # so that no address is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name in FORBIDDEN or f"{name}.{func._schema.overload_name}" in FORBIDDEN:
            raise Forbidden(f"{func} within a captured step")
        inputs = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        masks = args[1] if name in ("aten::index", "aten::index_put_") else ()
        if any(mask is not None and mask.dtype in (torch.bool, torch.uint8) for mask in masks):
            raise Forbidden(f"{func} with a mask: its shape depends on values")
        if func._schema.is_mutable:
            self.keep(inputs)
        self.note(inputs)
        found = func(*args, **kwargs)
        outputs = [value for value in tree_flatten(found)[0] if isinstance(value, Tensor)]
        if any(value.is_meta for value in outputs):
            raise Forbidden(f"{func} makes a tensor without naming a device: on a GPU it would be elsewhere")
        known = {storage(value) for value in inputs}
        new = [value for value in outputs if storage(value) not in known]
        self.made |= {storage(value): value for value in new}
        self.alive.append((inputs, outputs))
        if func._schema.is_mutable:
            self.script.append(lambda: func(*args, **kwargs))
        elif new:  # the other outputs are views, which follow their tensors

            def again() -> None:
                fresh = [v for v in tree_flatten(func(*args, **kwargs))[0] if isinstance(v, Tensor)]
                for old, value in zip(outputs, fresh, strict=True):
                    assert old.shape == value.shape
                    old.copy_(value)

            self.script.append(again)
        return found

    def keep(self, tensors: Sequence[Tensor]) -> None:
        for value in tensors:
            if storage(value) not in self.made and storage(value) not in self.before:
                whole = torch.empty(0, dtype=torch.uint8, device="cpu").set_(value.untyped_storage())
                self.before[storage(value)] = whole, whole.clone()

    def note(self, tensors: Sequence[Tensor]) -> None:
        for value in tensors:
            if storage(value) not in self.made:
                self.statics.setdefault(storage(value), (value, value.untyped_storage().data_ptr()))

    def call(self, run: Run, call: Call) -> None:
        tensors = [value for value in call.arguments if isinstance(value, Tensor)]
        with torch._C._DisableTorchDispatch():
            self.keep(tensors)
            self.note(tensors)
            run(call)
        self.alive.append(call)
        self.script.append(lambda: run(call))

    def undo(self) -> None:
        for whole, was in self.before.values():
            whole.copy_(was)


class Graph:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def replay(self) -> None:
        for value in self.recording.made.values():
            whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
            whole.fill_(torch.nan if value.is_floating_point() else GARBAGE.get(value.dtype, True))
        for value, address in self.recording.statics.values():
            assert value.untyped_storage().data_ptr() == address
        for again in self.recording.script:
            again()


class Over:
    """An event that has happened after `after` queries, or after `synchronize`."""

    def __init__(self, after: int) -> None:
        self.after = after

    def query(self) -> bool:
        self.after -= 1
        return self.after < 0

    def synchronize(self) -> None:
        self.after = 0


class Emulation:
    """An `engine.executors.cuda.streams.LaneStreams`, and a `Run` of kernels that records captured launches.

    slow: number of queries before an encoding is ready.
    """

    device = "cpu"

    def __init__(self, run: Run | None = None, slow: int = 0) -> None:
        self.run, self.slow = run, slow
        self.recording: Recording | None = None
        self.captures = self.replays = 0
        self._encoding = False

    def __call__(self, call: Call) -> None:
        assert self.run is not None
        if self.recording is None:
            self.run(call)
        else:
            self.recording.call(self.run, call)

    def decoding(self) -> AbstractContextManager[Any]:
        self._encoding = False
        return nullcontext()

    def encoding(self) -> AbstractContextManager[Any]:
        self._encoding = True
        return nullcontext()

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        assert self.recording is None
        self.recording = Recording()
        try:
            # a tensor that a step makes without naming a device can't be used
            with torch.device("meta"), self.recording:
                step()
            self.recording.undo()
            graph = Graph(self.recording)
        finally:
            self.recording = None
        self.captures += 1

        def replay() -> None:
            self.replays += 1
            with torch.no_grad():
                graph.replay()

        return replay

    def mark(self) -> Over:
        return Over(self.slow if self._encoding else 0)

    def wait(self, mark: Any, tensors: Sequence[Tensor]) -> None:
        pass

    def to_device(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def upload(self, parts: Sequence[NDArray[np.int64]], target: Tensor) -> None:
        numbers = torch.from_numpy(np.concatenate(parts))
        target[: len(numbers)].copy_(numbers)

    def to_host(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype)

    def fetch(self, tensor: Tensor, target: Tensor) -> None:
        target.copy_(tensor)

    def clone(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def renew(self) -> None:
        pass


class Replayed(CapturedExecutor):
    """An executor that runs each step as the replay of a graph; there is one graph for each set of shapes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.graphs: dict[Any, tuple[list[Tensor], Callable[[], None], list[TopK]]] = {}

    def run(self, inputs: StepInput, width: int, columns: int, attention: bool) -> TopK:
        tensors, shapes = inputs[:-1], tuple(value.shape for value in inputs[:-1])
        key = shapes, width, columns, attention, inputs.k, self.generation
        if key not in self.graphs:
            static, found = [value.clone() for value in tensors], list[TopK]()
            plain = super().run

            def step() -> None:
                found.append(plain(StepInput(*static, inputs.k), width, columns, attention))

            self.graphs[key] = static, self.streams.capture(step), found
        static, replay, found = self.graphs[key]
        for held, value in zip(static, tensors, strict=True):
            held.copy_(value)
        replay()
        return TopK(*(None if value is None else value.clone() for value in found[0]))
