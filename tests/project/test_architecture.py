"""The plan of docs/architecture.md, by ast: who may import whom, how long things are, and their names."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from cli.main import COMMANDS
from tests.project.rooms import (
    PARTS,
    PICTURE,
    ROOMS,
    ROOT,
    arrows,
    floors,
    imports,
    module_of,
    picture,
    trees,
    within,
)

DOCS = sorted((ROOT / "docs").glob("*.md"))
FUNCTION_LINES = 60
FILE_LINES = 400
TORCH_SIDE = ("engine.kernels", "engine.models")  # importing them imports torch
# executors that serve without torch; every other one may import it
NUMPY_EXECUTORS = ("base", "cuda_errors", "history", "memory", "onnx", "onnx_numpy", "shortlists")
# package: prefixes of the modules that may import it, loadtest/ apart
HEAVY = {
    "torch": (*TORCH_SIDE, "engine.executors", "export", "training"),
    "onnxruntime": ("engine.executors.onnx", "engine.executors.onnx_numpy", "engine.executors.onnx_torch"),
    "onnx": ("export",),
    "tensorrt": (
        "export.graphs.tensorrt",
        "engine.kernels.trt_plugin",
        "engine.executors.tensorrt",
        "engine.executors.tensorrt_graphs",
    ),
    "fastapi": ("server",),
    "starlette": ("server",),
    "uvicorn": ("server",),
    "opentelemetry": ("server.tracing",),
    "ray": ("server.ray",),
    "limits": ("server.access", "server.quotas"),
    "httpx": ("convoy_client", "export.importers.mirror"),
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
# the front doors of engine/: what commands may import beside engine.api, and for what
DOORS = (
    "engine.api",
    "engine.errors",
    "engine.types",
    "engine.backends",
    "engine.bundle.bundle",  # what a bundle holds, more files for it
    "engine.bundle.shortlist",
    "engine.text.tokenizer",
    "engine.text.codes",  # how languages are written
    "engine.executors",  # `open_executors`
    "engine.executors.onnx",  # graphs that no bundle holds
    "engine.search.executor",  # the protocol of executors
    "engine.schedule.lane",  # decode without a service
)
# which folder may import which of our own modules
ALLOWED = {
    "documents": ("documents",),
    "server": ("server", "documents", "engine.api"),
    "export": (
        "export",
        *(
            f"engine.{name}"
            for name in ROOMS
            if name in ("errors", "types", "native", "bundle", "text", "kernels", "models")
        ),
    ),
    "training": ("training", "export", "engine"),
    "convoy_client": ("convoy_client",),
    "cli": ("cli", *DOORS, "documents", "server", "export", "training", "convoy_client"),
    "loadtest": PARTS,
}
# class names that two rooms may have, and why
SHARED_NAMES = {
    **dict.fromkeys(
        ("Alignment", "Detection", "Language", "Partial", "Timings", "Model", "Call"),
        "the client's: an island, whose names are those of the answers that it reads",
    ),
    "Settings": "of a tokenizer, of an import: in each room those it has",
}


def test_the_engine_has_the_rooms_that_the_plan_names():
    paths = [path for path in (ROOT / "engine").iterdir() if not path.name.startswith("__")]
    units = {path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert units == set(ROOMS)
    assert len(ROOMS) <= 14


def test_imports_between_rooms_point_down_lazy_ones_too():
    order = list(ROOMS)
    wrong = [
        f"{of} imports {to}"
        for of, into in arrows("engine").items()
        for to in into
        if to in order and order.index(to) > order.index(of)
    ]
    assert not wrong


def test_no_imports_form_a_circle_between_rooms_or_folders():
    floors(arrows(*PARTS))


def test_the_engine_has_at_most_nine_floors():
    height = floors(arrows("engine"))
    assert max(height[name] for name in ROOMS) < 9


@pytest.mark.parametrize("part", PARTS)
def test_no_modules_of_a_folder_import_each_other_in_a_circle(part):
    graph = {module: set() for module in trees(part)}
    for each in imports(part):
        if each.imported in graph and each.imported != each.module and not each.lazily:
            graph[each.module].add(each.imported)
    floors(graph)


def test_the_engine_knows_nothing_of_the_folders_beside_it():
    beside = tuple(name for name in PARTS if name != "engine")
    assert not [each for each in imports("engine") if within(each.imported, beside)]


def test_the_lane_knows_the_protocol_of_executors_and_none_of_them():
    of_lane = [each.imported for each in imports("engine") if each.module == "engine.schedule.lane"]
    assert of_lane
    assert not [name for name in of_lane if within(name, ("engine.executors", *TORCH_SIDE))]


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_each_folder_imports_only_what_the_plan_allows(part):
    own = [each for each in imports(part) if within(each.imported, PARTS)]
    allowed = [name for name in ALLOWED[part] if name != "engine.executors" or part != "cli"]
    wrong = [each for each in own if not within(each.imported, tuple(allowed))]
    assert not [each for each in wrong if (part, each.imported) != ("cli", "engine.executors")]


@pytest.mark.parametrize("package", sorted(HEAVY))
def test_a_heavy_package_is_imported_only_where_the_plan_says(package):
    wrong = [
        each
        for part in PARTS
        if part != "loadtest"
        for each in imports(part)
        if within(each.imported.removeprefix("array_api_compat."), (package,))
        and not within(each.module, HEAVY[package])
    ]
    assert not wrong


def test_only_the_torch_side_imports_the_torch_side():
    light = ("engine.executors", *(f"engine.executors.{name}" for name in NUMPY_EXECUTORS))
    heavy = ("torch", "array_api_compat.torch", *TORCH_SIDE)
    wrong = [
        each
        for part in ("engine", "server", "cli", "documents")
        for each in imports(part)
        if within(each.imported, heavy)
        and not within(each.module, TORCH_SIDE)
        and (each.module in light or not within(each.module, ("engine.executors",)))
        and not (each.module == "engine.executors" and each.lazily)
    ]
    assert not wrong


def test_nobody_imports_training_or_export_when_serving():
    wrong = [
        each
        for part in ("engine", "server", "cli")
        for each in imports(part)
        if within(each.imported, ("training", "export")) and not (part == "cli" and each.lazily)
    ]
    assert not wrong


def test_commands_import_heavy_modules_only_when_they_run():
    own = ("cli", "engine.errors", "engine.types", "engine.backends")
    light = (*sys.stdlib_module_names, *own, "typer", "tqdm")
    still = {("cli.foreign", "engine.bundle.bundle")}  # still to be put off
    eager = [each for each in imports("cli") if not each.lazily]
    commands = {f"cli.{name}" for name in COMMANDS} | {"cli.main"}
    # what commands import only when they run may itself import anything
    later = set(trees("cli")) - commands - {each.imported for each in eager} - {"cli"}
    wrong = [each for each in eager if each.module not in later and not within(each.imported, light)]
    assert not [each for each in wrong if (each.module, each.imported) not in still]


@pytest.mark.parametrize("module", ["server.app", "engine.api", "cli.main"])
def test_importing_what_serves_does_not_import_torch(module):
    code = f"import sys, {module}; print({{'torch', 'onnx', 'training', 'export'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_importing_the_engine_does_not_import_fastapi():
    code = "import sys, engine.api; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- sizes and names


@pytest.mark.parametrize("part", PARTS)
def test_functions_and_files_are_short(part):
    long = [
        f"{module}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for module, tree in trees(part).items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]
    for path in sorted((ROOT / part).rglob("*.py")):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > FILE_LINES:
            long.append(f"{path.relative_to(ROOT)}: {lines} lines")
    assert not long


def test_no_two_rooms_have_a_class_of_the_same_name():
    rooms = defaultdict(set)
    for part in PARTS:
        for module, tree in trees(part).items():
            inside = ".".join(module.split(".")[:2]) if part in ("engine", "export", "loadtest") else part
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    rooms[node.name].add(inside)
    shared = {name: sorted(where) for name, where in rooms.items() if len(where) > 1}
    assert not {name: where for name, where in shared.items() if name not in SHARED_NAMES}
    settled = sorted(set(SHARED_NAMES) - set(shared))
    assert not settled, f"{settled} are exceptions that nobody needs any more"


@pytest.mark.parametrize("part", PARTS)
def test_public_docstrings_begin_with_a_verb(part):
    """As pydocstyle's words have it; what is private may say what it is."""
    rule = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "D401"]
    done = subprocess.run([*rule, "--output-format", "json", part], cwd=ROOT, capture_output=True, text=True)
    nouns = {(module_of(Path(each["filename"])), each["location"]["row"]) for each in json.loads(done.stdout)}
    public = {
        (module, node.body[0].lineno): f"{module}.{node.name}"
        for module, tree in trees(part).items()
        for owner in ast.walk(tree)
        if isinstance(owner, ast.Module | ast.ClassDef) and not getattr(owner, "name", "").startswith("_")
        for node in owner.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    assert public
    assert not [public[place] for place in sorted(nouns & set(public))]


def parameters(node: ast.AST) -> list[str]:
    """Names that a function takes; of a class the fields that it is made of, else what `__init__` takes."""
    if isinstance(node, ast.ClassDef):
        fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
        inits = [each for each in node.body if getattr(each, "name", "") == "__init__"]
        return fields + [name for each in inits for name in parameters(each)]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = node.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


@pytest.mark.parametrize("part", PARTS)
def test_docstrings_have_parameters_one_a_line_in_the_order_of_the_signature(part):
    described, wrong = 0, []
    for module, tree in trees(part).items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            names, docstring = parameters(node), ast.get_docstring(node)
            if not names or docstring is None:
                continue
            marked = rf"`?({'|'.join(names)})`?(?:, \w+)*: "
            if re.search(f"[.;] {marked}", docstring):
                wrong.append(f"{module}.{node.name}: several in a line")
            lines = re.findall(f"^{marked}", docstring, re.MULTILINE)
            if lines != sorted(lines, key=names.index):
                wrong.append(f"{module}.{node.name}: in another order")
            described += len(lines)
    assert described
    assert not wrong


# --- docs


def test_the_picture_of_the_rooms_is_drawn_from_the_imports():
    assert PICTURE.read_text(encoding="utf-8") == picture(), "draw it anew: python -m tests.project.rooms"


def test_the_plan_has_a_line_for_every_room():
    plan = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in ROOMS:
        ending = "/" if (ROOT / "engine" / name).is_dir() else ".py"
        assert f"| `{name}{ending}` |" in plan, f"docs/architecture.md does not say what engine/{name} is for"


@pytest.mark.parametrize("name", [name for name in ROOMS if (ROOT / "engine" / name).is_dir()])
def test_a_room_says_what_each_of_its_files_is_for(name):
    folder = ROOT / "engine" / name
    docstring = ast.get_docstring(trees("engine")[f"engine.{name}"]) or ""
    files = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    said = {line.split()[0] for line in docstring.splitlines()[1:] if line.strip()}
    assert files <= said, f"engine/{name}/__init__.py does not list {sorted(files - said)}"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_what_a_page_names_of_the_tree_is_there(page):
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(rf"`((?:{'|'.join(PARTS)}|tests)/[\w./*-]+\.\w+)(?::\w+)?`", text))
    assert not [name for name in names if not list(ROOT.glob(name))]


def test_the_docs_for_readers_have_no_long_lines():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) < 160


def test_no_tracked_source_names_a_path_of_a_machine():
    marks = ["/" + name + "/" for name in ("work", "opt", "root")]
    wrong = [
        str(path.relative_to(ROOT))
        for part in (*PARTS, "tests", "docs")
        for path in (ROOT / part).rglob("*")
        if path.suffix in (".py", ".toml", ".md")
        and any(mark in path.read_text(encoding="utf-8") for mark in marks)
    ]
    assert not wrong


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in DOCS)])
def test_links_of_the_documentation_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [t for t in targets if "://" not in t and not (ROOT / page).parent.joinpath(t).exists()]
    assert not missing


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_the_plan_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {name.partition(":")[0] for name in re.findall(r"`([\w/.]+/[\w/.]*\.(?:py|md)(?::\w+)?)`", text)}
    missing = [n for n in sorted(named) if "x" not in n.split("/")[-1].split(".") and "/x/" not in n]
    assert not [n for n in missing if not (ROOT / n).exists() and not (ROOT / "engine" / n).exists()]


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert not [page.name for page in DOCS if f"({page.name})" not in index and page.name != "README.md"]
