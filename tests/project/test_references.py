"""Names of modules, classes, files and pages in docstrings and comments exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.project.rooms import PARTS, ROOT
from tests.project.sentences import comments, docstrings, parse

FOLDERS: Final = (*PARTS, "tests", "deploy")
DOTTED: Final = re.compile(rf"`((?:{'|'.join((*PARTS, 'tests'))})(?:\.\w+)+)(?:\(\))?`")
SOURCE_FILE: Final = re.compile(r"`([\w./-]+\.(?:py|cpp|cu|cuh|h|js))`")
PAGE: Final = re.compile(r"(?<![\w/.*{<])([\w./-]+\.md)\b(?!\()")


@cache
def prose(path: Path) -> str:
    """Return the docstrings and comments of a file, one after another."""
    texts = [docstring for _, docstring, _ in docstrings(path)]
    return "\n".join([*texts, *(comment for _, comment in comments(path))])


@cache
def names_of(path: Path) -> dict[str, set[str] | None]:
    """Return the top-level names of a module. A class has its attributes, or None if it has bases."""
    found: dict[str, set[str] | None] = {}
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef):
            found[node.name] = None if node.bases else set(_assigned(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault(node.name, set())
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for name in _assigned(node):
                found.setdefault(name, None)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, None)
    return found


def _assigned(node: ast.AST) -> Iterator[str]:
    """Yield the names that a class or an assignment defines, attributes of `self` too."""
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.attr


def exists(dotted: str) -> bool:
    """Return whether a dotted name is a module, or its longest module has the attributes that follow."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:count])
        path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if not path.exists():
            continue
        rest = parts[count:]
        if not rest:
            return True
        names = names_of(path)
        if rest[0] not in names:
            return False
        attributes = names[rest[0]]
        return len(rest) == 1 or attributes is None or rest[1] in attributes
    return ROOT.joinpath(*parts).is_dir()


@cache
def file_names() -> frozenset[str]:
    """Return every file of the sources, and each end of its path."""
    paths = [path.relative_to(ROOT).parts for part in FOLDERS for path in (ROOT / part).rglob("*.*")]
    return frozenset("/".join(parts[start:]) for parts in paths for start in range(len(parts)))


def wrong_references(pattern: re.Pattern[str], is_there: Callable[[str], bool]) -> list[str]:
    """Return `file: name` for every name in prose that does not exist.

    pattern: names in docstrings and comments.
    is_there: whether a name exists.
    """
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for part in FOLDERS
        for path in sorted((ROOT / part).rglob("*.py"))
        for name in pattern.findall(prose(path))
        if not is_there(name)
    }
    return sorted(found)


def test_dotted_names_in_docstrings_and_comments_exist():
    assert not wrong_references(DOTTED, lambda name: name.endswith(".json") or exists(name))


def test_source_files_in_docstrings_and_comments_exist():
    assert not wrong_references(SOURCE_FILE, lambda name: name in file_names())


def test_pages_in_docstrings_and_comments_exist():
    assert not wrong_references(PAGE, lambda name: (ROOT / name).exists() or (ROOT / "docs" / name).exists())


@pytest.mark.parametrize(
    "name, there",
    [
        ("engine.schedule.lane", True),
        ("engine.schedule.lane.Lane", True),
        ("engine.schedule.lane.Lane.step", True),
        ("engine.schedule", True),
        ("engine.schedule.nothing", False),
        ("engine.schedule.lane.Nothing", False),
        ("engine.schedule.lane.Lane.nothing", False),
    ],
)
def test_a_dotted_name_is_found_only_if_it_exists(name, there):
    assert exists(name) is there
