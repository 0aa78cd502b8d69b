"""Recognise files that are not what they are named: Git LFS pointers and web pages."""

from __future__ import annotations

from pathlib import Path

from engine.errors import CheckpointError


def check_download(path: Path) -> None:
    """Raise CheckpointError if a file is a Git LFS pointer or a web page instead of the file itself."""
    if cause := false_download(path):
        raise CheckpointError(cause)


def false_download(path: Path) -> str | None:
    """Return a sentence about a file that is a Git LFS pointer or a web page, None about any other."""
    try:
        with path.open("rb") as file:
            begin = file.read(64).lstrip().lower()
    except OSError:  # readers of the file report it
        return None
    if begin.startswith(b"version https://git-lfs"):
        return f"{path}: is a Git LFS pointer, not the file itself; run git lfs pull"
    if begin.startswith((b"<!doctype html", b"<html")):
        return f"{path}: is a web page, not the file itself; download the raw file"
    return None
