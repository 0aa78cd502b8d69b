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

    sender: front end that sent the order.
    ticket: ticket that keeps the old model in memory.
    task: task that ends when the old model is not in use any more.
    """

    sender: object
    old: LoadedModel
    ticket: Ticket
    task: asyncio.Task[ModelInfo]


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
        return {name: {reload.old.info.digest: reload.old} for name, reload in self._reloads.items()}

    async def execute(self, verb: str, name: str, sender: object) -> None:
        """Execute an order.

        verb: "load", "unload", "reload" or "settle".
        name: name of the model.
        sender: front end that sent the order; `settle_all` ends its reloads.

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
        """Release the old models of all reloads of a front end that has disconnected."""
        for name in [name for name, reload in self._reloads.items() if reload.sender is sender]:
            self._settle(name)

    async def _reload(self, name: str, sender: object) -> None:
        """Reload a model.

        A model in memory decodes tokens of both bundles afterwards, and keeps the lock until it is settled.
        For another model, this returns after the reload.
        """
        await self._lock.acquire()
        loop, replaced = asyncio.get_running_loop(), asyncio.Event()

        def on_replaced() -> None:  # called by the reload's thread once the new model answers
            loop.call_soon_threadsafe(replaced.set)

        try:
            old, ticket = self._pin_loaded(name)
        except ConvoyError:
            self._lock.release()
            raise
        task = loop.create_task(asyncio.to_thread(self._service.reload, name, on_replaced))
        wait = loop.create_task(replaced.wait())
        await asyncio.wait([task, wait], return_when=asyncio.FIRST_COMPLETED)
        wait.cancel()
        if old and replaced.is_set():  # the task ends after `_settle` has released the old model
            self._reloads[name] = _Reload(sender, old, ticket, task)
            return
        self._repository.release(ticket)
        try:
            await task
        finally:
            self._lock.release()

    def _pin_loaded(self, name: str) -> tuple[LoadedModel | None, Ticket]:
        """Return a loaded model and the ticket that keeps it in memory, or None and an unused ticket."""
        ticket = Ticket((name,))
        entry = self._service.repository_entries().get(name)
        if entry is None or entry.state is not State.LOADED or self._repository.acquire(ticket):
            return None, ticket
        return self._repository.claim_models(ticket, None)[name], ticket

    def _settle(self, name: str) -> None:
        """Release the old model of a reload, if there is one."""
        reload = self._reloads.pop(name, None)
        if reload is not None:
            self._repository.release(reload.ticket)
            task = asyncio.get_running_loop().create_task(self._finish(reload))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish(self, reload: _Reload) -> None:
        """Wait until the old model is not in use any more, and let the next reload begin."""
        try:
            await reload.task
        except ConvoyError as error:  # the process is stopping
            logger.warning("%s: %s", reload.old.info.name, error)
        finally:
            self._lock.release()
