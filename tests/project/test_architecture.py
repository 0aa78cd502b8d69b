"""The code follows docs/architecture.md: allowed imports, floors, rooms, and names on the pages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict

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
    picture,
    trees,
    within,
)

DOCS = sorted((ROOT / "docs").glob("*.md"))
# importing these imports torch
TORCH_SIDE = ("engine.kernels", "engine.models")
# executors that serve without torch; the others may import it
NUMPY_EXECUTORS = (
    *("base", "history", "memory", "shortlists", "cuda", "device_errors", "onnx", "onnx.executor"),
    *("onnx.graph_metadata", "onnx.in_place", "onnx.native_step", "onnx.sessions", "tensorrt", "torch"),
)
# prefixes of the modules that may import a package, by package; loadtest/ may import all
HEAVY = {
    "torch": (*TORCH_SIDE, "engine.executors", "export", "training"),
    "onnxruntime": ("engine.executors.onnx",),
    "onnx": ("export",),
    "tensorrt": (
        "export.graphs.tensorrt",
        "engine.kernels.trt_plugin",
        "engine.executors.tensorrt",
    ),
    "fastapi": ("server",),
    "starlette": ("server",),
    "uvicorn": ("server",),
    "opentelemetry": ("server.observing.tracing",),
    "ray": ("server.ray", "corpus"),
    "pyarrow": ("corpus",),
    "fsspec": ("corpus",),
    "mcp": ("server.contracts.mcp",),
    "grpc": ("server.grpc",),
    "google": ("server.grpc",),
    "limits": ("server.callers.access", "server.callers.quotas"),
    "httpx": ("convoy_client", "export.fetching.web", "engine.repository.upstreams.client"),
    "huggingface_hub": ("export.fetching.hugging_face",),
    "docx": ("documents",),
    "lxml": ("documents",),
    "markdown_it": ("documents",),
    "polib": ("documents",),
    "pypdf": ("documents",),
    "pydantic": ("server", "cli.serve"),
    "pydantic_settings": ("server",),
    "prometheus_client": ("server", "corpus"),
    "typer": ("cli",),
    "sacrebleu": ("cli", "training"),
    "rouge_score": ("cli", "training"),
    "pickle": (),
    "marshal": (),
}
# modules of engine/ that commands may import, and what for
DOORS = (
    "engine.api",
    "engine.errors",
    "engine.types",
    "engine.backends",
    "engine.answers.options",
    "engine.bundle.bundle",  # reading a bundle, adding files to it
    "engine.bundle.folder",  # atomic writing of folders
    "engine.bundle.manifest",  # names of the files of a bundle
    "engine.bundle.shortlist",
    "engine.text.tokenizers.tokenizer",
    "engine.text.codes",  # language codes
    "engine.text.known_words",  # words of the training data
    "engine.text.words",  # names and fixed phrases of a bundle
    "engine.executors",  # `open_executors`
    "engine.executors.onnx",  # graphs that no bundle holds
    "engine.search.executor",  # the protocol of executors
    "engine.schedule.lane",  # decoding without a service
)
# modules of ours that each folder may import
ALLOWED = {
    "documents": ("documents",),
    "corpus": ("corpus", "engine.api"),
    "server": ("server", "documents", "engine.api"),
    "export": (
        "export",
        "engine.api",
        *(
            f"engine.{name}"
            for name in ROOMS
            if name in ("errors", "types", "native", "bundle", "text", "kernels", "models")
        ),
    ),
    "training": ("training", "export", "engine"),
    "convoy_client": ("convoy_client",),
    "cli": ("cli", *DOORS, "documents", "corpus", "server", "export", "training", "convoy_client"),
    "loadtest": PARTS,
}


def _is_folder(module):
    return module != "engine" and ROOT.joinpath(*module.split("."), "__init__.py").exists()


def test_the_engine_has_the_rooms_that_the_plan_names():
    paths = [path for path in (ROOT / "engine").iterdir() if not path.name.startswith("__")]
    units = {path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert units == set(ROOMS)
    assert len(ROOMS) <= 14


def test_imports_between_rooms_point_down():
    order = list(ROOMS)
    wrong = [
        f"{of} imports {to}"
        for of, into in arrows("engine").items()
        for to in into
        if to in order and order.index(to) > order.index(of)
    ]
    assert not wrong


def test_imports_form_no_cycle_between_rooms():
    floors(arrows(*PARTS))


def test_the_engine_has_at_most_nine_floors():
    height = floors(arrows("engine"))
    assert max(height[name] for name in ROOMS) < 9


@pytest.mark.parametrize("part", PARTS)
def test_imports_form_no_cycle_within_a_folder(part):
    """Check the modules of the whole folder, and those of each inner folder; lazy imports too."""
    own = [each for each in imports(part) if within(each.imported, (part,))]
    folders = {module.rpartition(".")[0] for module in trees(part)} - {""}
    for prefix in (*sorted(folders), None):
        graph = defaultdict(set)
        for each in own:
            of, to = (_place(name, prefix) for name in (each.module, each.imported))
            if of and to and of != to:
                graph[of].add(to)
        floors({name: graph[name] for name in {*graph, *set().union(*graph.values())}})


def _place(module, folder):
    """Return the file or folder of `folder` that contains a module; without a folder, the module itself."""
    if folder is None:
        return module
    inner = module.removeprefix(folder + ".")
    return inner.partition(".")[0] if inner != module else "__init__" if module == folder else ""


def test_the_engine_imports_no_other_folder_except_formats_of_documents():
    beside = tuple(name for name in PARTS if name != "engine")
    known = {each for each in imports("engine") if within(each.imported, beside)}
    # formats in plain text are projected like formats in files
    formats = {"documents.projection", "documents.spans"}
    assert {each.module for each in known} == {"engine.answers.formats"}
    assert {each.imported for each in known} == formats


def test_the_lane_imports_the_protocol_of_executors_and_no_executor():
    of_lane = [each.imported for each in imports("engine") if each.module == "engine.schedule.lane"]
    assert of_lane
    assert not [name for name in of_lane if within(name, ("engine.executors", *TORCH_SIDE))]


def test_the_page_names_all_methods_of_an_executor():
    plan = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    protocol = next(
        node
        for node in trees("engine")["engine.search.executor"].body
        if isinstance(node, ast.ClassDef) and node.name == "Executor"
    )
    offered = {node.name for node in protocol.body if isinstance(node, ast.FunctionDef)}
    (sentence,) = re.findall(r"An \*\*executor\*\* .*offers (.*?)\. ", plan)
    assert offered == {*re.findall(r"`(\w+)`", sentence), "stepper"}
    assert "Its **stepper**" in plan


def test_only_the_two_named_modules_have_hidden_state():
    """No `global`, no thread and no context variable at module level, except the two in CONTRIBUTING.md."""
    rules = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## How to add")[0]
    hidden = {"engine/schedule/slices.py", "server/observing/context.py"}
    assert all(f"`{path}`" in rules for path in hidden)
    wrong = set()
    for part in PARTS:
        for module, tree in trees(part).items():
            path = module.replace(".", "/") + ".py"
            calls = {
                ast.unparse(node.func).rpartition(".")[2]
                for each in tree.body
                if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None
                for node in ast.walk(each.value)
                if isinstance(node, ast.Call)
            }
            if any(isinstance(node, ast.Global) for node in ast.walk(tree)):
                wrong.add(path)
            if any(
                name.strip("_").endswith(("ContextVar", "Thread", "ThreadPoolExecutor")) for name in calls
            ):
                wrong.add(path)
    assert wrong == hidden


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_each_folder_imports_only_allowed_modules(part):
    own = [each for each in imports(part) if within(each.imported, PARTS)]
    allowed = [name for name in ALLOWED[part] if name != "engine.executors" or part != "cli"]
    wrong = [each for each in own if not within(each.imported, tuple(allowed))]
    assert not [each for each in wrong if (part, each.imported) != ("cli", "engine.executors")]


@pytest.mark.parametrize("package", sorted(HEAVY))
def test_a_heavy_package_is_imported_only_by_allowed_modules(package):
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


def test_serving_imports_neither_training_nor_export():
    wrong = [
        each
        for part in ("engine", "server", "cli")
        for each in imports(part)
        if within(each.imported, ("training", "export")) and not (part == "cli" and each.lazily)
    ]
    assert not wrong


def test_commands_import_heavy_modules_only_when_they_run():
    own = ("cli", "engine.errors", "engine.types", "engine.backends", "engine.answers.options")
    light = (*sys.stdlib_module_names, *own, "typer", "tqdm")
    still = {("cli.foreign", "engine.bundle.manifest")}
    eager = [each for each in imports("cli") if not each.lazily]
    commands = {f"cli.{name}" for name in COMMANDS} | {"cli.main"}
    # modules that commands import when they run may import anything
    later = set(trees("cli")) - commands - {each.imported for each in eager} - {"cli"}
    wrong = [each for each in eager if each.module not in later and not within(each.imported, light)]
    assert not [each for each in wrong if (each.module, each.imported) not in still]


@pytest.mark.parametrize("module", ["server.app", "engine.api", "cli.main"])
def test_importing_a_serving_module_does_not_import_torch(module):
    code = f"import sys, {module}; print({{'torch', 'onnx', 'training', 'export'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_importing_the_engine_does_not_import_fastapi():
    code = "import sys, engine.api; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- docs


def test_the_picture_of_the_rooms_is_drawn_from_the_imports():
    assert PICTURE.read_text(encoding="utf-8") == picture(), "run: python -m tests.project.rooms"


def test_the_page_has_a_line_for_every_room():
    plan = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in ROOMS:
        ending = "/" if (ROOT / "engine" / name).is_dir() else ".py"
        assert f"| `{name}{ending}` |" in plan, f"docs/architecture.md has no row for engine/{name}"


ROOM_TREES = {
    **trees("engine"),
    **{n: t for n, t in trees("export").items() if within(n, ("export.importers",))},
}


@pytest.mark.parametrize("package", sorted(name for name in ROOM_TREES if _is_folder(name)))
def test_the_docstring_of_a_room_lists_its_files_and_folders(package):
    docstring = ast.get_docstring(ROOM_TREES[package]) or ""
    files = {name.removeprefix(package + ".") for name in ROOM_TREES if name.startswith(package + ".")}
    said = {line.split()[0] for line in docstring.splitlines()[1:] if line.strip()}
    lacking = sorted(name for name in files if "." not in name and name not in said)
    assert not lacking, f"the docstring of {package} does not list them"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(rf"`((?:{'|'.join(PARTS)}|tests)/[\w./*-]+\.\w+)(?::\w+)?`", text))
    assert not [name for name in names if not list(ROOT.glob(name))]


def test_the_page_has_no_long_lines():
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


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_a_recipe_or_the_plan_names_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {name.partition(":")[0] for name in re.findall(r"`([\w/.]+/[\w/.]*\.(?:py|md)(?::\w+)?)`", text)}
    missing = [n for n in sorted(named) if "x" not in n.split("/")[-1].split(".") and "/x/" not in n]
    assert not [n for n in missing if not (ROOT / n).exists() and not (ROOT / "engine" / n).exists()]


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert not [page.name for page in DOCS if f"({page.name})" not in index and page.name != "README.md"]
