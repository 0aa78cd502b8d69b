"""A process that holds models and speaks no HTTP: front ends ask it over a Unix socket."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from engine.api import Service, host_service
from server.app import LAST_SECONDS, SWITCH_SECONDS, begin, end_lost, open_service
from server.observing.metrics import Metrics, Sources
from server.process.allocator import trimming
from server.process.peers import ProcessContext, send
from server.settings import ServerSettings
from server.state import watch_folders

if TYPE_CHECKING:
    from engine.api import EngineHost

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1  # between two looks at devices and models
REFRESH_TICKS: Final = 10  # between two copies of figures
TURN_SECONDS: Final = 1.0  # of an engine's turn from which on the process shows no life until it ends


def run_engine(settings: ServerSettings, context: ProcessContext) -> int:
    """Load the models, and answer front ends until SIGTERM or the supervisor's end, and until they have gone.

    settings: what the operator has set.
    context: of this process.

    Returns 0; ends the process with 70 when a device is lost. Raises BundleError or ConfigError when a model
    can't be loaded. Sets up logging; for a process of its own.
    """
    settings = settings.of_engine(context.number - settings.frontends)
    figures = begin(settings, context)
    service = open_service(settings, figures, context.weights)
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(EngineProcess(service, settings, figures, context).run())
    return 0


class EngineProcess:
    """Models of this process, from their start to their end."""

    def __init__(
        self, service: Service, settings: ServerSettings, figures: Metrics, context: ProcessContext
    ) -> None:
        """service: not started.

        settings: of this process.
        figures: that it adds to.
        context: what the supervisor has given.
        """
        self._service, self._settings, self._figures, self._context = service, settings, figures, context
        self._stopping = False
        self._until = 0.0  # that front ends get to go

    async def run(self) -> None:
        """Host the models until it is time to end."""
        loop, pipe = asyncio.get_running_loop(), self._context.pipe
        if sys.platform != "win32":
            for stop_signal in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(stop_signal, self._stop)
            loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the supervisor sees to it
        loop.add_reader(pipe.fileno(), self._read_pipe)
        self._service.start()
        service = self._service
        self._figures.watch(
            Sources(
                lambda: True,  # front ends tell whether the server is ready
                stats=service.stats,
                memory=service.memory,
                stored=service.repository_entries,
            )
        )
        self._figures.refresh()
        host = host_service(self._service)
        await host.prove_models()
        path = self._context.sockets[self._context.number - self._settings.frontends]
        async with await host.listen(path), trimming():
            send(pipe, {"kind": "ready"})
            tasks = [
                asyncio.create_task(host.retry_models()),
                asyncio.create_task(watch_folders(service, self._settings.watch)),
            ]
            await self._tick(host)
        for task in tasks:
            task.cancel()
        await asyncio.to_thread(self._service.stop, drain=False, timeout=LAST_SECONDS)

    async def _tick(self, host: EngineHost) -> None:
        """Until front ends have gone, once it is told to stop."""
        ticks, beats, number = 0, self._context.board.beats, self._context.number
        while not self._stopping or (host.connected and time.monotonic() < self._until):
            await asyncio.sleep(TICK_SECONDS)
            if self._service.device_lost():
                logger.critical("a device is lost: this process ends, and another starts")
                await asyncio.sleep(TICK_SECONDS)  # for what its engine answers
                end_lost()
            host.announce()
            beats[number] += self._service.stall_seconds() < TURN_SECONDS
            ticks += 1
            if ticks % REFRESH_TICKS == 0:
                self._figures.refresh()

    def _read_pipe(self) -> None:
        """The supervisor says nothing to an engine process but by its end."""
        try:
            while self._context.pipe.poll():
                self._context.pipe.recv_bytes()
        except (EOFError, ConnectionResetError):
            asyncio.get_running_loop().remove_reader(self._context.pipe.fileno())
            self._stop()

    def _stop(self) -> None:
        """End when the front ends have, which drain; at the second word at once."""
        self._until = (
            0.0 if self._stopping else time.monotonic() + self._settings.drain_timeout + LAST_SECONDS
        )
        self._stopping = True
