"""Responses in JSON, written in slices if they are long: a million numbers take seconds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from starlette.responses import Response

from engine.api import Slices, in_slices

MEDIA: Final = "application/json"
SMALL: Final = 2_000  # values, or hundreds of characters; larger answers are written in slices
SLICE: Final = 512  # values of a list in one slice
SLICE_CHARACTERS: Final = 65_536  # characters of texts in one slice
SCALARS: Final = frozenset({int, float, bool, type(None)})
DIGITS: Final = 6  # decimals of numbers in arrays


async def json_response(
    answer: Any, deadline: float = math.inf, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with JSON values and arrays.

    answer: content of the body.
    deadline: latest time for a long body, of time.monotonic().
    headers: headers of the response, except its type.

    Raises DeadlineExceeded.
    """
    return Response(await json_bytes(answer, deadline), headers=headers, media_type=MEDIA)


async def json_bytes(answer: Any, deadline: float = math.inf) -> bytes:
    """Return JSON values and arrays as text. Raises DeadlineExceeded."""
    if is_small(answer):
        return b"".join(part.encode() for part in _parts(answer))
    return await in_slices(_serialize(answer), deadline)


def is_small(answer: Any) -> bool:
    """Return whether an answer is small enough to be written at once; read only a small part of it."""
    budget, waiting = SMALL, [answer]
    while waiting and budget > 0:
        value = waiting.pop()
        budget -= 1
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            budget -= len(value) // 10
            waiting += value[:SMALL]
        elif isinstance(value, str):
            budget -= len(value) // 100
        elif isinstance(value, np.ndarray):
            budget -= value.size
    return budget > 0


def _serialize(answer: Any) -> Slices[bytes]:
    """Return an answer as JSON, in slices."""
    parts = []
    for part in _parts(answer):
        parts.append(part.encode())
        yield
    return b"".join(parts)


def _parts(value: Any) -> Iterator[str]:
    """Yield JSON text in short parts."""
    if isinstance(value, np.ndarray | list):
        yield from _list_parts(value)
    elif isinstance(value, dict):
        opening = "{"
        for name, item in value.items():
            yield f"{opening}{_dumps(name)}:"
            yield from _parts(item)
            opening = ","
        yield "{}" if opening == "{" else "}"
    elif isinstance(value, str) and len(value) > SLICE_CHARACTERS:
        yield '"'
        for begin in range(0, len(value), SLICE_CHARACTERS):
            yield _dumps(value[begin : begin + SLICE_CHARACTERS])[1:-1]
        yield '"'
    else:
        yield _dumps(value)


def _list_parts(values: list[Any] | np.ndarray) -> Iterator[str]:
    """Yield the JSON text of a list or an array in short parts, which share one pair of brackets."""
    opening = "["
    for begin in range(0, len(values), SLICE):
        some = values[begin : begin + SLICE]
        if isinstance(some, np.ndarray) and some.ndim == 1:
            some = [_number(x) for x in np.round(some.astype(np.float64), DIGITS).tolist()]
        if _is_flat(some):
            yield opening + _dumps(some)[1:-1]
            opening = ","
            continue
        for item in some:
            yield opening
            yield from _parts(item)
            opening = ","
    yield "[]" if opening == "[" else "]"


def _is_flat(values: list[Any] | np.ndarray) -> bool:
    """Return whether values are numbers and short texts."""
    characters = 0
    for value in values:
        if type(value) is str:
            characters += len(value)
        elif type(value) not in SCALARS:
            return False
    return characters <= SLICE_CHARACTERS


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _number(value: float) -> float | None:
    """Return None for infinities and NaN, which JSON can't express."""
    return value if math.isfinite(value) else None
