"""Mozilla's registry of models: unreleased models too, with their scores.

`models.json` has `baseUrl` and, for each pair, entries with `files`. Names of fields have changed between its
versions, so an entry that lacks something is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.bundle.manifest import Provenance
from engine.errors import CheckpointError
from export.fetching.download import download_all
from export.fetching.firefox import LICENCE, STUDENT_SIZES
from export.fetching.offers import STUDENT, ModelOffer, Progress, RemoteFile, choose, file_name
from export.fetching.web import Web, is_web

ADDRESS: Final = (
    "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data/db/models.json"
)
RELEASES: Final = ("Nightly", "Beta", "Release Android", "Release Desktop", "Release")  # the best last
SCORES: Final = ("comet", "comet22", "bleu")


class Registry:
    """The models of the registry; of several for a pair, the one that is released furthest."""

    name = "firefox-registry"

    def __init__(self, web: Web, address: str, note: Callable[[str], object]) -> None:
        """Open the source.

        web: reader of the address.
        address: address of `models.json`; "": Mozilla's.
        note: receives one line about models that can't be used.
        """
        self.web, self.note, self.address = web, note, address or ADDRESS

    def offers(self) -> Sequence[ModelOffer]:
        index, _ = self.web.index(self.address)
        models = index.get("models") if isinstance(index, dict) else None
        if not isinstance(models, dict):
            raise CheckpointError(f"{self.address}: not an index of models (it lacks `models`)")
        base = index.get("baseUrl")
        if not isinstance(base, str) or not is_web(base):
            base = self.address.rpartition("/db/")[0] or self.address.rpartition("/")[0]
        date = index.get("generated")
        offers = []
        for pair, entries in sorted(models.items()):
            found = list(self._usable(entries, base.rstrip("/"), str(date or "")))
            if found:
                offers.append(max(found, key=lambda pair: pair[0])[1])
            else:
                self.note(f"{self.name}: {pair[:40]} has no usable entry")
        return offers

    def find(self, name: str, architecture: str | None = None) -> ModelOffer:
        return choose(self.offers(), self.name, name, architecture)

    def download(self, offer: ModelOffer, folder: Path, progress: Progress) -> None:
        download_all(self.web, offer.files, folder, progress)

    def _usable(self, entries: Any, base: str, date: str) -> Iterator[tuple[tuple[int, int], ModelOffer]]:
        """Yield rank and offer of each entry that has all it needs."""
        for entry in entries if isinstance(entries, list) else ():
            try:
                offer = self._offer(entry, base, date)
            except (ValueError, KeyError, TypeError, AttributeError, CheckpointError):
                continue
            status = entry.get("releaseStatus")
            release = RELEASES.index(status) if status in RELEASES else -1
            size = STUDENT_SIZES.index(offer.architecture) if offer.architecture in STUDENT_SIZES else -1
            yield (release, size), offer

    def _offer(self, entry: Mapping[str, Any], base: str, date: str) -> ModelOffer:
        source, target = entry["sourceLanguage"], entry["targetLanguage"]
        architecture, files = str(entry.get("architecture") or ""), entry["files"]
        version = str(entry.get("version") or entry.get("releaseStatus") or "")
        joint = files.get("vocab")
        listed = [files["model"], *([joint] if joint else [files["srcVocab"], files["trgVocab"]])]
        if files.get("lexicalShortlist"):
            listed.append(files["lexicalShortlist"])
        name = f"{source}-{target}"
        origin = Provenance(self.name, name, self.address, version, date, LICENCE)
        return ModelOffer(
            origin,
            f"firefox-registry-{name}",
            source,
            target,
            STUDENT,
            tuple(_file(file, base) for file in listed),
            architecture,
            _score(entry),
        )


def _file(file: Mapping[str, Any], base: str) -> RemoteFile:
    path = file["path"]
    if not isinstance(path, str) or ".." in path.split("/") or "\\" in path or is_web(path):
        raise ValueError(f"the path {path!r} leaves the registry")
    name, size, digest = file_name(path), file.get("uncompressedSize"), file.get("uncompressedHash") or ""
    packing = "gz" if name.endswith(".gz") else "zst" if name.endswith(".zst") else ""
    return RemoteFile(
        address=f"{base}/{path.lstrip('/')}",
        path=name.removesuffix(f".{packing}"),
        size=None if packing else size,
        sha256="" if packing else digest,
        packing=packing,
        unpacked_size=size if packing else None,
        unpacked_sha256=digest if packing else "",
    )


def _score(entry: Mapping[str, Any]) -> str:
    """Return the score on FLORES, such as "COMET 0.87"; "" if none is published."""
    metadata = entry.get("modelMetadata") or entry.get("metadata") or {}
    flores = metadata.get("flores") or {} if isinstance(metadata, dict) else {}
    values = flores if isinstance(flores, dict) else {}
    for name in SCORES:
        value = values.get(name, metadata.get(name) if isinstance(metadata, dict) else None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return f"{name.upper()} {value:.4g}"
    return ""
