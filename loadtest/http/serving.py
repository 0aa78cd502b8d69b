"""Servers in processes of their own, started for a measurement."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import httpx

PATIENCE: Final = 120.0  # seconds until a server is ready, or has ended


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(
    command: Sequence[str], port: int, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server that listens on this port of the loopback; yield its address and process, once it is
    ready. Raises SystemExit when it does not get there."""
    url, began = f"http://127.0.0.1:{port}", time.monotonic()
    environment = os.environ | (variables or {})
    with subprocess.Popen(command, env=environment) as process, httpx.Client(base_url=url) as client:
        try:
            while not _ready(client):
                if process.poll() is not None:
                    raise SystemExit(f"{command} ended with {process.returncode}")
                if time.monotonic() - began > PATIENCE:
                    raise SystemExit(f"not ready within {PATIENCE:.0f} seconds: {command}")
                time.sleep(0.01)
            yield url, process
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/ready").status_code == 200
    except httpx.TransportError:
        return False
