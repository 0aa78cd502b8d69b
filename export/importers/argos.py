"""`convoy convert argos`: packages of Argos Translate, which LibreTranslate serves, to bundles.

A package is a folder, or a zip with one folder (`.argosmodel`): `metadata.json`, `model/` of CTranslate2, and
`sentencepiece.model` or `bpe.model`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.errors import BundleError, CheckpointError
from export.importers import ctranslate2
from export.importers.json_object import read_object
from export.importers.packages import unpack

METADATA: Final = "metadata.json"
MODEL: Final = "model"
ENDING: Final = ".argosmodel"
CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,15}")
# as Argos decodes; ARGOS_BEAM_SIZE is 4 where nobody sets it
GENERATION: Final[dict[str, Any]] = {"beam_size": 4, "length_penalty": 0.2, "max_length_b": 256}


@dataclass(frozen=True, slots=True)
class Package:
    """A package of a translation model.

    prefix: what every target begins with.
    """

    folder: Path
    source: str
    target: str
    version: str
    prefix: str | None

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"


def is_package(path: Path) -> bool:
    """Tell whether a path looks like a package, packed or not."""
    packed = path.suffix == ENDING and path.is_file()
    return packed or ((path / METADATA).is_file() and (path / MODEL).is_dir())


def packages_in(folder: Path) -> list[Path]:
    """List the packages of a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if is_package(path)) if folder.is_dir() else []


def convert(path: Path, out: Path, name: str | None = None, *, overwrite: bool = False) -> list[Bundle]:
    """Import a package as the bundle `out`, or every package of a folder as a bundle in the folder `out`.

    Raises CheckpointError that names the file at fault; BundleError when a bundle exists.
    """
    if is_package(path):
        return [_convert(path, out, name, overwrite=overwrite)]
    paths = packages_in(path)
    if not paths:
        raise CheckpointError(
            f"{path}: neither a package of Argos ({ENDING}, or a folder with {METADATA} and {MODEL}/) nor a "
            "folder of packages"
        )
    if name is not None:
        raise CheckpointError(f"{path}: holds {len(paths)} packages, which are named by their languages")
    bundles = []
    for package in paths:
        with open_package(package) as contents:
            target = out / contents.name
            if not overwrite and target.exists():
                raise BundleError(f"{target}: already exists; choose another folder or ask to overwrite it")
            bundles.append(_write(contents, target, None, overwrite=overwrite))
    return bundles


@contextmanager
def open_package(path: Path) -> Iterator[Package]:
    """Open a package with its folder, unpacked where it is packed. Raises CheckpointError."""
    if path.is_file():
        with unpack(path) as folder:
            yield read_package(folder)
    else:
        yield read_package(path)


def read_package(folder: Path) -> Package:
    """Read what metadata.json says. Raises CheckpointError for packages of other things than translation."""
    path = folder / METADATA
    metadata = read_object(path)
    if metadata.get("type", "translate") != "translate":
        raise CheckpointError(f"{path}: is a package of the type {metadata['type']!r}, not of translation")
    codes = metadata.get("from_code"), metadata.get("to_code")
    for name, code in zip(("from_code", "to_code"), codes, strict=True):
        if not isinstance(code, str) or not CODE.fullmatch(code):
            raise CheckpointError(f"{path}: {name} = {code!r} is no code of a language")
    prefix = metadata.get("target_prefix") or None
    if prefix is not None and not isinstance(prefix, str):
        raise CheckpointError(f"{path}: target_prefix = {prefix!r} is no symbol")
    return Package(folder, str(codes[0]), str(codes[1]), str(metadata.get("package_version", "")), prefix)


def _convert(path: Path, out: Path, name: str | None, *, overwrite: bool) -> Bundle:
    with open_package(path) as package:
        return _write(package, out, name, overwrite=overwrite)


def _write(package: Package, out: Path, name: str | None, *, overwrite: bool) -> Bundle:
    pieces, codes = package.folder / "sentencepiece.model", package.folder / "bpe.model"
    if not pieces.is_file() and not codes.is_file():
        raise CheckpointError(f"{package.folder}: holds neither {pieces.name} nor {codes.name}")
    cut = pieces.is_file()
    settings = ctranslate2.Settings(
        source=package.source,
        target=package.target,
        name=name or package.name,
        pieces=(pieces,) if cut else (),
        codes=None if cut else codes,
        moses=not cut,
        prefix=package.prefix,
        replace_unknown=True,
        generation=GENERATION,
        notes=(f"Version of the package: {package.version[:40] or 'unknown'}",),
        command="argos",
    )
    return ctranslate2.convert(package.folder / MODEL, out, settings, overwrite=overwrite)
