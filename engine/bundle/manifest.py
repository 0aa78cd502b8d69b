"""The files that a bundle lists: names, sizes and hashes, each checked before use; origin of the model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from engine.bundle.json_file import read_json
from engine.bundle.strict import from_json
from engine.errors import BundleError, ConfigError

T = TypeVar("T")
FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
# file suffixes of pickles; a bundle refuses them, so that no tool ever loads one
PICKLES: Final = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib"})
REMEDY: Final = "copy or convert the bundle again"
CONFIG: Final = "config.json"
GENERATION: Final = "generation_config.json"
WEIGHTS: Final = "model.safetensors"
PROVENANCE: Final = "provenance"  # key in manifest.json
DEMONSTRATION: Final = "demonstration"  # source of the small models that Convoy ships


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A line of the manifest: bytes and hexadecimal SHA-256."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a model; an empty text is unknown.

    source: kind of the source, such as "firefox".
    name: name of the model at its source, such as "de-en".
    address: address that the model was fetched from.
    version: version of the model.
    revision: revision of the repository, or date of the index.
    licence: licence of the model.
    files: SHA-256 of each file as it was fetched, by name.
    """

    source: str
    name: str = ""
    address: str = ""
    version: str = ""
    revision: str = ""
    licence: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_demonstration(self) -> bool:
        return self.source == DEMONSTRATION


def check_name(path: Path, name: str) -> None:
    """Check that a file name is relative, normalised, separated by "/" and no pickle's.

    path: path of the bundle, for the error message.
    name: file name within the bundle.

    Raises BundleError.
    """
    pure = PurePosixPath(name)
    parts = name.split("/")
    if (
        pure.is_absolute()
        or "\\" in name
        or ":" in name
        or "\0" in name
        or not {"", ".", ".."}.isdisjoint(parts)
    ):
        raise BundleError(f"{path}: the file name {name!r} leaves the bundle's folder; {REMEDY}")
    if pure.suffix.lower() in PICKLES:
        raise BundleError(f"{path}: {name} looks like a pickle; convert it to safetensors or leave it out")


def check_file(path: Path, entry: FileEntry, verify: bool) -> None:
    """Compare a file with its line of the manifest.

    path: path of the file.
    entry: size and hash in the manifest.
    verify: compare the hash as well as the size.

    Raises BundleError.
    """
    if not path.is_file():
        raise BundleError(f"{path}: the file is missing; {REMEDY}")
    size = path.stat().st_size
    if size != entry.size:
        raise BundleError(f"{path}: has {size} bytes, the manifest says {entry.size}; {REMEDY}")
    if verify and file_digest(path) != entry.sha256:
        raise BundleError(f"{path}: its SHA-256 is not the manifest's, the content has changed; {REMEDY}")


def file_digest(path: Path) -> str:
    """Compute the hexadecimal SHA-256 of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_versioned(path: Path) -> dict[str, Any]:
    """Read a JSON object with a `format` number. Raises BundleError for any other than FORMAT."""
    values = read_json(path, dict, REMEDY)
    if values.get("format") != FORMAT or isinstance(values["format"], bool):
        version = values.get("format")
        raise BundleError(
            f"{path}: format {version!r} is unknown, this version reads {FORMAT}: upgrade Convoy"
        )
    return values


def read_manifest(path: Path) -> tuple[dict[str, FileEntry], Provenance | None]:
    """Read the manifest of a bundle's folder: each file's entry by its name, and the origin of the model.

    Raises BundleError.
    """
    values = read_versioned(path / MANIFEST)
    listed, origin = values.get("files"), values.get(PROVENANCE)
    if not isinstance(listed, dict):
        raise BundleError(f"{path / MANIFEST}: lacks the object `files`; {REMEDY}")
    manifest = {}
    for name, entry in sorted(listed.items()):
        check_name(path / MANIFEST, name)
        manifest[name] = typed(FileEntry, entry, path / MANIFEST, name)
    missing = [name for name in (CONFIG, GENERATION, WEIGHTS) if name not in manifest]
    if missing:
        raise BundleError(f"{path / MANIFEST}: does not list {missing[0]}; {REMEDY}")
    provenance = None if origin is None else typed(Provenance, origin, path / MANIFEST, PROVENANCE)
    return manifest, provenance


def typed(cls: type[T], data: Any, path: Path, where: str) -> T:
    """Convert a JSON object to a dataclass (`from_json`).

    cls: the dataclass.
    data: the object.
    path: path of the file, for the error message.
    where: name of the object in the error message.

    Raises BundleError that names the file and the remedy.
    """
    try:
        return from_json(cls, data, where)
    except ConfigError as error:
        raise BundleError(f"{path}: {error}; {REMEDY}") from None
