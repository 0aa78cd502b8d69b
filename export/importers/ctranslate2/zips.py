"""Unpack zipped packages of models into a temporary folder.

Archives may be hostile: no file is written outside the folder, and none may be larger than its entry says."""

from __future__ import annotations

import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from engine.errors import CheckpointError
from export.importers.downloads import check_download

LARGEST_ARCHIVE: Final = 1 << 33  # bytes of all unpacked files
MOST_EXPANSION: Final = 200  # ratio of unpacked to packed bytes; weights barely compress
MOST_FILES: Final = 10_000
CHUNK_BYTES: Final = 1 << 20


@contextmanager
def unpack(path: Path) -> Iterator[Path]:
    """Unpack a zip and yield its top folder, which is removed at the end of the context.

    Raises CheckpointError for an archive that is damaged or has paths that lead outside, links, duplicate
    members, several top folders, or an implausible unpacked size.
    """
    with tempfile.TemporaryDirectory(prefix="convoy-") as name:
        try:
            with zipfile.ZipFile(path) as archive:
                top = _check_members(path, archive)
                for member in archive.infolist():
                    _extract(archive, member, Path(name))
        except (
            OSError,
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            check_download(path)
            raise CheckpointError(f"{path}: not a readable zip ({error}); download it again") from error
        yield Path(name) / top


def _check_members(path: Path, archive: zipfile.ZipFile) -> str:
    """Check all members, and return the name of the top folder."""
    members = archive.infolist()
    if not members or len(members) > MOST_FILES:
        raise CheckpointError(f"{path}: holds {len(members)} files, so it is not a package")
    names = [member.filename.rstrip("/") for member in members]
    for member, name in zip(members, names, strict=True):
        if _leads_outside(name):
            raise CheckpointError(f"{path}: holds the path {name!r}, which leads outside; don't trust it")
        # the upper half of the attributes is the file mode of Unix; bit 0 of the flags means encryption
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or member.flag_bits & 1:
            raise CheckpointError(f"{path}: {name} is a link, a device or encrypted; don't trust it")
    folded = [name.casefold() for name in names]
    if len(set(folded)) < len(folded):
        raise CheckpointError(f"{path}: holds a file twice; don't trust it")
    size, packed = sum(m.file_size for m in members), path.stat().st_size
    if size > min(LARGEST_ARCHIVE, MOST_EXPANSION * packed):
        raise CheckpointError(f"{path}: {packed:,} bytes would become {size:,}; don't trust it")
    tops = {PurePosixPath(name).parts[0] for name in names}
    if len(tops) != 1:
        raise CheckpointError(f"{path}: a package has one top folder, not {sorted(tops)[:4]}")
    return tops.pop()


def _leads_outside(name: str) -> bool:
    odd = name.startswith("/") or not {"\\", ":"}.isdisjoint(name) or not name.isprintable()
    return odd or ".." in PurePosixPath(name).parts


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    """Extract a member; stops if it has more bytes than its header announces."""
    target = folder / member.filename
    if member.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    allowance = member.file_size
    with archive.open(member) as source, target.open("xb") as out:
        # one byte more than announced shows that the member is too large
        while data := source.read(min(CHUNK_BYTES, allowance + 1)):
            allowance -= len(data)
            if allowance < 0:
                raise zipfile.BadZipFile(f"{member.filename} is larger than it says")
            out.write(data)
