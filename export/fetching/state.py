"""A file with the state of each model that a server waits for; `server.awaited` reads it.

{"models": {"nl-en": {"state": "fetching"}, "de-xx": {"state": "failed", "fault": "...", "remedy": "..."}}}
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.bundle.folder import replacing_file

WAITING: Final = "waiting"
FETCHING: Final = "fetching"
READY: Final = "ready"
FAILED: Final = "failed"


class StateFile:
    """The states of some models; without a path they are kept in memory only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.models: dict[str, dict[str, str]] = {}

    def set(self, model: str, state: str, fault: str = "", remedy: str = "") -> None:
        """Set the state of a model, and write the file.

        model: name of the model or pair of languages.
        state: WAITING, FETCHING, READY or FAILED.
        fault: error of a failed model.
        remedy: command that the operator can run.
        """
        entry = {"state": state, "fault": fault, "remedy": remedy}
        self.models[model] = {name: value for name, value in entry.items() if value}
        if self.path is None:
            return
        with suppress(OSError), replacing_file(self.path) as fresh:
            fresh.write_text(json.dumps({"models": self.models}), encoding="utf-8")

    def forget(self, model: str) -> None:
        """Forget a model that is not needed."""
        self.models.pop(model, None)

    def failed(self) -> list[str]:
        return [name for name, entry in self.models.items() if entry["state"] == FAILED]
