"""Hold a share of a server's capacity with requests of all kinds, and record its memory minute by minute.

The capacity is measured first, by clients that send the next request when the last is answered. Then requests
arrive at random times at a share of it. Each minute has a row: answers, latencies, and the memory of every
process of the server. Exit code 1: a wrong status or a missing answer, or a process that grew by more than
5 % after the first five minutes. Prints tables in Markdown; --out gets everything as JSON.

    python -m loadtest.http.soak --models models --minutes 30 --out runs/soak.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, get_args

from loadtest.engine.processor import processor
from loadtest.http.closedloop import keep_busy
from loadtest.http.memory import FORKED, ProcessMemory, memory_of, processes_of
from loadtest.http.mixed import READY, MixedAnswer, Mixture, channel_to, kinds_of
from loadtest.http.openloop import arrivals, run, session
from loadtest.http.serving import free_port, serving_convoy
from loadtest.texts import sentences
from loadtest.traffic import percentile
from server.settings.requests import Plugin

MINUTE: Final = 60.0
SETTLED: Final = 5  # minutes after which memory must stay flat
MOST_GROWTH: Final = 0.05
SAMPLES: Final = 12  # of the memory, each minute
REFUSED: Final = 429  # an answer under overload, which is no fault
FAILED: Final = 500
CLIENTS: Final = 16  # that wait for their answers while the capacity is measured
MIB: Final = 1 << 20
# words of tables for processes
PROCESS_NAMES: Final[Mapping[str, str]] = {
    "cli.main": "server",
    "engine.schedule.worker": "template of workers",
    "documents.worker": "files",
}


@dataclass(slots=True)
class Minute:
    """One minute of the run.

    ended: its end on the clock of the event loop, in seconds.
    load: load average of the machine at its end.
    memory: median memory of each process, by its id.
    answers: answers that came in this minute.
    """

    ended: float
    load: float
    memory: dict[int, ProcessMemory]
    answers: list[MixedAnswer] = field(default_factory=list)


@dataclass(slots=True)
class Soak:
    """The record of a run.

    capacity: answers a second of clients that wait.
    rate: requests a second that were offered.
    minutes: minutes in order.
    names: name of each process, by its id.
    """

    capacity: float
    rate: float
    minutes: list[Minute] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    @property
    def lasting(self) -> list[int]:
        """Ids of the processes that ran in every minute from SETTLED on."""
        settled = self.settled
        return [pid for pid in settled[0].memory if all(pid in minute.memory for minute in settled)]

    @property
    def settled(self) -> list[Minute]:
        """Minutes whose memory is compared: those after the first five, or after a third of a short run."""
        return self.minutes[min(SETTLED, len(self.minutes) // 3) :]

    def growth(self, process: int) -> float:
        """Return the growth of a process: median RSS of the last fifth over that of the first fifth, minus 1.

        process: id of a lasting process.
        """
        sizes = [minute.memory[process].rss for minute in self.settled]
        part = max(1, len(sizes) // 5)
        return statistics.median(sizes[-part:]) / statistics.median(sizes[:part]) - 1.0

    def record(self) -> dict[str, Any]:
        """Return everything as values of JSON."""
        minutes = [
            {
                "load": minute.load,
                "memory": {process: asdict(memory) for process, memory in minute.memory.items()},
                "answers": [[a.kind.name, a.status, a.seconds] for a in minute.answers],
            }
            for minute in self.minutes
        ]
        return {"capacity": self.capacity, "rate": self.rate, "names": self.names, "minutes": minutes}

    def faults(self) -> list[str]:
        """Return a description of each wrong answer by kind, and of each process that grew."""
        answers = [answer for minute in self.minutes for answer in minute.answers]
        wrong = Counter(
            f"{answer.kind.name}: status {answer.status}"
            for answer in answers
            if answer.status not in (answer.kind.wanted, REFUSED)
        )
        faults = [f"{text}, {count} times" for text, count in wrong.items()]
        for process in self.lasting:
            if (growth := self.growth(process)) > MOST_GROWTH:
                faults.append(f"{self.names[process]} (process {process}) grew by {growth:.1%}")
        return faults


async def record_memory(soak: Soak, minutes: int, root: int | None) -> None:
    """Append a minute with the memory of all processes after each minute.

    soak: record of the run.
    minutes: length of the run.
    root: id of the server's first process; None: the server runs on another machine.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    for minute in range(minutes):
        samples = defaultdict[int, list[ProcessMemory]](list)
        for number in range(SAMPLES):
            due = began + MINUTE * (minute + (number + 1) / SAMPLES)
            await asyncio.sleep(max(0.0, due - loop.time()))
            for process, name in (processes_of(root) if root else {}).items():
                soak.names[process] = name
                if sample := memory_of(process):
                    samples[process].append(sample)
        memory = {process: _median(found) for process, found in samples.items()}
        soak.minutes.append(Minute(ended=loop.time(), load=os.getloadavg()[0], memory=memory))
        sizes = ", ".join(f"{one.rss / MIB:.0f}" for one in memory.values())
        print(f"minute {minute + 1}: {sizes} MiB", file=sys.stderr, flush=True)


async def hold(url: str, address: str | None, root: int | None, options: argparse.Namespace) -> Soak:
    """Measure the capacity of a server, and hold a share of it.

    url: address of the server.
    address: host and port of its gRPC interface, or None.
    root: id of its first process; None: the server runs on another machine.
    options: parsed arguments of the command line.

    Raises SystemExit if the server has no model from German to English.
    """
    chance, texts = random.Random(options.seed), sentences(options.seed)
    async with session(url) as client, client.get("/models") as reply:
        models = await reply.json()
        async with client.get("/api/version") as version:
            plugins = version.status == READY
    translators = [m["name"] for m in models if "de" in m["sources"] and "en" in m["targets"]]
    summarizers = [m["name"] for m in models if m["task"] == "summarize"]
    if not translators:
        raise SystemExit(f"{url} has no model from German to English")
    async with channel_to(address) as channel:
        kinds = kinds_of(chance, translators[0], next(iter(summarizers), None), channel, plugins=plugins)
        mixture, began = Mixture(kinds, chance), time.monotonic()
        await keep_busy(
            url, mixture, texts, CLIENTS, lambda _: time.monotonic() - began < options.capacity_seconds
        )
        answered = sum(answer.status == answer.kind.wanted for answer in mixture.answers)
        capacity = answered / (time.monotonic() - began)
        soak = Soak(capacity, options.share * capacity)
        print(f"capacity {capacity:.1f} requests/s", file=sys.stderr, flush=True)
        mixture.answers.clear()
        times = arrivals(soak.rate, MINUTE * options.minutes, options.seed)
        await asyncio.gather(run(url, mixture, texts, times), record_memory(soak, options.minutes, root))
    for answer in mixture.answers:
        minute = next((one for one in soak.minutes if answer.done <= one.ended), soak.minutes[-1])
        minute.answers.append(answer)
    return soak


def tables(soak: Soak) -> str:
    """Return the tables of minutes and kinds in Markdown."""
    by_kind = defaultdict[str, list[MixedAnswer]](list)
    for minute in soak.minutes:
        for answer in minute.answers:
            by_kind[answer.kind.name].append(answer)
    head = ["kind", "answers", "5xx, refused", "p50, p99 s"]
    kinds = [head, ["---", *["---:"] * 3], *([name, *_counts(found)] for name, found in by_kind.items())]
    tables = _minutes(soak), kinds
    return "\n\n".join("\n".join(f"| {' | '.join(row)} |" for row in table) for table in tables)


def _minutes(soak: Soak) -> list[list[str]]:
    """Return the rows of the table of minutes: answers, and memory of the processes."""
    order = [*PROCESS_NAMES]
    lasting = sorted(
        (process for process in soak.lasting if not soak.names[process].endswith(FORKED)),
        key=lambda process: order.index(name) if (name := soak.names[process]) in order else len(order),
    )
    names = [PROCESS_NAMES.get(soak.names[process], soak.names[process]) for process in lasting]
    head = ["minute", "load average", "answers", "5xx, refused", "p50, p99 s", *names, "workers: number, RSS"]
    rows = [head, ["---:"] * len(head)]
    for number, minute in enumerate(soak.minutes, 1):
        found = [minute.memory.get(process) for process in lasting]
        others = [memory for process, memory in minute.memory.items() if process not in lasting]
        row = [str(number), f"{minute.load:.1f}", *_counts(minute.answers)]
        row += [f"{one.rss / MIB:.0f} / {one.pss / MIB:.0f}" if one else "" for one in found]
        rows.append([*row, f"{len(others)}, {sum(one.rss for one in others) / MIB:.0f}"])
    growth = [f"{soak.growth(process):+.1%}" for process in lasting]
    return [*rows, ["growth", *[""] * 4, *growth, ""]]


def _counts(answers: Sequence[MixedAnswer]) -> list[str]:
    """Return the cells of some answers: number; 5xx or missing, and refused; latencies."""
    refused = sum(answer.status == REFUSED for answer in answers)
    failed = sum(answer.status >= FAILED or not answer.status for answer in answers)
    seconds = [answer.seconds for answer in answers]
    latencies = f"{percentile(seconds, 50):.2f}, {percentile(seconds, 99):.2f}"
    return [str(len(answers)), f"{failed}, {refused}", latencies]


def _median(found: Sequence[ProcessMemory]) -> ProcessMemory:
    return ProcessMemory(statistics.median(m.rss for m in found), statistics.median(m.pss for m in found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder of the served models")
    parser.add_argument("--url", help="a running server; default: start one with all plug-ins and gRPC")
    parser.add_argument("--grpc", help="host and port of the gRPC interface of --url")
    parser.add_argument("--pid", type=int, help="first process of --url, if it runs on this machine")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--share", type=float, default=0.6, help="of the capacity")
    parser.add_argument("--capacity-seconds", type=float, default=60.0, help="to measure the capacity")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="server settings")
    parser.add_argument("--out", type=Path, help="JSON file of the whole record")
    options = parser.parse_args()
    if options.minutes < 1 or options.share <= 0 or options.capacity_seconds <= 0:
        parser.error("--minutes, --share and --capacity-seconds must be positive")
    with ExitStack() as stack:
        url, address, root = options.url, options.grpc, options.pid
        if url is None:
            port = free_port()
            settings = {"MODELS": options.models, "PLUGINS": ",".join(get_args(Plugin))}
            if find_spec("grpc"):
                settings["GRPC_PORT"], address = port, f"127.0.0.1:{port}"
            settings |= dict(one.split("=", 1) for one in options.set)
            url, process = stack.enter_context(serving_convoy(settings))
            root = process.pid
        soak = asyncio.run(hold(url, address, root, options))
    now = datetime.now(UTC).date()
    print(f"{now}, {processor()['cpu']}: capacity {soak.capacity:.1f} requests/s, offered {soak.rate:.1f}\n")
    print(tables(soak))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(soak.record(), indent=1), "utf-8")
    if faults := soak.faults():
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    main()
