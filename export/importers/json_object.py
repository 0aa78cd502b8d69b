"""Read JSON objects from files of foreign models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.bundle.json_file import read_json
from engine.errors import CheckpointError
from export.importers.downloads import check_download


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file. Raises CheckpointError that names the file."""
    if path.is_file():
        check_download(path)
    return read_json(path, dict, "download it again", CheckpointError)
