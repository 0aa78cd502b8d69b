"""Measure the time until `convoy serve` is ready and its memory then; for comparison also of CTranslate2.

    python -m loadtest.http.startup models/tatoeba-de-en --precisions fp32,int8 --runs 5

Each run is a new process. Prints one JSON object a case: seconds from the start of the process to the first
200 of /health/ready (imports, sessions and a canary translated by each model), of all runs and the least of
them, since other load can only make it slower; bytes resident when ready (VmRSS), the peak until then (VmHWM)
and after some requests, of the run with the least; and whether torch was loaded.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from loadtest.http.serving import free_port, processor_seconds, serving

REQUESTS: Final = 32
TEXT: Final = "Am Montag war das Wetter noch schön, danach hat es eine Woche lang geregnet."
PEER: Final = """
import sys
import ctranslate2
kind = {"fp32": "float32"}.get(sys.argv[2], sys.argv[2])
model = ctranslate2.Translator(sys.argv[1], compute_type=kind, intra_threads=int(sys.argv[3]))
model.translate_batch([["a", "b"]])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[4])):
    model.translate_batch([["a", "b"] * 12], beam_size=5, max_decoding_length=24)
print("done", flush=True)
sys.stdin.readline()
"""


@dataclass(frozen=True, slots=True)
class ResidentMemory:
    """Resident bytes now, and their maximum since the start of the process."""

    resident: int
    most: int


@dataclass(frozen=True, slots=True)
class Startup:
    """The figures of one process.

    seconds: seconds from its start until it was ready, and of the processor until then.
    ready, after: memory when ready, and after REQUESTS texts.
    """

    seconds: float
    processor: float
    ready: ResidentMemory
    after: ResidentMemory
    torch: bool


def memory_of(process: int) -> ResidentMemory:
    """Read the memory of a process by its id."""
    text = Path(f"/proc/{process}/status").read_text("utf-8")
    sizes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", text, re.MULTILINE))
    return ResidentMemory(1024 * int(sizes["VmRSS"]), 1024 * int(sizes["VmHWM"]))


def measure_startup(
    models: Sequence[Path], precision: str, threads: int, flags: Sequence[str] = ()
) -> Startup:
    """Measure one start of `convoy serve`.

    models: bundles to serve.
    precision: "int8" or "fp32".
    threads: number of threads of the engine.
    flags: additional flags of the command.
    """
    port = free_port()
    command = [sys.executable, "-m", "cli.main", "serve", "--port", str(port), "--log-level", "error"]
    command += ["--precision", precision, "--threads", str(threads), *flags]
    for model in models:
        command += ["--models", str(model)]
    began = time.perf_counter()
    with serving(command, port) as (url, process), httpx.Client(base_url=url) as client:
        seconds, ready = time.perf_counter() - began, memory_of(process.pid)
        spent = processor_seconds(process.pid)
        torch = "libtorch" in Path(f"/proc/{process.pid}/maps").read_text("utf-8")
        names = [info["name"] for info in client.get("/models").json()]
        for number in range(REQUESTS):
            _ask(client, names[number % len(names)])
        return Startup(seconds, spent, ready, memory_of(process.pid), torch)


def _ask(client: httpx.Client, name: str) -> None:
    client.post(f"/v2/models/{name}/generate", json={"text_input": TEXT}).raise_for_status()


def peer(model: Path, precision: str, threads: int) -> Startup:
    """Measure one start of CTranslate2 in a process of its own, without a server.

    model: folder of CTranslate2's model.
    precision: "int8" or "float32".
    threads: number of threads of CTranslate2.
    """
    command = [sys.executable, "-c", PEER, str(model), precision, str(threads), str(REQUESTS)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    began = time.perf_counter()
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("CTranslate2 could not start")
        seconds, ready = time.perf_counter() - began, memory_of(process.pid)
        spent = processor_seconds(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        result = Startup(seconds, spent, ready, memory_of(process.pid), torch=False)
        process.stdin.write("\n")
    return result


def case(name: str, precision: str, start: Callable[[], Startup], runs: int) -> dict[str, Any]:
    """Measure one case; return the figures of the fastest of its runs, and the seconds of all.

    name: name of the models.
    precision: "int8" or "fp32".
    start: function that starts and measures once.
    runs: number of runs.
    """
    results = [start() for _ in range(runs)]
    best = min(results, key=lambda run: run.seconds)
    seconds = [round(run.seconds, 3) for run in results]
    return {"name": name, "precision": precision, "all_seconds": seconds} | asdict(best)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, help="bundles; each is served alone")
    parser.add_argument("--together", action="store_true", help="also all of them by one server")
    parser.add_argument("--precisions", default="fp32,int8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-verify", action="store_true", help="do not compare the bundles' hashes")
    parser.add_argument("--peer", type=Path, help="a model of CTranslate2")
    options = parser.parse_args()
    flags = ["--no-verify"] if options.no_verify else []
    groups = [[model] for model in options.models] + ([options.models] if options.together else [])
    for precision in options.precisions.split(","):
        for group in groups:
            start = partial(measure_startup, group, precision, options.threads, flags)
            name = "+".join(model.name for model in group)
            print(json.dumps(case(name, precision, start, options.runs)), flush=True)
        if options.peer:
            start = partial(peer, options.peer, precision, options.threads)
            print(json.dumps(case("CTranslate2", precision, start, options.runs)), flush=True)


if __name__ == "__main__":
    main()
