"""The soak: requests of all kinds, the memory of processes, and the verdict."""

import argparse
import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from loadtest.http import soak as module
from loadtest.http.memory import ProcessMemory, memory_of, processes_of, table
from loadtest.http.mixed import READY, MixedAnswer, RequestKind, channel_to, kinds_of
from loadtest.http.openloop import session
from loadtest.http.soak import MIB, Minute, Soak, hold, tables
from loadtest.texts import sentences
from tests.support.served import server

KIND = RequestKind("sentence", 1, None)


def minutes(*sizes, status=200, pid=7):
    """Return minutes of one process with sizes in MiB, and one answer each."""
    memory = [ProcessMemory(size * MIB, size * MIB / 2) for size in sizes]
    return [Minute(0.0, 1.0, {pid: one}, [MixedAnswer(KIND, status, 0.0, 0.5)]) for one in memory]


def test_memory_is_judged_after_the_first_five_minutes():
    flat = Soak(10.0, 6.0, minutes(50, 80, 90, 99, 99, *[100, 103] * 12, 104), {7: "server"})
    assert flat.faults() == []
    grown = Soak(10.0, 6.0, minutes(*[100] * 10, *[107] * 20), {7: "server"})
    assert grown.faults() == ["server (process 7) grew by 7.0%"]
    assert Soak(10.0, 6.0, minutes(90, 100, 106), {7: "server"}).faults(), "a short run is judged too"


def test_processes_that_came_and_went_are_not_judged():
    soak = Soak(10.0, 6.0, minutes(*[100] * 9), {7: "server", 8: "worker"})
    soak.minutes[-1].memory[8] = ProcessMemory(30 * MIB, 10 * MIB)
    assert soak.lasting == [7]
    assert "| 1, 30 |" in tables(soak)
    assert "+0.0%" in tables(soak)


def test_table_has_the_columns_of_the_published_one():
    names = {8: "documents.worker", 9: "engine.schedule.worker", 7: "cli.main"}
    names[10] = f"{names[9]}, forked"
    soak = Soak(10.0, 6.0, minutes(*[100] * 9), names)
    for minute in soak.minutes:
        minute.memory |= dict.fromkeys((8, 9, 10), ProcessMemory(30 * MIB, 10 * MIB))
    published = (Path(__file__).parents[2] / "docs/reliability.md").read_text("utf-8")
    head, _, first, *_ = tables(soak).splitlines()
    (wanted,) = (line for line in published.splitlines() if line.startswith("| minute | load average |"))
    assert head == wanted
    assert first.endswith("| 100 / 50 | 30 / 10 | 30 / 10 | 1, 30 |")


def test_wrong_statuses_are_faults_and_refusals_are_none():
    assert Soak(10.0, 6.0, minutes(1, 1, 1, status=429), {7: ""}).faults() == []
    for status in (500, 503, 0, 404):
        assert Soak(10.0, 6.0, minutes(1, 1, 1, status=status), {7: ""}).faults() == [
            f"sentence: status {status}, 3 times"
        ]


def test_table_sums_the_memory_of_all_processes():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        *processes, total = (line.split() for line in table(os.getpid()).splitlines())
        child.communicate(b"\n")
    assert any(f"({child.pid})" in line for line in processes)
    assert float(total[-1]) == pytest.approx(sum(float(line[-1]) for line in processes), abs=1.0)


def test_memory_of_a_process_and_its_descendants():
    with subprocess.Popen(
        [sys.executable, "-m", "timeit", "-n1", "-r1", "-s", "import time", "time.sleep(600)"]
    ) as child:
        try:
            found = processes_of(os.getpid())
            assert found[child.pid] in ("timeit", sys.executable.rpartition("/")[2], "")
            memory = memory_of(os.getpid())
            assert memory.rss >= memory.pss > 1 << 20
        finally:
            child.kill()
    assert child.pid not in processes_of(os.getpid())
    assert memory_of(child.pid) is None
    assert processes_of(child.pid) == {}


@pytest.fixture(scope="module")
def place():
    with server(grpc_port=0, plugins="ollama,immersive,mcp") as (client, _, instance):
        yield str(client.base_url), f"127.0.0.1:{instance.config.app.state.grpc_port}"


def test_each_kind_of_request_gets_its_answer(place):
    url, address = place

    async def statuses():
        async with session(url) as web, channel_to(address) as channel:
            kinds = kinds_of(random.Random(1), "toy-de-en", "toy-title", channel, plugins=True)
            texts = sentences(1)
            return {kind.name: (await kind.send(web, next(texts)), kind.wanted) for kind in kinds}

    found = asyncio.run(statuses())
    assert {name: status for name, (status, wanted) in found.items() if status != wanted} == {}
    assert {"gRPC", "tool of an agent"} <= set(found)


def test_soak_of_a_server_records_every_minute(place, monkeypatch):
    url, address = place
    monkeypatch.setattr(module, "MINUTE", 0.5)
    options = argparse.Namespace(seed=1, share=0.6, capacity_seconds=0.3, minutes=2)
    soak = asyncio.run(hold(url, address, os.getpid(), options))
    assert [os.getpid() in minute.memory for minute in soak.minutes] == [True, True]
    assert soak.rate == pytest.approx(0.6 * soak.capacity)
    record = soak.record()
    statuses = Counter(status for minute in record["minutes"] for _, status, _ in minute["answers"])
    assert set(statuses) <= {READY, 400}
    assert tables(soak).count("\n") > 4
