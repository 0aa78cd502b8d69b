"""Graphs and engines for TensorRT, as far as a machine without TensorRT can tell.

docs/tensorrt.md says what has been run for real."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from cli.verify import TOLERANCES, Check, _verdict
from engine.backends import Placement
from engine.bundle import engines
from engine.bundle.bundle import Bundle, Description, add_files, graph_parts, open_bundle, write_bundle
from engine.bundle.engines import DESCRIPTION, Target, find
from engine.errors import BundleError, ConfigError
from engine.executors import open_executors
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.kernels.launches import Call, Kernel
from engine.kernels.reference import dynamic_conv, dynamic_conv_step
from engine.search.executor import TopK
from engine.types import Hypothesis
from export.graphs.onnx import encoder_graph, graphs, step_graph
from export.graphs.plugins import DOMAIN
from export.graphs.precision import narrow_graph
from export.graphs.rounded import round_graph
from export.graphs.standalone import with_weights
from export.graphs.tensorrt import LaneShape, build
from tests.engine.executors.test_executors import inputs, join, started
from tests.engine.kernels.test_cuda_kernels import parameters
from tests.support.host_kernels import COMPILER
from tests.support.models import CONFIGS, model, some_models, weights

MAKERS = {"encoder": encoder_graph, "step": step_graph}


def plugin_nodes(graph: bytes) -> list[onnx.NodeProto]:
    return [node for node in onnx.load_from_string(graph).graph.node if node.domain == DOMAIN]


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_graphs_for_tensorrt_run_in_onnx_runtime_and_equal_torch(name):
    config = CONFIGS[name]
    made = {part: MAKERS[part](config, "fp32", "tensorrt") for part in graph_parts(config)}
    lane = OnnxExecutor(open_sessions(config, made, weights(name), 1), beams=2, slots=3)
    torch_lane, slots = started("torch", name)
    again: list = []
    join(lane, again, [slot.source for slot in slots])
    rng = np.random.default_rng(3)
    for _ in range(5):
        parents = rng.integers(0, 2, (3, 2))
        for a in (slots, again):
            for slot, order in zip(a, parents, strict=True):
                slot.prefixes = [slot.prefixes[p] for p in order]
        want = torch_lane.step(3, inputs(torch_lane, slots, parents))
        got = lane.step(3, inputs(lane, again, parents))
        np.testing.assert_allclose(got.scores, want.scores.numpy(), rtol=1e-5, atol=3e-5)
        for a, b in zip(slots, again, strict=True):
            a.prefixes = [[*p, int(t)] for p, t in zip(a.prefixes, rng.integers(4, 47, 2), strict=True)]
            b.prefixes = [list(p) for p in a.prefixes]


@pytest.mark.parametrize("name", some_models(4))
def test_fp16_graphs_stay_close_to_torch_in_fp32(name):
    config = CONFIGS[name]
    made = {
        part: narrow_graph(MAKERS[part](config, "fp32", "tensorrt"), "fp16", config)
        for part in graph_parts(config)
    }
    lane = OnnxExecutor(open_sessions(config, made, weights(name), 1, device="cpu"), beams=2, slots=3)
    torch_lane, slots = started("torch", name)
    join(lane, [], [slot.source for slot in slots])
    parents = np.zeros((3, 2), np.int64)
    for step in range(4):
        want = torch_lane.step(3, inputs(torch_lane, slots, parents, k=46))
        got = as_numpy(lane.step(3, inputs(torch_lane, slots, parents, k=46)))
        full, narrow = (
            np.take_along_axis(s, np.argsort(i, 2), 2)
            for s, i in ((want.scores.numpy(), want.ids.numpy()), (got.scores, got.ids))
        )
        possible = np.isfinite(full)
        # logits of magnitude 2^e are rounded to 2^(e - 11): models without a last norm have large ones
        allowed = 0.03 + 0.005 * np.abs(full[possible]).max()
        assert np.abs(full - narrow)[possible].max() < allowed
        for slot in slots:
            slot.prefixes = [[*p, 5 + step] for p in slot.prefixes]


def as_numpy(top: TopK) -> TopK:
    return TopK(*(None if v is None else np.asarray(v) for v in top))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["glu", "transformer", "aan"])
def test_narrow_graphs_hold_memory_and_state_narrow_but_sums_and_results_wide(name, precision):
    kind = {"fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}[precision]
    config = CONFIGS[name]
    made = narrow_graph(step_graph(config, "fp32", "tensorrt"), precision, config)
    graph = onnx.load_from_string(made).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    for value, found in types.items():
        place = value.split(".")[0]
        if place == "memory" or (place in ("state", "cache", "column") and name != "aan"):
            assert found == kind, value
        elif place in ("state", "column", "scores", "attention", "mask", "temperature", "lineage"):
            assert found == onnx.TensorProto.FLOAT, value
    assert made == narrow_graph(step_graph(config, "fp32", "tensorrt"), precision, config)
    assert all(i.data_type == kind for i in graph.initializer if i.data_location == onnx.TensorProto.EXTERNAL)


@pytest.mark.parametrize("name", ["glu", "light", "transformer", "aan", "convs2s", "slicenet"])
def test_bf16_graphs_stay_close_to_fp32_when_every_narrow_result_is_rounded(name):
    """ONNX Runtime has no bf16 on the CPU: each node is run in fp32 here, and its result rounded to bf16."""
    config = CONFIGS[name]
    feeds = step_feeds(name)
    graph = step_graph(config, "fp32")
    scores = [
        run_standalone(round_graph(g) if g is not graph else g, weights(name), feeds)
        for g in (graph, narrow_graph(graph, "bf16", config))
    ]
    possible = np.isfinite(scores[0])
    assert (possible == np.isfinite(scores[1])).all()
    assert np.abs(scores[0] - scores[1])[possible].max() < 0.25 + 0.03 * np.abs(scores[0][possible]).max()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_products_that_make_logits_are_fp32_in_bf16_graphs_and_narrow_in_fp16(name):
    """Whatever a log-softmax reads, on the way up to its products, has no value in bf16 but for weights, and
    those are stored narrow."""
    config = CONFIGS[name]
    for precision, kind in (("bf16", onnx.TensorProto.BFLOAT16), ("fp16", onnx.TensorProto.FLOAT16)):
        graph = onnx.load_from_string(narrow_graph(step_graph(config, "fp32", "tensorrt"), precision, config))
        inferred = onnx.shape_inference.infer_shapes(graph, strict_mode=True).graph
        types = {v.name: v.type.tensor_type.elem_type for v in inferred.value_info}
        stored = {i.name: i.data_type for i in graph.graph.initializer}
        makers = {o: node for node in graph.graph.node for o in node.output}
        waiting = [node.input[0] for node in graph.graph.node if node.op_type == "LogSoftmax"]
        products = []
        while waiting:
            node = makers.get(waiting.pop())
            if node is not None and node.op_type == "MatMul":
                products.append(node)
            elif node is not None:
                waiting += node.input
        assert products
        for node in products:
            assert types[node.output[0]] == (onnx.TensorProto.FLOAT if precision == "bf16" else kind)
            weight = node.input[1]
            while weight not in stored:
                weight = makers[weight].input[0]
            assert stored[weight] == kind


def step_feeds(name: str) -> dict[str, np.ndarray]:
    """Random inputs of a step graph, by name."""
    g = np.random.default_rng(1)
    sizes = {"slots": 2, "beams": 2, "bans": 1, "source": 32, "columns": 32, "entries": 64}
    feeds = {}
    for value in onnx.load_from_string(step_graph(CONFIGS[name], "fp32")).graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            index = value.name.startswith("index")  # into the rows of any ring
            feeds[value.name] = g.integers(*((0, 4) if index else (4, 40)), shape)
        else:
            feeds[value.name] = g.normal(size=shape).astype(np.float32)
    feeds["positions"][:] = 3
    feeds["forced"][:] = -1
    feeds["k"][:] = 46
    for wide in ("mask", "lineage"):
        if wide in feeds:
            feeds[wide][:] = 0
    feeds["temperature"][:] = 1
    return feeds


def run_standalone(graph: bytes, model_weights: dict, feeds: dict) -> np.ndarray:
    """Scores of all tokens in their order."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        for name, data in with_weights(graph, model_weights, "step").items():
            (Path(folder) / name).write_bytes(data)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(
            Path(folder) / "step.onnx", options, providers=["CPUExecutionProvider"]
        )
        scores, ids = session.run(["scores", "ids"], feeds)
    return np.take_along_axis(scores, np.argsort(ids, 2), 2)


@pytest.mark.parametrize("name", ["glu", "light"])
def test_each_convolution_is_one_node_with_all_that_the_parser_asks_for(name):
    config = CONFIGS[name]
    kind = {"glu": "DynamicConv", "light": "LightConv"}[name]
    encoder, step = (plugin_nodes(MAKERS[part](config, "fp32", "tensorrt")) for part in ("encoder", "step"))
    assert [n.op_type for n in encoder] == [kind] * config.encoder.layers
    assert [n.op_type for n in step] == [f"{kind}Step"] * config.decoder.layers
    for node, width in zip(encoder, config.encoder.kernel_sizes, strict=True):
        assert attributes(node) == {"aot": 1, "left": width // 2, "plugin_namespace": b"convoy"}
    for node in step:
        assert attributes(node) == {"aot": 1, "plugin_namespace": b"convoy"}


def test_kernels_without_a_softmax_are_left_to_standard_operators():
    assert not plugin_nodes(step_graph(CONFIGS["raw kernels"], "fp32", "tensorrt"))
    assert not plugin_nodes(step_graph(CONFIGS["cnn"], "fp32", "tensorrt"))


STUBS = Path(__file__).parents[3].parent / "shared" / "tensorrt-stubs"
VERSION = "11.4.0.106"
WHEELS = f"tensorrt_cu13_bindings=={VERSION}", f"tensorrt_lean_cu13_libs=={VERSION}"


@pytest.fixture(scope="session")
def bindings(request, tmp_path_factory):
    """A folder with NVIDIA's Python bindings and its lean runtime, over stand-ins for libraries that can't be
    had. Fetched at test time: their licence does not let us keep them."""
    if not STUBS.is_dir() or COMPILER is None:
        pytest.skip("no stand-ins for TensorRT's libraries (../shared/tensorrt-stubs), or no compiler")
    folder, wheels = tmp_path_factory.mktemp("trt"), request.config.cache.mkdir("tensorrt")
    if len(list(wheels.glob("*.whl"))) < len(WHEELS):
        fresh = tmp_path_factory.mktemp("wheels")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run([*command, "-d", str(fresh), *WHEELS], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no wheels of TensorRT's bindings: {done.stderr.strip()[-200:]}")
        for wheel in fresh.glob("*.whl"):  # whole or not at all, for whoever runs beside us
            shutil.copyfile(wheel, wheels / f"{wheel.name}.{os.getpid()}")
            os.replace(wheels / f"{wheel.name}.{os.getpid()}", wheels / wheel.name)
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)
    (folder / "tensorrt").symlink_to("tensorrt_bindings")
    (folder / "libnvinfer_lean.so.11").symlink_to("tensorrt_lean_libs/libnvinfer_lean.so.11")
    for name, flags in {"nvinfer": ["-DLEAN"], "nvinfer_plugin": [], "nvonnxparser": []}.items():
        out = ["-o", str(folder / f"lib{name}.so.11"), str(STUBS / f"{name}.c")]
        subprocess.run([COMPILER, "-x", "c", "-w", "-shared", "-fPIC", *flags, *out, "-ldl"], check=True)
    return folder


def probe(bindings: Path, task: str, orders: list[Any]) -> list[Any]:
    """Run tests/support/trt_probe.py where `import tensorrt` works: what it tells of each order."""
    found = in_bindings(bindings, ["-m", "tests.support.trt_probe", task, json.dumps(orders)])
    assert found.returncode == 0, found.stderr[-3000:]
    return json.loads(found.stdout.rpartition("RESULT")[2])


def in_bindings(bindings: Path, arguments: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(bindings), "PYTHONPATH": str(bindings)} | more
    command = [sys.executable, "-W", "ignore", *arguments]
    root = Path(__file__).parents[3]
    return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)


DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
STEP_SHAPES = (3, 5, 48), (3, 4, 5, 48), (3, 5, 4)  # x, ring, index; taps [3, 5, 4, 5]
WHOLE_SHAPE, LEFT = (2, 37, 48), 3


def plugin_cases() -> list[dict[str, Any]]:
    x, ring, index = STEP_SHAPES
    cases = []
    for dtype in DTYPES:
        for name, taps in (("DynamicConvStep", (3, 5, 4, 5)), ("LightConvStep", (4, 5))):
            cases.append({"plugin": name, "dtype": dtype, "shapes": [x, taps, ring, index], "attributes": {}})
        for name, taps in (("DynamicConv", (2, 37, 4, 7)), ("LightConv", (4, 7))):
            shapes = [WHOLE_SHAPE, taps]
            cases.append({"plugin": name, "dtype": dtype, "shapes": shapes, "attributes": {"left": LEFT}})
    return cases


def test_plugins_launch_what_torch_computes_through_the_real_bindings(bindings, host, compiled_kernels):
    """The plugin's own kernel, grid, block, shared memory and extra arguments, on the CPU, against torch."""
    cases = plugin_cases()
    (launches,) = probe(bindings, "plugins", [{"cases": cases, "compiled": str(compiled_kernels)}])
    for case, told in zip(cases, launches, strict=True):
        dtype = DTYPES[case["dtype"]]
        tensors = plugin_inputs(case, dtype)
        y = torch.empty_like(tensors[0])
        assert told["aot"]
        assert told["output"] == list(y.shape)
        kinds = told["kinds"]
        ints = ["INT64"] if len(tensors) == 4 else []
        assert kinds == [[k] * min(3, len(tensors)) + ints + [k] for k in ("FP32", "FP16", "BF16")]
        arguments = (*tensors, *told["extra"], y)
        expected = ["integer" if isinstance(a, int) else "address" for a in arguments]
        assert parameters(told["ptx"].encode(), told["entry"]) == expected
        file, defines = told["source"]
        kernel = Kernel(file, told["entry"], defines["CONVOY_ELEMENT"], int(defines["CONVOY_VECTOR"]))
        *launch, shared = told["launch"]
        host(Call(kernel, tuple(launch[:3]), tuple(launch[3:]), shared, arguments))
        wide = [t.float() if t.is_floating_point() else t for t in tensors]
        wide[1] = wide[1].softmax(-1)
        want = dynamic_conv_step(*wide) if len(tensors) == 4 else dynamic_conv(*wide, LEFT)
        tolerance = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[case["dtype"]]
        torch.testing.assert_close(y.float(), want, rtol=tolerance, atol=tolerance)


def plugin_inputs(case: dict[str, Any], dtype: torch.dtype) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    tensors = [torch.randn(shape, generator=g).to(dtype) for shape in case["shapes"]]
    if len(tensors) == 4:
        tensors[3] = torch.randint(0, 3 * 4 * 5, case["shapes"][3], generator=g)
    return tensors


@pytest.fixture
def bundle(tmp_path):
    return toy(tmp_path)


def toy(folder: Path, name: str = "glu") -> Bundle:
    """A small model with its graphs."""
    text = {"kind": "sentencepiece"}
    about = Description("toy", "translate", "de", "en", CONFIGS[name], text)
    return write_bundle(folder / "toy", about, weights(name), graphs(CONFIGS[name]), half=False)


GPU = "NVIDIA Imagined 9000"


def order(bundle, **changes: object) -> dict[str, Any]:
    lane = {"precision": "fp16", "beams": 3, "slots": 9}
    base = {"bundle": str(bundle.path), "gpu": GPU, "lose": False, "lane": lane}
    return base | {"timings": str(bundle.path.parent / "timings")} | changes


ANSWERED = {"glu": ("fp16", 3, 9), "transformer": ("fp32", 3, 4), "aan": ("fp16", 3, 4)}


@pytest.fixture(scope="session")
def exported(bindings, tmp_path_factory):
    """By model a bundle with engines, as far as they go here, what was told of building them, and the files
    that it had before. The plugins of "plain" are lost."""
    made = {name: toy(tmp_path_factory.mktemp("built"), name) for name in (*ANSWERED, "plain")}
    lanes = {n: {"precision": p, "beams": beams, "slots": slots} for n, (p, beams, slots) in ANSWERED.items()}
    orders = [order(made[name], lane=lane) for name, lane in lanes.items()]
    before = [bundle.files() for bundle in made.values()]
    told = probe(bindings, "build", [*orders, order(made["plain"], lose=True)])
    paths = [bundle.path for bundle in made.values()]
    return dict(zip(made, zip(paths, told, before, strict=True), strict=True))


@pytest.fixture
def built(exported):
    return exported["glu"][:2]


@pytest.fixture(scope="session")
def answers(bindings, exported):
    """What steps and requests found with faked engines, by model; "refused": where no capture succeeds."""
    about = {"gpu": GPU, "refuse": False}
    orders = [
        about | {"bundle": str(exported[name][0]), "target": target, "config": name}
        for name, target in ANSWERED.items()
    ]
    told = probe(bindings, "run", [*orders, orders[0] | {"refuse": True}])
    return dict(zip((*ANSWERED, "refused"), told, strict=True))


def test_a_whole_export_passes_the_names_types_and_order_of_the_real_builder(built):
    path, told = built
    # the second part finds the first's timings; both are built where they will run
    assert told == {"version": VERSION, "timings": [0, len(b"timings")], "devices": ["cuda:1"]}
    made = open_bundle(path)
    target = Target(GPU, VERSION, "fp16", 3, 9)
    about, engines = find(made, target)
    assert target.folder == f"tensorrt/nvidia-imagined-9000-trt{VERSION}/fp16-3x9"
    assert (about.k, about.slots, about.source) == (47, (1, 4, 9), 96)
    assert set(engines) == {"encoder", "step"}
    with pytest.raises(BundleError, match=r"no fp32 engine of 3 x 9.*--precision fp32 --beams 3 --slots 9"):
        find(made, Target(GPU, VERSION, "fp32", 3, 9))
    with pytest.raises(BundleError, match=r"for NVIDIA H200 .*only for nvidia-imagined-9000-trt"):
        find(made, Target("NVIDIA H200", VERSION, "fp16", 3, 9))
    with pytest.raises(BundleError, match="no fp16 engine"):
        find(made, Target(GPU, "12.0", "fp16", 3, 9))


@pytest.mark.parametrize("name", ANSWERED)
def test_engines_run_within_captured_steps_and_answer_as_torch(answers, name):
    """The engines are faked: ONNX Runtime computes, from the addresses and shapes that the executor sets."""
    told, (precision, _, _) = answers[name], ANSWERED[name]
    assert told["worst"] < (1e-4 if precision == "fp32" else 0.1)
    assert told["equal"] >= (1.0 if precision == "fp32" else 0.6)
    assert told["captured"] >= 4
    assert told["replayed"] >= 8
    assert told["devices"] == ["cuda:1"] * 2  # encoder and step are read on the device they are for
    narrow = precision == "fp16" and name != "aan"  # sums are held in fp32
    assert told["dtype"] == ("torch.float16" if narrow else "torch.float32")


def test_where_a_capture_is_refused_steps_are_launched_and_that_is_said(answers):
    told = answers["refused"]
    assert told["worst"] < 0.1
    assert told["equal"] >= 0.6
    assert (told["captured"], told["replayed"]) == (0, 0)
    assert told["warnings"] >= 1


@pytest.mark.parametrize("source", engines.SOURCES)
def test_the_fingerprint_of_an_engine_covers_all_that_decides_it(source, tmp_path, monkeypatch):
    """Changing any file of how kernels are launched, compiled and made nodes of makes another engine."""
    root = tmp_path / "root"
    for pattern in engines.SOURCES:
        for path in engines.SOURCES_ROOT.glob(pattern):
            (root / path.relative_to(engines.SOURCES_ROOT)).parent.mkdir(parents=True, exist_ok=True)
            (root / path.relative_to(engines.SOURCES_ROOT)).write_bytes(path.read_bytes())
    monkeypatch.setattr(engines, "SOURCES_ROOT", root)
    bundle = open_bundle(Path(__file__).parents[3] / "models" / "tatoeba-de-en", verify=False)
    before = engines.fingerprints(bundle)
    path = next(root.glob(source))
    path.write_bytes(path.read_bytes() + b"\n")
    after = engines.fingerprints(bundle)
    assert before["kernels"] != after["kernels"]
    assert before["weights"] == after["weights"]


def test_an_engine_of_other_weights_graphs_or_kernels_is_refused(built, tmp_path):
    shutil.copytree(built[0], tmp_path / "toy")
    made, target = open_bundle(tmp_path / "toy"), Target(GPU, VERSION, "fp16", 3, 9)
    name = f"{target.folder}/{DESCRIPTION}"
    values = json.loads(made.file(name).read_bytes())
    for key in ("weights", "graphs", "kernels"):
        changed = add_files(made.path, {name: json.dumps(values | {key: "0" * 64}).encode()})
        with pytest.raises(BundleError, match=f"built from other {key}; run: convoy export"):
            find(changed, target)
    foreign = add_files(made.path, {name: json.dumps(values | {"gpu": "NVIDIA H200"}).encode()})
    with pytest.raises(BundleError, match="built for NVIDIA H200"):
        find(foreign, target)
    damages = {b"{": "not readable", b"[]": "must be a JSON object", b"{}": "description"}
    for content, message in damages.items():
        with pytest.raises(BundleError, match=f"{message}.*run: convoy export"):
            find(add_files(made.path, {name: content}), target)
    damaged = made.file(f"{target.folder}/step.engine")
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    with pytest.raises(BundleError, match="SHA-256"):
        open_bundle(made.path)


def test_an_engine_without_its_plugins_is_thrown_away_and_the_bundle_stays_as_it_was(exported):
    path, told, before = exported["plain"]
    assert "did not become a plugin" in told["error"]
    assert open_bundle(path).files() == before


def test_without_tensorrt_or_a_gpu_the_export_says_what_is_missing(bindings, bundle):
    with pytest.raises(ConfigError, match="no TensorRT"):
        build(bundle, LaneShape())
    with pytest.raises(ConfigError, match="int8 is for the CPU"):
        LaneShape("int8")
    script = (
        "from pathlib import Path; from engine.bundle.bundle import open_bundle;"
        "from export.graphs.tensorrt import *;"
        f"build(open_bundle(Path({str(bundle.path)!r})), LaneShape())"
    )
    found = in_bindings(bindings, ["-c", script])
    assert "there is none here" in found.stderr


def test_mypy_checks_our_builder_code_against_the_real_bindings(bindings, tmp_path):
    stubs = in_bindings(
        bindings,
        [
            "-c",
            "import sys; from mypy.stubgen import main; main(sys.argv[1:])",
            *("--inspect-mode", "-q", "-m", "tensorrt.tensorrt", "-o", str(tmp_path)),
        ],
    )
    assert stubs.returncode == 0, stubs.stderr
    stub = tmp_path / "tensorrt" / "tensorrt.pyi"
    # a default before a parameter without one, as one C++ signature has it, is no Python
    lines = stub.read_text().splitlines()
    late = re.compile(r" = \.\.\..*, \w+: [^=,]+\) ->")
    stub.write_text("\n".join(line.replace(" = ...", "") if late.search(line) else line for line in lines))
    (tmp_path / "tensorrt" / "__init__.pyi").write_text("from .tensorrt import *\n__version__: str\n")
    source = Path(__file__).parents[3] / "export" / "graphs" / "tensorrt.py"
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        source.read_text()
        .replace("trt.Logger.WARNING", "trt.BuilderFlag.FP16", 1)
        .replace("parser.parse_from_file(str(path))", "parser.parse_from_file(path)")
        .replace("builder.create_builder_config()", "builder.create_config()")
    )
    for path, errors in ((source, 0), (wrong, 3)):
        flags = ["--follow-imports=skip", "--ignore-missing-imports", "--config-file="]
        typed = [str(tmp_path / "tensorrt" / f"{n}.pyi") for n in ("__init__", "tensorrt")]
        command = [sys.executable, "-m", "mypy", *flags, f"--cache-dir={tmp_path}/c", str(path), *typed]
        environment = os.environ | {"MYPYPATH": str(tmp_path)}
        found = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        about = re.compile(rf"(.*/)?{path.name}:\d+: error: ")  # the stubs have faults of their own
        ours = [line for line in found.stdout.splitlines() if about.match(line)]
        assert len(ours) == errors, (ours, found.stderr)
        assert "tensorrt.pyi" in found.stdout, "the stubs were not read"


def convoy(*arguments: object) -> tuple[int, str, str]:
    from typer.testing import CliRunner

    from cli.main import table

    found = CliRunner().invoke(table, ["export", *map(str, arguments)])
    return found.exit_code, found.output, f"{type(found.exception).__name__}: {found.exception}"


SHIPPED = Path(__file__).parents[3] / "models" / "tatoeba-de-en"


def test_verifying_compares_with_torch_and_fails_past_the_tolerance(tmp_path, monkeypatch):
    shipped = shutil.copytree(SHIPPED, tmp_path / "shipped")
    sentences = tmp_path / "de.txt"
    sentences.write_text("Wo ist der Bahnhof?\nDas Wetter ist heute schön.\nIch habe keine Zeit.\n")
    flags = ("--precision", "fp16", "--verify", "--sentences", sentences, "--beams", 2)
    code, told, _ = convoy(shipped, *flags)
    assert code == 0
    assert "| onnx fp16 | 100.0% |" in told
    monkeypatch.setitem(TOLERANCES, "bf16", (0.6, 0.1))  # of three sentences
    code, told, _ = convoy(shipped, "--precision", "bf16", *flags[2:])
    assert code == 0
    assert "| onnx bf16 |" in told
    assert {f"onnx/step.{p}.onnx" for p in ("fp16", "bf16")} <= set(open_bundle(shipped).files())
    references = tmp_path / "en.txt"
    references.write_text("Where is the station?\nThe weather is nice today.\nI have no time.\n")
    assert convoy(shipped, *flags, "--references", references)[0] == 0
    monkeypatch.setitem(TOLERANCES, "fp16", (1.1, -1.0))
    code, told, _ = convoy(shipped, *flags, "--references", references)
    assert code == 1
    assert "past the tolerance" in told


def test_a_difference_of_bleu_is_told_beside_how_probable_it_is_by_chance():
    """Of three pairs that differ, all eight ways to swap them are as probable; so few prove nothing."""
    from sacrebleu.metrics.bleu import BLEU

    references = ["the cat sat on the mat", "it rains in the north today", "we like old books very much"] * 2
    better, worse = [f"{r} ." for r in references], [f"{r} ." for r in references[:3]]
    worse += ["a cat was on mats", "it rains now in the north", "we like the old books"]
    check, never = Check("onnx", "bf16", 1), Hypothesis([5], 0.0, [0.0, 0.0], "stop")
    found = [never] * len(references)

    def chance(mine, theirs):
        verdict = _verdict(check, (found, found), [mine, theirs], references)
        assert verdict.bleu == pytest.approx([bleu(mine), bleu(theirs)])
        return verdict.chance

    def bleu(texts):
        return BLEU().corpus_score(list(texts), [references]).score

    observed, extreme = bleu(better) - bleu(worse), 0
    for swaps in product((False, True), repeat=3):
        pairs = [(b, w) for b, w in zip(better, worse, strict=True)]
        for i, swap in enumerate(swaps, 3):
            pairs[i] = pairs[i][::-1] if swap else pairs[i]
        one, other = zip(*pairs, strict=True)
        extreme += abs(bleu(one) - bleu(other)) >= observed - 1e-9
    assert chance(better, worse) == pytest.approx(extreme / 8, abs=0.05)
    assert chance(better, better) == 1.0


@pytest.mark.parametrize("precision", ["fp32", "int8", "fp16"])
def test_standalone_graphs_need_nothing_but_their_own_two_files(tmp_path, precision):
    import onnxruntime as ort

    made = toy(tmp_path)
    out = tmp_path / "out"
    assert convoy(made.path, "--precision", precision, "--standalone", out)[0] == 0
    assert sorted(p.name for p in out.iterdir()) == [
        f"{part}.onnx{ending}" for part in ("encoder", "step") for ending in ("", ".data")
    ]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    encoder = ort.InferenceSession(out / "encoder.onnx", options, providers=["CPUExecutionProvider"])
    feeds = {"tokens": np.arange(4, 12)[None], "positions": np.arange(8), "real": np.ones((1, 8), np.float32)}
    found = encoder.run(["keys.0"], feeds)[0]
    with torch.no_grad():
        want = model("glu").encode(
            *(torch.from_numpy(feeds[name]) for name in ("tokens", "positions", "real"))
        )
    limit = {"fp32": 1e-5, "fp16": 0.02, "int8": 0.1}[precision]
    assert np.abs(found - want["keys.0"].numpy()).max() < limit
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "already exists" in convoy(made.path, "--precision", precision, "--standalone", out)[2]
    assert convoy(made.path, "--precision", precision, "--standalone", tmp_path / "again")[0] == 0
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (("--to", "tflite"), "InvalidRequest: can't export to 'tflite'; known are onnx, tensorrt"),
        (("--precision", "fp8"), "InvalidRequest: no 'fp8' of onnx"),
        (("--to", "tensorrt", "--precision", "int8"), "InvalidRequest: no 'int8' of tensorrt"),
        (("--to", "tensorrt"), "ConfigError: no TensorRT"),
        (("--precision", "int8", "--verify", "--device", "abacus"), "InvalidRequest: no device 'abacus'"),
    ],
)
def test_what_can_not_be_exported_is_refused_with_what_to_do_and_nothing_is_written(bundle, flags, remedy):
    before = {path: path.stat().st_mtime_ns for path in bundle.path.rglob("*")}
    assert convoy(bundle.path, *flags)[2].startswith(remedy)
    assert before == {path: path.stat().st_mtime_ns for path in bundle.path.rglob("*")}


def test_the_tensorrt_backend_asks_for_a_gpu_and_for_a_precision_that_it_has(bundle):
    lanes = ((2, 4),)
    with pytest.raises(ConfigError, match="take --device cuda"):
        open_executors(bundle, Placement("tensorrt", "cpu", "fp16", 1, lanes))
    with pytest.raises(ConfigError, match="computes in fp32, fp16, bf16 on cuda, not in int8"):
        open_executors(bundle, Placement("tensorrt", "cuda", "int8", 1, lanes))
    with pytest.raises(ConfigError, match="no TensorRT"):
        open_executors(bundle, Placement("tensorrt", "cuda", "fp16", 1, lanes))
