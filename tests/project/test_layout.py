"""Layout of the sources: length of test files, and no value on lines of its own because of its comment."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from typing import Final

import pytest

from tests.project.rooms import PARTS, ROOT

TEST_FILE_LINES: Final = 400
# test files that are still longer; the list only shrinks
LONG_TEST_FILES: Final = frozenset({})
# a quick look before a file is split into tokens
MAYBE_BROKEN: Final = re.compile(r"\(\s*\n[^\n]*#[^\n]*\n\s*\)")
SILENT_TOKENS: Final = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def broken_values(source: str) -> Iterator[int]:
    """Yield the line of each pair of parentheses that only makes room for a comment.

    Such parentheses group one line of code with a comment behind it:

        x = (
            value  # reason
        )
    """
    if not MAYBE_BROKEN.search(source):
        return
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    opened = []
    for index, token in enumerate(tokens):
        if token.type != tokenize.OP:
            continue
        if token.string in "([{":
            opened.append(index)
        elif token.string in ")]}":
            start = opened.pop()
            before = tokens[start - 1]
            is_call = before.type == tokenize.NAME and not keyword.iskeyword(before.string)
            if is_call or tokens[start].string != "(" or before.string in (")", "]"):
                continue
            inner = [each for each in tokens[start + 1 : index] if each.type not in SILENT_TOKENS]
            comments = [each.start[0] for each in inner if each.type == tokenize.COMMENT]
            rows = {
                row for each in inner if each.type != tokenize.COMMENT for row in (each.start[0], each.end[0])
            }
            if len(rows) == 1 and rows <= set(comments) and tokens[start].start[0] not in rows:
                yield tokens[start].start[0]


def test_no_test_file_is_long():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > TEST_FILE_LINES
    }
    assert not {name: lines for name, lines in long.items() if name not in LONG_TEST_FILES}


def test_no_value_is_broken_over_lines_for_its_comment():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: put the comment on a line above"
        for part in (*PARTS, "tests", "deploy")
        for path in sorted((ROOT / part).rglob("*.py"))
        for line in broken_values(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source, lines",
    [
        ("x = (\n    5  # seconds\n)\n", [1]),
        ("with (\n    a as b  # reason\n):\n    pass\n", [1]),
        ("# seconds\nx = 5\n", []),
        ("x = (\n    a\n    or b  # reason\n)\n", []),
        ("f(\n    5,  # seconds\n)\n", []),
    ],
)
def test_parentheses_around_a_value_and_its_comment_are_found(source, lines):
    assert list(broken_values(source)) == lines
