"""Tests, checks, figures and profiles of a GPU in one call, as JSON and Markdown.

    python -m loadtest.engine.gpu_bench

An inner process runs the parts and an outer one watches it: it ends a part that hangs, and restarts after a
part that broke the device's context. Every finding stays in the file.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from loadtest.engine.gpu_bench.models import preparing
from loadtest.engine.gpu_bench.setting import FULL, PRECISIONS, REPOSITORY, TINY, BenchRecord, Setting
from loadtest.engine.gpu_bench.tables import markdown

# parts in this order, with their shares of the time
PARTS: Final = {
    "floors": 0.05,
    "tests": 0.4,
    "checks": 0.1,
    "steps": 0.3,
    "ablations": 0.2,
    "host": 0.1,
    "single": 0.22,
    "throughput": 0.24,
    "arrivals": 0.12,
    "real": 0.06,
    "profiles": 0.15,
}
NEED_MODELS: Final = {"steps", "ablations", "host", "single", "throughput", "arrivals", "profiles"}
GRACE_SECONDS: Final = 30.0  # seconds that a part may run over before it is ended
CONTEXT_LOST_CODE: Final = 70  # exit code of the inner process when the device's context is lost


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; return 0 if every part ran and all checks passed."""
    options = _parser().parse_args(arguments)
    parts = options.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        raise SystemExit(f"no part {unknown[0]!r}; known are {', '.join(PARTS)}")
    if options.inside:
        return _run_here(options, parts)
    with tempfile.TemporaryDirectory() as folder:
        options.folder = options.folder or Path(folder)
        return _run_processes(options, parts)


def _run_processes(options: argparse.Namespace, parts: list[str]) -> int:
    """Run the parts in inner processes, write JSON and Markdown; return 1 if a part is not done."""
    path: Path = options.out or _default_out()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    end, rest = time.monotonic() + options.seconds, list(parts)
    # the models are written while the first parts, which need none, run
    needed = NEED_MODELS.intersection(parts)
    with preparing(options.folder, tiny=options.tiny) if needed else nullcontext():
        _run_until_done(options, path, rest, end)
    record = BenchRecord(path)
    path.with_suffix(".md").write_text(markdown([record.values]), "utf-8")
    print(markdown([record.values]))
    print(f"written: {path} and {path.with_suffix('.md')}")
    return int(any(v["status"] != "done" or v.get("ok") is False for v in record.values["parts"].values()))


def _run_until_done(options: argparse.Namespace, path: Path, rest: list[str], end: float) -> None:
    """Run all parts in one or more inner processes."""
    while rest:
        seconds = max(1.0, end - time.monotonic())
        inner = [*_flags(options), "--inside", f"--parts={','.join(rest)}", f"--out={path}"]
        command = [sys.executable, "-m", "loadtest.engine.gpu_bench", *inner, f"--seconds={seconds}"]
        code, why = _run_with_limit(command, path, GRACE_SECONDS)
        record = BenchRecord(path)
        running = record.values.pop("running", None)
        if not running:
            if code:
                raise SystemExit(f"nothing was measured: the inner process ended with {code}")
            break
        rest = _remaining_parts(record, running, rest, why or f"its process ended with {code}")


def _remaining_parts(bench: BenchRecord, running: dict[str, Any], rest: list[str], why: str) -> list[str]:
    """Return the parts that remain after the inner process failed: the same parts without the contender that
    was running; the later parts, if none was running; or the same part again for the same contender."""
    part, contender = running["part"], running.get("contender")
    record = bench.values["parts"].get(part, {})
    record = {"error": f"{contender or part}: {why}"} | record | {"status": "failed"}
    bench.values["parts"][part] = record
    print(f"{part}: {record['error']}", flush=True)
    repeats = contender is not None and contender not in bench.values["skipped"]
    if repeats:
        bench.values["skipped"][contender] = f"{part}: {record['error']}"
    bench.save()
    if part not in rest:  # the floors always run
        return rest
    return rest[rest.index(part) + (0 if repeats else 1) :]


def _run_with_limit(command: list[str], path: Path, grace: float) -> tuple[int, str]:
    """Run a command until it ends, or until its current part is `grace` seconds over time.

    Returns the exit code, and the reason if it was ended.
    """
    process = subprocess.Popen(command, cwd=REPOSITORY)
    try:
        while process.poll() is None:
            time.sleep(0.2)
            running = BenchRecord(path).values.get("running")
            if running and time.time() > running["until"] + grace:
                return -9, f"it was ended: {grace:.0f} seconds over its time"
        return process.returncode, ""
    finally:
        process.kill()
        process.wait()


def _run_here(options: argparse.Namespace, parts: list[str]) -> int:
    """Run the parts in this process; return CONTEXT_LOST_CODE if the device is lost."""
    from loadtest.engine.gpu_bench.run import run_parts

    record = BenchRecord(options.out)
    setting = Setting(
        device=options.device,
        folder=options.folder,
        corpora=options.corpora,
        shipped=options.model,
        scale=TINY if options.tiny else FULL,
        backends=tuple(filter(None, options.backends.split(","))),
        precisions=tuple(options.precisions.split(",")),
        fairseq=options.fairseq,
        fairseq_python=options.fairseq_python,
        skip=tuple(record.values["skipped"]),
    )
    record.values["command"] = options.command
    shares = {part: PARTS[part] for part in parts}
    return 0 if run_parts(setting, record, shares, options.seconds) else CONTEXT_LOST_CODE


def _flags(options: argparse.Namespace) -> list[str]:
    """Return the flags of the inner process except parts, seconds and file."""
    flags = ["--command", shlex.join(["python", "-m", "loadtest.engine.gpu_bench", *sys.argv[1:]])]
    for name in (
        "device",
        "model",
        "corpora",
        "folder",
        "backends",
        "precisions",
        "fairseq",
        "fairseq_python",
    ):
        value: Any = getattr(options, name)
        if value is not None:
            flags += [f"--{name.replace('_', '-')}={value}"]
    return flags + (["--tiny"] if options.tiny else [])


def _default_out() -> Path:
    folder = Path(os.environ.get("OUT", "docs/benchmarks"))
    return folder / f"{datetime.now(UTC):%Y-%m-%d}-gpu.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.engine.gpu_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ...; cpu to try it")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma separated; the floors always run")
    parser.add_argument("--seconds", type=float, default=540.0, help="for all parts together")
    parser.add_argument("--out", type=Path, help="a JSON file; else $OUT or docs/benchmarks/DATE-gpu.json")
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-en-de"), help="for real text")
    parser.add_argument("--corpora", type=Path, default=Path("../shared/corpora"), help="holds newstest/")
    parser.add_argument("--backends", default="", help="comma separated; else all that open here")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="comma separated")
    parser.add_argument("--fairseq", type=Path, help="a checkout of fairseq, to measure it too")
    parser.add_argument("--fairseq-python", default=sys.executable, help="the Python that runs it")
    parser.add_argument("--folder", type=Path, help="where random bundles are kept; else a temporary one")
    parser.add_argument("--tiny", action="store_true", help="tiny models and runs: to try the script itself")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--command", default="", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
