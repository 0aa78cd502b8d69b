"""A process with models but without HTTP: front ends send it requests over a Unix socket."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from engine.api import Service, host_service
from server.app import SWITCH_SECONDS, begin, end_lost, open_service
from server.observing.figures import Sources
from server.observing.metrics import Metrics
from server.process.allocator import trimming
from server.process.peers import LAST_SECONDS, ProcessContext, send
from server.settings import ServerSettings
from server.state import watch_folders

if TYPE_CHECKING:
    from engine.api import EngineHost

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1  # seconds between two checks of devices and models
REFRESH_TICKS: Final = 10  # ticks between two copies of metrics
TURN_SECONDS: Final = 1.0  # while one turn of an engine takes longer, the process reports no progress


def run_engine(settings: ServerSettings, context: ProcessContext) -> int:
    """Load the models and answer front ends; after SIGTERM or the supervisor's end, until all disconnect.

    settings: settings of the server.
    context: context of this process.

    Returns 0; exits the process with 70 when a device is lost. Sets up logging and the allocator of the whole
    process. Raises BundleError or ConfigError when a model can't be loaded.
    """
    settings = settings.of_engine(context.number - settings.frontends)
    figures = begin(settings, context)
    service = open_service(settings, figures, context.weights)
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(EngineProcess(service, settings, figures, context).run())
    return 0


class EngineProcess:
    """The life of an engine process: start of the models, requests of front ends, end."""

    def __init__(
        self, service: Service, settings: ServerSettings, figures: Metrics, context: ProcessContext
    ) -> None:
        """Take the parts of the process.

        service: service that is not yet started.
        settings: settings of this process.
        figures: metrics of this process.
        context: context from the supervisor.
        """
        self._service, self._settings, self._figures, self._context = service, settings, figures, context
        self._stopping = False
        self._drain_until = 0.0  # latest time for front ends to disconnect, of time.monotonic()

    async def run(self) -> None:
        """Start the models, and answer front ends until the process must end."""
        loop, pipe = asyncio.get_running_loop(), self._context.pipe
        if sys.platform != "win32":
            for stop_signal in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(stop_signal, self._stop)
            loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the supervisor handles it
        loop.add_reader(pipe.fileno(), self._watch_pipe)
        self._service.start()
        service = self._service
        self._figures.watch(
            Sources(
                lambda: True,  # readiness is reported by front ends
                stats=service.stats,
                devices=service.devices,
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
        """Report progress until the process is stopping and all front ends have gone."""
        ticks, beats, number = 0, self._context.board.beats, self._context.number
        while not self._stopping or (host.connected and time.monotonic() < self._drain_until):
            await asyncio.sleep(TICK_SECONDS)
            if self._service.device_lost():
                logger.critical("a device is lost: this process ends, and another starts")
                await asyncio.sleep(TICK_SECONDS)  # let the engine's error replies go out
                end_lost()
            host.announce()
            # the supervisor kills a process whose counter does not grow
            beats[number] += self._service.stall_seconds() < TURN_SECONDS
            ticks += 1
            if ticks % REFRESH_TICKS == 0:
                self._figures.refresh()

    def _watch_pipe(self) -> None:
        """Stop when the pipe is closed, because the supervisor has ended. No message is expected from it."""
        try:
            while self._context.pipe.poll():
                self._context.pipe.recv_bytes()
        except (EOFError, ConnectionResetError):
            asyncio.get_running_loop().remove_reader(self._context.pipe.fileno())
            self._stop()

    def _stop(self) -> None:
        """Stop after the front ends have drained; on the second call, at once."""
        self._drain_until = (
            0.0 if self._stopping else time.monotonic() + self._settings.drain_timeout + LAST_SECONDS
        )
        self._stopping = True
