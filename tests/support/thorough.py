"""How much of a long test runs: a share of its cases by default, all of them with CONVOY_TEST_THOROUGH=1."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import cycle, product
from typing import Any, Final, TypeVar

Case = TypeVar("Case")

THOROUGH: Final = os.environ.get("CONVOY_TEST_THOROUGH") == "1"


def some_of(cases: Sequence[Case], part: int = 4) -> Sequence[Case]:
    """All cases when thorough, else every `part`-th, the first among them."""
    return cases if THOROUGH else cases[::part]


def in_turn(cases: Sequence[Case], kinds: Sequence[Any]) -> list[tuple[Case, Any]]:
    """Cases with kinds: all pairs when thorough, else each case with one kind, and the kinds in turn."""
    if THOROUGH:
        return list(product(cases, kinds))
    return list(zip(cases, cycle(kinds), strict=False))


def some(count: int, part: int = 4) -> int:
    """All of `count` cases when thorough, else one of `part`."""
    return count if THOROUGH else -(-count // part)
