"""Servers of several real processes, and views of them from the kernel."""

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.server.test_server_process import GERMAN, MAIN, ROOT, SLOW, free_port
from tests.support.served import LINES, bundles, until

COUNT = 2
LONGER = SLOW | {"q": LINES[:16]}  # metrics are up to a second old


@contextmanager
def processes(frontends=COUNT, engines=COUNT, program=("-c", MAIN), trust=None, **variables):
    """Run a supervisor with its processes; yield a client and the supervisor.

    trust: certificates that a client of HTTPS trusts; None: plain HTTP, without reading certificates.
    """
    port = free_port()
    given = {"MODELS": str(bundles()), "PORT": str(port), "LANES": "1x4,4x4"}
    given |= {"REQUEST_TIMEOUT": "3600"}  # on a busy machine, requests with a short timeout would be refused
    given |= {"FRONTENDS": str(frontends), "ENGINES": str(engines)} | variables
    environment = os.environ | {f"CONVOY_{name}": value for name, value in given.items()}
    with subprocess.Popen(
        [sys.executable, *program], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        log = []
        reading = threading.Thread(target=lambda: log.extend(running.stderr))
        reading.start()
        running.log, began = log, time.monotonic()
        try:
            url = f"{'https' if trust else 'http'}://127.0.0.1:{port}"
            with httpx.Client(base_url=url, timeout=600, verify=trust or False) as client:
                until(lambda: ready(client, trust) or running.poll() is not None)
                running.start = time.monotonic() - began  # seconds of a start on this machine
                assert running.poll() is None, "".join(log)
                yield client, running
        finally:
            running.terminate()
            try:
                running.wait(300)
            finally:
                running.kill()
                reading.join(300)


def ready(client, trust=None):
    try:
        url = f"{client.base_url}/health/ready"
        return httpx.get(url, timeout=600, verify=trust or False).status_code == 200
    except httpx.TransportError:
        return False


def pids(running, kind="front end"):
    """Return the ids of the running front ends or engine processes, by their numbers."""
    found = {}
    for line in list(running.log):
        if match := re.search(rf"{kind} (\d+) is process (\d+)", line):
            found[int(match[1])] = int(match[2])
    return [pid for _, pid in sorted(found.items()) if Path(f"/proc/{pid}/stat").exists()]


def all_connected(running):
    """Return whether every front end is connected to each engine process, from the kernel."""
    accepted = set()
    for line in Path("/proc/net/unix").read_text("utf-8").splitlines()[1:]:
        fields = line.split()
        if fields[5] == "03" and "/engine-" in fields[-1]:  # connected
            accepted.add(f"socket:[{fields[6]}]")
    links = count_sockets(pids(running, "engine process"), accepted)
    return set(links.values()) == {len(pids(running))} and len(links) == COUNT


def count_sockets(processes, sockets):
    """Return the number of given sockets of each process; a socket may have several descriptors."""
    found = Counter()
    for pid in processes:
        open_ = set()
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                open_.add(os.readlink(fd))
            except FileNotFoundError:
                continue
        found[pid] = len(open_ & sockets)
    return found


def ask(client, values=GERMAN):
    """Send a request on a connection of its own."""
    return httpx.post(f"{client.base_url}/translate", json=values, timeout=600, verify=False)


@contextmanager
def constant_load(client, values=GERMAN):
    """Send requests from six clients; yield a growing list of statuses, 0 for a broken connection."""
    over, statuses = threading.Event(), []

    def keep_asking(_):
        while not over.is_set():
            try:
                statuses.append(ask(client, values).status_code)
            except httpx.TransportError:
                statuses.append(0)

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(keep_asking, number) for number in range(6)]
        try:
            wait_for_answers(statuses)
            yield statuses
        finally:
            over.set()
        for task in asking:
            task.result()


def wait_for_answers(statuses):
    """Wait for twenty more answers."""
    since = len(statuses)
    until(lambda: len(statuses) > since + 20)


def connections(running):
    """Return the number of accepted connections of each front end, from the kernel."""
    accepted = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text("utf-8").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01":  # established
                accepted.add(f"socket:[{fields[9]}]")
    return count_sockets(pids(running), accepted)
