"""The bridge between the engine's thread and an event loop."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from engine.engine import Engine
from engine.types import DecodeOptions, Outcome, Request, Result

logger = logging.getLogger(__name__)

Job = tuple[list[int], DecodeOptions]  # a source, ending with end-of-sentence, and how to decode it


async def generate(
    engine: Engine, source: list[int], options: DecodeOptions, deadline: float = math.inf
) -> Result:
    """Decode one source. deadline: a time.monotonic(). Raises what `submit` raises and any ConvoyError.

    Cancelling the awaiting task cancels the request.
    """
    return (await generate_group(engine, [(source, options)], deadline))[0]


async def generate_group(engine: Engine, jobs: Sequence[Job], deadline: float = math.inf) -> list[Result]:
    """Decode several sources as one group, all accepted or none; results in the order of the jobs.

    The first failure is raised and cancels the others, and so does cancelling the awaiting task.
    """
    if not jobs:
        return []
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    results: dict[int, Result] = {}

    def settle(index: int, outcome: Outcome) -> None:
        if future.done():
            return
        if not isinstance(outcome, Result):
            future.set_exception(outcome)
            return
        results[index] = outcome
        if len(results) == len(jobs):
            future.set_result(None)

    def answer(index: int) -> Callable[[Outcome], None]:
        def reply(outcome: Outcome) -> None:
            try:
                loop.call_soon_threadsafe(settle, index, outcome)
            except RuntimeError:  # the loop is closed: nobody waits any more
                logger.debug("an answer came after its event loop was closed")

        return reply

    requests = [Request(source, options, answer(i), deadline) for i, (source, options) in enumerate(jobs)]
    engine.submit(requests)
    try:
        await future
    finally:
        if len(results) < len(jobs):
            engine.cancel(requests)
    return [results[i] for i in range(len(jobs))]
