"""Warnings about fields of a request that no route reads; most of them are misspelt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from heapq import nlargest
from itertools import islice
from typing import Any, Final

MOST_WARNINGS: Final = 10
MOST_SUGGESTIONS: Final = 3  # unknown fields that are compared with known names
MOST_COMPARED: Final = 3  # known names that an unknown one is compared with, which takes 0.1 ms each
LENGTH_DIFFERENCE: Final = 3  # characters; longer or shorter names are not compared
SHOWN_NAME_CHARACTERS: Final = 60  # a warning repeats at most this much of a field's name


def unread_of(names: Iterable[str], read: Collection[str], keys: Collection[str] = ()) -> dict[str, str]:
    """Return a warning for each field that nothing reads, by the field's name.

    names: names of the request's fields.
    read: names of the fields that the route reads.
    keys: names of fields that may hold an API key.

    Returns at most MOST_WARNINGS warnings, in the order of the request.
    """
    known = frozenset((*read, *keys))
    unread = list(islice((name for name in names if name not in known), MOST_WARNINGS))
    return {
        name[:SHOWN_NAME_CHARACTERS]: _warning(name, known if number < MOST_SUGGESTIONS else ())
        for number, name in enumerate(unread)
    }


def with_warnings(answer: dict[str, Any], warnings: Mapping[str, str]) -> dict[str, Any]:
    """Return an answer with its warnings, if there are any."""
    return answer | {"warnings": warnings} if warnings else answer


def _warning(name: str, known: Collection[str]) -> str:
    """Return the warning about an unknown field, with the nearest known name of about the same length."""
    near = [word for word in known if abs(len(word) - len(name)) <= LENGTH_DIFFERENCE]
    pairs = {name[i : i + 2] for i in range(len(name) - 1)} if near else set()
    alike = nlargest(MOST_COMPARED, near, key=lambda word: (len(pairs & _pairs(word)), word))
    nearest = get_close_matches(name, alike, 1)
    return f"was not read: there is no such field{f'; did you mean {nearest[0]}?' if nearest else ''}"


@lru_cache(maxsize=1_024)
def _pairs(word: str) -> frozenset[str]:
    """Return the pairs of neighbouring letters of a known name."""
    return frozenset(word[i : i + 2] for i in range(len(word) - 1))
