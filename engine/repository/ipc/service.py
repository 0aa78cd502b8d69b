"""A service whose models are in other processes; this process has their text sides only."""

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
from engine.repository.figures import NO_STATS, DeviceFigures, RepositoryEntry, add_parallel, merge_entries
from engine.repository.folders import Folders
from engine.repository.ipc.connections import EngineConnections
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
from engine.repository.routing import read_rules
from engine.repository.service import Service
from engine.schedule.engine import EngineSettings
from engine.schedule.stats import Stats

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.01  # seconds between two checks of the offers
OFFER_SECONDS: Final = 5.0  # longest time until the offer of a reloaded bundle arrives


class RemoteService(Service):
    """A service that follows the offers of the engine processes.

    A text side belongs to one bundle, by its digest. After a reload the engines decode tokens of the old and
    of the new bundle until `settle`.
    """

    def __init__(
        self, connections: EngineConnections, offered: Sequence[OfferedModel], settings: ServiceSettings
    ) -> None:
        """Open the text sides of models.

        connections: connections to the engine processes, not started.
        offered: offered models.
        settings: settings of all models.

        Raises BundleError.
        """
        self._connections, self._settings = connections, settings
        self._entries = {one.info.name: one.entry for one in offered}
        self._follow_lock = threading.Lock()
        opened = list(self._open_first(offered))
        source = ModelSource(self._facts_at, lambda path: self._open(self._facts_at(path)), answered=True)
        repository = Repository([model.facts for model in opened], source, loaded=opened)
        rules = read_rules(settings.upstreams, settings.frontends)
        super().__init__(repository, Folders((), {}, settings.languages), rules)

    @classmethod
    def connect(cls, paths: Sequence[Path], settings: ServiceSettings) -> RemoteService:
        """Wait for the offer of an engine process, and open the text sides of its models.

        paths: paths of the sockets, one for each engine process.
        settings: settings of all models.

        Raises BundleError.
        """
        return cls(EngineConnections(paths), asyncio.run(_first_offer(paths)), settings)

    def start(self) -> None:
        """Connect to the engine processes in this event loop."""
        self._connections.start()
        super().start()

    async def connected(self) -> bool:
        """Return whether an engine process is connected; waits a moment for one."""
        if not self._connections.connected:
            await asyncio.sleep(POLL_SECONDS)
        return self._connections.connected

    async def keep_up(self) -> None:
        """Follow the offers of the engine processes. Runs until it is cancelled."""
        while True:
            await self._connections.changed.wait()
            self._connections.changed.clear()
            if not self._connections.connected:  # the offers come back with the processes
                continue
            try:
                await asyncio.to_thread(self._follow_all, self._connections.offered())
            except Exception:
                logger.exception("the offer of the engine processes could not be followed")

    def load(self, name: str) -> ModelInfo:
        return self._order("load", name)

    def unload(self, name: str) -> ModelInfo:
        return self._order("unload", name)

    def reload(self, name: str, replaced: Callable[[], None] | None = None) -> ModelInfo:
        """Have the engine processes reload a bundle, and open its text side here; call `settle` later.

        name: name of the model.
        replaced: parameter of `Service.reload`.

        Raises the errors of `Service.reload`; the old bundle is then still served.
        """
        self._order("reload", name)
        info = self.follow(name, "")
        if replaced:
            replaced()
        return info

    def follow(self, name: str, digest: str) -> ModelInfo:
        """Open the text side of a bundle that the engine processes have reloaded.

        name: name of the model.
        digest: digest of the bundle; "": the offered one.

        Blocks until the old text side is not in use any more. Raises UnknownModel, BundleError, and
        Unavailable if the bundle is not offered.
        """
        until = time.monotonic() + OFFER_SECONDS
        while digest and not self._connections.offers(name, digest) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)  # the order's result came before the offer
        with self._follow_lock:
            find_info(self.models(), name)
            return self.repository.reload(name)

    def settle(self, name: str) -> None:
        """Have the engine processes free a replaced bundle, after all front ends have opened the new one."""
        self._connections.execute("settle", name)

    def stats(self) -> dict[str, Stats]:
        """Return the last statistics of the engines, summed for each model."""
        stats = self._connections.stats()
        return {info.name: reduce(add_parallel, stats.get(info.name, ()), NO_STATS) for info in self.models()}

    def repository_entries(self) -> dict[str, RepositoryEntry]:
        """Return the state of each model in the engine processes, the last known one while disconnected."""
        self._entries |= {
            name: reduce(merge_entries, (model.entry for model in models))
            for name, models in self._connections.offered().items()
        }
        return {
            name: self._entries.get(name, replace(entry, state=State.UNLOADED))
            for name, entry in self.repository.entries().items()
        }

    def devices(self) -> dict[str, DeviceFigures]:
        """Return nothing: this process uses no device."""
        return {}

    def _order(self, verb: str, name: str) -> ModelInfo:
        info = find_info(self.models(), name)
        self._connections.execute(verb, name)
        return info

    def _follow_all(self, offered: Mapping[str, Sequence[OfferedModel]]) -> None:
        """Add, reload and remove models until this service has the offered models."""
        with self._follow_lock:
            local_digests = {info.name: info.digest for info in self.models()}
            for name in local_digests.keys() - offered.keys():
                self.repository.remove(name)
                logger.info("%s is no longer served: no engine process has it", name)
            for name, offers in offered.items():
                digests = [digest for one in offers for digest in one.digests]
                try:
                    if digests and name not in local_digests:
                        self._add(name, Path(offers[0].path))
                    elif digests and local_digests[name] not in digests:
                        self.repository.reload(name)
                except ConvoyError as error:
                    logger.warning("%s is not served: %s", name, error)

    def _add(self, name: str, path: Path) -> None:
        """Add a model; the engine processes reload it first if its bundle was replaced."""
        try:
            self.repository.add(path)
        except OtherBundle:  # replaced before this process started, and not reloaded in the engine processes
            self._connections.execute("reload", name)
            self.repository.add(path)
            self._connections.execute("settle", name)
        logger.info("%s is served", name)

    def _offers_at(self, path: Path) -> list[OfferedModel]:
        offers = self._connections.offered().values()
        return [model for models in offers for model in models if Path(model.path) == path]

    def _facts_at(self, path: Path) -> ModelFacts:
        """Return the facts of the bundle at a path. Raises OtherBundle if no engine process has loaded it."""
        digest = self._digest_at(path)
        for one in self._offers_at(path):
            if one.info.digest == digest:
                return _facts(one)
        raise OtherBundle(
            f"{path}: no engine process has opened the bundle that is there now: reload the model"
        )

    def _digest_at(self, path: Path) -> str:
        """Return the digest of a bundle, or of an upstream's settings. Raises BundleError."""
        if path.parent != self._settings.upstreams:
            return open_bundle(path, verify=False).digest
        from engine.repository.upstreams.opening import facts_of

        return facts_of(path, self._settings).info.digest

    def _open(self, facts: ModelFacts) -> LoadedModel:
        """Open a text side. Raises BundleError, and OtherBundle if the bundle is not the offered one."""
        info = facts.info
        if self._digest_at(facts.path) != info.digest:
            raise OtherBundle(f"{facts.path}: the bundle was replaced: reload the model")
        limits = EngineSettings(
            self._settings.queue_tokens, self._settings.encode_tokens, f"engine {info.name}"
        )
        engine = RemoteEngine(self._connections, info.name, info.digest, limits)
        if info.remote:
            from engine.repository.upstreams.opening import text_of

            return LoadedModel(facts, text_of(info), engine)
        return LoadedModel(facts, open_text(open_bundle(facts.path, verify=False), info), engine)

    def _open_first(self, offered: Sequence[OfferedModel]) -> Iterator[LoadedModel]:
        """Open the models offered at the start. A model that fails is tried again at the next offer."""
        for one in offered:
            try:
                yield self._open(_facts(one))
            except ConvoyError as error:
                logger.warning("%s is not served: %s", one.info.name, error)


class OtherBundle(Unavailable):
    """The bundle on disk is not the one that the engine processes have opened."""


def _facts(offered: OfferedModel) -> ModelFacts:
    return ModelFacts(Path(offered.path), offered.info, offered.entry.cost)


async def _first_offer(paths: Sequence[Path]) -> list[OfferedModel]:
    """Connect, wait for the first offer, and disconnect; returns one offer of each model."""
    connections = EngineConnections(paths)
    connections.start()
    while not connections.connected:
        await asyncio.sleep(POLL_SECONDS)
    connections.close()
    return [offers[0] for offers in connections.offered().values()]
