"""What front ends take of the processor for a request, beside an engine process that echoes.

The front ends and their supervisor are the server's own; the engine process answers each source with itself
after a turn for each of its tokens (`front_cost`). Prints milliseconds of the processor for a request, of the
front ends together and of the engine process and the supervisor, and the answers a second.

    python -m loadtest.http.frontends_cost --frontends 1,2 --turn 0.5
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from engine.api import host_service, share_threads
from loadtest.http import front_cost
from loadtest.http.serving import named_processes, processor_seconds, serving_convoy
from server.observing import logs
from server.observing.metrics import Metrics
from server.process.peers import ProcessContext, send
from server.process.temporary import OwnFolder
from server.settings import ServerSettings
from server.supervisor import Supervisor, listen, work

TURN_VARIABLE: Final = "ECHO_TURN_SECONDS"


def work_or_echo(settings: ServerSettings, context: ProcessContext) -> None:
    """Run a front end of the server, or in the place of an engine process one that echoes."""
    if context.listener:
        work(settings, context)
        return
    share_threads("onnx", 1)
    service, engine = front_cost.echo_service(settings.models[0], settings, Metrics())
    engine.turn_seconds = float(os.environ[TURN_VARIABLE])

    async def serve() -> None:
        service.start()
        host = host_service(service)
        await host.prove_models()
        async with await host.listen(context.sockets[0]):
            send(context.pipe, {"kind": "ready"})
            while True:
                await asyncio.sleep(0.1)
                host.announce()

    asyncio.run(serve())


class EchoSupervisor(Supervisor):
    """A supervisor whose engine process echoes."""

    run_child = staticmethod(work_or_echo)


def supervise() -> None:
    """Serve by the settings of the environment until SIGTERM."""
    environment: dict[str, Any] = {}  # is what the settings are read from
    settings = ServerSettings(**environment)
    logs.set_up(settings)
    with closing(OwnFolder("convoy-")) as folder, listen(settings) as listener:
        asyncio.run(EchoSupervisor(settings, listener, folder.path).run())


def measure(address: str, groups: Sequence[Sequence[int]], options: argparse.Namespace) -> list[float]:
    """Measure a run: processor milliseconds a request, of each group of processes, and answers a second.

    address: of the front ends.
    groups: numbers of processes.
    options: of the command line.
    """
    with front_cost.waiting_client(address, int(options.texts), options) as send_all:
        before, began = [sum(map(processor_seconds, group)) for group in groups], time.perf_counter()
        send_all()
        seconds = time.perf_counter() - began
        after = [sum(map(processor_seconds, group)) for group in groups]
    count = max(1, options.requests // int(options.texts))
    return [*(1e3 * (b - a) / count for a, b in zip(before, after, strict=True)), count / seconds]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--frontends", default="1,2", help="with commas between")
    parser.add_argument("--texts", default="1", help="texts of a request")
    parser.add_argument("--under-way", type=int, default=32)
    parser.add_argument("--requests", type=int, default=5000, help="texts of a run, in all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turn", type=float, default=0.5, help="milliseconds of a turn of the engine")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        supervise()
        return
    os.environ[TURN_VARIABLE] = str(options.turn / 1e3)  # of all processes that are started
    print("front ends | their ms a request | engine process, ms | supervisor, ms | requests/s")
    for front_ends in map(int, options.frontends.split(",")):
        settings = {"MODELS": options.model, "PRECISION": "int8", "BATCH_LIMIT": -1, "FRONTENDS": front_ends}
        with tempfile.TemporaryDirectory() as folder:
            log, command = Path(folder, "log"), [sys.executable, "-m", __spec__.name, "--serve"]
            with serving_convoy(settings, command, log) as (url, process):
                named = named_processes(log).items()
                groups = [
                    [pid for name, pid in named if name.startswith(kind)] for kind in ("front", "engine")
                ]
                for _ in range(options.runs):
                    *taken, rate = measure(url.removeprefix("http://"), [*groups, [process.pid]], options)
                    print(
                        f"{front_ends} | {' | '.join(f'{ms:.2f}' for ms in taken)} | {rate:.0f}", flush=True
                    )


if __name__ == "__main__":
    main()
