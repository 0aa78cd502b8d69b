"""A process that hosts bundles over a link; imports as little as such a process needs."""

import asyncio

from engine.api import Service
from loadtest.hosting import offer


def host(paths, settings, socket):
    """Host bundles for a life."""
    asyncio.run(offer(Service.open(paths, settings), socket, pause=0.01))
