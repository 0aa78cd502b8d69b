"""A mirror of models: a folder, perhaps behind a web server, with an `index.json`.

    {"format": 1, "models": [{"name": "deen", "source": "de", "target": "en", "architecture": "tiny",
      "files": [{"path": "tiny/deen/model.deen.intgemm.alphas.bin.gz", "size": 16911, "sha256": "..."},
      ...]}]}

A model with `"kind": "bundle"` is served as fetched, and `folder` is the folder of its files; any other is a
student of Firefox or Bergamot. Paths are relative to the index; sizes and hashes belong to the stored
files, packed or not. There is no default mirror.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from engine.bundle.folder import write_file
from engine.bundle.manifest import Provenance, file_digest
from engine.errors import CheckpointError, InvalidRequest
from export.fetching.download import download_all
from export.fetching.offers import BUNDLE, NAME, STUDENT, ModelOffer, Progress, RemoteFile, choose
from export.fetching.web import Web, is_web

INDEX: Final = "index.json"
FORMAT: Final = 1
STUDENT_KIND: Final = "student"  # kind of students in an index


@dataclass(frozen=True, slots=True)
class MirrorFile:
    """A file of a mirror.

    path: path relative to the index, with "/" between folders.
    size: number of bytes.
    sha256: hash in hexadecimal digits.
    """

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class MirrorModel:
    """A model in the index of a mirror.

    architecture: kind of network, or the student's size.
    kind: BUNDLE or STUDENT_KIND.
    folder: folder of a bundle's files, relative to the index.
    """

    name: str
    source: str
    target: str
    architecture: str
    files: tuple[MirrorFile, ...]
    kind: str = STUDENT_KIND
    folder: str = ""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class Mirror:
    """The models of one mirror."""

    name = "mirror"

    def __init__(self, web: Web, address: str) -> None:
        """Open the source.

        web: reader of the address.
        address: address or folder of the mirror.

        Raises InvalidRequest without an address.
        """
        if not address:
            raise InvalidRequest(
                "mirror: give --mirror with an address or a folder, or set CONVOY_FETCH_MIRROR"
            )
        self.web, self.address = web, address.rstrip("/")

    def offers(self) -> Sequence[ModelOffer]:
        index, _ = self.web.index(self._place(INDEX))
        try:
            if index["format"] != FORMAT:
                raise CheckpointError(
                    f"{INDEX}: format {index['format']!r} is unknown, {FORMAT} is read: upgrade Convoy"
                )
            offers = [self._offer(entry) for entry in index["models"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{INDEX}: not an index of models ({type(error).__name__}: {error})"
            ) from error
        names = [offer.bundle for offer in offers]
        if len(set(names)) < len(names):
            raise CheckpointError(f"{INDEX}: names {max(names, key=names.count)!r} twice")
        return offers

    def find(self, name: str, architecture: str | None = None) -> ModelOffer:
        return choose(self.offers(), self.name, name, architecture)

    def download(self, offer: ModelOffer, folder: Path, progress: Progress) -> None:
        download_all(self.web, offer.files, folder, progress)

    def _place(self, path: str) -> str:
        return f"{self.address}/{path}" if is_web(self.address) else str(Path(self.address) / path)

    def _offer(self, entry: dict[str, Any]) -> ModelOffer:
        """Parse a model of an index. Raises ValueError, KeyError or TypeError if it is invalid."""
        texts = [entry[key] for key in ("name", "source", "target")] + [entry.get("architecture", "")]
        # only the architecture may be empty
        if not all(isinstance(text, str) and (NAME.fullmatch(text) or not text) for text in texts) or not all(
            texts[:3]
        ):
            raise ValueError(f"a model is named {texts}")
        kind, folder = entry.get("kind", STUDENT_KIND), entry.get("folder", "")
        if kind not in (BUNDLE, STUDENT_KIND) or not isinstance(folder, str):
            raise ValueError(f"{texts[0]} is of kind {kind!r}, {BUNDLE} and {STUDENT_KIND} are known")
        name, source, target, architecture = texts
        files = tuple(self._file(file, folder if kind == BUNDLE else None) for file in entry["files"])
        if not files:
            raise ValueError(f"{name} has no files")
        origin = Provenance(self.name, name, self.address)
        return ModelOffer(
            origin, name, source, target, BUNDLE if kind == BUNDLE else STUDENT, files, architecture
        )

    def _file(self, entry: dict[str, Any], folder: str | None) -> RemoteFile:
        """Parse a file of an index. Raises ValueError if its path, size or hash is invalid.

        entry: entry of the file.
        folder: folder of a bundle; None: the file is one of a student.
        """
        path, size, digest = entry["path"], entry["size"], entry["sha256"]
        if not isinstance(path, str) or not all(NAME.fullmatch(part) for part in path.split("/")):
            raise ValueError(f"the path {path!r} leaves the mirror's folder")
        if size is None or not digest:
            raise ValueError(f"{path} needs a size and a sha256")
        pure = PurePosixPath(path)
        inside = pure.name if folder is None else pure.relative_to(folder).as_posix()
        return RemoteFile(self._place(path), inside, size, digest)


def write_index(tree: Path, models: Sequence[MirrorModel]) -> None:
    """Write the index of a mirror; an existing one is replaced."""
    listed = {"format": FORMAT, "models": [asdict(model) for model in models]}
    write_file(tree / INDEX, (json.dumps(listed, indent=1) + "\n").encode())


def mirror_file(tree: Path, path: Path) -> MirrorFile:
    """Return path, size and hash of a file in a mirror's folder."""
    return MirrorFile(path.relative_to(tree).as_posix(), path.stat().st_size, file_digest(path))
