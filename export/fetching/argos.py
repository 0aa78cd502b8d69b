"""Packages of Argos Translate, the models of LibreTranslate.

Their index has no hashes and no sizes: the metadata of a package must name the same languages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from engine.bundle.manifest import Provenance
from engine.errors import CheckpointError
from export.fetching.download import download_all
from export.fetching.offers import CODE, ModelOffer, Progress, RemoteFile, choose, version_parts
from export.fetching.web import Web, is_web

ADDRESS: Final = "https://raw.githubusercontent.com/argosopentech/argospm-index/main/index.json"
TRANSLATION: Final = "translate"


class Argos:
    """The packages of one index."""

    name = "argos"

    def __init__(self, web: Web, address: str, note: Callable[[str], object]) -> None:
        """Open the source.

        web: reader of the address.
        address: address of the index, or of the folder that has it; "": that of Argos Translate.
        note: receives one line about packages that can't be used.
        """
        self.web, self.note = web, note
        address = address or ADDRESS
        self.address = address if address.endswith(".json") else f"{address.rstrip('/')}/index.json"

    def offers(self) -> Sequence[ModelOffer]:
        entries, _ = self.web.index(self.address)
        if not isinstance(entries, list):
            raise CheckpointError(f"{self.address}: not an index of packages (it is no list)")
        best: dict[str, ModelOffer] = {}
        for entry in entries:
            try:
                offer = self._offer(entry)
            except (ValueError, KeyError, TypeError, AttributeError, CheckpointError) as error:
                self.note(f"argos: an entry of the index is not used ({type(error).__name__}: {error})")
                continue
            known = best.get(offer.pair)
            if known is None or version_parts(known.origin.version) < version_parts(offer.origin.version):
                best[offer.pair] = offer
        return [best[pair] for pair in sorted(best)]

    def find(self, name: str, architecture: str | None = None) -> ModelOffer:
        return choose(self.offers(), self.name, name, architecture)

    def download(self, offer: ModelOffer, folder: Path, progress: Progress) -> None:
        download_all(self.web, offer.files, folder, progress)

    def _offer(self, entry: Any) -> ModelOffer:
        if entry.get("type", TRANSLATION) != TRANSLATION:
            raise ValueError(f"a package of the type {str(entry['type'])[:40]!r}")
        source, target, version = entry["from_code"], entry["to_code"], str(entry["package_version"])
        if not (CODE.fullmatch(source) and CODE.fullmatch(target)):
            raise ValueError(f"the languages {source!r} and {target!r}")
        links = [link for link in entry["links"] if is_web(link)]
        if not links:
            raise ValueError(f"{source}-{target} has no link to a web server")
        name = f"{source}-{target}"
        files = (RemoteFile(links[0], f"{name}.argosmodel"),)
        return ModelOffer(
            Provenance(self.name, name, links[0], version), f"argos-{name}", source, target, self.name, files
        )
