"""A step's session with inputs bound in place, because feeding thirty inputs at each step costs as much as a
search.

The arrays that a lane keeps between steps (memory, rings, caches) are bound once for each number of slots.
Small inputs are copied into arrays of the binding, and all bindings share the output buffers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.bundle.graph_io import STATEFUL, kind_of

Array = NDArray[Any]
NUMPY_TYPES: Final = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


@dataclass(eq=False, slots=True)
class Binding:
    """One binding of a session.

    arrays: array of each input.
    sizes: number of candidates and of source positions, which decide the shapes of outputs.
    """

    ort: ort.IOBinding
    arrays: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    sizes: tuple[int, int] = (0, 0)


class InPlaceSession:
    """Runs a step graph for the lanes of one engine, on one thread at a time."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self.session = session
        self._stateful = {n.name for n in session.get_inputs() if kind_of(n.name) in STATEFUL}
        self._outputs = {node.name: node for node in session.get_outputs()}
        self._bindings: dict[tuple[int, ...], Binding] = {}
        # by beams and input: the array of which the bound one is a view
        self._owners: dict[tuple[int, str], Array] = {}
        self._buffers: dict[str, Array] = {}

    def get_inputs(self) -> Any:
        return self.session.get_inputs()

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return the named outputs. The next run overwrites columns; the other outputs are copies.

        names: names of the outputs.
        feeds: inputs by name. Arrays of the lane must be C-contiguous, and are bound again only if they are
            other objects than before.
        """
        slots, beams = feeds["tokens"].shape
        key = slots, beams, len(names)  # one name more if attention is returned
        if key not in self._bindings:
            self._bindings[key] = Binding(self.session.io_binding())
        binding = self._bindings[key]
        if self._bind_inputs(binding, feeds, beams):  # other bindings would keep the old memory alive
            self._bindings = {key: binding}
        self._size_outputs(binding, names, feeds)
        self.run_binding(binding)
        outputs = binding.outputs
        return [outputs[name] if name.startswith("column.") else outputs[name].copy() for name in names]

    def bind(self, names: Sequence[str], feeds: Mapping[str, Array], direct: frozenset[str]) -> Binding:
        """Return a new binding. The caller fills its `arrays` before each `run_binding`.

        names: names of the outputs.
        feeds: inputs by name.
        direct: names of inputs that are bound in place, as the lane's arrays are; other inputs are copied.
        """
        binding = Binding(self.session.io_binding())
        for name, array in feeds.items():
            bound = array if name in self._stateful or name in direct else np.array(array, order="C")
            assert bound.flags.c_contiguous
            binding.arrays[name] = bound
            binding.ort.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(bound))
        self._size_outputs(binding, names, feeds)
        return binding

    def run_binding(self, binding: Binding) -> None:
        """Run on the arrays of a binding. Any later run overwrites its outputs."""
        self.session.run_with_iobinding(binding.ort)

    def _size_outputs(self, binding: Binding, names: Sequence[str], feeds: Mapping[str, Array]) -> None:
        """Bind outputs of other shapes if the number of candidates or source positions has changed."""
        slots, beams = feeds["tokens"].shape
        width = feeds["mask"].shape[1] if "mask" in feeds else 0
        sizes = int(feeds["k"][0]), width
        if binding.sizes != sizes:
            dims = {"slots": slots, "beams": beams, "K": sizes[0], "source": width}
            self._bind_outputs(binding, names, dims)
            binding.sizes = sizes

    def _bind_inputs(self, binding: Binding, feeds: Mapping[str, Array], beams: int) -> bool:
        """Bind or copy the inputs. Return whether an array of the lane was replaced."""
        arrays, renewed = binding.arrays, False
        for name, array in feeds.items():
            bound = arrays.get(name)
            if bound is array:
                continue
            if name in self._stateful:
                assert array.flags.c_contiguous
                # views of one array for several numbers of slots have the same owner
                owner = array if array.base is None else array.base
                renewed = renewed or self._owners.setdefault((beams, name), owner) is not owner
                self._owners[beams, name] = owner
            elif bound is not None and bound.shape == array.shape:
                bound[...] = array
                continue
            else:
                array = np.array(array, order="C")  # noqa: PLW2901
            arrays[name] = array
            binding.ort.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        return renewed

    def _bind_outputs(self, binding: Binding, names: Sequence[str], dims: Mapping[str, int]) -> None:
        """Bind the named outputs to parts of the shared buffers; `dims` are the sizes of named dimensions."""
        for name in names:
            node = self._outputs[name]
            shape = [dims.get(dim, dim) for dim in node.shape]
            size = math.prod(shape)
            if name not in self._buffers or self._buffers[name].size < size:
                self._buffers[name] = np.empty(size, NUMPY_TYPES[node.type])
            binding.outputs[name] = self._buffers[name][:size].reshape(shape)
            value = ort.OrtValue.ortvalue_from_numpy(binding.outputs[name])
            binding.ort.bind_ortvalue_output(name, value)
