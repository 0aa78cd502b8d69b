"""JSON in files that come from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, TypeVar

from engine.errors import BundleError, ConvoyError

K = TypeVar("K")
KINDS: Final[dict[type, str]] = {dict: "object", list: "list"}


def read_json(path: Path, kind: type[K], remedy: str, error: type[ConvoyError] = BundleError) -> K:
    """Read the value of a file.

    kind: dict or list, which it must be.
    remedy: what to do about a file that is none; ends the message.

    Raises an `error` that names the file.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as cause:
        raise error(f"{path}: the file is missing; {remedy}") from cause
    except (OSError, ValueError, RecursionError) as cause:
        raise error(f"{path}: not readable as JSON ({cause}); {remedy}") from cause
    if not isinstance(value, kind):
        raise error(f"{path}: must be a JSON {KINDS[kind]}, not {type(value).__name__}; {remedy}")
    return value
