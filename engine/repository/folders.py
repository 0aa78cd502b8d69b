"""Follows changes in folders of bundles: adds and removes models while the folders are served.

`rescan` lists the folders. A bundle that can't be served yet, such as one that is being copied, is opened
again after one of its files has changed or another bundle was removed. A model is removed when its bundle is
missing in two scans in a row, because replacing a bundle takes a moment. A bundle that has become another
model is served under the new name as soon as it is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from engine.bundle.bundle import open_bundle
from engine.bundle.manifest import MANIFEST
from engine.errors import ConvoyError, Unavailable
from engine.repository.loading import bundles_in, within
from engine.repository.repository import Repository

logger = logging.getLogger(__name__)

Files = tuple[tuple[str, int, int], ...]  # name, size and mtime of each file of a bundle
EMPTIED: Final = "%s has no bundles any more: its models are served until the server restarts"


class Folders:
    """Folders of bundles with the models served from them. For one thread at a time."""

    def __init__(self, paths: Sequence[Path], names: Mapping[str, Path], languages: Sequence[str]) -> None:
        """Start with the served models.

        paths: paths in the settings; paths of single bundles are not rescanned.
        names: served models with the paths of their bundles.
        languages: languages of the models to serve; empty: all.
        """
        all_paths = map(Path, paths)
        self._folders = [path for path in all_paths if path.is_dir() and not (path / MANIFEST).exists()]
        self._languages = languages
        served = {path: name for name, path in names.items()}
        self._served = {path: name for path, name in served.items() if path.parent in self._folders}
        self._manifests = {path: _status(path / MANIFEST) for path in self._served}
        self._unserved: dict[Path, Files] = {}  # bundles that are not served, at the last scan
        self._missing: set[Path] = set()  # served bundles that the last scan did not find
        self._emptied: set[Path] = set()  # folders that lost all bundles, as an unmounted volume does

    def rescan(self, repository: Repository) -> None:
        """Add new bundles and remove missing ones. Blocks while models are loaded."""
        for folder in self._folders:
            try:
                paths = bundles_in(folder)
            except OSError:
                paths = []
            if paths:
                self._emptied.discard(folder)
                self._remove_missing(folder, set(paths), repository)
            elif folder not in self._emptied and any(path.parent == folder for path in self._served):
                logger.warning(EMPTIED, folder)
                self._emptied.add(folder)
            for path in paths:
                if path in self._served:
                    self._replace(path, repository)
                else:
                    self._add(path, repository)

    def _remove_missing(self, folder: Path, paths: set[Path], repository: Repository) -> None:
        """Remove models of a folder whose bundles were missing in the last scan too."""
        lacking = {path for path in self._served if path.parent == folder} - paths
        for path in sorted(lacking & self._missing):
            name = self._served.pop(path)
            repository.remove(name)
            logger.info("%s is no longer served: %s was removed", name, path)
            self._unserved.clear()  # another bundle may have waited for the name
        self._missing = {path for path in self._missing if path.parent != folder} | lacking
        self._unserved = {p: s for p, s in self._unserved.items() if p.parent != folder or p in paths}

    def _replace(self, path: Path, repository: Repository) -> None:
        """If a served bundle has become another model, add that and remove the old one."""
        status, name = _status(path / MANIFEST), self._served[path]
        if status == self._manifests.get(path):
            return
        try:
            new = open_bundle(path, verify=False).name
        except (ConvoyError, OSError):  # the bundle is being written: the next scan tries again
            return
        if new == name:
            self._manifests[path] = status
            return
        self._add(path, repository)
        if self._served[path] != name:
            repository.remove(name)
            logger.info("%s is no longer served: %s is now %s", name, path, new)

    def _add(self, path: Path, repository: Repository) -> None:
        """Serve a bundle; one that fails is tried again only after its files have changed."""
        files = _fingerprint(path)
        if self._unserved.get(path) == files:
            return
        self._unserved[path] = files
        try:
            if not within(open_bundle(path, verify=False), self._languages):
                return
            info = repository.add(path)
        except Unavailable:  # a removed model of this name still answers: the next scan tries again
            del self._unserved[path]
            return
        except (ConvoyError, OSError) as error:
            logger.warning("%s is not served: %s", path, error)
            return
        del self._unserved[path]
        self._served[path], self._manifests[path] = info.name, _status(path / MANIFEST)
        logger.info("%s is served: %s was added", info.name, path)


def _status(file: Path) -> tuple[int, int, int] | None:
    """Return inode, size and mtime of a file; None if there is no such file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _fingerprint(path: Path) -> Files:
    """Return path, size and mtime of every file of a bundle. Incomplete while files are being copied."""
    entries = []
    for file in sorted(path.rglob("*")):
        try:
            status = file.stat()
        except OSError:
            continue
        entries.append((file.relative_to(path).as_posix(), status.st_size, status.st_mtime_ns))
    return tuple(entries)
