"""A service whose models are in other processes: here are their text sides alone."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Final

from engine.bundle.bundle import open_bundle
from engine.errors import ConvoyError, Unavailable
from engine.repository.budget import State
from engine.repository.catalogue import find_info
from engine.repository.figures import NO_STATS, DeviceMemory, RepositoryEntry, beside, either
from engine.repository.folders import Folders
from engine.repository.ipc.links import Links
from engine.repository.ipc.messages import OfferedModel
from engine.repository.ipc.remote import RemoteEngine
from engine.repository.loading import (
    LoadedModel,
    ModelFacts,
    ModelInfo,
    ModelSource,
    ServiceSettings,
    open_text,
)
from engine.repository.repository import Repository
from engine.repository.service import Service
from engine.schedule.engine import EngineSettings
from engine.schedule.stats import Stats

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.01  # between two looks at what is offered
OFFER_SECONDS: Final = 5.0  # that a bundle gets to be offered which is said to be


class RemoteService(Service):
    """Has no models of its own: the engine processes say what there is, and this one follows.

    A text side belongs to one bundle, by its digest. Where a bundle is replaced, the engines decode tokens of
    both until `settle`.
    """

    def __init__(self, links: Links, offered: Sequence[OfferedModel], settings: ServiceSettings) -> None:
        """Open the text sides of models.

        links: to the engine processes, not started.
        offered: the models.
        settings: how every model is run.

        Raises BundleError.
        """
        self._links, self._settings = links, settings
        self._entries = {one.info.name: one.entry for one in offered}
        self._following = threading.Lock()
        opened = list(self._open_first(offered))
        source = ModelSource(self._facts_at, lambda path: self._open(self._facts_at(path)), answered=True)
        repository = Repository([model.facts for model in opened], source, loaded=opened)
        super().__init__(repository, Folders((), {}, settings.languages))

    @classmethod
    def connect(cls, paths: Sequence[Path], settings: ServiceSettings) -> RemoteService:
        """Wait until an engine process tells of its models, and open their text sides.

        paths: of the sockets, one of each engine process.
        settings: how every model is run.

        Raises BundleError.
        """
        return cls(Links(paths), asyncio.run(_first_offer(paths)), settings)

    def start(self) -> None:
        """Connect in this event loop."""
        self._links.start()
        super().start()

    async def connected(self) -> bool:
        """Tell whether an engine process is there, after a moment."""
        if not self._links.connected:
            await asyncio.sleep(POLL_SECONDS)
        return self._links.connected

    async def keep_up(self) -> None:
        """Take up what the engine processes offer from now on, without end."""
        while True:
            await self._links.changed.wait()
            self._links.changed.clear()
            if not self._links.connected:  # what they offered comes back
                continue
            try:
                await asyncio.to_thread(self._follow_all, self._links.offered())
            except Exception:
                logger.exception("what the engine processes offer could not be taken up")

    def load(self, name: str) -> ModelInfo:
        return self._order("load", name)

    def unload(self, name: str) -> ModelInfo:
        return self._order("unload", name)

    def reload(self, name: str, replaced: Callable[[], None] | None = None) -> ModelInfo:
        """Have the engines open a bundle anew, and take up its text side here; `settle` comes after.

        name: the model's name.
        replaced: as of `Service.reload`.

        Raises as `Service.reload` does; then the old one goes on.
        """
        self._order("reload", name)
        info = self.follow(name, "")
        if replaced:
            replaced()
        return info

    def follow(self, name: str, digest: str) -> ModelInfo:
        """Take up the text side of a bundle that the engines have opened anew.

        name: the model's name.
        digest: of the bundle; "": that which is offered.

        Blocks until nobody uses the old one. Raises UnknownModel, BundleError, and Unavailable when it isn't
        offered.
        """
        until = time.monotonic() + OFFER_SECONDS
        while digest and not self._links.offers(name, digest) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)  # the word of it came before the offer
        with self._following:
            find_info(self.models(), name)
            return self.repository.reload(name)

    def settle(self, name: str) -> None:
        """Have the engines let go of the bundle that was replaced: all front ends have the new one."""
        self._links.wait_for("settle", name)

    def stats(self) -> dict[str, Stats]:
        """Return what the engines have said last, of each model together."""
        told = self._links.stats()
        return {info.name: reduce(beside, told.get(info.name, ()), NO_STATS) for info in self.models()}

    def repository_entries(self) -> dict[str, RepositoryEntry]:
        """Tell how the engine processes keep each model, or did when they were last there."""
        self._entries |= {n: reduce(either, (o.entry for o in of)) for n, of in self._links.offered().items()}
        own = self.repository.entries()
        return {
            name: self._entries.get(name, replace(entry, state=State.UNLOADED)) for name, entry in own.items()
        }

    def memory(self) -> dict[str, DeviceMemory]:
        """Return nothing: this process is on no device."""
        return {}

    def _order(self, verb: str, name: str) -> ModelInfo:
        info = find_info(self.models(), name)
        self._links.wait_for(verb, name)
        return info

    def _follow_all(self, offered: Mapping[str, Sequence[OfferedModel]]) -> None:
        """Serve what is offered, and nothing else."""
        with self._following:
            here = {info.name: info.digest for info in self.models()}
            for name in here.keys() - offered.keys():
                self.repository.remove(name)
                logger.info("%s is served no more: no engine process has it", name)
            for name, offers in offered.items():
                digests = [digest for one in offers for digest in one.digests]
                try:
                    if digests and name not in here:
                        self._add(name, Path(offers[0].path))
                    elif digests and here[name] not in digests:
                        self.repository.reload(name)
                except ConvoyError as error:
                    logger.warning("%s is not served: %s", name, error)

    def _add(self, name: str, path: Path) -> None:
        try:
            self.repository.add(path)
        except OtherBundle:  # it was replaced, and this process has begun since: as if all had
            self._links.wait_for("reload", name)
            self.repository.add(path)
            self._links.wait_for("settle", name)
        logger.info("%s is served", name)

    def _offers_at(self, path: Path) -> list[OfferedModel]:
        return [one for of in self._links.offered().values() for one in of if Path(one.path) == path]

    def _facts_at(self, path: Path) -> ModelFacts:
        """The newest of them. Raises OtherBundle where no engine process has the bundle that lies there."""
        digest = open_bundle(path, verify=False).digest
        for one in self._offers_at(path):
            if one.info.digest == digest:
                return _facts(one)
        raise OtherBundle(
            f"{path}: no engine process has opened the bundle that lies there now: reload the model"
        )

    def _open(self, facts: ModelFacts) -> LoadedModel:
        """Open a text side. Raises BundleError, and OtherBundle where the bundle is not the offered one."""
        bundle, info = open_bundle(facts.path, verify=False), facts.info
        if bundle.digest != info.digest:
            raise OtherBundle(f"{facts.path}: the bundle was replaced: reload the model")
        limits = EngineSettings(
            self._settings.queue_tokens, self._settings.encode_tokens, f"engine {info.name}"
        )
        engine = RemoteEngine(self._links, info.name, info.digest, limits)
        return LoadedModel(facts, open_text(bundle, info), engine)

    def _open_first(self, offered: Sequence[OfferedModel]) -> Iterator[LoadedModel]:
        """The models of the start; what can't be opened yet is looked at again with the next offer."""
        for one in offered:
            try:
                yield self._open(_facts(one))
            except ConvoyError as error:
                logger.warning("%s is not served: %s", one.info.name, error)


class OtherBundle(Unavailable):
    """The bundle on disk is not the one that the engines have opened."""


def _facts(offered: OfferedModel) -> ModelFacts:
    return ModelFacts(Path(offered.path), offered.info, offered.entry.cost)


async def _first_offer(paths: Sequence[Path]) -> list[OfferedModel]:
    links = Links(paths)
    links.start()
    while not links.connected:
        await asyncio.sleep(POLL_SECONDS)
    links.close()
    return [offers[0] for offers in links.offered().values()]
