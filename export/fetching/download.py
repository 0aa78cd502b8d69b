"""Downloads one file: resumed after a cut or a kill, verified packed and unpacked."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from engine.bundle.manifest import file_digest
from engine.errors import CheckpointError
from export.fetching.offers import MAX_FILE_BYTES, Progress, RemoteFile
from export.fetching.unpack import unpack
from export.fetching.web import PAUSES, Interrupted, Part, Web, wait

PARTIAL: Final = ".partial"
TAG: Final = ".tag"  # file with the mark of the content of a partial file without a hash
MAX_REQUESTS: Final = 1_000  # requests for one file, which a server may cut each time
ROOM_FACTOR: Final = 4  # room for a file: packed, unpacked, weights of the bundle, graphs


def download_all(web: Web, files: Iterable[RemoteFile], folder: Path, progress: Progress) -> None:
    """Download files that are not in a folder yet, and remove all other files of the folder.

    web: reader of the addresses.
    files: files of one model.
    folder: folder for the files.
    progress: callback for the received bytes; those on disk count too.

    Raises CheckpointError.
    """
    wanted = tuple(files)
    names = {folder / file.path for file in wanted} | {_packed(file, folder) for file in wanted}
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.is_file() and path.with_name(path.name.removesuffix(TAG).removesuffix(PARTIAL)) not in names:
            path.unlink()  # a file of another version
    for file in wanted:
        download(web, file, folder, progress)


def check_room(folder: Path, size: int) -> None:
    """Raise CheckpointError if the disk of a folder has no room to download and import a number of bytes."""
    free, needed = shutil.disk_usage(folder).free, ROOM_FACTOR * size
    if free < needed:
        raise CheckpointError(
            f"{folder}: {size / 1e6:.0f} MB to fetch need {needed / 1e6:.0f} MB with their import, and "
            f"{free / 1e6:.0f} MB are free: make room, or name another folder"
        )


def download(web: Web, file: RemoteFile, folder: Path, progress: Progress) -> Path:
    """Download a file unless it is on disk, verify and unpack it; return its path. Raises CheckpointError.

    web: reader of the address.
    file: file to download.
    folder: folder for the file.
    progress: callback for the received bytes; those on disk count too.
    """
    target, packed = folder / file.path, _packed(file, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.unpacked_sha256 and _is(target, file.unpacked_size, file.unpacked_sha256):
        progress(file.size or 0)
        return target
    if file.sha256 and _is(packed, file.size, file.sha256):
        progress(packed.stat().st_size)
    else:
        _Transfer(web, file, packed, progress).run()
    if file.packing:
        _unpack(file, packed, target)
    return target


def _packed(file: RemoteFile, folder: Path) -> Path:
    """Return the path of a file as it is received."""
    return folder / (f"{file.path}.{file.packing}" if file.packing else file.path)


def _is(path: Path, size: int | None, sha256: str) -> bool:
    """Return whether a file is there with this size, unless it is unknown, and this hash."""
    return path.is_file() and (size is None or path.stat().st_size == size) and file_digest(path) == sha256


def _unpack(file: RemoteFile, packed: Path, target: Path) -> None:
    """Unpack and verify a file, and remove the packed one."""
    fresh = target.with_name(target.name + PARTIAL)
    try:
        unpack(packed, fresh, file.unpacked_size)
        right = not file.unpacked_sha256 or _is(fresh, file.unpacked_size, file.unpacked_sha256)
        if right:
            fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    if not right:
        raise CheckpointError(
            f"{file.path}: unpacked, it has another size or SHA-256 than the index lists; inform the "
            "maintainer of the source"
        )
    packed.unlink()


class _Transfer:
    """The download of one file; an interrupted one leaves a partial file, which the next one continues."""

    def __init__(self, web: Web, file: RemoteFile, target: Path, progress: Progress) -> None:
        """Prepare the download.

        web: reader of the address.
        file: file to download.
        target: path of the whole file, as it is received.
        progress: callback for the received bytes.
        """
        self.web, self.file, self.target, self.progress = web, file, target, progress
        self.partial = target.with_name(target.name + PARTIAL)
        self.tag = self.partial.with_name(self.partial.name + TAG)
        self.counted = 0  # bytes of this file that `progress` has received

    def run(self) -> None:
        """Request the file until it is whole. Raises CheckpointError."""
        failures, second = 0, False
        for _ in range(MAX_REQUESTS):
            began = self._length()
            try:
                resumed = self._request(began)
            except Interrupted as error:
                failures = 0 if self._length() > began else failures + 1
                wait(PAUSES[max(0, failures - 1)] if failures <= len(PAUSES) else None, error)
                continue
            if self._verified():
                self.partial.replace(self.target)
                self.tag.unlink(missing_ok=True)
                return
            self._discard()
            if second or not resumed:
                raise CheckpointError(
                    f"{self.file.path}: is not the file of the index (another size or SHA-256); run the "
                    "command again, or inform the maintainer of the source"
                )
            second = True  # the beginning on disk may have been of another version
        raise CheckpointError(f"{self.file.address}: the server interrupts each answer; try again later")

    def _request(self, begin: int) -> bool:
        """Request the missing bytes once, and append them. Returns whether the server resumed.

        begin: number of bytes in the partial file.

        Raises Interrupted if bytes are missing at the end.
        """
        tag = self.tag.read_text(encoding="utf-8") if self.tag.is_file() else ""
        if begin and not (self.file.sha256 or tag):
            self._discard()  # it may be of another version, and no hash would show it
            begin = 0
        if begin and begin == self.file.size:
            self._count(begin)
            return True
        with self.web.read(self.file.address, begin, tag) as part:
            begin = begin if part.resumed else 0
            self._count(begin)
            size = self._expected(part)
            if part.tag and not self.file.sha256:
                self.tag.write_text(part.tag, encoding="utf-8")
            self._append(part, begin, MAX_FILE_BYTES if size is None else size)
        if size is not None and self._length() < size:
            raise Interrupted(f"{self.file.path}: ended after {self._length():,} of {size:,} bytes")
        return part.resumed and begin > 0

    def _expected(self, part: Part) -> int | None:
        """Return the size of the whole file; None: unknown. Raises CheckpointError on a full disk."""
        if self.file.size is not None:
            return self.file.size
        if part.size is not None:
            check_room(self.target.parent, part.size)
        return part.size

    def _append(self, part: Part, begin: int, size: int) -> None:
        """Append bytes up to one more than the file has. Raises CheckpointError if the disk is full."""
        try:
            with self.partial.open("ab" if begin else "wb") as out:
                for chunk in part.chunks:
                    out.write(chunk)
                    begin += len(chunk)
                    self._count(begin)
                    if begin > size:
                        return
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise CheckpointError(f"{self.partial}: the disk is full; make room, and run it again") from error

    def _verified(self) -> bool:
        """Return whether the file has the size and the hash of the index, as far as they are known."""
        if self.file.sha256:
            return _is(self.partial, self.file.size, self.file.sha256)
        return self.file.size in (None, self._length())

    def _discard(self) -> None:
        self.partial.unlink(missing_ok=True)
        self.tag.unlink(missing_ok=True)
        self._count(0)

    def _length(self) -> int:
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def _count(self, length: int) -> None:
        """Report the number of bytes on disk, if it has changed."""
        if length != self.counted:
            self.progress(length - self.counted)
            self.counted = length
