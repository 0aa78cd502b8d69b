"""An open-loop load: requests arrive at the times of a Poisson process, whether or not earlier ones are
answered.

A closed loop (users who wait) flatters a slow server, which gets fewer requests. Here latency counts from the
due time of a request, so that delays of the load generator itself count too.

    python -m loadtest.http.openloop --url http://127.0.0.1:8000 --rate 10 --seconds 30 --out runs/load
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from loadtest.texts import sentences
from loadtest.traffic import percentile, poisson
from training.curve import svg

PERCENTILES: Final = (50, 90, 95, 99)
# POSTs a text; returns (status, seconds to first words or None)
Ask = Callable[[aiohttp.ClientSession, str], Any]


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """The times of one request, in seconds.

    due, done: time since the start of the run.
    status: HTTP status; 0 without an answer.
    first: time from due to the first words.
    """

    due: float
    done: float
    status: int
    first: float | None = None

    @property
    def latency(self) -> float:
        return self.done - self.due


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """Latencies in seconds, and rates in requests a second.

    refused: answers with 429 or 503.
    failed: other answers than 200, and missing ones.
    """

    offered: float
    sent: int
    answered: int
    refused: int
    failed: int
    throughput: float
    latency: dict[str, float]
    first_words: dict[str, float]


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Return the times of a Poisson process.

    rate: mean number of events a second.
    seconds: length of the run.
    seed: number that determines the random times.
    """
    return list(itertools.takewhile(lambda at: at < seconds, poisson(rate, seed)))


def summarise(answers: Sequence[TimedAnswer], rate: float) -> LoadSummary:
    """Summarise the answers; latencies include only answers with status 200."""
    good = [a for a in answers if a.status == 200]
    refused = sum(a.status in (429, 503) for a in answers)
    first = [a.first for a in good if a.first is not None]
    span = max((a.done for a in answers), default=0.0)
    return LoadSummary(
        offered=rate,
        sent=len(answers),
        answered=len(good),
        refused=refused,
        failed=len(answers) - len(good) - refused,
        throughput=len(good) / span if span else 0.0,
        latency={f"p{p}": percentile([a.latency for a in good], p) for p in PERCENTILES},
        first_words={f"p{p}": percentile(first, p) for p in PERCENTILES} if first else {},
    )


async def run(url: str, ask: Ask, texts: Iterator[str], times: Sequence[float]) -> list[TimedAnswer]:
    """Send a request at each time and wait for all answers.

    url: address of the server.
    ask: function that sends a text.
    texts: source texts, one a request.
    times: due time of each request, in seconds from the start.
    """
    async with session(url) as client:
        began = time.perf_counter()

        async def send_at(due: float, text: str) -> TimedAnswer:
            try:
                status, first = await ask(client, text)
            except (aiohttp.ClientError, TimeoutError):
                status, first = 0, None
            end = time.perf_counter() - began
            return TimedAnswer(due, end, status, None if first is None else first - began - due)

        tasks = []
        for due in times:
            await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
            tasks.append(asyncio.create_task(send_at(due, next(texts))))
        return await asyncio.gather(*tasks)


def session(url: str) -> aiohttp.ClientSession:
    """Open a session without a limit of connections, so that requests wait only in the server.

    It uses aiohttp, because httpx needs time for each request in proportion to the open connections.
    """
    timeout = aiohttp.ClientTimeout(total=120.0)
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


def translate(values: dict[str, Any], *, stream: bool) -> Ask:
    """Return an `Ask` that posts to /translate with further fields of the body."""
    key = os.environ.get("CONVOY_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def plain(client: aiohttp.ClientSession, text: str) -> tuple[int, float | None]:
        async with client.post("/translate", json=values | {"q": text}, headers=headers) as answer:
            await answer.read()
            return answer.status, None

    async def ask_streaming(client: aiohttp.ClientSession, text: str) -> tuple[int, float | None]:
        """Return status, 0 if the stream was cut off, and time of the first words."""
        body = values | {"q": text, "stream": True}
        first, whole = None, False
        async with client.post("/translate", json=body, headers=headers) as answer:
            async for line in answer.content:
                if line.startswith(b"data:") and first is None:
                    first = time.perf_counter()
                whole = whole or line == b"event: result\n"
            return (answer.status if whole or answer.status != 200 else 0), first

    return ask_streaming if stream else plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--rate", type=float, default=5.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", default="de")
    parser.add_argument("--target", default="en")
    parser.add_argument("--texts", type=Path, help="a file of one sentence a line; else made up")
    parser.add_argument("--stream", action="store_true", help="as event streams; also times the first words")
    parser.add_argument("--out", type=Path, default=Path("runs/load"))
    options = parser.parse_args()
    if options.rate <= 0 or options.seconds <= 0:
        parser.error("--rate and --seconds must be positive")
    ask = translate({"source": options.source, "target": options.target}, stream=options.stream)
    times = arrivals(options.rate, options.seconds, options.seed)
    answers = asyncio.run(run(options.url, ask, sentences(options.seed, options.texts), times))
    summary = summarise(answers, options.rate)
    options.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "given": {k: str(v) for k, v in vars(options).items()},
        "summary": asdict(summary),
    }
    record["answers"] = [asdict(a) for a in answers]
    (options.out / "openloop.json").write_text(json.dumps(record, indent=1), "utf-8")
    good = sorted(a.latency for a in answers if a.status == 200)
    shares = [(latency, (i + 1) / len(good)) for i, latency in enumerate(good)]
    title = f"{options.rate:g} requests/s offered for {options.seconds:g} s"
    (options.out / "openloop.svg").write_text(svg({title: shares}, "latency, s", "share answered"), "utf-8")
    print(json.dumps(asdict(summary), indent=1))


if __name__ == "__main__":
    main()
