"""Sessions of ONNX Runtime, the default backend. On the CPU they need no torch; other devices use
`on_cuda.py`.

The graphs hold no weights. Their metadata has a recipe for each initialiser: a tensor of `model.safetensors`,
and its form. int8 weights are quantised here, when the session is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.bundle.config import ModelConfig
from engine.bundle.graph_io import specs_of, step_fields
from engine.bundle.manifest import WEIGHTS
from engine.bundle.recipes import METADATA, initializer
from engine.bundle.shortlist import Shortlist
from engine.bundle.specs import MemorySpec, StateSpec
from engine.bundle.weights import Weights
from engine.errors import BundleError
from engine.executors.base import Arrays
from engine.executors.onnx.graph_metadata import metadata_of
from engine.executors.onnx.in_place import InPlaceSession

Array = NDArray[np.float32]
Recipes = Mapping[str, Mapping[str, Any]]  # recipe of each initialiser, by label
# fusions into kernels that are slower than the separate ones (docs/lab/cpu.md, "Fusions")
SLOWER_FUSIONS: Final = ("SkipLayerNormFusion",)
# forms of weights (`engine.bundle.recipes`) that operators read without a copy
READ_IN_PLACE: Final = ("panels", "gated", "panels32", "gated32", "rows")
IN_PLACE_BYTES: Final = 1 << 16  # smaller embedding tables are copied
FOLDER_OPTION: Final = "session.model_external_initializers_file_folder_path"
BFLOAT16: Final = 16  # number of the type in onnx.TensorProto; numpy has no such type


class Session(Protocol):
    """A graph that runs: `ort.InferenceSession` on numpy arrays, `BoundSession` on torch tensors."""

    def get_inputs(self) -> Any: ...

    def run(self, names: list[str], feeds: Mapping[str, Any]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Sessions:
    """The graphs of one bundle, shared by all lanes of its engine.

    encoder: None for a language model.
    arrays: namespace, device and dtype of the lanes' arrays.
    operators: library of our operators; None for graphs of standard operators.
    initializers: weights that the sessions read in place.
    """

    config: ModelConfig
    encoder: Session | None
    step: Session
    memory: tuple[MemorySpec, ...]
    states: tuple[StateSpec, ...]
    arrays: Arrays
    shortlist: Shortlist | None = None
    operators: Path | None = None
    initializers: Initializers | None = None


def open_sessions(
    config: ModelConfig,
    graphs: Mapping[str, bytes],
    weights: Mapping[str, Array],
    threads: int | None,
    operators: Path | None = None,
    device: str | None = None,
) -> Sessions:
    """Make the sessions of a bundle.

    config: configuration of the model.
    graphs: serialised graphs, by the names of `engine.bundle.bundle.graph_parts`.
    weights: weights of the bundle, by name.
    threads: threads of each session; None uses the process-wide pool (`share_threads`).
    operators: library that native graphs need.
    device: device for torch tensors ("cpu", "cuda", ...); None for numpy arrays on the CPU.

    Raises BundleError if graphs and weights do not belong together, and ConfigError if the device is missing.
    """
    ort_device = _open_device(device)
    initializers = Initializers(weights, tables=ort_device is None)

    def session(part: str) -> Any:
        plain_session = _session(graphs[part], initializers, _options(threads, operators), ort_device)
        return plain_session if ort_device is None else ort_device.bind(plain_session)

    encoder = session("encoder") if config.reads_source else None
    step = session("step")
    initializers.release_unused()
    if ort_device is None:
        step = InPlaceSession(step)
    lacking = {*step_fields(config), "k"} - {node.name for node in step.get_inputs()}
    if lacking:
        raise BundleError(
            f"the step graph is of an earlier version, without {sorted(lacking)}; run: convoy export BUNDLE"
        )
    arrays = Arrays(np, "cpu", np.float32) if ort_device is None else ort_device.arrays(step)
    shapes = [(node.name, node.shape) for node in step.get_inputs()]
    specs = specs_of(shapes, config.max_target - 1)
    return Sessions(config, encoder, step, *specs, arrays, operators=operators, initializers=initializers)


def _open_device(device: str | None) -> Any:
    if device is None:
        return None
    from engine.executors.onnx.on_cuda import OrtDevice

    return OrtDevice(device)


def share_threads(threads: int) -> None:
    """Make one pool of threads for all sessions that are opened with threads=None.

    Call this before the first such session.
    """
    ort.set_global_thread_pool_sizes(threads, 1)


class Initializers(dict[str, ort.OrtValue]):
    """Initialisers by label, made once for all graphs of a bundle. Sessions read some of them in place, so
    this object must exist as long as they do."""

    def __init__(self, weights: Mapping[str, Array], *, tables: bool) -> None:
        """Start empty.

        weights: weights of the bundle, by name.
        tables: whether sessions read embedding tables without a copy. They can't in fp16 and bf16 graphs,
            where ONNX Runtime folds the table with its cast.
        """
        super().__init__()
        self._weights, self._tables = weights, tables
        self._shared = set[str]()  # labels of initialisers that sessions read in place

    def supply(self, options: ort.SessionOptions, recipes: Recipes) -> None:
        """Add the initialisers of a graph to the options of its session.

        The session reads the weights of our own operators and large embedding tables in place, which may be a
        mapped file. It copies or transforms the others when it is made.

        options: options of the session.
        recipes: recipe of each initialiser, by label.
        """
        copied = []
        for label, recipe in sorted(recipes.items()):
            if label not in self:
                self[label] = _value(self._array(recipe))
            table = self._is_table(recipe) and self[label].tensor_size_in_bytes() >= IN_PLACE_BYTES
            if table or recipe.get("form") in READ_IN_PLACE:
                options.add_initializer(label, self[label])
                self._shared.add(label)
            else:
                copied.append(label)
        options.add_external_initializers(copied, [self[label] for label in copied])

    def _is_table(self, recipe: Mapping[str, Any]) -> bool:
        return self._tables and recipe.get("form") == "plain"

    def _array(self, recipe: Mapping[str, Any]) -> NDArray[Any]:
        """Return the array of a recipe, from memory shared by processes if sessions read it in place."""
        make = partial(initializer, recipe, self._weights)
        shared = self._weights.shared if isinstance(self._weights, Weights) else None
        if shared is None or not (self._is_table(recipe) or recipe.get("form") in READ_IN_PLACE):
            return make()
        return shared.array(json.dumps(recipe, sort_keys=True), make)

    def release_unused(self) -> None:
        """Drop the weights, and the initialisers that no session reads in place. Call this after the last
        session."""
        self._weights = {}
        for label in self.keys() - self._shared:
            del self[label]


def _options(threads: int | None, operators: Path | None) -> ort.SessionOptions:
    """Return session options for a number of threads (`open_sessions`) and our operators."""
    options = ort.SessionOptions()
    options.log_severity_level = 4  # its errors are exceptions
    # x86-64 without VNNI: sums of int8 products saturate unless ONNX Runtime makes the weights unsigned
    options.add_session_config_entry("session.x64quantprecision", "1")
    if threads is None:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # a bundle has two sessions or more: threads of one that rests would turn on cores that another needs
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if operators is not None:
        options.register_custom_ops_library(str(operators))
    return options


def _session(
    graph: bytes, initializers: Initializers, options: ort.SessionOptions, ort_device: Any
) -> ort.InferenceSession:
    """Return the session of a serialised graph. Raises BundleError if ONNX Runtime can't load it."""
    initializers.supply(options, _recipes(graph))
    providers = ["CPUExecutionProvider"] if ort_device is None else ort_device.providers
    try:
        with TemporaryDirectory() as folder:
            # graphs name this file, so it must exist; it is empty, so that reading it fails
            (Path(folder) / WEIGHTS).touch()
            options.add_session_config_entry(FOLDER_OPTION, folder)
            return ort.InferenceSession(
                graph, options, providers=providers, disabled_optimizers=list(SLOWER_FUSIONS)
            )
    except Exception as error:
        raise BundleError(f"ONNX Runtime refuses the graph: {error}; run: convoy export BUNDLE") from error


def _recipes(graph: bytes) -> Recipes:
    """Return the recipes in a graph's metadata. Raises BundleError without them."""
    try:
        recipes: Recipes = json.loads(metadata_of(graph)[METADATA])
    except (KeyError, ValueError) as error:
        raise BundleError(f"not a graph of this version ({error}); run: convoy export BUNDLE") from None
    return recipes


def _value(array: NDArray[Any]) -> ort.OrtValue:
    if array.dtype.name != "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), BFLOAT16)
