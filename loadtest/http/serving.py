"""Start servers in other processes for a measurement."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import httpx

START_SECONDS: Final = 240.0  # longest time for a server to start or to stop
CONVOY: Final = (sys.executable, "-m", "cli.main", "serve")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(
    command: Sequence[str],
    port: int,
    variables: Mapping[str, str] | None = None,
    ready: Callable[[httpx.Client], bool] | None = None,
    log: Path | None = None,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server, yield its address and process once it is ready, and stop it.

    command: program and arguments.
    port: TCP port on 127.0.0.1 where the server listens.
    variables: additional environment variables.
    ready: function that checks readiness; by default through /health/ready.
    log: file of the server's standard error; None: that of this process.

    Raises SystemExit if it does not get ready.
    """
    url, began = f"http://127.0.0.1:{port}", time.monotonic()
    environment = os.environ | (variables or {})
    with (
        log.open("wb") if log else nullcontext() as errors,
        subprocess.Popen(command, env=environment, stderr=errors) as process,
        httpx.Client(base_url=url) as client,
    ):
        try:
            while not (ready or _ready)(client):
                if process.poll() is not None:
                    raise SystemExit(f"{command} ended with {process.returncode}")
                if time.monotonic() - began > START_SECONDS:
                    raise SystemExit(f"not ready within {START_SECONDS:.0f} seconds: {command}")
                time.sleep(0.01)
            yield url, process
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def serving_convoy(
    settings: Mapping[str, object], command: Sequence[str] = CONVOY, log: Path | None = None
) -> AbstractContextManager[tuple[str, subprocess.Popen[bytes]]]:
    """Start a Convoy server at a free port, as `serving` does.

    settings: settings of the server, by their environment variables without the prefix.
    command: program and arguments; by default `convoy serve`.
    log: file of the server's standard error; None: that of this process.
    """
    port = free_port()
    variables = {f"CONVOY_{name}": str(value) for name, value in {**settings, "PORT": port}.items()}
    return serving(command, port, variables, log=log)


def processor_seconds(process: int) -> float:
    """Return the seconds of processor time of a process, of all its threads.

    process: id of the process.
    """
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/ready").status_code == 200
    except httpx.TransportError:
        return False
