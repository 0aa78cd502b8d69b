"""Puts fetched models into a folder of bundles: lock, download, import into a scratch folder, rename.

`OUT/.fetched/NAME` holds the files of a model until its bundle is complete, and `OUT/.fetched/NAME.lock` is
locked by the process that fetches it. A process that waited for the lock uses the bundle of the other one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from engine.bundle.bundle import Bundle, add_files, open_bundle
from engine.bundle.folder import link_or_copy, swap
from engine.bundle.manifest import MANIFEST, Provenance, file_digest
from engine.errors import BundleError, CheckpointError, ConvoyError
from export.fetching.download import check_room
from export.fetching.offers import BUNDLE, STUDENT, ModelOffer, Source, plain_pair, request_code
from export.fetching.progress import ProgressReport

FETCHED: Final = ".fetched"  # folder in OUT with files that are not imported yet
FETCHED_SOURCES: Final = frozenset({"firefox", "firefox-registry", "argos", "hf", "mirror"})
SCRATCH: Final = "import"  # folder in the folder of a model with its new bundle
FILES: Final = "files"
CARD: Final = "README.md"


@dataclass(frozen=True, slots=True)
class Installer:
    """Fetches models into one folder.

    out: folder of bundles.
    report: progress of the command.
    say: prints one line.
    keep: keep the fetched files in OUT/.fetched.
    source, target: languages of a model that does not name its own; None: unknown.
    """

    out: Path
    report: ProgressReport
    say: Callable[[str], None]
    keep: bool = False
    source: str | None = None
    target: str | None = None

    def install(self, source: Source, offer: ModelOffer, *, overwrite: bool = False) -> Path:
        """Fetch and import a model unless its bundle is there; return the path of the bundle.

        source: source of the model.
        offer: the model.
        overwrite: replace an existing bundle, unless another process has just done it.

        Raises CheckpointError or BundleError; downloaded files stay for the next try.
        """
        target, folder = self.out / offer.bundle, self.out / FETCHED / offer.bundle
        before = _stamp(target)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{folder}: can't make the folder ({error.strerror}); name another"
            ) from error
        with self._locked(offer.bundle):
            if target.exists() and (not overwrite or _stamp(target) != before):
                return target
            self.report.begin(offer.bundle)
            check_room(folder, offer.size)
            source.download(offer, folder / FILES, self.report.add)
            self.report.event("importing")
            _clear(folder / SCRATCH)
            fresh = folder / SCRATCH / offer.bundle
            self._build(offer, folder / FILES, fresh)
            swap(fresh, target)
            _clear(folder / SCRATCH if self.keep else folder)
            self.report.event("ready")
        return target

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the lock of a model; prints a line if another process holds it."""
        lock = FileLock(self.out / FETCHED / f"{name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self.say(f"{name}: another process fetches it; waiting")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _build(self, offer: ModelOffer, files: Path, fresh: Path) -> None:
        """Make a bundle of downloaded files, with its provenance."""
        hashes = {file.path: _digest(files / file.path) for file in offer.files}
        provenance = replace(offer.origin, files=hashes)
        if offer.kind == BUNDLE:
            open_bundle(files, verify=False)  # the download has compared each file with the index
            shutil.copytree(files, fresh, copy_function=link_or_copy, ignore=_hidden)
            add_files(fresh, {}, provenance)
            return
        if offer.kind == "argos":
            self._import_package(offer, files / offer.files[0].path, fresh)
        else:
            self._import(offer, files, fresh)
        card = (fresh / CARD).read_bytes() + "".join(f"- {line}\n" for line in _lines(provenance)).encode()
        add_files(fresh, {CARD: card}, provenance)

    def _import_package(self, offer: ModelOffer, package: Path, fresh: Path) -> None:
        """Import a package of Argos, after its languages were compared with the index."""
        from export.importers.ctranslate2.packages import open_package

        with open_package(package) as opened:
            if (opened.source, opened.target) != (offer.source, offer.target):
                raise CheckpointError(
                    f"{package.name}: translates {opened.source}-{opened.target}, and the index says "
                    f"{offer.pair}; inform the maintainer of the index"
                )
            self._import(offer, opened.folder, fresh)

    def _import(self, offer: ModelOffer, folder: Path, fresh: Path) -> None:
        """Import the model of a folder, and try it."""
        from export.importers import SOURCES, convert
        from export.importers.proving import add_graphs, add_placeholders, prove_answer

        settings = SOURCES[offer.kind].settings(name=offer.bundle)
        if offer.kind in (STUDENT, "ctranslate2"):
            source, target = request_code(offer.source), request_code(offer.target)
            settings = replace(settings, source=source or None, target=target or None)
        if self.source or self.target:
            settings = replace(settings, source=self.source, target=self.target)
        stages = (add_graphs, prove_answer, partial(add_placeholders, self.say))
        convert(offer.kind, folder, fresh, settings, stages=stages)


def installed(out: Path, source: str, name: str) -> Path | None:
    """Return the bundle of a model that was fetched before; None: there is none. Asks no host.

    out: folder of bundles.
    source: name of the source.
    name: name of the model at the source, name of its bundle, or pair of languages.
    """
    wanted = plain_pair(name)
    if source == "mirror" and (out / name / MANIFEST).is_file():
        return out / name
    for bundle in bundles_at(out):
        origin = bundle.provenance
        if origin is None or origin.source != source:
            continue
        names = (origin.name, bundle.path.name, f"{bundle.source}-{bundle.target}")
        if wanted in map(plain_pair, names) or (
            origin.version and wanted == plain_pair(f"{origin.name}@{origin.version}")
        ):
            return bundle.path
    return None


def bundles_at(out: Path) -> Iterator[Bundle]:
    """Yield the bundles of a folder that can be opened."""
    for manifest in sorted(out.glob(f"*/{MANIFEST}")) if out.is_dir() else ():
        if not manifest.parent.name.startswith("."):
            try:
                yield open_bundle(manifest.parent, verify=False)
            except (ConvoyError, OSError):
                continue


def fetched_bundles(out: Path) -> dict[tuple[str, str], Bundle]:
    """Return the fetched bundles of a folder, each by its source and its name there."""
    origins = ((bundle.provenance, bundle) for bundle in bundles_at(out))
    return {
        (origin.source, origin.name): bundle
        for origin, bundle in origins
        if origin is not None and origin.source in FETCHED_SOURCES
    }


def newer(offer: ModelOffer, path: Path) -> bool:
    """Return whether an offer is another version of the model in a bundle. Raises BundleError."""
    origin = open_bundle(path, verify=False).provenance
    if origin is None:
        raise BundleError(f"{path}: was not fetched; --overwrite replaces it")
    known = {file.path: file.unpacked_sha256 if file.packing else file.sha256 for file in offer.files}
    return (offer.origin.version, offer.origin.revision) != (origin.version, origin.revision) or any(
        digest and origin.files.get(name) != digest for name, digest in known.items()
    )


def _lines(provenance: Provenance) -> Iterator[str]:
    """Yield the lines of the model card about the origin."""
    version = " ".join(filter(None, (provenance.version, provenance.revision)))
    yield (
        f"Fetched from {provenance.source}: {provenance.name} {version}".rstrip() + f", {provenance.address}"
    )
    yield f"Licence: {provenance.licence or 'not stated by the source'}"
    for name, digest in sorted(provenance.files.items()):
        yield f"SHA-256 of {name}: {digest}"


def _digest(path: Path) -> str:
    if not path.is_file():
        raise CheckpointError(f"{path}: was not fetched; run the command again")
    return file_digest(path)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a mark of the bundle at a path; None: there is none."""
    try:
        status = (path / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _hidden(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name.startswith(".")}
