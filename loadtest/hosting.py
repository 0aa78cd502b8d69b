"""An engine process by itself, without a supervisor; imports as little as such a process needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.api import Service, host_service


async def offer(service: Service, path: Path, pause: float = 0.1) -> None:
    """Start a service and offer its models over links, without end.

    service: holds the models.
    path: of the socket.
    pause: seconds between two looks at what the service offers.
    """
    service.start()
    host = host_service(service)
    await host.prove_models()
    async with await host.listen(path):
        while True:
            await asyncio.sleep(pause)
            host.announce()
