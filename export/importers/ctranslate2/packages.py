"""Metadata of Argos Translate's packages, the models of LibreTranslate; read without torch.

A package is a folder, or a zip with one folder (`.argosmodel`): `metadata.json`, `model/` of CTranslate2, and
`sentencepiece.model` or `bpe.model`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import CheckpointError
from export.importers.ctranslate2.zips import unpack
from export.importers.json_object import read_object

METADATA_FILE: Final = "metadata.json"
MODEL_FOLDER: Final = "model"
ENDING: Final = ".argosmodel"
TRANSLATION: Final = "translate"  # type of translation models; other packages split sentences
LANGUAGE_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,15}")


@dataclass(frozen=True, slots=True)
class Package:
    """Metadata of a package.

    kind: TRANSLATION, or the type of another package, whose other fields are empty.
    prefix: symbol that every target begins with, or None.
    """

    folder: Path
    kind: str
    source: str
    target: str
    version: str
    prefix: str | None

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"


def is_package(path: Path) -> bool:
    """Return whether a path looks like a package, packed or not."""
    packed = path.suffix == ENDING and path.is_file()
    return packed or ((path / METADATA_FILE).is_file() and (path / MODEL_FOLDER).is_dir())


def packages_at(path: Path) -> list[Path]:
    """Return the path itself if it is a package, or all packages in it. Raises CheckpointError if none is."""
    if is_package(path):
        return [path]
    paths = sorted(filter(is_package, path.iterdir())) if path.is_dir() else []
    if not paths:
        raise CheckpointError(
            f"{path}: neither a package of Argos ({ENDING}, or a folder with {METADATA_FILE} and "
            f"{MODEL_FOLDER}/) nor a folder of packages"
        )
    return paths


@contextmanager
def open_package(path: Path) -> Iterator[Package]:
    """Yield a package, unpacked into a temporary folder if it is a file. Raises CheckpointError."""
    if path.is_file():
        with unpack(path) as folder:
            yield read_package(folder)
    else:
        yield read_package(path)


def read_package(folder: Path) -> Package:
    """Read metadata.json. Raises CheckpointError with all its problems."""
    path = folder / METADATA_FILE
    metadata, problems = read_object(path), []
    kind = metadata.get("type", TRANSLATION)
    if kind != TRANSLATION:
        return Package(folder, str(kind), "", "", "", None)
    for name in ("from_code", "to_code"):
        code = metadata.get(name)
        if not isinstance(code, str) or not LANGUAGE_CODE.fullmatch(code):
            problems.append(f"{name} = {code!r} is not a language code")
    prefix = metadata.get("target_prefix") or None
    if prefix is not None and not isinstance(prefix, str):
        problems.append(f"target_prefix = {prefix!r} is not a symbol")
    if problems:
        raise CheckpointError(f"{path}: {'; '.join(problems)}; install the package again")
    version = str(metadata.get("package_version", ""))
    return Package(folder, kind, metadata["from_code"], metadata["to_code"], version, prefix)
