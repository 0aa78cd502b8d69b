"""A server with toy models, and requests to it."""

import asyncio

import pytest

from engine.api import TextOptions
from tests.support.served import server

GERMAN = "Wo ist denn hier der Bahnhof?"


@pytest.fixture(scope="module")
def place():
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def client(place):
    return place[0]


def post(client, path="/translate", **fields):
    values = {"q": GERMAN, "source": "de", "target": "en"} | fields
    return client.post(path, json={k: v for k, v in values.items() if v is not None})


def direct(place, text, model="toy-de-en"):
    """Return the answer of the service itself, with options of LibreTranslate's contract."""
    return asyncio.run(place[1].service.run(model, [text], TextOptions(follow_form=True, protect=True)))[0]
