"""Plugins, builder code and engines for TensorRT, tested without its libraries.

docs/tensorrt.md lists the parts that have been run on a GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.backends import Placement
from engine.bundle import engines
from engine.bundle.bundle import add_files, open_bundle
from engine.bundle.engines import DESCRIPTION, Target, find
from engine.errors import BundleError, ConfigError
from engine.executors import open_executors
from engine.kernels.launches import Call, Kernel
from engine.kernels.reference import dynamic_conv, dynamic_conv_step
from export.graphs.tensorrt import LaneShape, build
from tests.support.cuda_kernels import parameters
from tests.support.host_kernels import COMPILER
from tests.support.toy import toy

STUBS = Path(__file__).parents[3].parent / "shared" / "tensorrt-stubs"


VERSION = "11.4.0.106"


WHEELS = f"tensorrt_cu13_bindings=={VERSION}", f"tensorrt_lean_cu13_libs=={VERSION}"


@pytest.fixture(scope="session")
def bindings(request, tmp_path_factory):
    """Return a folder with NVIDIA's Python bindings, its lean runtime, and stand-ins for the other libraries.
    They are downloaded at test time, because their licence does not allow copies in the repository."""
    if not STUBS.is_dir() or COMPILER is None:
        pytest.skip("no stand-ins for TensorRT's libraries (../shared/tensorrt-stubs), or no compiler")
    folder, wheels = tmp_path_factory.mktemp("trt"), request.config.cache.mkdir("tensorrt")
    if len(list(wheels.glob("*.whl"))) < len(WHEELS):
        fresh = tmp_path_factory.mktemp("wheels")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run([*command, "-d", str(fresh), *WHEELS], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no wheels of TensorRT's bindings: {done.stderr.strip()[-200:]}")
        for wheel in fresh.glob("*.whl"):  # replaced atomically, for other test processes
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
    """Run tests/support/trt_probe.py with the bindings, and return its result for each order."""
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


def test_plugins_launch_kernels_that_equal_torch_through_the_real_bindings(bindings, host, compiled_kernels):
    """The launch that each plugin describes is run on the CPU."""
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


GPU = "NVIDIA Imagined 9000"


def order(bundle, **changes: object) -> dict[str, Any]:
    lane = {"precision": "fp16", "beams": 3, "slots": 9}
    base = {"bundle": str(bundle.path), "gpu": GPU, "lose": False, "lane": lane}
    return base | {"timings": str(bundle.path.parent / "timings")} | changes


ANSWERED = {"glu": ("fp16", 3, 9), "transformer": ("fp32", 3, 4), "aan": ("fp16", 3, 4)}


@pytest.fixture(scope="session")
def exported(bindings, tmp_path_factory):
    """Return by model: path of a bundle with fake engines, result of the export, files before the export. The
    model "plain" loses its plugins."""
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
    """Return results of steps and requests with fake engines, by model; all captures of "refused" fail."""
    about = {"gpu": GPU, "refuse": False}
    orders = [
        about | {"bundle": str(exported[name][0]), "target": target, "config": name}
        for name, target in ANSWERED.items()
    ]
    told = probe(bindings, "run", [*orders, orders[0] | {"refuse": True}])
    return dict(zip((*ANSWERED, "refused"), told, strict=True))


def test_export_matches_names_types_and_order_of_the_real_builder(built):
    path, told = built
    # the second part reads the first's timings; both are built on the device that runs them
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
def test_engines_in_captured_steps_answer_like_torch(answers, name):
    """Fake engines compute with ONNX Runtime, at the addresses and shapes that the executor sets."""
    told, (precision, _, _) = answers[name], ANSWERED[name]
    assert told["worst"] < (1e-4 if precision == "fp32" else 0.1)
    assert told["equal"] >= (1.0 if precision == "fp32" else 0.6)
    assert told["captured"] >= 4
    assert told["replayed"] >= 8
    assert told["devices"] == ["cuda:1"] * 2  # encoder and step are read on their device
    narrow = precision == "fp16" and name != "aan"  # sums are held in fp32
    assert told["dtype"] == ("torch.float16" if narrow else "torch.float32")


def test_steps_are_launched_with_a_warning_if_captures_fail(answers):
    told = answers["refused"]
    assert told["worst"] < 0.1
    assert told["equal"] >= 0.6
    assert (told["captured"], told["replayed"]) == (0, 0)
    assert told["warnings"] >= 1


@pytest.mark.parametrize("source", engines.SOURCES)
def test_fingerprint_of_an_engine_covers_all_its_sources(source, tmp_path, monkeypatch):
    """A change of any file that launches, compiles or exports kernels changes the fingerprint."""
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


def test_engine_of_other_weights_graphs_or_kernels_is_refused(built, tmp_path):
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


def test_engine_without_its_plugins_is_discarded_and_the_bundle_unchanged(exported):
    path, told, before = exported["plain"]
    assert "did not become a plugin" in told["error"]
    assert open_bundle(path).files() == before


def test_export_error_names_missing_tensorrt_or_gpu(bindings, bundle):
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


def test_builder_code_type_checks_against_the_real_bindings(bindings, tmp_path):
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


def test_tensorrt_backend_requires_a_gpu_and_a_supported_precision(bundle):
    lanes = ((2, 4),)
    with pytest.raises(ConfigError, match="take --device cuda"):
        open_executors(bundle, Placement("tensorrt", "cpu", "fp16", 1, lanes))
    with pytest.raises(ConfigError, match="computes in fp32, fp16, bf16 on cuda, not in int8"):
        open_executors(bundle, Placement("tensorrt", "cuda", "int8", 1, lanes))
    with pytest.raises(ConfigError, match="no TensorRT"):
        open_executors(bundle, Placement("tensorrt", "cuda", "fp16", 1, lanes))
