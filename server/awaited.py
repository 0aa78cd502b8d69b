"""Models that are being fetched while the server runs: their states are in a file that `convoy fetch` writes.

{"models": {"nl-en": {"state": "fetching"}, "de-xx": {"state": "failed", "fault": "...", "remedy": "..."}}}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

READY: Final = "ready"
FAILED: Final = "failed"
MAX_BYTES: Final = 2**20
NO_NUMBERS: Final[dict[str, Any]] = {"parameters": 0, "limits": {}, "options": {}, "memory": 0}


def awaited_models(path: Path | None) -> dict[str, dict[str, str]]:
    """Return the entry of each model that is not on disk, by name; none if there is no file.

    path: file of the states; None: nothing is fetched.
    """
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            models = json.loads(file.read(MAX_BYTES))["models"]
        entries = {str(name): {k: str(v) for k, v in entry.items()} for name, entry in models.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # it is not written yet, or not by us
    return {name: entry for name, entry in entries.items() if entry.get("state") != READY}


def summary(entries: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the models that are being fetched, and the faults of failed ones, each as one text.

    entries: result of `awaited_models`.
    """
    failed = {name: entry for name, entry in entries.items() if entry.get("state") == FAILED}
    fetching = ", ".join(name for name in entries if name not in failed)
    faults = "; ".join(
        f"{name}: {e.get('fault', '')}; run: {e.get('remedy', '')}" for name, e in failed.items()
    )
    return {key: text for key, text in (("fetching", fetching), ("failed", faults)) if text}


def describe_awaited(entries: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """Return the JSON description of models that are not on disk, in the form of the list of models.

    entries: result of `awaited_models`.

    Their task is empty, so that no client chooses them.
    """
    empty: dict[str, Any] = {
        "architecture": "",
        "parameters": 0,
        "limits": {},
        "precision": "",
        "backend": "",
    }
    described = []
    for name, entry in entries.items():
        source, _, target = name.rpartition(":")[2].partition("-")
        labels = {"name": name, "task": "", "source": source, "target": target}
        described.append(labels | empty | NO_NUMBERS | entry)
    return described
