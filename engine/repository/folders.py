"""Served folders while they are served: bundles that were put into one, and those that were taken out.

A look costs a listing. A bundle that can't be served yet, such as one half copied, is opened again when
a file of the bundle has changed or another bundle has gone. A bundle that is missing twice in a row is gone:
replacing one takes a moment. A bundle that has become another model is served as that once it is whole.
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

Files = tuple[tuple[str, int, int], ...]  # of a bundle: name, size and time
LEFT: Final = "%s holds no bundle any more: what it held goes on, until the server starts anew"


class Folders:
    """For one thread at a time."""

    def __init__(self, paths: Sequence[Path], names: Mapping[str, Path], languages: Sequence[str]) -> None:
        """Begin with what is served.

        paths: as they were given; bundles that were named by themselves are not looked for.
        names: of the models, with their bundles.
        languages: of the models that are wanted; none: any.
        """
        all_paths = map(Path, paths)
        self._folders = [path for path in all_paths if path.is_dir() and not (path / MANIFEST).exists()]
        self._languages = languages
        served = {path: name for name, path in names.items()}
        self._served = {path: name for path, name in served.items() if path.parent in self._folders}
        self._manifests = {path: _status(path / MANIFEST) for path in self._served}
        self._others: dict[Path, Files] = {}  # bundles that are not served, as they were
        self._missing: set[Path] = set()
        self._emptied: set[Path] = set()  # folders whose bundles all went, as a volume does

    def rescan(self, repository: Repository) -> None:
        """Take in what has come and let go of what has gone. Blocks while models are loaded."""
        for folder in self._folders:
            try:
                paths = bundles_in(folder)
            except OSError:
                paths = []
            if paths:
                self._emptied.discard(folder)
                self._let_go(folder, set(paths), repository)
            elif folder not in self._emptied and any(path.parent == folder for path in self._served):
                logger.warning(LEFT, folder)
                self._emptied.add(folder)
            for path in paths:
                if path in self._served:
                    self._replace(path, repository)
                else:
                    self._take_in(path, repository)

    def _let_go(self, folder: Path, paths: set[Path], repository: Repository) -> None:
        lacking = {path for path in self._served if path.parent == folder} - paths
        for path in sorted(lacking & self._missing):
            name = self._served.pop(path)
            repository.remove(name)
            logger.info("%s is served no more: %s was taken out", name, path)
            self._others.clear()  # one of them may have waited for its name
        self._missing = {path for path in self._missing if path.parent != folder} | lacking
        self._others = {p: s for p, s in self._others.items() if p.parent != folder or p in paths}

    def _replace(self, path: Path, repository: Repository) -> None:
        """Take in what a served bundle has become, where that has another name, and let go of what it was."""
        status, name = _status(path / MANIFEST), self._served[path]
        if status == self._manifests.get(path):
            return
        try:
            new = open_bundle(path, verify=False).name
        except (ConvoyError, OSError):  # it is being written: the next look sees more
            return
        if new == name:
            self._manifests[path] = status
            return
        self._take_in(path, repository)
        if self._served[path] != name:
            repository.remove(name)
            logger.info("%s is served no more: %s holds %s now", name, path, new)

    def _take_in(self, path: Path, repository: Repository) -> None:
        files = _files(path)
        if self._others.get(path) == files:
            return
        self._others[path] = files
        try:
            if not within(open_bundle(path, verify=False), self._languages):
                return
            info = repository.add(path)
        except Unavailable:  # the one before it is leaving: the next look may find it gone
            del self._others[path]
            return
        except (ConvoyError, OSError) as error:
            logger.warning("%s is not served: %s", path, error)
            return
        del self._others[path]
        self._served[path], self._manifests[path] = info.name, _status(path / MANIFEST)
        logger.info("%s is served: %s was put in", info.name, path)


def _status(file: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced; None: it can't be said."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _files(path: Path) -> Files:
    """What changes when anything in a bundle does; while files come and go, not what it will be."""
    entries = []
    for file in sorted(path.rglob("*")):
        try:
            status = file.stat()
        except OSError:
            continue
        entries.append((file.relative_to(path).as_posix(), status.st_size, status.st_mtime_ns))
    return tuple(entries)
