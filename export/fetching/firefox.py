"""Models of Firefox Translations: Mozilla's Remote Settings, and mirrors of its records.

A record is one file: `name`, `version`, `fileType`, `architecture`, `sourceLanguage`, `targetLanguage`,
`decompressedHash`, `decompressedSize` and `attachment`. A mirror is a folder or web server with
`records.json`; its files are at their `attachment.location`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.bundle.manifest import Provenance
from engine.errors import CheckpointError
from export.fetching.download import download_all
from export.fetching.offers import STUDENT, ModelOffer, Progress, RemoteFile, choose, file_name, version_parts
from export.fetching.web import Web, is_web

ADDRESS: Final = "https://firefox.settings.services.mozilla.com/v1"
COLLECTION: Final = "buckets/main/collections/translations-models-v2/records"
RECORDS: Final = "records.json"
HUGGING_FACE: Final = "https://huggingface.co"
NEWEST_MAJOR: Final = 3  # newest major version of the models that the importer reads
LICENCE: Final = "MPL-2.0"
MAX_PAGES: Final = 100
STUDENT_SIZES: Final = ("tiny", "base-memory", "base")  # architectures, the best last
KINDS: Final = ("model", "lex", "vocab", "srcvocab", "trgvocab")

Record = Mapping[str, Any]


class Firefox:
    """The models of one server or mirror. Every direction is to or from English."""

    name = "firefox"

    def __init__(self, web: Web, address: str, note: Callable[[str], object]) -> None:
        """Open the source.

        web: reader of the address.
        address: address of Remote Settings, with or without its `/v1`; or of a mirror: its `records.json`, a
            folder that has it, or "hf:ORG/NAME".
        note: receives one line about models that can't be used.
        """
        self.web, self.note = web, note
        self.address, self.mirrored = _locate(address or ADDRESS)
        self._offers: Sequence[ModelOffer] | None = None

    def offers(self) -> Sequence[ModelOffer]:
        if self._offers is None:
            records, base = self._mirror() if self.mirrored else self._remote_settings()
            self._offers = list(self._newest(records, base))
        return self._offers

    def find(self, name: str, architecture: str | None = None) -> ModelOffer:
        return choose(self.offers(), self.name, name, architecture)

    def download(self, offer: ModelOffer, folder: Path, progress: Progress) -> None:
        download_all(self.web, offer.files, folder, progress)

    def _mirror(self) -> tuple[Any, str]:
        """Return the records of a mirror, and the address of its files."""
        value, _ = self.web.index(self.address)
        return value.get("data") if isinstance(value, dict) else value, self.address.removesuffix(RECORDS)

    def _remote_settings(self) -> tuple[Any, str]:
        """Return the records of Remote Settings, and the address of their attachments."""
        server, _ = self.web.index(f"{self.address}/")
        try:
            base = server["capabilities"]["attachments"]["base_url"]
        except (KeyError, TypeError):
            base = None
        if not isinstance(base, str) or not is_web(base):
            raise CheckpointError(f"{self.address}/: names no address of attachments: is it Remote Settings?")
        records, page = list[Any](), f"{self.address}/{COLLECTION}"
        for _ in range(MAX_PAGES):
            value, headers = self.web.index(page)
            data = value.get("data") if isinstance(value, dict) else None
            if not isinstance(data, list):
                raise CheckpointError(f"{page}: not an index of models (it lacks the list `data`)")
            records += data
            page = headers.get("next-page", "")
            if not page.startswith(f"{self.address}/"):
                break
        return records, f"{base.rstrip('/')}/"

    def _newest(self, records: Any, base: str) -> Sequence[ModelOffer]:
        """Return the newest complete version of each direction."""
        if not isinstance(records, list):
            raise CheckpointError(f"{self.address}: not an index of models (it has no list of records)")
        versions = defaultdict[tuple[str, str], dict[tuple[str, str], list[Record]]](dict)
        for record in records:
            if key := _key(record):
                source, target, version, architecture = key
                versions[source, target].setdefault((version, architecture), []).append(record)
        chosen = (self._choose(pair, found, base) for pair, found in sorted(versions.items()))
        return [offer for offer in chosen if offer is not None]

    def _choose(
        self, pair: tuple[str, str], found: Mapping[tuple[str, str], list[Record]], base: str
    ) -> ModelOffer | None:
        """Return the newest complete version of a direction; None: there is none."""
        for version, architecture in sorted(found, key=lambda key: _rank(key, found[key]), reverse=True):
            what = f"firefox: {pair[0]}-{pair[1]} {version}"
            if version_parts(version)[0] > NEWEST_MAJOR:
                self.note(f"{what} is not used: this Convoy reads versions up to {NEWEST_MAJOR}; upgrade it")
                continue
            try:
                files = _files(found[version, architecture], base)
            except (CheckpointError, ValueError, KeyError, TypeError, AttributeError) as error:
                self.note(f"{what} is not used: its records are incomplete ({error})")
                continue
            name = f"{pair[0]}-{pair[1]}"
            origin = Provenance(self.name, name, self.address, version, licence=LICENCE)
            return ModelOffer(origin, f"firefox-{name}", *pair, STUDENT, files, architecture)
        return None


def _locate(address: str) -> tuple[str, bool]:
    """Return the base address of Remote Settings, or the address of a mirror's records; and which it is."""
    if address.startswith("hf:"):
        host = os.environ.get("HF_ENDPOINT", HUGGING_FACE).rstrip("/")
        repository, _, revision = address.removeprefix("hf:").partition("@")
        return f"{host}/{repository}/resolve/{revision or 'main'}/{RECORDS}", True
    if address.endswith(f"/{RECORDS}"):
        return address, True
    if not is_web(address):
        return str(Path(address) / RECORDS), True
    if address.startswith(f"{HUGGING_FACE}/"):
        return _locate(f"hf:{address.removeprefix(HUGGING_FACE).strip('/')}")
    base = address.rstrip("/").removesuffix(f"/{COLLECTION}")
    return (base if base.endswith("/v1") else f"{base}/v1"), False


def _key(record: Any) -> tuple[str, str, str, str] | None:
    """Return source, target, version and architecture of a record; None: it is no file of a model."""
    if not isinstance(record, dict) or record.get("fileType") not in KINDS:
        return None
    source = record.get("sourceLanguage", record.get("fromLang"))
    target = record.get("targetLanguage", record.get("toLang"))
    texts = (source, target, record.get("version"), record.get("architecture") or "")
    if not all(isinstance(text, str) for text in texts) or not version_parts(str(record["version"])):
        return None
    return texts  # type: ignore[return-value]  # all are texts


def _rank(key: tuple[str, str], records: Sequence[Record]) -> tuple[Any, ...]:
    """Return the order of versions: released before filtered ones, then by version and architecture."""
    version, architecture = key
    released = not any(record.get("filter_expression") for record in records)
    size = STUDENT_SIZES.index(architecture) if architecture in STUDENT_SIZES else -1
    return released, version_parts(version), size


def _files(records: Sequence[Record], base: str) -> tuple[RemoteFile, ...]:
    """Return the files of a model. Raises ValueError, KeyError or TypeError if it is incomplete."""
    by_kind = {record["fileType"]: record for record in records}
    vocabularies = ("vocab",) if "vocab" in by_kind else ("srcvocab", "trgvocab")
    missing = [kind for kind in ("model", *vocabularies) if kind not in by_kind]
    if missing:
        raise ValueError(f"there is no {missing[0]}")
    kinds = ("model", *vocabularies, *(["lex"] if "lex" in by_kind else []))
    return tuple(_file(by_kind[kind], base) for kind in kinds)


def _file(record: Record, base: str) -> RemoteFile:
    attachment = record["attachment"]
    location, name = attachment["location"], file_name(attachment["filename"])
    if not isinstance(location, str) or ".." in location.split("/") or is_web(location) or "\\" in location:
        raise ValueError(f"the location {location!r} leaves the folder of attachments")
    packing = "zst" if name.endswith(".zst") else ""
    return RemoteFile(
        address=base + location.lstrip("/"),
        path=name.removesuffix(".zst"),
        size=attachment["size"],
        sha256=attachment["hash"],
        packing=packing,
        unpacked_size=record.get("decompressedSize") if packing else None,
        unpacked_sha256=(record.get("decompressedHash") or "") if packing else "",
    )
