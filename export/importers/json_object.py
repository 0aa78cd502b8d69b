"""A JSON object in a file of a folder from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.bundle.json_file import read_json
from engine.errors import CheckpointError


def read_object(path: Path) -> dict[str, Any]:
    """Read an object of a folder's file. Raises CheckpointError naming it."""
    return read_json(path, dict, "download it again", CheckpointError)
