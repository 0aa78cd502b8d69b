"""Small records by id, in memory or in a folder that several processes share."""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from engine.api import replacing_file
from server.errors import Refusal

logger = logging.getLogger(__name__)

RECORD_ID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
RECORD_ENDING: Final = ".json"


class Records:
    """JSON objects by id. Ids may come from clients: an id that is not a valid name has no record."""

    def __init__(self, folder: Path | None) -> None:
        """folder: folder of the records, made for its owner only; None: records are in memory."""
        self.folder = folder
        self._memory: dict[str, dict[str, Any]] = {}
        self.make_folder()

    def make_folder(self) -> None:
        """Make the folder, or make it again if the system has removed it. Raises OSError."""
        if self.folder is not None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, id: str, record: dict[str, Any]) -> None:
        """Store a record atomically, in place of an older one. Raises Refusal when the disk is full."""
        if self.folder is None:
            self._memory[id] = record
            return
        try:
            self.make_folder()
            with replacing_file(self.folder / f"{id}{RECORD_ENDING}") as fresh:
                fresh.write_text(json.dumps(record), "utf-8")
        except OSError as error:
            raise storage_full(error) from error

    def get(self, id: str) -> dict[str, Any] | None:
        """Return the record of an id; None when there is none."""
        if self.folder is None:
            return self._memory.get(id)
        if not RECORD_ID.fullmatch(id):
            return None
        try:
            record: dict[str, Any] = json.loads((self.folder / f"{id}{RECORD_ENDING}").read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return record

    def version(self, id: str) -> tuple[int, ...] | None:
        """Return a value that differs after a record has been replaced; None when there is no such record."""
        if self.folder is None:
            return () if id in self._memory else None
        if not RECORD_ID.fullmatch(id):
            return None
        try:
            status = (self.folder / f"{id}{RECORD_ENDING}").stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def ids(self) -> list[str]:
        if self.folder is None:
            return list(self._memory)
        return [path.stem for path in self.folder.glob(f"*{RECORD_ENDING}")]

    def drop(self, id: str) -> None:
        self._memory.pop(id, None)
        if self.folder is not None and RECORD_ID.fullmatch(id):
            _remove(self.folder / f"{id}{RECORD_ENDING}")


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def storage_full(error: OSError) -> Refusal:
    """Log a failed write, and return the error for the client, which may try again."""
    logger.error("can't write a record: %s", error)
    message = "this server's disk takes nothing more: try again later"
    return Refusal("storage_full", message, {"Retry-After": "60"})


def within(folder: Path | None, name: str) -> Path | None:
    """Return the path of a folder in a shared folder; None without a shared folder."""
    return None if folder is None else folder / name
