"""The floors of docs/architecture.md, by ast: who may import whom, and which heavy package where."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OWN = ("engine", "documents", "server", "export", "cli", "training", "convoy_client")

# lowest first; a unit may import those before it (and itself, when it is a package)
ORDER = (
    "engine.errors",
    "engine.backends",
    "engine.types",
    "engine.specs",
    "engine.stacks",
    "engine.config",
    "engine.presets",
    "engine.folder",
    "engine.bundle",
    "engine.compiled",
    "engine.text",
    "engine.tables",
    "engine.shortlist",
    "engine.executor",
    "engine.filters",
    "engine.penalties",
    "engine.slots",
    "engine.diverse",
    "engine.search",
    "engine.ended",
    "engine.stepper",
    "engine.progress",
    "engine.kernels",
    "engine.native",
    "engine.initializers",
    "engine.models",
    "engine.executors",
    "engine.lane",
    "engine.queue",
    "engine.pace",
    "engine.engine",
    "engine.aio",
    "engine.plan",
    "engine.trust",
    "engine.directions",
    "engine.compose",
    "engine.drafts",
    "engine.stream",
    "engine.chain",
    "engine.answer",
    "engine.score",
    "engine.loading",
    "engine.canary",
    "engine.budget",
    "engine.shelf",
    "engine.api",
)
TORCH_SIDE = ("engine.kernels", "engine.models")  # importing them imports torch
TORCH_EXECUTORS = tuple(
    f"engine.executors.{name}" for name in ("torch", "cuda_graph", "streams", "tensorrt", "trt_run", "bound")
)

# package: prefixes of the modules that may import it
HEAVY = {
    "torch": (*TORCH_SIDE, *TORCH_EXECUTORS, "export", "training"),
    "onnxruntime": ("engine.executors.onnx", "engine.executors.held", "engine.executors.bound"),
    "onnx": ("export",),
    "tensorrt": (
        "export.tensorrt",
        "engine.kernels.trt_plugin",
        "engine.executors.tensorrt",
        "engine.executors.trt_run",
    ),
    "fastapi": ("server",),
    "starlette": ("server",),
    "uvicorn": ("server",),
    "opentelemetry": ("server.tracing",),
    "ray": ("server.ray",),
    "limits": ("server.access", "server.quotas"),
    "httpx": ("convoy_client",),
    "docx": ("documents",),
    "lxml": ("documents",),
    "markdown_it": ("documents",),
    "srt": ("documents",),
    "pydantic": ("server", "cli.serve"),
    "pydantic_settings": ("server",),
    "prometheus_client": ("server",),
    "typer": ("cli",),
    "sacrebleu": ("cli", "training"),
    "rouge_score": ("cli", "training"),
    "pickle": (),
    "marshal": (),
}
# which part of the house may import which of our own modules
ALLOWED = {
    "documents": ("documents",),
    "server": ("server", "documents", "engine.api"),
    "export": (
        "export",
        "engine.errors",
        "engine.types",
        "engine.specs",
        "engine.stacks",
        "engine.config",
        "engine.presets",
        "engine.folder",
        "engine.bundle",
        "engine.compiled",
        "engine.text",
        "engine.shortlist",
        "engine.tables",
        "engine.native",
        "engine.initializers",
        "engine.kernels",
        "engine.models",
    ),
    "training": ("training", "export", "engine"),
    "convoy_client": ("convoy_client",),
    "cli": ("cli", "engine", "documents", "server", "export", "training", "convoy_client"),
}


def test_the_order_of_the_floors_names_every_module_of_the_engine():
    units = {f"engine.{p.stem}" for p in (ROOT / "engine").iterdir() if p.suffix == ".py"}
    units |= {f"engine.{p.name}" for p in (ROOT / "engine").iterdir() if (p / "__init__.py").exists()}
    assert units - {"engine.__init__"} == set(ORDER)


def test_the_plan_names_every_module_of_the_engine():
    plan = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for unit in ORDER:
        name = unit.removeprefix("engine.")
        ending = "/" if (ROOT / "engine" / name).is_dir() else ".py"
        assert f"{name}{ending}" in plan, f"docs/architecture.md does not say what engine/{name} is for"


def test_imports_inside_the_engine_point_down():
    wrong = []
    for module, imported, _ in _imports("engine"):
        if module == "engine" or not _within(imported, ("engine",)):
            continue
        own, other = _unit(module), _unit(imported)
        if other != own and ORDER.index(other) > ORDER.index(own):
            wrong.append(f"{module} imports {imported}")
    assert not wrong


def test_the_engine_knows_nothing_of_the_rooms_above_it():
    above = tuple(name for name in OWN if name != "engine")
    assert not [f"{m} imports {i}" for m, i, _ in _imports("engine") if _within(i, above)]


def test_the_lane_knows_the_protocol_of_executors_and_none_of_them():
    found = [i for m, i, _ in _imports("engine") if m == "engine.lane"]
    assert found
    assert not [i for i in found if _within(i, ("engine.executors", *TORCH_SIDE))]


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_each_part_imports_only_what_the_plan_allows(part):
    own = [(m, i) for m, i, _ in _imports(part) if _within(i, OWN)]
    assert not [f"{m} imports {i}" for m, i in own if not _within(i, ALLOWED[part])]


@pytest.mark.parametrize("package", sorted(HEAVY))
def test_a_heavy_package_is_imported_only_where_the_plan_says(package):
    found = [(m, i) for part in OWN for m, i, _ in _imports(part)]
    wrong = [
        m for m, i in found if _within(_without_compat(i), (package,)) and not _within(m, HEAVY[package])
    ]
    assert not wrong


def test_only_the_torch_side_imports_the_torch_side():
    may = (*TORCH_SIDE, "engine.executors.torch", "engine.executors.cuda_graph", "export", "training")
    wrong = [
        f"{m} imports {i}"
        for part in OWN
        for m, i, lazily in _imports(part)
        if _within(i, TORCH_SIDE) and not _within(m, may) and not (m == "engine.executors" and lazily)
    ]
    assert not wrong


def test_nobody_imports_training_or_export_when_serving():
    wrong = [
        f"{m} imports {i}"
        for part in ("engine", "server", "cli")
        for m, i, lazily in _imports(part)
        if _within(i, ("training", "export")) and not (part == "cli" and lazily)
    ]
    assert not wrong


def test_commands_import_heavy_modules_only_when_they_run():
    own = ("cli", "engine.errors", "engine.types", "engine.backends")
    light = (*sys.stdlib_module_names, *own, "typer", "tqdm")
    eager = [(m, i) for m, i, lazily in _imports("cli") if not lazily and m != "cli.measure"]
    assert not [f"{m} imports {i}" for m, i in eager if not _within(i, light) or i == "cli.measure"]


@pytest.mark.parametrize("module", ["server.app", "engine.api", "cli.main"])
def test_importing_what_serves_does_not_import_torch(module):
    code = f"import sys, {module}; print({{'torch', 'onnx', 'training', 'export'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_importing_the_engine_does_not_import_fastapi():
    code = "import sys, engine.api; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_no_tracked_source_names_a_path_of_a_machine():
    marks = ["/" + name + "/" for name in ("work", "opt", "root")]
    wrong = [
        str(path.relative_to(ROOT))
        for part in (*OWN, "tests", "docs")
        for path in (ROOT / part).rglob("*")
        if path.suffix in (".py", ".toml", ".md")
        and any(mark in path.read_text(encoding="utf-8") for mark in marks)
    ]
    assert not wrong


def _imports(part: str) -> Iterator[tuple[str, str, bool]]:
    """Every import of a part as (module, imported, lazily: in a function, or for type checkers only)."""
    paths = sorted((ROOT / part).rglob("*.py"))
    assert paths
    for path in paths:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner = {
            id(node)
            for outer in ast.walk(tree)
            if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef))
            or (isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING")
            for node in ast.walk(outer)
        }
        for node in ast.walk(tree):
            for imported in _names(node, module):
                yield module, imported, id(node) in inner


def _names(node: ast.AST, module: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module}: write imports in full"
        origin = str(node.module)
        # `from engine import lane` imports the module engine.lane
        names = [f"{origin}.{a.name}" for a in node.names]
        return [n if _is_module(n) else origin for n in names]
    return []


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def _without_compat(module: str) -> str:
    return module.removeprefix("array_api_compat.")


def _unit(module: str) -> str:
    return ".".join(module.split(".")[:2])
