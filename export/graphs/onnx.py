"""Trace ONNX graphs of a bundle's model, without weights, by running its torch code on symbols.

The graph's metadata names the tensor of `model.safetensors` and the form of each initialiser;
`engine/executors/onnx/sessions.py` makes the initialisers when it opens a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import torch

from engine.bundle.bundle import (
    PACKED,
    PRECISIONS,
    SHORTLISTED,
    Bundle,
    Content,
    add_files,
    graph_name,
    graph_parts,
)
from engine.bundle.config import ModelConfig
from engine.bundle.graph_io import CACHE, COLUMN, INDEX, LM_WEIGHT, MEMORY, STATE, io_name, step_fields
from engine.bundle.shortlist import SHORTLIST
from engine.bundle.specs import SOURCE, StateSpec
from engine.errors import ConfigError
from engine.models import build
from engine.models.model import Model, Past, ProjectionModel
from engine.models.select import SelectionRules, select, select_plainly
from export.graphs import native, ops, plugins
from export.graphs.packed import packed_writer
from export.graphs.symbols import Dim, Graph, Weight

# kinds of a bundle's graphs: standard operators only, or also those of engine/native
KERNELS: Final = {"pure": ops.STANDARD_OPS, "native": native.NATIVE_OPS}
FUSED: Final = {"native": native.fuse_norms}
OPERATORS: Final = KERNELS | {"tensorrt": plugins.PLUGIN_OPS}


def encoder_graph(config: ModelConfig, precision: str, kernels: str = "pure") -> bytes:
    """Return the encoder's graph, which makes the memory of a batch of sources.

    Inputs are tokens [batch, time], positions [time] and real [batch, time], 1 at tokens and 0 at padding.

    config: configuration of the model.
    precision: "fp32" or "int8".
    kernels: "pure" for standard operators, "native" for our own, "tensorrt" for its plugins.
    """
    graph = Graph(precision, OPERATORS[kernels], FUSED.get(kernels, list))
    model: Any = _symbolic_model(config, graph)
    memory = model.encode(
        graph.input("tokens", ("batch", "time"), "int"),
        graph.input("positions", ("time",), "int"),
        graph.input("real", ("batch", "time"), "float"),
    )
    outputs = {
        spec.name: memory[spec.name].like(
            memory[spec.name].name, ("batch", *("time" if d == SOURCE else d for d in spec.shape))
        )
        for spec in model.memory_spec
    }
    return graph.finish(outputs, "encoder")


def step_graph(
    config: ModelConfig, precision: str, kernels: str = "pure", *, shortlisted: bool = False
) -> bytes:
    """Return the graph of one decoding step with selection.

    config: configuration of the model.
    precision: "fp32" or "int8".
    kernels: "pure" for standard operators, "native" for our own, "tensorrt" for its plugins.
    shortlisted: whether there is a further input `among` [slots, listed], see `engine.executors.shortlists`.

    Inputs are the fields of StepInput (`step_fields`), `memory.*` with `mask`, and earlier positions as of
    `_past_inputs`. Outputs are those of TopK, and for each state `column.*`, its part at the new position.
    """
    g = Graph(precision, OPERATORS[kernels], FUSED.get(kernels, list))
    model: Any = _symbolic_model(config, g)
    rows: tuple[Dim, ...] = ("slots", "beams")
    tokens, positions = g.input("tokens", rows, "int"), g.input("positions", ("slots", 1), "int")
    forced, banned = g.input("forced", rows, "int"), g.input("banned", (*rows, "bans"), "int")
    temperature = g.input("temperature", ("slots",), "float")
    unk_penalty, eos_penalty = (g.input(f"{t}_penalty", ("slots",), "float") for t in ("unk", "eos"))
    k = g.input("k", (1,), "int")
    mask = g.input("mask", ("slots", "source"), "float") if model.memory_spec else None
    memory = {
        s.name: g.input(
            io_name(MEMORY, s.name), ("slots", *("source" if d == SOURCE else d for d in s.shape)), "float"
        )
        for s in model.memory_spec
    }
    past = _past_inputs(g, model.state_spec)
    features, columns, attention = model.step(tokens, positions, memory, mask, past)
    fused = LM_WEIGHT in step_fields(config)
    if shortlisted:
        among = g.input("among", ("slots", "listed"), "int")
        scores = model.log_probs_among(features, temperature, among)
    elif fused:
        scores = model.log_probs(features, temperature, g.input(LM_WEIGHT, ("slots",), "float"))
    else:
        scores = model.log_probs(features, temperature)
    # the native kernel normalises scores, but sums of two models' scores must stay as they are
    select_function: Any = select_plainly if fused else select
    rules: Any = (forced, banned, unk_penalty, eos_penalty)
    best, ids = select_function(scores, SelectionRules(*rules), config.unk, config.eos, k)
    outputs = {"scores": best, "ids": ids}
    if attention is not None:
        outputs["attention"] = attention
    outputs |= {io_name(COLUMN, name): columns[name] for name in (s.name for s in model.state_spec)}
    return g.finish(outputs, "step")


def _past_inputs(g: Graph, states: Sequence[StateSpec]) -> Past:
    """Add the inputs of a step that hold earlier positions.

    A ring holds the last inputs of a layer, and its index the rows that belong to each hypothesis. A cache
    holds keys or values of attention, and the lineage the entries that belong to each hypothesis.
    """
    rings = [s for s in states if not s.heads]
    windows = sorted({s.window for s in rings})
    cached: dict[str, Any] = {}
    for s in (s for s in states if s.heads):
        shape = ("slots", s.heads, "columns", "beams", s.dim // s.heads)
        cached[s.name] = g.input(io_name(CACHE, s.name), shape, "float")
    ringed: dict[str, Any] = {
        s.name: g.input(io_name(STATE, s.name), ("slots", s.window, "beams", s.dim), "float") for s in rings
    }
    rows: dict[int, Any] = {w: g.input(io_name(INDEX, w), ("slots", "beams", w), "int") for w in windows}
    lineage: Any = g.input("lineage", ("slots", "beams", "entries"), "float") if cached else None
    return Past(ringed, rows, cached, lineage)


def graphs(
    config: ModelConfig, precisions: Sequence[str] = PRECISIONS, kernels: Iterable[str] = KERNELS
) -> dict[str, bytes]:
    """Return the graphs that a bundle holds, by their paths inside the bundle.

    config: configuration of the model.
    precisions: precisions of the graphs.
    kernels: kinds of operators (`step_graph`).
    """
    return _trace_parts(config, graph_parts(config), precisions, kernels)


def shortlisted_graphs(config: ModelConfig) -> dict[str, bytes]:
    """Return the additional graphs of a bundle with a shortlist, by their paths.

    Raises ConfigError for a model that can't have a shortlist.
    """
    with torch.device("meta"):
        if not config.reads_source or not isinstance(build(config), ProjectionModel):
            raise ConfigError("a shortlist is for models with a source and one output projection")
    return _trace_parts(config, (SHORTLISTED,))


def _trace_parts(
    config: ModelConfig,
    parts: Sequence[str],
    precisions: Sequence[str] = PRECISIONS,
    kernels: Iterable[str] = KERNELS,
) -> dict[str, bytes]:
    """Return the graphs of all parts, precisions and kinds of operators, by their paths in the bundle."""
    makers: dict[str, Callable[..., bytes]] = {
        "encoder": encoder_graph,
        "step": step_graph,
        SHORTLISTED: partial(step_graph, shortlisted=True),
    }
    return {
        graph_name(part, precision, kind): makers[part](config, precision, kind)
        for part in parts
        for precision in precisions
        for kind in kernels
    }


def graph_files(bundle: Bundle) -> dict[str, Content]:
    """Return every file that is derived from a bundle's model: graphs, and packed int8 weights."""
    files: dict[str, Content] = {**graphs(bundle.config)}
    files |= shortlisted_graphs(bundle.config) if SHORTLIST in bundle.files() else {}
    native = [g for name, g in files.items() if isinstance(g, bytes) and name.endswith(".int8.native.onnx")]
    write = packed_writer(bundle, native)
    return files if write is None else {**files, PACKED: write}


def add_graphs(bundle: Bundle) -> Bundle:
    """Write every graph of a bundle's model into the bundle, over graphs of an earlier version."""
    return add_files(bundle.path, graph_files(bundle))


def _symbolic_model(config: ModelConfig, graph: Graph) -> Model:
    """Return a model whose weights are symbols, built on the meta device, which allocates no weight."""
    graph.quantization = config.quantization
    with torch.device("meta"):
        model = build(config)
    weights: dict[int, Weight] = {}
    names = {id(p): name for name, p in model.named_parameters()}
    for path, module in model.named_modules():
        for key, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            shape = tuple(tensor.shape)
            if id(tensor) not in weights:
                name = names.get(id(tensor), f"{path}.{key}")
                constant = id(tensor) not in names
                recipe = module.recipe if constant else {"tensor": name}
                weights[id(tensor)] = Weight(graph, name, shape, recipe)
            # torch refuses to replace a parameter by a symbol: delete it, and set a plain attribute
            del (module._buffers if key in module._buffers else module._parameters)[key]
            setattr(module, key, weights[id(tensor)])
    return model
