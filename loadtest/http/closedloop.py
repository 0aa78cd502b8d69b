"""A closed loop: users who ask again as soon as they are answered. The figure is what a server can do at
the most. Waiting times say little here, for a slow server is asked less (openloop.py asks on).
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
    """Keep so many requests under way at any time.

    url: of the server.
    ask: sends a text.
    texts: what is asked, in turn.
    under_way: requests at any time.
    goes_on: of how many have been answered, whether to ask for more.
    """
    answers = list[TimedAnswer]()
    async with session(url) as client:
        began = time.perf_counter()

        async def one() -> None:
            while goes_on(len(answers)):
                due = time.perf_counter() - began
                try:
                    status, _ = await ask(client, next(texts))
                except (aiohttp.ClientError, TimeoutError):
                    status = 0
                answers.append(TimedAnswer(due, time.perf_counter() - began, status))

        await asyncio.gather(*(one() for _ in range(under_way)))
    return answers


def busiest(url: str, ask: Ask, texts: Iterator[str], under_way: int, seconds: float) -> float:
    """Measure the answers a second, for so long. Only those with 200 count.

    url: of the server.
    ask: sends a text.
    texts: what is asked, in turn.
    under_way: requests at any time.
    seconds: for which it is asked.
    """
    began = time.perf_counter()
    answers = asyncio.run(
        keep_busy(url, ask, texts, under_way, lambda _: time.perf_counter() - began < seconds)
    )
    return sum(a.status == 200 for a in answers) / max(a.done for a in answers)
