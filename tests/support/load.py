"""Load and memory of a server process under test."""

import asyncio

from loadtest.http.openloop import arrivals, run, translate
from loadtest.texts import sentences


def offered(client, rate, seconds, values, texts=None, seed=1):
    """Send requests with Poisson arrivals from another event loop; return their answers."""
    url = str(client.base_url)
    moments = arrivals(rate, seconds, seed)
    ask = translate({"source": "de", "target": "en"} | values, stream=False)
    return asyncio.run(run(url, ask, texts or sentences(seed), moments))
