"""Front ends and engine processes killed at random while an open loop asks: what became of every request.

Each request is counted once, by how it ended: answered, refused with a stated error, its connection lost with
its front end, or not at all. An answer that is not the one that the first of its text had is counted too.

    python -m loadtest.http.kills --frontends 2 --engines 2 --rate 20 --seconds 600 --every 10
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import aiohttp

from loadtest.http.openloop import arrivals, session
from loadtest.http.serving import named_processes, serving_convoy
from loadtest.texts import sentences

TEXTS: Final = 200  # different ones that are asked
PATIENCE_SECONDS: Final = 60.0  # after which a request counts as one that never ended


class Killer:
    """Kills processes of a server, and measures the time until the server is ready again."""

    def __init__(self, log: Path, url: str, seed: int) -> None:
        """log: log of the server, which names its processes.
        url: address of the server.
        seed: seed of the victims and times.
        """
        self._log, self._url, self._chance = log, url, random.Random(seed)  # nosec B311 # no secret
        self.killed = Counter[str]()
        self.pauses = list[float]()

    async def go_on(self, every: float) -> None:
        """Kill one at a time, without end.

        every: seconds between two, on average.
        """
        async with session(self._url) as client:
            while True:
                await asyncio.sleep(self._chance.expovariate(1 / every))
                name, pid = self._chance.choice(sorted(named_processes(self._log).items()))
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:  # it is not back yet
                    continue
                self.killed[name.rpartition(" ")[0]] += 1
                began = time.monotonic()
                while named_processes(self._log).get(name) == pid or not await _ready(client):
                    await asyncio.sleep(0.05)
                self.pauses.append(time.monotonic() - began)


async def _ready(client: aiohttp.ClientSession) -> bool:
    try:
        async with client.get("/health/ready") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


class Ledger:
    """The outcome of each request."""

    def __init__(self) -> None:
        self.ends, self.different = Counter[str](), 0
        self._texts: dict[str, str] = {}

    async def ask(self, client: aiohttp.ClientSession, text: str) -> None:
        """Send a text and note how that ends."""
        body = {"q": text, "source": "de", "target": "en"}
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), client.post("/translate", json=body) as answer:
                values = await answer.json()
        except TimeoutError:
            self.ends["never ended"] += 1
        except aiohttp.ClientError as error:
            self.ends[f"connection lost ({type(error).__name__})"] += 1
        else:
            if answer.status == 200:
                self.ends["answered"] += 1
                self.different += (
                    self._texts.setdefault(text, values["translatedText"]) != values["translatedText"]
                )
            else:
                self.ends[f"{answer.status} {values.get('error')}"] += 1


async def keep_asking(url: str, ledger: Ledger, killer: Killer, options: argparse.Namespace) -> int:
    """Send requests at random times while processes are killed; returns the number of requests.

    url: address of the server.
    ledger: record of the outcomes.
    killer: killer of processes.
    options: options of the command line.
    """
    texts = itertools.cycle(list(itertools.islice(sentences(1), TEXTS)))
    killing = asyncio.create_task(killer.go_on(options.every))
    tasks, began = list[asyncio.Task[None]](), time.perf_counter()
    async with session(url) as client:
        for due in arrivals(options.rate, options.seconds, options.seed):
            await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
            tasks.append(asyncio.create_task(ledger.ask(client, next(texts))))
        killing.cancel()
        await asyncio.gather(*tasks)
    return len(tasks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--frontends", type=int, default=2)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    settings = {"MODELS": options.model, "PRECISION": "int8", "THREADS": 1}
    settings |= {"FRONTENDS": options.frontends, "ENGINES": options.engines}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with serving_convoy(settings, log=log) as (url, _):
            ledger, killer = Ledger(), Killer(log, url, options.seed)
            sent = asyncio.run(keep_asking(url, ledger, killer, options))
        bugs = log.read_text("utf-8").count("Traceback")
    print(f"{sent} requests in {options.seconds:.0f} s; killed: {dict(killer.killed)}; tracebacks: {bugs}")
    for end, count in ledger.ends.most_common():
        print(f"{count} {end}")
    pauses = sorted(killer.pauses)
    print(f"ready again after {pauses[len(pauses) // 2]:.1f} s (median), {pauses[-1]:.1f} s (worst)")
    print(
        f"answers that differ from the first of their text: {ledger.different}; ends: {ledger.ends.total()}"
    )


if __name__ == "__main__":
    main()
