"""Rules of CONTRIBUTING.md that a program can check: sizes, names and docstrings."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import engine.api
from cli.main import COMMANDS
from tests.project.rooms import PARTS, ROOT, module_of, trees

FUNCTION_LINES: Final = 60
FILE_LINES: Final = 400
PARAMETERS: Final = 6
BRANCHES: Final = 15
# functions of the whole source with more branches
BRANCHING_FUNCTIONS: Final = 15
FOLDER_MODULES: Final = 17
# folders with a file for each command
UNBOUNDED_FOLDERS: Final = ("cli",)
# names of constants without a subject and a unit
BARE_NAMES: Final = frozenset(
    (
        *("LONGEST", "MOST", "NAMES", "SIZES", "PATIENCE", "SIZE", "LENGTH", "COUNT"),
        *("LIMIT", "MAX", "MIN", "LARGEST", "SMALLEST", "STALE"),
    )
)
# class names that two rooms may share, with the reason
SHARED_NAMES: Final = dict.fromkeys(
    ("Alignment", "Detection", "Language", "Partial", "Timings", "Model"),
    "the client names its classes after the answers of a server",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(part: str) -> Iterator[tuple[str, Function]]:
    """Yield every function of a folder with its module, including methods and inner functions."""
    for module, tree in trees(part).items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield module, node


def public_functions(part: str) -> Iterator[tuple[str, Function]]:
    """Yield functions and methods whose names, and classes, have no leading underscore."""
    for module, tree in trees(part).items():
        owners = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
        for owner in owners:
            if getattr(owner, "name", "").startswith("_"):
                continue
            for node in owner.body:
                if isinstance(node, Function) and not node.name.startswith("_"):
                    yield module, node


def parameters(node: ast.AST) -> list[str]:
    """Return the parameters of a function; for a class its fields and the parameters of `__init__`."""
    if isinstance(node, ast.ClassDef):
        fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
        inits = [each for each in node.body if getattr(each, "name", "") == "__init__"]
        return fields + [name for each in inits for name in parameters(each)]
    assert isinstance(node, Function)
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def is_shown_to_users(module: str, node: Function) -> bool:
    """Return whether a docstring is shown to users: of a route, or of a command."""
    verbs = ("get", "post", "put", "delete", "patch")
    routes = [
        name
        for call in node.decorator_list
        if isinstance(call, ast.Call)
        for name in (call.func, *call.args)
        if isinstance(name, ast.Attribute) and name.attr in verbs
    ]
    return bool(routes) or is_command(module, node)


def is_command(module: str, node: Function) -> bool:
    name = module.rpartition(".")[2]
    return module.startswith("cli.") and (
        node.name in (name, *COMMANDS) or "typer." in ast.unparse(node.args)
    )


def branches(node: ast.AST) -> int:
    """Return McCabe's complexity, counting `and`, `or`, conditions of comprehensions and `assert`."""
    count = 1
    for each in ast.walk(node):
        if isinstance(each, ast.BoolOp):
            count += len(each.values) - 1
        elif isinstance(each, ast.comprehension):
            count += 1 + len(each.ifs)
        elif isinstance(
            each,
            ast.If
            | ast.IfExp
            | ast.For
            | ast.AsyncFor
            | ast.While
            | ast.ExceptHandler
            | ast.Assert
            | ast.match_case,
        ):
            count += 1
    return count


# --- sizes


@pytest.mark.parametrize("part", PARTS)
def test_functions_and_files_are_short(part):
    long = [
        f"{module}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for module, node in functions(part)
        if node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]
    for path in sorted((ROOT / part).rglob("*.py")):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > FILE_LINES:
            long.append(f"{path.relative_to(ROOT)}: {lines} lines")
    assert not long


def test_a_folder_has_few_modules():
    modules = Counter(
        str(path.parent.relative_to(ROOT))
        for part in PARTS
        for path in (ROOT / part).rglob("*.py")
        if path.name != "__init__.py"
    )
    crowded = {folder: count for folder, count in modules.items() if count > FOLDER_MODULES}
    assert set(crowded) <= set(UNBOUNDED_FOLDERS), crowded


def test_functions_except_commands_have_few_parameters():
    many = [
        f"{module}.{node.name}: {', '.join(parameters(node))}"
        for part in PARTS
        for module, node in functions(part)
        if len(parameters(node)) > PARAMETERS and not is_command(module, node)
    ]
    assert not many


def test_few_functions_have_many_branches():
    branching = {
        f"{module}.{node.name}": branches(node)
        for part in PARTS
        for module, node in functions(part)
        if branches(node) > BRANCHES
    }
    assert len(branching) <= BRANCHING_FUNCTIONS, branching


# --- names


def test_no_two_rooms_have_a_class_of_the_same_name():
    modules = defaultdict(set)
    for part in PARTS:
        for module, tree in trees(part).items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    modules[node.name].add(module)
    shared = {name: sorted(where) for name, where in modules.items() if len(where) > 1}
    assert not {name: where for name, where in shared.items() if name not in SHARED_NAMES}
    settled = sorted(set(SHARED_NAMES) - set(shared))
    assert not settled, f"remove {settled} from the exceptions"


def test_the_name_of_a_constant_has_a_subject():
    bare = [
        f"{module}.{target.id}"
        for part in PARTS
        for module, tree in trees(part).items()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id.lstrip("_") in BARE_NAMES
    ]
    assert not bare


# --- docstrings


@pytest.mark.parametrize("part", PARTS)
def test_public_docstrings_begin_with_a_verb(part):
    """Use the word list of pydocstyle; private functions are exempt."""
    rule = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "D401"]
    done = subprocess.run([*rule, "--output-format", "json", part], cwd=ROOT, capture_output=True, text=True)
    nouns = {(module_of(Path(each["filename"])), each["location"]["row"]) for each in json.loads(done.stdout)}
    public = {
        (module, node.body[0].lineno): f"{module}.{node.name}" for module, node in public_functions(part)
    }
    assert public
    assert not [public[place] for place in sorted(nouns & set(public))]


@pytest.mark.parametrize("part", PARTS)
def test_docstrings_have_parameters_one_a_line_in_the_order_of_the_signature(part):
    described, wrong = 0, []
    for module, tree in trees(part).items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef | Function):
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


@pytest.mark.parametrize("part", PARTS)
def test_public_docstrings_name_all_of_more_than_two_parameters(part):
    wanting = []
    for module, node in public_functions(part):
        docstring, names = ast.get_docstring(node), parameters(node)
        if docstring is None or len(names) < 3 or is_shown_to_users(module, node):
            continue
        lines = re.findall(r"^`?(\w+(?:, \w+)*)`?: ", docstring, re.MULTILINE)
        described = {name for line in lines for name in line.split(", ")}
        if missing := [name for name in names if name not in described]:
            wanting.append(f"{module}.{node.name}: {', '.join(missing)}")
    assert not wanting


# --- other rules


def test_no_function_assigns_a_global():
    wrong = [
        f"{module}:{node.lineno}"
        for part in PARTS
        for module, tree in trees(part).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Global)
    ]
    assert not wrong


def test_ruff_formats_no_file():
    command = [sys.executable, "-m", "ruff", "format", "--check", "."]
    assert subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


def test_all_names_of_the_api_exist():
    names: dict[str, object] = {}
    exec("from engine.api import *", names)
    assert set(engine.api.__all__) <= set(names)
