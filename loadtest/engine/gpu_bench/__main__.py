"""`python -m loadtest.gpu_bench`: tests, checks, figures and profiles of a GPU in one call, as JSON and
Markdown.

The parts run in a process of their own, which this one watches: a part that hangs is ended, one that
breaks the device's context costs itself only, and what was found stays in the file.
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

from loadtest.gpu_bench.book import Book
from loadtest.gpu_bench.models import preparing
from loadtest.gpu_bench.render import markdown
from loadtest.gpu_bench.setting import FULL, PRECISIONS, TINY, Setting

# in this order, each with its share of the time
PARTS: Final = {
    "floors": 0.05,
    "tests": 0.15,
    "checks": 0.1,
    "single": 0.22,
    "throughput": 0.24,
    "arrivals": 0.12,
    "real": 0.06,
    "profiles": 0.06,
}
NEED_MODELS: Final = {"single", "throughput", "arrivals", "profiles"}
ROOT: Final = Path(__file__).parents[2]
GRACE: Final = 30.0  # seconds that a part may run over before it is ended
BROKEN: Final = 70  # exit code of the inner process when the device's context is lost


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every part ran and everything checked was right."""
    given = _parser().parse_args(arguments)
    parts = given.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        raise SystemExit(f"no part {unknown[0]!r}; known are {', '.join(PARTS)}")
    if given.inside:
        return _inside(given, parts)
    with tempfile.TemporaryDirectory() as folder:
        given.folder = given.folder or Path(folder)
        return _outside(given, parts)


def _outside(given: argparse.Namespace, parts: list[str]) -> int:
    path: Path = given.out or _default_out()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    end, left = time.monotonic() + given.seconds, list(parts)
    # the models are written while the first parts, which need none, run
    needed = NEED_MODELS.intersection(parts)
    with preparing(given.folder, tiny=given.tiny) if needed else nullcontext():
        _through(given, path, left, end)
    book = Book(path)
    path.with_suffix(".md").write_text(markdown([book.values]), "utf-8")
    print(markdown([book.values]))
    print(f"written: {path} and {path.with_suffix('.md')}")
    return int(any(v["status"] != "done" or v.get("ok") is False for v in book.values["parts"].values()))


def _through(given: argparse.Namespace, path: Path, left: list[str], end: float) -> None:
    """All parts, in as many inner processes as it takes."""
    while left:
        seconds = max(1.0, end - time.monotonic())
        inner = [*_flags(given), "--inside", f"--parts={','.join(left)}", f"--out={path}"]
        command = [sys.executable, "-m", "loadtest.gpu_bench", *inner, f"--seconds={seconds}"]
        code, why = _watched(command, path, GRACE)
        book = Book(path)
        running = book.values.pop("running", None)
        if not running:
            if code:
                raise SystemExit(f"nothing was measured: the inner process ended with {code}")
            break
        left = _after(book, running, left, why or f"its process ended with {code}")


def _after(book: Book, running: dict[str, Any], left: list[str], why: str) -> list[str]:
    """The parts that are left when the inner process came to a bad end: the same again without the contender
    that was at work, or those after it when it was nobody's, or the same one's again."""
    part, contender = running["part"], running.get("contender")
    found = book.values["parts"].get(part, {})
    found = {"error": f"{contender or part}: {why}"} | found | {"status": "failed"}
    book.values["parts"][part] = found
    print(f"{part}: {found['error']}", flush=True)
    again = contender is not None and contender not in book.values["skipped"]
    if again:
        book.values["skipped"][contender] = f"{part}: {found['error']}"
    book.save()
    if part not in left:  # the floors, which are measured unasked
        return left
    return left[left.index(part) + (0 if again else 1) :]


def _watched(command: list[str], path: Path, grace: float) -> tuple[int, str]:
    """Run it until it ends or the part that it runs is `grace` seconds over its time. Returns its exit
    code, and why it was ended if it was."""
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        while process.poll() is None:
            time.sleep(0.2)
            running = Book(path).values.get("running")
            if running and time.time() > running["until"] + grace:
                return -9, f"it was ended: {grace:.0f} seconds over its time"
        return process.returncode, ""
    finally:
        process.kill()
        process.wait()


def _inside(given: argparse.Namespace, parts: list[str]) -> int:
    from loadtest.gpu_bench.run import run_parts

    book = Book(given.out)
    setting = Setting(
        device=given.device,
        folder=given.folder,
        corpora=given.corpora,
        shipped=given.model,
        scale=TINY if given.tiny else FULL,
        backends=tuple(filter(None, given.backends.split(","))),
        precisions=tuple(given.precisions.split(",")),
        fairseq=given.fairseq,
        fairseq_python=given.fairseq_python,
        skip=tuple(book.values["skipped"]),
    )
    book.values["command"] = given.command
    shares = {part: PARTS[part] for part in parts}
    return 0 if run_parts(setting, book, shares, given.seconds) else BROKEN


def _flags(given: argparse.Namespace) -> list[str]:
    """For the inner process, all but the parts, the seconds and the file."""
    found = ["--command", shlex.join(["python", "-m", "loadtest.gpu_bench", *sys.argv[1:]])]
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
        value: Any = getattr(given, name)
        if value is not None:
            found += [f"--{name.replace('_', '-')}={value}"]
    return found + (["--tiny"] if given.tiny else [])


def _default_out() -> Path:
    folder = Path(os.environ.get("OUT", "docs/benchmarks"))
    return folder / f"{datetime.now(UTC):%Y-%m-%d}-gpu.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.gpu_bench",
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
