"""Repositories of Hugging Face, downloaded by its own library (extra `hub`).

The files of a repository decide which importer reads it, and only the files that this importer reads are
fetched.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from engine.bundle.manifest import CONFIG, MANIFEST, WEIGHTS, Provenance
from engine.errors import CheckpointError, InvalidRequest
from export.fetching.offers import BUNDLE, NAME, STUDENT, ModelOffer, Progress, RemoteFile, languages_in
from export.fetching.web import Web

ENDPOINT: Final = "https://huggingface.co"
REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}")
POLL_SECONDS: Final = 0.5
STATUS_REMEDIES: Final = {
    401: "set HF_TOKEN",
    403: "set HF_TOKEN",
    404: "is the name right? A private repository needs HF_TOKEN",
}
TEXT_FILES: Final = (
    *("config.json", "generation_config.json", "tokenizer*.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab*", "merges.txt", "*.spm", "*.model", "*.codes", "dict*.txt", "dict.*.json"),
)
STUDENT_FILES: Final = ("*.bin", "*.bin.gz", "*.bin.zst", "*.spm*", "lex*", "config*.yml", "metadata.json")
CT2_FILES: Final = ("model.bin", "*vocabulary*", "vmap.txt", "bpecodes", "codes", *TEXT_FILES)


class HuggingFace:
    """Repositories by name: ORG/NAME or ORG/NAME@REVISION."""

    name = "hf"

    def __init__(self, web: Web) -> None:
        """web: announces the host."""
        self.web = web
        self.endpoint = os.environ.get("HF_ENDPOINT", ENDPOINT).rstrip("/")

    def offers(self) -> Sequence[ModelOffer]:
        raise InvalidRequest("hf: a repository is named, not listed: convoy fetch hf:ORG/NAME")

    def find(self, name: str, architecture: str | None = None) -> ModelOffer:
        """Return the model of a repository. Raises CheckpointError, and InvalidRequest for an invalid name.

        name: ORG/NAME or ORG/NAME@REVISION.
        architecture: unused; the repository has one model.
        """
        repository, _, revision = name.partition("@")
        if not REPOSITORY.fullmatch(repository) or ".." in repository:
            raise InvalidRequest(f"hf:{name}: a repository is named ORG/NAME or ORG/NAME@REVISION")
        self.web.name_host(self.endpoint, f"the files of {repository}")
        with _errors(repository):
            hub = _hub()
            info = hub.HfApi(endpoint=self.endpoint).model_info(
                repository, revision=revision or None, files_metadata=True
            )
        sizes = {file.rfilename: file.size for file in info.siblings or ()}
        kind, paths = chosen_files(repository, sizes)
        title = repository.partition("/")[2]
        card = info.card_data.to_dict() if info.card_data is not None else {}
        origin = Provenance(
            self.name,
            repository,
            f"{self.endpoint}/{repository}",
            revision,
            str(info.sha or ""),
            _licence(card),
        )
        if not NAME.fullmatch(title):
            raise CheckpointError(f"hf:{repository}: its name can't be the name of a folder")
        source, target = languages_in(title) or ("", "")
        files = tuple(RemoteFile(f"{origin.address}/{path}", path, sizes[path] or None) for path in paths)
        return ModelOffer(origin, title, source, target, kind, files)

    def download(self, offer: ModelOffer, folder: Path, progress: Progress) -> None:
        """Fetch the files of a repository (`Source.download`).

        offer: model of this source.
        folder: folder for the files.
        progress: callback for the received bytes.
        """
        repository = offer.origin.name
        with _errors(repository), _measured(folder, progress):
            self._name_storage(offer)
            _hub().snapshot_download(
                repository,
                revision=offer.origin.revision or None,
                allow_patterns=[file.path for file in offer.files],
                local_dir=folder,
                endpoint=self.endpoint,
            )
        lacking = [file.path for file in offer.files if not (folder / file.path).is_file()]
        if lacking:
            raise CheckpointError(f"hf:{repository}: {lacking[0]} was not sent; run the command again")

    def _name_storage(self, offer: ModelOffer) -> None:
        """Announce the host that sends the weights, which are the largest file of a repository."""
        hub, weights = _hub(), max(offer.files, key=lambda file: file.size or 0)
        address = hub.hf_hub_url(
            offer.origin.name,
            weights.path,
            revision=offer.origin.revision or None,
            endpoint=self.endpoint,
        )
        location = hub.get_hf_file_metadata(address).location
        self.web.name_host(location, f"the weights of {offer.origin.name}, where Hugging Face sends to")


def chosen_files(repository: str, sizes: Mapping[str, int | None]) -> tuple[str, list[str]]:
    """Return the kind of a repository, and the files that its importer needs.

    repository: name of the repository, for the error message.
    sizes: bytes of each file by its path.

    Raises CheckpointError if no importer reads the files.
    """
    names = [name for name in sizes if _is_safe(name)]
    top = [name for name in names if "/" not in name]
    if MANIFEST in top and WEIGHTS in top:
        return BUNDLE, names
    if "model.bin" in top and any("vocabulary" in name for name in top):
        return "ctranslate2", _matching(top, CT2_FILES)
    if _matching(top, ["model*.bin*"]) and _matching(top, ["*.spm*"]):
        return STUDENT, _matching(top, STUDENT_FILES)
    weights = _weights(top)
    if CONFIG in top and weights:
        return "hf", list(dict.fromkeys([*weights, *_matching(top, TEXT_FILES)]))
    raise CheckpointError(
        f"hf:{repository}: no importer reads its files ({', '.join(sorted(top)[:8])}); it needs config.json "
        "and model.safetensors or pytorch_model.bin, or files of CTranslate2, a student or a bundle"
    )


def _is_safe(name: str) -> bool:
    """Return whether each part of a path is a usual file name."""
    return all(NAME.fullmatch(part) for part in name.split("/"))


def _weights(names: Sequence[str]) -> list[str]:
    """Return the files of weights: safetensors if there are any, otherwise torch's."""
    for whole, parts in (
        (WEIGHTS, "model*.safetensors*"),
        ("pytorch_model.bin", "pytorch_model*.bin*"),
    ):
        if whole in names:
            return [whole]
        if found := _matching(names, (parts,)):
            return found
    return []


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def _licence(card: Mapping[str, Any]) -> str:
    value = card.get("license")
    return value if isinstance(value, str) else ", ".join(map(str, value)) if isinstance(value, list) else ""


def _hub() -> Any:
    """Import Hugging Face's library; it sends no telemetry and draws no bars. Raises InvalidRequest."""
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_XET"):
        os.environ.setdefault(name, "1")
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise InvalidRequest("hf: needs huggingface_hub; run: pip install 'convoy-server[hub]'") from None
    return huggingface_hub


@contextmanager
def _errors(repository: str) -> Iterator[None]:
    """Turn the errors of the library into one line with the remedy."""
    try:
        yield
    except (CheckpointError, InvalidRequest):
        raise
    except Exception as error:  # the library raises errors of its own, of its HTTP client and of the system
        kind = type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", 0)
        remedy = {
            "GatedRepoError": "accept its terms on its page, and set HF_TOKEN",
            "RepositoryNotFoundError": "is the name right? A private one needs HF_TOKEN",
            "RevisionNotFoundError": "is the revision right?",
            "OfflineModeIsEnabled": "unset HF_HUB_OFFLINE, or copy a folder that was fetched elsewhere",
        }.get(kind) or STATUS_REMEDIES.get(status, "check the network and run the command again")
        line = " ".join(str(error).split())[:300]
        raise CheckpointError(f"hf:{repository}: {kind}: {line}; {remedy}") from error


@contextmanager
def _measured(folder: Path, progress: Progress) -> Iterator[None]:
    """Report the growth of a folder while the library fills it."""
    over, counted = threading.Event(), 0

    def count() -> None:
        nonlocal counted
        size = sum(path.stat().st_size for path in _files(folder))
        progress(size - counted)
        counted = size

    def poll() -> None:
        while not over.wait(POLL_SECONDS):
            count()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        count()


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.endswith((".lock", ".metadata")):
            yield path
