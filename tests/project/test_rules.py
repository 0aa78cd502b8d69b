"""The house rules of CONTRIBUTING.md that a program can check: sizes, names and docstrings."""

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
# functions with more branches than that, in the whole house
BRANCHING_FUNCTIONS: Final = 15
FOLDER_MODULES: Final = 17
# a file for each command
UNBOUNDED_FOLDERS: Final = ("cli",)
# what a constant may not be called alone: of what, and in which unit, does not stand in the name
BARE_NAMES: Final = frozenset(
    (
        *("LONGEST", "MOST", "NAMES", "SIZES", "PATIENCE", "SIZE", "LENGTH", "COUNT"),
        *("LIMIT", "MAX", "MIN", "LARGEST", "SMALLEST", "STALE"),
    )
)
# class names that two rooms may have, and why
SHARED_NAMES: Final = dict.fromkeys(
    ("Alignment", "Detection", "Language", "Partial", "Timings", "Model"),
    "the client's: an island, whose names are those of the answers that it reads",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(part: str) -> Iterator[tuple[str, Function]]:
    """Every function of a folder with its module, methods and inner ones too."""
    for module, tree in trees(part).items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield module, node


def public_functions(part: str) -> Iterator[tuple[str, Function]]:
    """What other modules may call: functions of modules and methods of classes that have no underscore."""
    for module, tree in trees(part).items():
        owners = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
        for owner in owners:
            if getattr(owner, "name", "").startswith("_"):
                continue
            for node in owner.body:
                if isinstance(node, Function) and not node.name.startswith("_"):
                    yield module, node


def parameters(node: ast.AST) -> list[str]:
    """Names that a function takes; of a class the fields that it is made of, else what `__init__` takes."""
    if isinstance(node, ast.ClassDef):
        fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
        inits = [each for each in node.body if getattr(each, "name", "") == "__init__"]
        return fields + [name for each in inits for name in parameters(each)]
    assert isinstance(node, Function)
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def is_shown_to_users(module: str, node: Function) -> bool:
    """Whether a docstring describes a route, or is the help of a command, whose options have their own."""
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
    """McCabe's complexity, each `and`, `or`, condition of a comprehension and `assert` counted."""
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


def test_a_folder_holds_few_enough_modules_to_be_looked_over():
    modules = Counter(
        str(path.parent.relative_to(ROOT))
        for part in PARTS
        for path in (ROOT / part).rglob("*.py")
        if path.name != "__init__.py"
    )
    crowded = {folder: count for folder, count in modules.items() if count > FOLDER_MODULES}
    assert set(crowded) <= set(UNBOUNDED_FOLDERS), crowded


def test_functions_take_few_parameters_but_commands():
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
    assert not settled, f"{settled} are exceptions that nobody needs any more"


def test_a_constant_says_of_what_it_is():
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
    """As pydocstyle's words have it; what is private may say what it is."""
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
def test_the_docstring_of_a_public_function_with_more_than_two_parameters_names_them_all(part):
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


# --- what is not done


def test_nothing_keeps_a_global_that_functions_assign():
    wrong = [
        f"{module}:{node.lineno}"
        for part in PARTS
        for module, tree in trees(part).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Global)
    ]
    assert not wrong


def test_ruff_would_format_nothing_of_the_repository():
    command = [sys.executable, "-m", "ruff", "format", "--check", "."]
    assert subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


def test_all_names_of_the_front_door_are_there():
    names: dict[str, object] = {}
    exec("from engine.api import *", names)
    assert set(engine.api.__all__) <= set(names)
