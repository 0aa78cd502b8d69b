"""A closed loop: users who send the next request when the last is answered. It measures the peak of a server.
Its waiting times mean little, since a slow server gets fewer requests (`openloop` keeps the rate).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import aiohttp

from loadtest.http.openloop import Ask, TimedAnswer, session


async def keep_busy(
    url: str, ask: Ask, texts: Iterator[str], under_way: int, goes_on: Callable[[int], bool]
) -> list[TimedAnswer]:
    """Keep a number of requests running at any time.

    url: address of the server.
    ask: function that sends a text.
    texts: source texts, one a request.
    under_way: number of running requests.
    goes_on: function from the number of answers to whether more requests are sent.
    """
    answers = list[TimedAnswer]()
    async with session(url) as client:
        began = time.perf_counter()

        async def send_in_turn() -> None:
            while goes_on(len(answers)):
                due = time.perf_counter() - began
                try:
                    status, _ = await ask(client, next(texts))
                except (aiohttp.ClientError, TimeoutError):
                    status = 0
                answers.append(TimedAnswer(due, time.perf_counter() - began, status))

        await asyncio.gather(*(send_in_turn() for _ in range(under_way)))
    return answers


def busiest(url: str, ask: Ask, texts: Iterator[str], under_way: int, seconds: float) -> float:
    """Return the answers a second with status 200.

    url: address of the server.
    ask: function that sends a text.
    texts: source texts, one a request.
    under_way: number of running requests.
    seconds: duration.
    """
    began = time.perf_counter()
    answers = asyncio.run(
        keep_busy(url, ask, texts, under_way, lambda _: time.perf_counter() - began < seconds)
    )
    return sum(a.status == 200 for a in answers) / max(a.done for a in answers)
