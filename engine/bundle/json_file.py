"""Read JSON files that users or other programs wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, TypeVar

from engine.errors import BundleError, ConvoyError

K = TypeVar("K")
MAX_JSON_BYTES: Final = 1 << 27  # four times the vocabulary file of the largest tokenizers
KINDS: Final[dict[type, str]] = {dict: "object", list: "list"}


def read_json(path: Path, kind: type[K], remedy: str, error: type[ConvoyError] = BundleError) -> K:
    """Read and parse a file.

    path: path of the file.
    kind: required type of the value: dict or list.
    remedy: advice at the end of the error message.
    error: class of the exception.

    Raises `error`, which names the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
        value = json.loads(data) if len(data) <= MAX_JSON_BYTES else None
    except FileNotFoundError as cause:
        raise error(f"{path}: the file is missing; {remedy}") from cause
    except (OSError, ValueError, RecursionError) as cause:
        raise error(f"{path}: not readable as JSON ({cause}); {remedy}") from cause
    if len(data) > MAX_JSON_BYTES:
        raise error(f"{path}: has more than {MAX_JSON_BYTES:,} bytes; {remedy}")
    if not isinstance(value, kind):
        raise error(f"{path}: must be a JSON {KINDS[kind]}, not {type(value).__name__}; {remedy}")
    return value
