"""A process that hosts bundles over a link; imports as little as such a process needs."""

import asyncio

from engine.api import Service, host_service


def host(paths, settings, socket):
    """Host bundles for a life."""

    async def main():
        service = Service.open(paths, settings)
        service.start()
        offered = host_service(service)
        await offered.prove_models()
        async with await offered.listen(socket):
            while True:
                await asyncio.sleep(0.01)
                offered.announce()

    asyncio.run(main())
