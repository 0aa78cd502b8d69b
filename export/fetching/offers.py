"""The offers of a source: models with their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from engine.bundle.manifest import Provenance
from engine.errors import CheckpointError, InvalidRequest

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
CODE: Final = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
MAX_FILE_BYTES: Final = 2**35
MAX_HINTS: Final = 4  # names in an error message
LANGUAGE: Final = re.compile(r"[a-z]{2,3}")
# short words in names of models that are no languages
NO_LANGUAGES: Final = frozenset({"mt", "big", "ct", "opt", "int", "nmt", "wmt", "tc"})
BUNDLE: Final = "bundle"  # kind of an offer that needs no import
STUDENT: Final = "bergamot"
# codes of LibreTranslate, which requests use, by the codes of others
CODES: Final = {"zh-hans": "zh", "zh-hant": "zt", "zh_hant": "zt", "pt-br": "pb"}


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to fetch.

    address: address, or path on this machine.
    path: path of the unpacked file in the folder of the model, with "/" between folders.
    size: number of bytes; None: unknown.
    sha256: hexadecimal hash; "": unknown.
    packing: "gz", "zst" or "".
    unpacked_size: number of bytes of the unpacked file; None: unknown.
    unpacked_sha256: hexadecimal hash of the unpacked file; "": unknown.
    """

    address: str
    path: str
    size: int | None = None
    sha256: str = ""
    packing: str = ""
    unpacked_size: int | None = None
    unpacked_sha256: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError on a path that leaves its folder, and on invalid sizes and hashes."""
        if not all(NAME.fullmatch(part) for part in self.path.split("/")):
            raise ValueError(f"the path {self.path!r} leaves the folder of the model")
        for size in (self.size, self.unpacked_size):
            if size is not None and (type(size) is not int or not 0 < size <= MAX_FILE_BYTES):
                raise ValueError(f"{self.path} has the size {size!r}")
        for digest in (self.sha256, self.unpacked_sha256):
            if not isinstance(digest, str) or (digest and not DIGEST.fullmatch(digest)):
                raise ValueError(f"{self.path} has the SHA-256 {digest!r}")


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A model that a source offers.

    origin: source, name, address, version, revision and licence.
    bundle: name of the bundle.
    source, target: languages, for a list; "": unknown.
    kind: BUNDLE, or the importer in `export.importers.SOURCES`.
    files: files of the model.
    architecture: kind of network, or the student's size.
    quality: published score, such as "COMET 0.87".
    """

    origin: Provenance
    bundle: str
    source: str
    target: str
    kind: str
    files: tuple[RemoteFile, ...]
    architecture: str = ""
    quality: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError unless the name of the bundle is safe, and the files have different paths."""
        if not NAME.fullmatch(self.bundle):
            raise ValueError(f"a model is named {self.bundle!r}")
        paths = [file.path for file in self.files]
        if len(set(paths)) < len(paths):
            raise ValueError(f"{self.bundle} has two files of one name")

    @property
    def size(self) -> int:
        """Bytes to fetch, as far as they are known."""
        return sum(file.size or 0 for file in self.files)

    @property
    def pair(self) -> str:
        return f"{self.source}-{self.target}"


Progress = Callable[[int], None]  # receives the number of bytes since its last call


class Source(Protocol):
    """A source of models."""

    name: str

    def offers(self) -> Sequence[ModelOffer]:
        """Return all models of the source. Raises CheckpointError."""

    def find(self, name: str, architecture: str | None = None) -> ModelOffer:
        """Return the model of a name or a pair. Raises InvalidRequest unless exactly one fits."""

    def download(self, offer: ModelOffer, folder: Path, progress: Progress) -> None:
        """Fetch and verify the files of a model; whole files are kept, and interrupted ones continued.

        offer: model of this source.
        folder: folder for the files.
        progress: callback for the received bytes.

        Raises CheckpointError.
        """


def choose(offers: Sequence[ModelOffer], source: str, name: str, architecture: str | None) -> ModelOffer:
    """Return the one offer of a name or pair.

    offers: models of a source.
    source: name of the source, for the error message.
    name: name at the source, name of the bundle, or pair such as "de-en".
    architecture: kind of network; None: any.

    Raises InvalidRequest unless exactly one fits.
    """
    wanted = plain_pair(name)
    fitting = [
        offer
        for offer in offers
        if name in (offer.origin.name, offer.bundle)
        or wanted in (plain_pair(offer.pair), plain_pair(f"{offer.source}{offer.target}"))
    ]
    if architecture is not None:
        fitting = [offer for offer in fitting if offer.architecture == architecture]
    if not fitting:
        what = f"{architecture} model" if architecture else "model"
        raise InvalidRequest(f"{source} has no {what} {name}; {_hint(offers, source, wanted)}")
    if len(fitting) > 1:
        names = ", ".join(f"{offer.bundle} ({offer.architecture})" for offer in fitting)
        raise InvalidRequest(
            f"{source} has several models for {name}: {names}; name one, or its --architecture"
        )
    return fitting[0]


def _hint(offers: Sequence[ModelOffer], source: str, wanted: str) -> str:
    """Return the names that a wrong name may mean, or the command that lists all names.

    offers: models of a source.
    source: name of the source.
    wanted: name in the form of `plain_pair`.
    """
    names = {plain_pair(offer.origin.name): offer.origin.name for offer in offers}
    near = [name for plain, name in names.items() if wanted in plain.split("-")]
    near = near or [names[plain] for plain in get_close_matches(wanted, names)]
    if near:
        return f"did you mean {' or '.join(sorted(near)[:MAX_HINTS])}?"
    return f"convoy fetch --list {source}: shows its models"


def plain_pair(name: str) -> str:
    """Return a pair of languages in the form that names are compared in: "zh_Hant-en" is "zh-hant-en"."""
    return name.casefold().replace("_", "-")


def request_code(code: str) -> str:
    """Return the code that requests use for a language: "zh" for "zh-Hans", "de" for "de"."""
    return CODES.get(plain_pair(code), code)


def version_parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparisons: (2, 10) for "2.10"; () without any."""
    return tuple(int(part[:9]) for part in re.findall(r"[0-9]+", version[:100]))


def file_name(path: str) -> str:
    """Return the last part of a path or address. Raises CheckpointError if it is not a plain name."""
    name = PurePosixPath(path.partition("?")[0]).name
    if not NAME.fullmatch(name):
        raise CheckpointError(f"{path!r} does not end in the name of a file")
    return name


def languages_in(name: str) -> tuple[str, str] | None:
    """Return the last two language codes of a name such as opus-mt-en-de-ct2; None: it has no two."""
    words = re.split("[-_.]", name)
    codes = [word if LANGUAGE.fullmatch(word) and word not in NO_LANGUAGES else None for word in words]
    pairs = [(a, b) for a, b in zip(codes, codes[1:], strict=False) if a and b]
    return pairs[-1] if pairs else None
