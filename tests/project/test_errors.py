"""Error codes come from the closed set and the status table; no test makes a mock."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from engine import errors
from server.errors import STATUSES
from server.http.openapi import REASONS
from tests.project.error_table import PAGE, page
from tests.project.rooms import PARTS, ROOT, trees

SHIPPED = tuple(part for part in PARTS if part != "loadtest")
CLOSED = {name: value for name, value in vars(errors).items() if isinstance(value, type)}


def test_only_errors_of_the_closed_set_and_refusal_have_a_code():
    with_codes = {
        f"{module}.{node.name}"
        for part in SHIPPED
        for module, tree in trees(part).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & set(CLOSED)
        if re.search(r"\bcode\b[^\n]* = ", ast.unparse(node))
    }
    outside = {name for name in with_codes if not name.startswith("engine.errors.")}
    assert outside == {"server.errors.Refusal"}
    assert {error.code for error in CLOSED.values()} <= set(STATUSES)


def test_every_code_of_the_status_table_is_raised():
    engine = {error.code for error in CLOSED.values()}
    refusals = {
        node.args[0].value
        for tree in trees("server").values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Refusal"
        if isinstance(node.args[0], ast.Constant)
    }
    assert refusals | engine == set(STATUSES)
    assert not refusals & engine


def test_the_page_has_the_table_of_the_codes():
    assert set(REASONS) == {*STATUSES.values(), 405}
    text = PAGE.read_text("utf-8")
    assert text == page(text), "run: python -m tests.project.error_table"


def test_no_test_makes_a_mock():
    wrong = [
        str(path.relative_to(ROOT))
        for path in sorted(Path(ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.Attribute)
        and (node.id if isinstance(node, ast.Name) else node.attr)
        in ("Mock", "MagicMock", "AsyncMock", "create_autospec", "PropertyMock")
    ]
    assert not wrong
