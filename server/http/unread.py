"""Warnings about fields of a request that no route reads; most of them are misspelt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

MOST_WARNINGS: Final = 10
SHOWN_NAME_CHARACTERS: Final = 60  # a warning repeats at most this much of a field's name


def unread_of(names: Iterable[str], read: Collection[str], keys: Collection[str] = ()) -> dict[str, str]:
    """Return a warning for each field that nothing reads, by the field's name.

    names: names of the request's fields.
    read: names of the fields that the route reads.
    keys: names of fields that may hold an API key.

    Returns at most MOST_WARNINGS warnings, in the order of the request.
    """
    known = frozenset((*read, *keys))
    unread = (name[:SHOWN_NAME_CHARACTERS] for name in names if name not in known)
    return {name: _warning(name, known) for name in islice(unread, MOST_WARNINGS)}


def with_warnings(answer: dict[str, Any], warnings: Mapping[str, str]) -> dict[str, Any]:
    """Return an answer with its warnings, if there are any."""
    return answer | {"warnings": warnings} if warnings else answer


def _warning(name: str, known: Collection[str]) -> str:
    """Return the warning about an unknown field, with the nearest known name."""
    nearest = get_close_matches(name, known, 1)
    return f"was not read: there is no such field{f'; did you mean {nearest[0]}?' if nearest else ''}"
