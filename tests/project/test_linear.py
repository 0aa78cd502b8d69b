"""Every pattern and parser of text from outside takes linear time: a text twice as long takes twice the time.

Slow patterns and loops show on a repeated string (a pump). Each case is timed on pumps of one length, which
grows up to 16,000 characters (64,000 in thorough runs) until the time is noticeable, and of four times that
length, which may take a little more than four times as long; a longer time must show again at eight times the
length. Unless tests run thoroughly, the longer text is tried only if the time grows more than linearly from a
quarter of the length. Times are those of this thread's processor, so that other processes change little.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from tests.project.linear.case import CASE_LENGTH, Case
from tests.project.linear.document_cases import DOCUMENT_CASES
from tests.project.linear.server_cases import SERVER_CASES
from tests.project.linear.text_cases import TEXT_CASES
from tests.project.rooms import ROOT, module_of
from tests.support.thorough import THOROUGH
from tests.support.timing import processor_seconds, thrice

# a traced function is slower
pytestmark = pytest.mark.no_cover
FOLDERS = ("server", "engine/text", "documents")
PARSER = re.compile(
    r"_?(read|parse|split|mask|decode|locate|outline|detect|present|preserve|on_one_line)(_|\b)"
)
CASES = SERVER_CASES | TEXT_CASES | DOCUMENT_CASES
TIMED = sorted(name for name, case in CASES.items() if isinstance(case, Case))

LONGEST_TEXT = 64_000 if THOROUGH else 16_000  # characters
# a quadratic pattern takes several times as long at `CASE_LENGTH`
NOTICEABLE_SECONDS = 0.004
# times as long for a text of four times the length: 4 is linear, 16 quadratic
MOST_GROWTH = 9.0
# times as long as a quarter of the text: nothing that grows less is quadratic
DOUBTFUL_GROWTH = 5.0

CHARACTERS = "a1.,;:!?-_*~`'\"<>()[]{}&%$#@/\\|=+ \t\n\r。あ\u0301\u00a0"
PAIRS = tuple(map("".join, permutations(CHARACTERS, 2))) if THOROUGH else ()
WORDS = ("a ", " \n", ". ", "a.", "a@", "a-", "1.", ".1", "\r\n", "<a", "</", "<!--", "a=")
PUMPS = (*CHARACTERS, *PAIRS, *WORDS)
# endings that make a match fail at the last character
SUFFIXES = ("", "\x01", "!x")


def test_every_pattern_and_parser_has_a_case():
    missing = sorted(set(_sources()) - set(CASES))
    assert not missing, f"tests/project/linear/ has no case for {', '.join(missing)}"


def test_every_case_has_its_pattern_or_parser():
    assert not set(CASES) - set(_sources())


@pytest.mark.parametrize("name", TIMED)
def test_time_grows_linearly_with_the_text(name):
    case = CASES[name]
    assert isinstance(case, Case)
    for call in _calls(name, case):
        growth = Growth(call, case.length, name)
        for number, pump in enumerate(dict.fromkeys((*PUMPS, *case.pumps))):
            for suffix in _suffixes(number, case):
                if growth.check(pump, suffix) and case.call is not None and not THOROUGH:
                    break


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_loop_appends_to_a_text_in_a_list(folder):
    """`texts[-1] += more` copies the whole text each time; Python avoids that for a local name only."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for loop in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(loop, ast.For | ast.While | ast.AsyncFor)
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
        if isinstance(node.target, ast.Subscript) and ast.unparse(node.target.slice) in ("-1", "0")
    ]
    assert not wrong


@pytest.mark.parametrize(("pattern", "pump"), [(r"\s*\n\s*", " "), (r"[.!?]+$", "!"), (r"[\w.]+@x", "a")])
def test_slow_patterns_are_detected(pattern, pump):
    assert pump in PUMPS
    growth = Growth(re.compile(pattern).search, CASE_LENGTH // 2, pattern)
    with pytest.raises(AssertionError, match="times as long"):
        for suffix in SUFFIXES:
            growth.check(pump, suffix)


def _suffixes(number: int, case: Case) -> tuple[str, ...]:
    """Return all endings for a pattern; for a parser one of two in turn, and none for a longer text."""
    if THOROUGH or case.call is None:
        return SUFFIXES
    return SUFFIXES[1 + number % 2], ""


class Growth:
    """Growth of the time of one call with the length of its text.

    call: function of the text.
    length: characters of the shorter text.
    name: pattern or parser, for the message of a failure.
    """

    def __init__(self, call: Callable[[Any], object], length: int, name: str) -> None:
        self.call, self.length, self.name = call, length, name
        self.nothing = min(processor_seconds(call, "") for _ in range(2))

    def check(self, pump: str, suffix: str) -> bool:
        """Fail if the time grows too fast. Return whether the call takes noticeable time."""

        def seconds(characters: int) -> float:
            return processor_seconds(self.call, pump * (characters // len(pump)) + suffix)

        length = self.length
        once = seconds(length)
        while once < NOTICEABLE_SECONDS and not suffix and length < LONGEST_TEXT:
            length = LONGEST_TEXT if THOROUGH else min(4 * length, LONGEST_TEXT)
            once = seconds(length)
        if once < NOTICEABLE_SECONDS:
            return False
        quarter = seconds(length // 4)
        if not THOROUGH and once - self.nothing < DOUBTFUL_GROWTH * (quarter - self.nothing):
            return True

        def attempt() -> str:
            first = min(once, seconds(length))
            times = seconds(4 * length) / first
            if times <= MOST_GROWTH or seconds(8 * length) <= MOST_GROWTH**1.5 * first:
                return ""
            return f"{self.name}: {pump!r} takes {times:.0f} times as long at four times the length"

        thrice(attempt)
        return True


def _calls(name: str, case: Case) -> Iterator[Callable[[Any], object]]:
    if case.call is not None:
        yield case.call
        return
    module, _, target = name.partition(":")
    found = getattr(importlib.import_module(module), target, None)
    assert found is not None, f"{name}: its case needs a `call`"
    patterns = found if isinstance(found, list | tuple) else [found]
    for pattern in patterns:
        for use_name in case.uses:
            use = partial(pattern.sub, _empty(pattern)) if use_name == "sub" else getattr(pattern, use_name)
            yield _encoded(use) if isinstance(pattern.pattern, bytes) else use


def _empty(pattern: re.Pattern[Any]) -> Any:
    return b"" if isinstance(pattern.pattern, bytes) else ""


def _encoded(use: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda text: use(text.encode())


def _sources() -> Iterator[str]:
    """Yield `module:name` of every parser, and of every pattern or the function that compiles it."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            names = _pattern_names(ast.parse(path.read_text("utf-8")), None)
            yield from (f"{module_of(path)}:{name}" for name in names)


def _pattern_names(node: ast.AST, owner: str | None) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        name = owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = child.name
            if isinstance(node, ast.Module) and PARSER.match(name):
                yield name
        elif isinstance(node, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign):
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            name = target.id if isinstance(target, ast.Name) else None
        elif isinstance(child, ast.Call) and _is_pattern(child.func) and owner:
            yield owner
        yield from _pattern_names(child, name)


def _is_pattern(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in ("re", "regex", "re2")
        and function.attr != "escape"
    )
