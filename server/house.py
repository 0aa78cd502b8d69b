"""What the routes share: the service, its settings and metrics, and whether the house is open."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.requests import Request

from engine.api import ConvoyError, InvalidRequest, ModelInfo, Service
from server.metrics import Metrics
from server.settings import Settings

logger = logging.getLogger(__name__)

RETRY = 1.0  # seconds between two tries of a canary


@dataclass(eq=False, slots=True)
class House:
    """draining: after SIGTERM; new work is refused. sung: models whose canary has been translated. in_flight:
    requests not yet answered. tasks: reloads under way."""

    service: Service
    settings: Settings
    metrics: Metrics
    draining: bool = False
    in_flight: int = 0
    sung: set[str] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        names = {info.name for info in self.service.models()}
        return not self.draining and self.service.healthy() and names == self.sung

    async def reload(self, name: str) -> ModelInfo:
        """See `Service.reload`; one that is refused is logged."""
        try:
            info = await asyncio.to_thread(self.service.reload, name)
        except ConvoyError as error:
            logger.error("%s goes on with the old bundle: %s", name, error)  # noqa: TRY400
            raise
        self.metrics.load.labels(name).set(info.load_seconds)
        logger.info("reloaded %s in %.1f seconds", name, info.load_seconds)
        return info

    def reload_all(self) -> None:
        """Reload every model, one after the other, in the background. For the event loop's thread."""
        task = asyncio.get_running_loop().create_task(self._reload_all())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _reload_all(self) -> None:
        for info in self.service.models():
            with suppress(ConvoyError):
                await self.reload(info.name)

    async def sing(self) -> None:
        """Translate a canary with every model; try again until each has answered."""
        for info in self.service.models():
            while info.name not in self.sung:
                try:
                    await self.service.canary(info.name)
                    self.sung.add(info.name)
                except ConvoyError as error:
                    logger.warning("%s is not ready: %s", info.name, error)
                    await asyncio.sleep(RETRY)


def house_of(request: Request) -> House:
    house = request.app.state.house
    assert isinstance(house, House)
    return house


def deadline_of(request: Request, house: House) -> float:
    """When the request must be answered, as a time.monotonic().

    X-Request-Timeout, in seconds, shortens the server's own limit. Raises InvalidRequest on anything else.
    """
    limit, asked = house.settings.request_timeout, request.headers.get("x-request-timeout")
    if asked is not None:
        try:
            seconds = float(asked)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise InvalidRequest("X-Request-Timeout must be a positive number of seconds")
        limit = min(limit, seconds)
    return time.monotonic() + limit
