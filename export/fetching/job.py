"""The work of one `convoy fetch`: finds models, fetches the missing ones, and keeps the state of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import ConvoyError, InvalidRequest
from export.fetching.installing import FETCHED_SOURCES, Installer, bundles_at, installed, newer
from export.fetching.languages import missing_legs, missing_pairs, name_of, pairs_on_disk, plan, wanted_pairs
from export.fetching.offers import ModelOffer, Source
from export.fetching.sources import SourceTable
from export.fetching.state import FAILED, FETCHING, READY, WAITING, StateFile
from export.fetching.web import Interrupted


@dataclass(slots=True)
class FetchJob:
    """The models that one command fetches. A model that fails does not stop the others.

    sources: sources by name.
    installer: fetches models into a folder.
    state: file with the state of each model.
    complain: prints one line about a failure.
    architecture: kind of network of named models; None: any.
    overwrite: replace existing bundles.
    transient: whether a later try may succeed where this one failed.
    """

    sources: SourceTable
    installer: Installer
    state: StateFile
    complain: Callable[[str], object]
    architecture: str | None = None
    overwrite: bool = False
    transient: bool = False
    _found: dict[str, tuple[Source, ModelOffer]] = field(default_factory=dict)

    def run(self, names: Sequence[str], languages: Sequence[str], folders: Sequence[Path]) -> None:
        """Fetch named models, and the missing directions between languages.

        names: names of models, with or without a source.
        languages: codes of languages.
        folders: further folders of bundles, whose directions are not missing.
        """
        self.transient = False
        self._found = {}
        for name in names:
            with self._reported(name, f"convoy fetch {name}"):
                self._find_named(name)
        if languages:
            self._find_between(languages, folders)
        self._install_found()

    def update(self, names: Sequence[str]) -> None:
        """Replace fetched models that have another version.

        names: names of models; without any, all fetched models of the folder.
        """
        out = self.installer.out
        for name in names:
            if installed(out, *self.sources.split(name)) is None:
                raise InvalidRequest(f"{name}: was not fetched into {out}; run: convoy fetch {name}")
        wanted = {installed(out, *self.sources.split(name)) for name in names}
        for bundle in bundles_at(out):
            origin = bundle.provenance
            if (
                origin is None
                or origin.source not in FETCHED_SOURCES
                or (names and bundle.path not in wanted)
            ):
                continue
            key = f"{origin.source}:{origin.name}"
            with self._reported(key, f"convoy fetch --update {key}"):
                source = self.sources.open(origin.source)
                revision = f"@{origin.version}" if origin.source == "hf" and origin.version else ""
                offer = source.find(f"{origin.name}{revision}")
                if newer(offer, bundle.path):
                    self._found[key] = source, offer
                else:
                    self.installer.say(f"{bundle.path}: is up to date")
        self.overwrite = True
        self._install_found()

    def _find_named(self, name: str) -> None:
        """Find a model, unless it is on disk. Raises InvalidRequest and CheckpointError."""
        prefix, rest = self.sources.split(name)
        path = installed(self.installer.out, prefix, rest)
        if path is not None and not self.overwrite:
            self.installer.say(f"{path}: is on disk; --update or --overwrite replaces it")
            self.state.set(name, READY)
            return
        source = self.sources.open(prefix)
        self._found[name] = source, source.find(rest, self.architecture)
        self.state.set(name, WAITING)

    def _find_between(self, languages: Sequence[str], folders: Sequence[Path]) -> None:
        """Find the models of the missing directions between languages."""
        every = (self.installer.out, *folders)
        there = pairs_on_disk(every)
        missing = missing_pairs(wanted_pairs(languages), there)
        if not missing:
            self.installer.say(f"{self.installer.out}: has all directions between {', '.join(languages)}")
            return
        source, lacking = self.sources.open(self.sources.usual), missing_legs(missing, there)
        try:
            offers = source.offers()
        except ConvoyError as error:
            for leg in lacking:
                self._fail(name_of(leg), f"convoy fetch --languages {','.join(languages)}", error)
            return
        chosen, unknown = plan(missing, there, offers)
        served = pairs_on_disk(every, demonstrations=True)
        # directions without any model come first
        for pair, offer in sorted(chosen.items(), key=lambda item: item[0] in served):
            self._found[name_of(pair)] = source, offer
        for leg in lacking:
            self.state.forget(name_of(leg))
        for leg in unknown:
            fault = InvalidRequest(f"{source.name} has no model for {name_of(leg)}")
            self._fail(name_of(leg), "convoy fetch --list", fault)

    def _install_found(self) -> None:
        """Install the models that were found; one total covers all of them."""
        for key, (_, offer) in self._found.items():
            self.state.set(key, WAITING)
            self.installer.report.expect(offer.size)
        for key, (source, offer) in self._found.items():
            command = f"convoy fetch {source.name}:{offer.origin.name}"
            with self._reported(key, command):
                self.state.set(key, FETCHING)
                path = self.installer.install(source, offer, overwrite=self.overwrite)
                what = offer.pair if offer.source else offer.origin.name
                self.installer.say(f"{path}: {what} of {source.name}; next: convoy inspect {path}")
                self.state.set(key, READY)

    @contextmanager
    def _reported(self, key: str, remedy: str) -> Iterator[None]:
        """Report an error as the state of a model, and go on.

        key: name of the model.
        remedy: command that tries it again.
        """
        try:
            yield
        except Exception as error:  # no model may stop the others, whatever a file or a library raises
            self._fail(key, remedy, error)

    def _fail(self, key: str, remedy: str, error: Exception) -> None:
        """Store the error of a model, and print it unless the last one was the same."""
        known = isinstance(error, (ConvoyError, OSError))
        fault = " ".join(str(error).split()) if known else f"unexpected {type(error).__name__}: {error}"
        repeated = any(entry.get("fault") == fault for entry in self.state.models.values())
        self.transient |= isinstance(error, (Interrupted, OSError))
        self.state.set(key, FAILED, fault, remedy)
        self.installer.report.event("failed", model=key, fault=fault)
        if not repeated:
            self.complain(fault)
