"""Executes orders for the models of an engine process: load, unload, reload, settle.

A reload has two steps, so that no request fails. After `reload` a model decodes tokens of the new and of the
old bundle. When all front ends use the new text side, `settle` frees the old model; so does the disconnection
of the front end that sent the order.
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
    """A reload whose old model is still in memory.

    sender: sender of the order.
    ticket: ticket that keeps the old model in memory.
    work: task that ends when the old model is not in use any more.
    """

    sender: object
    old: LoadedModel
    ticket: Ticket
    work: asyncio.Task[ModelInfo]


class Orders:
    """Orders of all front ends. For the event loop's thread."""

    def __init__(self, service: Service) -> None:
        self._service, self._repository = service, service.repository
        self._reloads: dict[str, _Reload] = {}
        self._lock = asyncio.Lock()  # held by a reload until it is settled
        self._tasks = set[asyncio.Task[None]]()

    @property
    def older(self) -> Mapping[str, Mapping[str, LoadedModel]]:
        """Replaced models that still decode, by name and digest."""
        return {name: {one.old.info.digest: one.old} for name, one in self._reloads.items()}

    async def execute(self, verb: str, name: str, sender: object) -> None:
        """Execute an order.

        verb: "load", "unload", "reload" or "settle".
        name: name of the model.
        sender: sender of the order.

        Raises the errors of the `Service` method, and InvalidRequest on another verb.
        """
        if verb in ("load", "unload"):
            await asyncio.to_thread(self._service.load if verb == "load" else self._service.unload, name)
        elif verb == "reload":
            await self._reload(name, sender)
        elif verb == "settle":
            self._settle(name)
        else:
            raise InvalidRequest(f"no order {verb!r} is known")

    def settle_all(self, sender: object) -> None:
        """Settle all reloads of a sender that has disconnected."""
        for name in [name for name, one in self._reloads.items() if one.sender is sender]:
            self._settle(name)

    async def _reload(self, name: str, sender: object) -> None:
        """Reload a model, and return when it decodes tokens of both bundles, or when it was not loaded."""
        await self._lock.acquire()
        loop, replaced, reload = asyncio.get_running_loop(), asyncio.Event(), self._service.reload

        def note() -> None:
            loop.call_soon_threadsafe(replaced.set)

        try:
            old, ticket = self._pin_loaded(name)
        except ConvoyError:
            self._lock.release()
            raise
        work = loop.create_task(asyncio.to_thread(reload, name, note))
        signal = loop.create_task(replaced.wait())
        await asyncio.wait([work, signal], return_when=asyncio.FIRST_COMPLETED)
        signal.cancel()
        if old and replaced.is_set():
            self._reloads[name] = _Reload(sender, old, ticket, work)
            return
        self._repository.release(ticket)
        try:
            await work
        finally:
            self._lock.release()

    def _pin_loaded(self, name: str) -> tuple[LoadedModel | None, Ticket]:
        """Return a model if it is in memory, with the ticket that keeps it there."""
        ticket = Ticket((name,))
        entry = self._service.repository_entries().get(name)
        if entry is None or entry.state is not State.LOADED or self._repository.acquire(ticket):
            return None, ticket
        return self._repository.claim_models(ticket, None)[name], ticket

    def _settle(self, name: str) -> None:
        reload = self._reloads.pop(name, None)
        if reload is not None:
            self._repository.release(reload.ticket)
            task = asyncio.get_running_loop().create_task(self._finish(reload))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish(self, reload: _Reload) -> None:
        try:
            await reload.work
        except ConvoyError as error:  # the process is stopping
            logger.warning("%s: %s", reload.old.info.name, error)
        finally:
            self._lock.release()
