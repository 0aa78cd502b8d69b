"""What the link between a front end and an engine process costs of the processor, both sides together.

So many groups of one source are under way over the link, and then at an engine of this process; either engine
echoes after a turn for each token (`front_cost`). Prints microseconds of the processor for a group, of the
asking process, of the engine process, and of both beyond what is taken without a link.

    python -m loadtest.http.link_cost --under-way 32 --turn 0.5
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from engine.api import connect_service, share_threads
from engine.repository.repository import Repository
from engine.schedule.aio import generate_group
from engine.schedule.any_engine import AnyEngine
from engine.types import DecodeJob, DecodeOptions
from loadtest.hosting import offer
from loadtest.http.front_cost import echo_service
from loadtest.http.serving import START_SECONDS, processor_seconds
from server.observing.metrics import Metrics
from server.process.allocator import thrifty
from server.settings import ServerSettings

SOURCE_TOKENS: Final = (8, 40)  # least and most
WARM_UP: Final = 10  # a share of the groups, one in so many, is asked before


def serve(settings: ServerSettings, turn: float, path: Path) -> None:
    """Offer a bundle behind an engine that echoes, without end.

    settings: name the bundle.
    turn: seconds of a turn.
    path: of the socket.
    """
    service, engine = echo_service(settings.models[0], settings, Metrics())
    engine.turn_seconds = turn
    asyncio.run(offer(service, path))


def jobs(count: int) -> Iterator[DecodeJob]:
    """Yield so many sources of random lengths."""
    draw = random.Random(1)
    for _ in range(count):
        yield DecodeJob([*([5] * (draw.randint(*SOURCE_TOKENS) - 1)), 2], DecodeOptions())


async def ask_all(engine: AnyEngine, jobs: Iterator[DecodeJob], under_way: int) -> None:
    """Keep groups of one source under way until there are no more.

    engine: is asked.
    jobs: the sources.
    under_way: groups at any time.
    """

    async def one_after_the_other() -> None:
        for job in jobs:
            await generate_group(engine, [job])

    await asyncio.gather(*(one_after_the_other() for _ in range(under_way)))


async def measure(repository: Repository, options: argparse.Namespace, others: Sequence[int]) -> list[float]:
    """Measure microseconds of the processor for a group: of this process, and of each other one.

    repository: has the engine alone.
    options: of the command line.
    others: numbers of processes.
    """
    (model,) = repository.loaded.values()
    await ask_all(model.engine, jobs(options.groups // WARM_UP), options.under_way)
    own, theirs = time.process_time(), [processor_seconds(process) for process in others]
    await ask_all(model.engine, jobs(options.groups), options.under_way)
    taken = [time.process_time() - own]
    taken += [processor_seconds(process) - before for process, before in zip(others, theirs, strict=True)]
    return [1e6 * seconds / options.groups for seconds in taken]


async def over_a_link(settings: ServerSettings, options: argparse.Namespace) -> list[float]:
    """Measure with the engine in a process of its own: of this process, and of the other one."""
    with tempfile.TemporaryDirectory() as folder:
        path, began = Path(folder, "socket"), time.monotonic()
        command = [sys.executable, "-m", __spec__.name, "--model", str(options.model)]
        with subprocess.Popen([*command, "--turn", str(options.turn), "--serve", str(path)]) as process:
            try:
                while not path.exists():
                    if process.poll() is not None or time.monotonic() - began > START_SECONDS:
                        raise SystemExit("the engine process does not start")
                    await asyncio.sleep(0.01)
                service = await asyncio.to_thread(connect_service, [path], settings.service())
                service.start()
                while not service.healthy():
                    await asyncio.sleep(0.01)
                return await measure(service.repository, options, [process.pid])
            finally:
                process.kill()


async def without_a_link(settings: ServerSettings, options: argparse.Namespace) -> float:
    """Measure with the engine in this process."""
    service, engine = echo_service(options.model, settings, Metrics())
    engine.turn_seconds = options.turn / 1e3
    service.start()
    (taken,) = await measure(service.repository, options, [])
    service.stop(drain=False)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--under-way", type=int, default=32)
    parser.add_argument("--groups", type=int, default=5000, help="of a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turn", type=float, default=0.5, help="milliseconds of a turn of the engine")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    values: dict[str, Any] = {"models": (options.model,), "precision": "int8", "threads": 1}
    settings = ServerSettings(**values)
    share_threads("onnx", 1)
    thrifty()
    if options.serve:
        serve(settings, options.turn / 1e3, options.serve)
        return
    print("asking process | engine process | beyond one process without a link")
    for _ in range(options.runs):
        asking, hosting = asyncio.run(over_a_link(settings, options))
        alone = asyncio.run(without_a_link(settings, options))
        print(f"{asking:.0f} | {hosting:.0f} | {asking + hosting - alone:.0f}", flush=True)


if __name__ == "__main__":
    main()
