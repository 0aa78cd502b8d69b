"""The record of a call: one JSON file, complete after every finding, so that nothing is lost."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Book:
    """What is in the file goes on where it was, when a part has ended the process that wrote it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {"facts": {}, "parts": {}, "skipped": {}}
        if path.exists():
            self.values = json.loads(path.read_text("utf-8"))

    def save(self) -> None:
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self.values, indent=1, allow_nan=False, default=str) + "\n", "utf-8")
        os.replace(partial, self.path)


@dataclass(frozen=True, slots=True)
class Desk:
    """Where one part says what it has found so far, and who is at work: whoever watches knows whom to
    blame."""

    book: Book
    part: str
    began: float  # time.monotonic()

    def tell(self, record: dict[str, Any], status: str = "running") -> None:
        seconds = time.monotonic() - self.began
        self.book.values["parts"][self.part] = {"status": status, "seconds": seconds, **record}
        self.book.save()

    def enter(self, contender: str) -> None:
        """Note who is at work from now on.

        contender: a backend and a precision.
        """
        self.book.values.setdefault("running", {})["contender"] = contender
        self.book.save()
