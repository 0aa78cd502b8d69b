"""What an engine process does with its models when it is told to: load, unload, reload, settle.

A reload goes in two steps, so that no request fails for it. After `reload` a model decodes tokens of the new
bundle and of the old one; when all front ends have taken up the new text side, `settle` lets go of the old
one, and so does the end of the front end that gave the order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import ConvoyError, InvalidRequest
from engine.repository.budget import State, Ticket
from engine.repository.loading import LoadedModel, ModelInfo
from engine.repository.service import Service

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Reload:
    """A reload whose old model is still held.

    giver: of the order.
    ticket: holds the old model.
    work: ends when nobody uses the old one.
    """

    giver: object
    old: LoadedModel
    ticket: Ticket
    work: asyncio.Task[ModelInfo]


class Orders:
    """For the event loop's thread."""

    def __init__(self, service: Service) -> None:
        self._service, self._repository = service, service.repository
        self._reloads: dict[str, _Reload] = {}
        self._one = asyncio.Lock()  # reload at a time, until it is settled
        self._tasks = set[asyncio.Task[None]]()

    @property
    def older(self) -> Mapping[str, Mapping[str, LoadedModel]]:
        """Models that were replaced and still decode, by name and digest."""
        return {name: {one.old.info.digest: one.old} for name, one in self._reloads.items()}

    async def obey(self, verb: str, name: str, giver: object) -> None:
        """Do what is ordered.

        verb: "load", "unload", "reload" or "settle".
        name: the model's name.
        giver: of the order.

        Raises what `Service` raises for it, and InvalidRequest on another verb.
        """
        if verb in ("load", "unload"):
            await asyncio.to_thread(self._service.load if verb == "load" else self._service.unload, name)
        elif verb == "reload":
            await self._reload(name, giver)
        elif verb == "settle":
            self._settle(name)
        else:
            raise InvalidRequest(f"no order {verb!r} is known")

    def settle_all(self, giver: object) -> None:
        """Settle what was ordered by one who has gone."""
        for name in [name for name, one in self._reloads.items() if one.giver is giver]:
            self._settle(name)

    async def _reload(self, name: str, giver: object) -> None:
        await self._one.acquire()
        loop, replaced, reload = asyncio.get_running_loop(), asyncio.Event(), self._service.reload

        def note() -> None:
            loop.call_soon_threadsafe(replaced.set)

        try:
            old, ticket = self._hold(name)
        except ConvoyError:
            self._one.release()
            raise
        work = loop.create_task(asyncio.to_thread(reload, name, note))
        signal = loop.create_task(replaced.wait())
        await asyncio.wait([work, signal], return_when=asyncio.FIRST_COMPLETED)
        signal.cancel()
        if old and replaced.is_set():
            self._reloads[name] = _Reload(giver, old, ticket, work)
            return
        self._repository.leave(ticket)
        try:
            await work
        finally:
            self._one.release()

    def _hold(self, name: str) -> tuple[LoadedModel | None, Ticket]:
        """The model that is to be replaced, if it is in memory, and what keeps it there."""
        ticket = Ticket((name,))
        entry = self._service.repository_entries().get(name)
        if entry is None or entry.state is not State.LOADED or self._repository.ask(ticket):
            return None, ticket
        return self._repository.claim_models(ticket, None)[name], ticket

    def _settle(self, name: str) -> None:
        reload = self._reloads.pop(name, None)
        if reload is not None:
            self._repository.leave(reload.ticket)
            task = asyncio.get_running_loop().create_task(self._finish(reload))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish(self, reload: _Reload) -> None:
        try:
            await reload.work
        except ConvoyError as error:  # the process is stopping
            logger.warning("%s: %s", reload.old.info.name, error)
        finally:
            self._one.release()
