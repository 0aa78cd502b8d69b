"""A client of either kind, and small servers that are slow, busy or broken."""

import asyncio
import inspect
import threading
import time

import uvicorn
from starlette.routing import Route

from convoy_client import (
    AsyncClient,
    Client,
)

GERMAN = "Wo ist denn hier der Bahnhof?"
TEXTS = [GERMAN, "Das ist gut.", "😀"]
KEY = "a-key-that-an-operator-chose"


def using(kind, url, use, **arguments):
    """Call `use` with a client, and return its result, or the list of the results that it yields."""
    if kind == "sync":
        with Client(url, **arguments) as client:
            found = use(client)
            return list(found) if inspect.isgenerator(found) else found

    async def run():
        async with AsyncClient(url, **arguments) as client:
            found = use(client)
            return [part async for part in found] if inspect.isasyncgen(found) else await found

    return asyncio.run(run())


def plain(place, path="/translate", **fields):
    """Return the answer of the server to a request of httpx."""
    values = {"q": GERMAN, "source": "de", "target": "en", "api_key": KEY} | fields
    return place[0].post(path, json=values).json()


class Stage:
    """A server whose application tests replace."""

    def __init__(self):
        self.app = None
        config = uvicorn.Config(self, port=0, log_config=None, lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, send)


def answering(*answers, seen=None):
    """Return a /translate route that gives the answers in turn, repeats the last, and stores each request."""
    left, seen = list(answers), [] if seen is None else seen

    async def endpoint(request):
        seen.append((time.monotonic(), request.headers, await request.body()))
        return left.pop(0) if len(left) > 1 else left[0]

    return Route("/translate", endpoint, methods=["POST"])


GOOD = {"translatedText": "good"}
