"""A JSON object in a file of a folder from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError


def read_json(path: Path) -> dict[str, Any]:
    """Read an object of a folder's file. Raises CheckpointError naming it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable as JSON ({error}); download it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: must be a JSON object, not {type(value).__name__}; download it again")
    return value
