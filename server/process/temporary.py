"""Temporary folders that are removed with their process; the next start removes those of killed processes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from server.process import locks

LOCK_NAME: Final = "held"  # name of the file that the owner of a folder locks


class OwnFolder:
    """A folder of this process, readable by its user only."""

    def __init__(self, prefix: str) -> None:
        """Make a folder, and remove the folders of ended processes with the same prefix."""
        _sweep(prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            self._held = (self.path / LOCK_NAME).open("w")
            locks.lock(self._held.fileno())
            if self.path.exists():
                break
            self._held.close()  # another process removed it before it was locked

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def _sweep(prefix: str) -> None:
    """Remove the folders of ended processes."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            if folder.is_symlink() or not _is_own(folder):
                continue
            with (folder / LOCK_NAME).open("r+") as lock_file:
                locks.lock_at_once(lock_file.fileno())  # raises while its owner runs
                shutil.rmtree(folder, ignore_errors=True)


def _is_own(folder: Path) -> bool:
    if sys.platform == "win32":  # the temporary folder belongs to its user
        return True
    return folder.stat().st_uid == os.getuid()
