"""ONNX Runtime: the default executor. On the CPU it needs no torch; `bound.py` is what it needs elsewhere.

The graphs hold no weights. Their metadata names, for each initialiser, the tensor of `model.safetensors` it
is made of and in which form; int8 weights are quantised here, when the session is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.errors import BundleError
from engine.executor import StepInput, TopK
from engine.executors.held import HeldSession
from engine.executors.memory import EncoderBatch
from engine.executors.slots import Arrays, SlotExecutor
from engine.initializers import METADATA, initializer
from engine.shortlist import Shortlist
from engine.specs import SOURCE, MemorySpec, StateSpec

Array = NDArray[np.float32]
# fusions whose kernels are slower than what they replace (docs/benchmarks.md, "What paid")
SLOWER: Final = ("SkipLayerNormFusion",)
BFLOAT16: Final = 16  # as onnx.TensorProto has it; numpy knows no such type
# inputs of every step graph, beside memory and state
FED: Final = {"tokens", "positions", "forced", "banned", "temperature", "unk_penalty", "eos_penalty", "k"}


class Session(Protocol):
    """A graph that runs: `ort.InferenceSession` on numpy's arrays, `bound.Bound` on torch's tensors."""

    def get_inputs(self) -> Any: ...

    def run(self, names: list[str], feeds: Mapping[str, Any]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Sessions:
    """The graphs of one bundle, shared by all lanes of its engine. encoder: None of a language model. arrays:
    where the lanes' own are."""

    config: ModelConfig
    encoder: Session | None
    step: Session
    memory: tuple[MemorySpec, ...]
    states: tuple[StateSpec, ...]
    arrays: Arrays
    shortlist: Shortlist | None = None


def open_sessions(
    config: ModelConfig,
    graphs: Mapping[str, bytes],
    weights: Mapping[str, Array],
    threads: int | None,
    operators: Path | None = None,
    device: str | None = None,
) -> Sessions:
    """Make sessions from graphs (by the names of `engine.bundle.graph_parts`) and weights.

    threads: of each session; None takes the process-wide pool (`share_threads`). operators: the library that
    native graphs need. device: "cpu", "cuda", ... bind torch's tensors there; None is numpy on the CPU.
    Raises BundleError when the graphs and the weights do not belong together, and ConfigError for a device
    that is not at hand.
    """
    initializers, place = Initializers(weights), _place(device)

    def session(part: str) -> Any:
        made = _session(graphs[part], initializers, _options(threads, operators), place)
        return made if place is None else place.bound(made)

    encoder = session("encoder") if config.reads_source else None
    step = session("step")
    if place is None:
        step = HeldSession(step)
    lacking = FED - {node.name for node in step.get_inputs()}
    if lacking:
        raise BundleError(
            f"a graph of an earlier version, without {sorted(lacking)}; run: convoy export BUNDLE"
        )
    arrays = Arrays(np, "cpu", np.float32) if place is None else place.arrays(step)
    specs = tuple(_memory(step)), tuple(_states(step, config.max_target - 1))
    return Sessions(config, encoder, step, *specs, arrays)


def _place(device: str | None) -> Any:
    if device is None:
        return None
    from engine.executors.bound import Place

    return Place(device)


def share_threads(threads: int) -> None:
    """One pool of `threads` for every session made with threads=None. Call before the first such session."""
    ort.set_global_thread_pool_sizes(threads, 1)


class Initializers(dict[str, Array]):
    """Initialisers by label, made of weights; each once for all graphs of a bundle."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights

    def add(self, recipes: Mapping[str, Mapping[str, Any]]) -> None:
        for label, recipe in recipes.items():
            if label not in self:
                self[label] = initializer(recipe, self.weights)


def _options(threads: int | None, operators: Path | None) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads is None:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if operators is not None:
        options.register_custom_ops_library(str(operators))
    return options


def _session(
    graph: bytes, initializers: Initializers, options: ort.SessionOptions, place: Any
) -> ort.InferenceSession:
    try:
        recipes = json.loads(_metadata(graph)[METADATA])
    except (KeyError, ValueError) as error:
        raise BundleError(f"not a graph of this version ({error}); run: convoy export BUNDLE") from None
    initializers.add(recipes)
    names = sorted(recipes)
    values = [_value(initializers[name]) for name in names]
    options.add_external_initializers(names, values)
    providers = ["CPUExecutionProvider"] if place is None else place.providers
    try:
        return ort.InferenceSession(graph, options, providers=providers, disabled_optimizers=list(SLOWER))
    except Exception as error:
        raise BundleError(f"ONNX Runtime refuses the graph: {error}; run: convoy export BUNDLE") from error


def _value(array: NDArray[Any]) -> ort.OrtValue:
    if array.dtype.name != "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), BFLOAT16)


def _metadata(graph: bytes) -> dict[str, str]:
    """metadata_props (field 14) of a serialised ModelProto, read without the `onnx` package."""
    found: dict[str, str] = {}
    for field, value in _fields(graph):
        if field == 14:
            entry = dict(_fields(value))
            found[entry[1].decode()] = entry[2].decode()
    return found


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """Length-delimited fields of a protocol buffer message; others are skipped."""
    found, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("the file is cut short")
            found.append((key >> 3, data[at : at + size]))
            at += size
        elif key & 7 == 0:
            _, at = _varint(data, at)
        elif key & 7 in (1, 5):
            at += 8 if key & 7 == 1 else 4
        else:
            raise ValueError("the file is damaged")
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the file is cut short")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _memory(step: Session) -> list[MemorySpec]:
    specs = []
    for node in step.get_inputs():
        if node.name.startswith("memory."):
            shape = tuple(d if isinstance(d, int) else SOURCE for d in node.shape[1:])
            specs.append(MemorySpec(node.name.removeprefix("memory."), shape))
    return specs


def _states(step: Session, longest: int) -> list[StateSpec]:
    specs = []
    for node in step.get_inputs():
        kind, _, name = node.name.partition(".")
        if kind == "state":
            specs.append(StateSpec(name, node.shape[1], node.shape[3]))
        elif kind == "cache":
            heads, width = node.shape[1], node.shape[4]
            specs.append(StateSpec(name, longest, heads * width, heads))
    return specs


class OnnxExecutor(SlotExecutor):
    """One lane."""

    def __init__(self, sessions: Sessions, beams: int, slots: int) -> None:
        specs = sessions.memory, sessions.states
        super().__init__(sessions.config, specs, (beams, slots), sessions.arrays, sessions.shortlist)
        self.sessions = sessions
        self._columns = [f"column.{s.name}" for s in sessions.states]

    def _encode(self, batch: EncoderBatch) -> Mapping[str, Any]:
        assert self.sessions.encoder is not None
        names = [spec.name for spec in self.sessions.memory]
        given = {"tokens": batch.tokens, "positions": batch.positions, "real": batch.real}
        feeds = {name: self.namespace.asarray(a, device=self.device) for name, a in given.items()}
        return dict(zip(names, self.sessions.encoder.run(names, feeds), strict=True))

    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        past = self.history.advance(inputs.parents, inputs.positions)
        memory, mask = self.memory.view(n)
        feeds = {
            "tokens": inputs.tokens,
            "positions": inputs.positions,
            "forced": inputs.forced,
            "banned": inputs.banned,
            "temperature": inputs.temperature,
            "unk_penalty": inputs.unk_penalty,
            "eos_penalty": inputs.eos_penalty,
            "k": np.array([min(inputs.k, self.limits.vocab)], np.int64),
        }
        if self.among:
            feeds["among"] = self.among.view(n, inputs.forced)
        if memory:
            feeds |= {"mask": mask} | {f"memory.{name}": block for name, block in memory.items()}
        feeds |= {f"state.{name}": ring for name, ring in past.rings.items()}
        feeds |= {f"index.{window}": rows for window, rows in past.rows.items()}
        if past.caches:
            feeds |= {"lineage": past.lineage} | {f"cache.{name}": c for name, c in past.caches.items()}
        attention = attention and bool(memory)
        wanted = ["scores", "ids", *(["attention"] if attention else []), *self._columns]
        scores, ids, *rest = self.sessions.step.run(wanted, feeds)
        weights = rest.pop(0) if attention else None
        columns = {s.name: c for s, c in zip(self.sessions.states, rest, strict=True)}
        self.history.write(columns, inputs.positions)
        return TopK(scores, ids, weights)
