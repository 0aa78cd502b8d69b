"""A process that hosts bundles over an ipc connection; imports as little as such a process needs."""

import asyncio

from engine.api import Service, host_service


def host(paths, settings, socket):
    """Host bundles until the process ends."""
    asyncio.run(_offer(Service.open(paths, settings), socket))


async def _offer(service, path, pause=0.01):
    """Start a service and offer its models over connections to a socket, without end.

    service: service that holds the models.
    path: path of the socket.
    pause: seconds between two announcements of the models.
    """
    service.start()
    host = host_service(service)
    await host.prove_models()
    async with await host.listen(path):
        while True:
            await asyncio.sleep(pause)
            host.announce()
