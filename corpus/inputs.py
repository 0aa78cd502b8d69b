"""Files to translate: their formats, and the names of their outputs."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from corpus.streams import is_remote, size_of
from engine.api import InvalidRequest

KINDS: Final = {".txt": "text", ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
PARQUET: Final = ".parquet"
COMPRESSIONS: Final = {".gz": "gz", ".zst": "zst"}
REFUSED: Final = frozenset({".bz2", ".xz", ".zip", ".docx", ".pdf", ".html", ".json", ".xlsx", ".tar"})


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of a corpus.

    path: local path, or a URL.
    name: name of its output, with the folders below the common folder of all inputs.
    kind: "text", "tsv", "csv", "jsonl" or "parquet".
    compression: "gz", "zst" or none ("").
    size: bytes of the stored file.
    """

    path: str
    name: str
    kind: str
    compression: str
    size: int


def find_inputs(patterns: Sequence[str], kind: str | None = None) -> list[InputFile]:
    """Return the files of paths, folders, globs and URLs, sorted by name.

    patterns: paths, folders, globs and URLs. A folder gives its files with a known ending, except those whose
        name begins with "." or "_".
    kind: format of files whose names have no known ending; None: text.

    Raises OSError, and InvalidRequest if there is no file, two files would have the same name, or an ending
    is not supported.
    """
    paths = sorted({path for pattern in patterns for path in _expand(pattern)})
    if not paths:
        raise InvalidRequest(f"{', '.join(patterns)}: no such file, or a folder without texts")
    parents = [str(PurePosixPath(path).parent) for path in paths]
    common = os.path.commonpath(parents) if len({is_remote(path) for path in paths}) == 1 else ""
    files = [_input_file(path, common, kind) for path in paths]
    names: dict[str, str] = {}
    for file in files:
        if names.setdefault(file.name, file.path) != file.path:
            raise InvalidRequest(f"{names[file.name]} and {file.path} would both become {file.name}")
    return files


def endings(name: str) -> tuple[str, str]:
    """Return the endings of a name for its format and its compression, such as ".jsonl" and ".gz"."""
    path = PurePosixPath(name)
    packed = path.suffix if path.suffix in COMPRESSIONS else ""
    return PurePosixPath(path.name.removesuffix(packed)).suffix, packed


def _expand(pattern: str) -> Iterator[str]:
    """Yield the paths of the files that a path, folder or pattern names."""
    if is_remote(pattern):
        yield from _expand_remote(pattern)
    elif os.path.isdir(pattern):
        for folder, inner, names in os.walk(pattern):
            inner[:] = [name for name in inner if not name.startswith((".", "_"))]
            yield from (os.path.abspath(os.path.join(folder, n)) for n in names if _is_corpus(n))
    elif os.path.exists(pattern):
        yield os.path.abspath(pattern)
    else:
        yield from map(os.path.abspath, filter(os.path.isfile, glob.glob(pattern, recursive=True)))


def _expand_remote(pattern: str) -> Iterator[str]:
    """Yield the addresses of the files that a remote address or pattern names."""
    import fsspec

    filesystem, inner = fsspec.core.url_to_fs(pattern)
    if glob.has_magic(inner):
        yield from (filesystem.unstrip_protocol(path) for path in filesystem.glob(inner))
    elif filesystem.isdir(inner):
        yield from (filesystem.unstrip_protocol(p) for p in filesystem.find(inner) if _is_corpus(p))
    elif filesystem.exists(inner):
        yield pattern


def _is_corpus(path: str) -> bool:
    known = endings(path)[0] in {*KINDS, PARQUET}
    return known and not PurePosixPath(path).name.startswith((".", "_"))


def _input_file(path: str, common: str, kind: str | None) -> InputFile:
    """Return the file at a path with its format, size, and name in the folder `common`."""
    suffix, packed = endings(path)
    if suffix in REFUSED and kind is None:
        raise InvalidRequest(f"{path}: {suffix} is no format of corpora; name one by --format")
    found = "parquet" if suffix == PARQUET else KINDS.get(suffix, kind or "text")
    if found == "parquet" and packed:
        raise InvalidRequest(f"{path}: Parquet is compressed inside: decompress the file")
    inside = PurePosixPath(path).relative_to(common) if common else PurePosixPath(path).name
    return InputFile(path, str(inside), found, COMPRESSIONS.get(packed, ""), size_of(path))
