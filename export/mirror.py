"""Fetch and verify files of a mirror of models, a folder or web server with an index.

A mirror is a folder, perhaps behind a web server, with an `index.json`:

    {"format": 1, "models": [{"name": "deen", "source": "de", "target": "en", "architecture": "tiny",
      "files": [{"path": "tiny/deen/model.deen.intgemm.alphas.bin.gz", "size": 16911, "sha256": "..."},
      ...]}]}

A model with `"kind": "bundle"` is served as fetched, and `folder` is the folder of its files; any other is a
student of Firefox or Bergamot. Paths are relative to the index; sizes and hashes are those of the stored
files, packed or not. There is no default mirror.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

from engine.bundle.bundle import open_bundle
from engine.bundle.folder import replacing, write_file
from engine.bundle.manifest import file_digest
from engine.errors import CheckpointError

INDEX: Final = "index.json"
FORMAT: Final = 1
MAX_INDEX_BYTES: Final = 2**24
CHUNK: Final = 2**18  # bytes
PARTIAL: Final = ".partial"
SILENCE_SECONDS: Final = 30.0  # timeout without a received byte
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
BUNDLE: Final = "bundle"
STUDENT: Final = "student"
MAX_FILE_BYTES: Final = 2**35


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
    """A model that a mirror offers.

    architecture: kind of network, or the student's size.
    kind: BUNDLE or STUDENT.
    folder: folder of a bundle's files, relative to the index.
    """

    name: str
    source: str
    target: str
    architecture: str
    files: tuple[MirrorFile, ...]
    kind: str = STUDENT
    folder: str = ""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def place(self, file: MirrorFile) -> PurePosixPath:
        """Return the path of a file within the folder that the model is fetched to."""
        path = PurePosixPath(file.path)
        return path.relative_to(self.folder) if self.kind == BUNDLE else PurePosixPath(path.name)


class Mirror(Protocol):
    """A source of files."""

    def read(self, path: str, begin: int = 0) -> Any:
        """Open a file of the mirror.

        path: path relative to the index.
        begin: number of bytes to skip if the mirror can.

        The context yields whether the bytes start at `begin` (otherwise at 0), and the chunks of bytes.
        """


class Folder:
    """A mirror on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def read(self, path: str, begin: int = 0) -> Iterator[tuple[bool, Iterator[bytes]]]:
        where = self.path / path
        try:
            with where.open("rb") as file:
                file.seek(begin)
                yield True, iter(lambda: file.read(CHUNK), b"")
        except OSError as error:
            raise CheckpointError(f"{where}: not readable ({error.strerror}); is it a mirror?") from error


class Web:
    """A mirror behind an address (needs the extra `client`)."""

    def __init__(self, address: str) -> None:
        import httpx

        self.address = address.rstrip("/")
        self.client = httpx.Client(timeout=SILENCE_SECONDS, follow_redirects=True)

    @contextmanager
    def read(self, path: str, begin: int = 0) -> Iterator[tuple[bool, Iterator[bytes]]]:
        import httpx

        # see `Mirror.read`: 206 means that the bytes start at `begin`, 200 that the server sends all of them
        url = f"{self.address}/{path}"
        # no compression in transit: the index has size and hash of the file itself
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={begin}-"} if begin else {})
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                if response.status_code not in (200, 206):
                    raise CheckpointError(
                        f"{url}: the mirror answers {response.status_code}; is the address right?"
                    )
                # files may be stored elsewhere, as the trusted index has their hashes
                if path == INDEX and response.url.host != httpx.URL(self.address).host:
                    raise CheckpointError(
                        f"{url}: the mirror sends to another host, {response.url.host}, for its index: name "
                        "that one where you trust it"
                    )
                yield response.status_code == 206, response.iter_raw()
        except httpx.HTTPError as error:
            raise CheckpointError(
                f"{url}: not reached, or interrupted ({error or type(error).__name__}); check the network, "
                "or name a folder as the mirror"
            ) from error


def open_mirror(where: str) -> Mirror:
    """Open a mirror by its address (http, https) or folder."""
    return Web(where) if where.startswith(("http://", "https://")) else Folder(Path(where))


def models_of(mirror: Mirror) -> list[MirrorModel]:
    """Read a mirror's index. Raises CheckpointError if it is invalid or has paths outside of its folder."""
    data = bytearray()
    with mirror.read(INDEX) as (_, chunks):
        for chunk in chunks:
            data += chunk
            if len(data) > MAX_INDEX_BYTES:
                raise CheckpointError(
                    f"{INDEX}: has more than {MAX_INDEX_BYTES:,} bytes, so it is not an index"
                )
    try:
        value = json.loads(data)
        if value["format"] != FORMAT:
            raise CheckpointError(
                f"{INDEX}: format {value['format']!r} is unknown, {FORMAT} is read: upgrade Convoy"
            )
        models = [_model(entry) for entry in value["models"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{INDEX}: not an index of models ({type(error).__name__}: {error})") from error
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise CheckpointError(f"{INDEX}: names {max(names, key=names.count)!r} twice")
    return models


def write_index(tree: Path, models: Sequence[MirrorModel]) -> None:
    """Write the index of a mirror; an existing one is replaced."""
    listed = {"format": FORMAT, "models": [asdict(model) for model in models]}
    write_file(tree / INDEX, (json.dumps(listed, indent=1) + "\n").encode())


def mirror_file(tree: Path, path: Path) -> MirrorFile:
    """Return path, size and hash of a file in a mirror's folder."""
    return MirrorFile(path.relative_to(tree).as_posix(), path.stat().st_size, file_digest(path))


def fetch(mirror: Mirror, model: MirrorModel, folder: Path, progress: Callable[[int], None]) -> None:
    """Fetch and verify a model's files; existing files are kept, and interrupted ones continued.

    mirror: the mirror.
    model: model of its index.
    folder: folder for the files.
    progress: callback that receives the number of bytes since its last call.

    Raises CheckpointError.
    """
    for file in model.files:
        _fetch(mirror, file, folder / model.place(file), progress)


def place_bundle(folder: Path, target: Path, *, keep: bool) -> None:
    """Make a bundle of fetched files, completely or not at all; an existing bundle is replaced.

    folder: folder of the files.
    target: the bundle's folder.
    keep: copy the files instead of moving them.

    Raises BundleError if the files are no bundle.
    """
    open_bundle(folder, verify=False)  # `fetch` has compared each file with the index
    with replacing(target) as fresh:
        for path in folder.iterdir():
            if keep:
                (shutil.copytree if path.is_dir() else shutil.copy2)(path, fresh / path.name)
            else:
                path.rename(fresh / path.name)


def _fetch(mirror: Mirror, file: MirrorFile, target: Path, progress: Callable[[int], None]) -> None:
    """Fetch and verify a file; an interrupted fetch leaves a .partial file, which the next one continues."""
    if target.is_file() and target.stat().st_size == file.size and file_digest(target) == file.sha256:
        progress(file.size)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + PARTIAL)
    # size: number of bytes in the partial file
    size = partial.stat().st_size if partial.is_file() else 0
    size = size if size < file.size else 0
    with mirror.read(file.path, size) as (resumed, chunks):
        size = size if resumed else 0
        progress(size)
        with partial.open("ab" if size else "wb") as out:
            for chunk in chunks:
                size += len(chunk)
                if size > file.size:
                    break
                out.write(chunk)
                progress(len(chunk))
    if size < file.size:
        raise CheckpointError(
            f"{file.path}: ended after {size:,} of {file.size:,} bytes; run the command again"
        )
    if size > file.size or file_digest(partial) != file.sha256:
        partial.unlink()
        raise CheckpointError(
            f"{file.path}: is not the file of the index (another size or SHA-256); run the command again, or "
            "inform the maintainer of the mirror"
        )
    partial.replace(target)


def _model(entry: dict[str, Any]) -> MirrorModel:
    """Parse a model of an index. Raises ValueError, KeyError or TypeError if it is invalid."""
    texts = [entry[key] for key in ("name", "source", "target")] + [entry.get("architecture", "")]
    # only the architecture may be empty
    if not all(isinstance(text, str) and (NAME.fullmatch(text) or not text) for text in texts) or not all(
        texts[:3]
    ):
        raise ValueError(f"a model is named {texts}")
    files = tuple(_mirror_file(file["path"], file["size"], file["sha256"]) for file in entry["files"])
    kind, folder = entry.get("kind", STUDENT), entry.get("folder", "")
    if kind not in (BUNDLE, STUDENT) or not isinstance(folder, str):
        raise ValueError(f"{texts[0]} is of kind {kind!r}, {BUNDLE} and {STUDENT} are known")
    name, source, target, architecture = texts
    model = MirrorModel(name, source, target, architecture, files, kind, folder)
    places = [model.place(file) for file in files]  # a file outside of the folder raises ValueError
    if not files or len(set(places)) < len(places):
        raise ValueError(f"{name} has no files, or two of one name")
    return model


def _mirror_file(path: Any, size: Any, digest: Any) -> MirrorFile:
    """Return a file of an index. Raises ValueError if its path, size or hash is invalid."""
    parts: Sequence[str] = path.split("/") if isinstance(path, str) else ()
    if not parts or not all(NAME.fullmatch(part) for part in parts):
        raise ValueError(f"the path {path!r} leaves the mirror's folder")
    if (
        type(size) is not int
        or not 0 < size <= MAX_FILE_BYTES
        or not isinstance(digest, str)
        or not DIGEST.fullmatch(digest)
    ):
        raise ValueError(f"{path} needs a size and a sha256")
    return MirrorFile(path, size, digest)
