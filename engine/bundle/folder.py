"""Replace a folder or a file atomically: readers see the old one or the new one, never a mixture."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path, *, extend: bool = False) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` when the block ends without an exception.

    While the block runs, and after an exception, `path` is unchanged.

    path: folder to replace or create.
    extend: start with hard links to the files of `path`; replace these, don't write into them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = _sibling(path, "new")
    try:
        if extend:
            shutil.copytree(path, fresh, copy_function=link_or_copy)
        else:
            fresh.mkdir()
        yield fresh
        _sync(fresh)
        swap(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def replacing_file(path: Path, *, mode: int = 0o666, sync: bool = False) -> Iterator[Path]:
    """Yield an empty temporary file, which is renamed to `path` when the block ends without an exception.

    After an exception `path` is unchanged.

    path: file to replace or create, in an existing folder.
    mode: permissions of the temporary file, minus the process's umask.
    sync: sync the file to disk before the rename, so that a power cut can't leave half of it.

    Raises OSError.
    """
    fresh = _sibling(path, "partial")
    try:
        fresh.touch(mode)
        yield fresh
        if sync:
            with fresh.open("r+b") as file:
                os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def creating(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file and sync it at the end.

    Creates parent folders. Removes an existing file first, so that its other hard links keep their content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with path.open("wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


def write_file(path: Path, data: bytes) -> None:
    """Write a new file (`creating`)."""
    with creating(path) as out:
        out.write(data)


def swap(fresh: Path, path: Path) -> None:
    """Rename the folder `fresh` to `path`, on one file system.

    The old folder is restored if the rename fails and removed if it succeeds.
    """
    aside = _sibling(path, "old")
    replaced = path.exists()
    if replaced:
        path.rename(aside)
    try:
        fresh.rename(path)
    except OSError:
        if replaced:
            aside.rename(path)
        raise
    _sync(path.parent)
    if replaced:
        shutil.rmtree(aside)


def _sibling(path: Path, kind: str) -> Path:
    return path.parent / f".{path.name}.{uuid.uuid4().hex}.{kind}"


def link_or_copy(source: str, target: str) -> None:
    """Make a hard link to a file, or a copy on a file system without links."""
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def _sync(folder: Path) -> None:
    """Write the entries of a folder to disk, so that a rename survives a power cut."""
    if sys.platform == "win32":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
