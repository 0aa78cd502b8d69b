"""The cases of long tests that run: a part by default, all with CONVOY_TEST_THOROUGH=1."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import cycle, product
from typing import Any, Final, TypeVar

Case = TypeVar("Case")

THOROUGH: Final = os.environ.get("CONVOY_TEST_THOROUGH") == "1"


def some_of(cases: Sequence[Case], part: int = 4) -> Sequence[Case]:
    """Return all cases if thorough, otherwise every `part`-th from the first on."""
    return cases if THOROUGH else cases[::part]


def in_turn(cases: Sequence[Case], kinds: Sequence[Any]) -> list[tuple[Case, Any]]:
    """Return pairs of cases and kinds: all pairs if thorough, otherwise each case once, with the kinds in
    turn."""
    if THOROUGH:
        return list(product(cases, kinds))
    return list(zip(cases, cycle(kinds), strict=False))


def some(count: int, part: int = 4) -> int:
    """Return the number of cases to run: `count` if thorough, otherwise count / part, rounded up."""
    return count if THOROUGH else -(-count // part)
