"""`convoy bench`: measures the speed of decoding steps and of whole texts on this machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.commands import SETTINGS
from cli.lines import read, writing
from engine.backends import BACKEND_HELP, DEVICE_HELP, PRECISION_HELP
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from cli.measure import Row

WHAT: Final = {
    "step": "decoding step",
    "mixed": "decoding step, one long source among short ones",
    "text": "whole lines, many at a time",
}


table: Final = typer.Typer(**SETTINGS, invoke_without_command=True)


@table.callback()
def bench(
    context: typer.Context,
    model: Annotated[Path | None, typer.Option(help="A bundle folder.")] = None,
    precisions: Annotated[
        str, typer.Option(help=f"Precisions, separated by commas: {PRECISION_HELP}")
    ] = "fp32,int8",
    beams: Annotated[str, typer.Option(help="Beam sizes, separated by commas.")] = "1,5",
    sentences: Annotated[
        str, typer.Option(help="Numbers of sentences at a time, at most 32, separated by commas.")
    ] = "1,8,32",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the numeric library.")] = 1,
    backend: Annotated[str, typer.Option(help=BACKEND_HELP)] = "onnx",
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "cpu",
    steps: Annotated[int, typer.Option(min=2, help="Decoding steps of a run.")] = 32,
    source: Annotated[int, typer.Option(min=2, help="Source tokens of each sentence.")] = 24,
    runs: Annotated[int, typer.Option(min=1, help="Measured runs of each case.")] = 5,
    texts: Annotated[int, typer.Option(min=0, help="Lines translated in a run; 0: none.")] = 128,
    lines: Annotated[
        Path | None, typer.Option("--input", help="File of source text; default: built-in sentences.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="File for the figures as JSON.")] = None,
) -> None:
    """Measure the speed of decoding steps and of whole texts; print a Markdown table.

    Every case runs once without measuring, then RUNS times. Cases alternate, so that a disturbance affects
    all of them. Figures are medians; the spread is the fastest and the slowest run.
    """
    if context.invoked_subcommand:
        return
    from cli.measure import LANE_SLOTS, Case, Work, measure
    from engine.backends import Placement

    if model is None:
        raise InvalidRequest("give --model with a bundle folder")
    cases = [
        Case(kind, precision.strip(), beam, n)
        for precision in precisions.split(",")
        for beam in _parse_numbers(beams, "--beams", 64)
        for kind, n in [
            *(("step", n) for n in _parse_numbers(sentences, "--sentences", LANE_SLOTS)),
            ("mixed", LANE_SLOTS),
            *([("text", texts)] if texts else []),
        ]
    ]
    place = Placement(backend=backend, device=device, threads=threads)
    work = Work(steps, source, texts, runs)
    rows = measure(model, place, work, cases, [line for line in read(lines) if line] if lines else [])
    typer.echo(_markdown(rows))
    if json_file:
        setup = {"model": model.name, "machine": _machine(), "threads": threads, "backend": backend}
        with writing(json_file) as out:
            json.dump(setup | {"work": asdict(work), "rows": [asdict(r) for r in rows]}, out, indent=2)
            out.write("\n")
    typer.echo("\n" + ", ".join(f"{k} {v}" for k, v in _machine().items()) + f", threads {threads}")


@table.command()
def efficiency(
    model: Annotated[Path, typer.Option(help="A bundle folder.")],
    lines: Annotated[Path, typer.Option("--input", help="File of source text, one sentence a line.")],
    precisions: Annotated[
        str, typer.Option(help=f"Precisions, separated by commas: {PRECISION_HELP}")
    ] = "int8",
    beam: Annotated[int, typer.Option(min=1, max=16, help="Beam size.")] = 1,
    alone: Annotated[
        int, typer.Option(min=1, help="Number of sentences translated one at a time, for the latency.")
    ] = 100,
    price: Annotated[float, typer.Option(min=0.001, help="Dollars an hour of this machine.")] = 0.05,
    backend: Annotated[str, typer.Option(help=BACKEND_HELP)] = "onnx",
    shortlist: Annotated[
        bool | None, typer.Option(help="Decode with likely tokens only. Default: setting of the bundle.")
    ] = None,
) -> None:
    """Measure the figures of the WMT efficiency task on a file: words a second on one core and on all cores,
    latency, size, memory, words a dollar; tokenization included."""
    from cli import efficiency as measures
    from engine.backends import Placement

    text = [line for line in read(lines) if line.strip()]
    if not text:
        raise InvalidRequest(f"{lines}: has no text")
    typer.echo(measures.TABLE_HEAD)
    for precision in precisions.split(","):
        place = Placement(backend=backend, precision=precision.strip(), shortlist=shortlist)
        figures = measures.efficiency(model, place, text, beam, alone)
        typer.echo(measures.row(model.name, precision.strip(), figures, price))


def _markdown(rows: Sequence[Row]) -> str:
    """Return the table in Markdown; the spread is the fastest and the slowest run."""
    lines = [
        "| what | precision | beam | sentences | speed | spread | tokens/s |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        case = row.case
        spread = f"{row.least:.2f} to {row.greatest:.2f}"
        lines.append(
            f"| {WHAT[case.kind]} | {case.precision} | {case.beam} | {case.sentences} "
            f"| {row.median:.2f} {row.unit} | {spread} | {row.tokens_per_second:,.0f} |"
        )
    return "\n".join(lines)


def _machine() -> dict[str, str]:
    """Return the facts that the figures depend on: processor, instruction set and versions."""
    from engine.api import kernels_name

    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in _lines(info) if line.startswith("model name")]
    versions = {}
    for package in ("convoy-server", "numpy", "onnxruntime", "torch"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    processor = names[0] if names else platform.machine()
    setup = {"processor": f"{processor} x {os.cpu_count()}", "instruction set": kernels_name()}
    return setup | {"python": platform.python_version(), **versions}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _parse_numbers(text: str, flag: str, most: int) -> list[int]:
    parts = text.split(",")
    if not all(p.strip().isdecimal() and 1 <= int(p) <= most for p in parts):
        raise InvalidRequest(f"{flag} takes numbers from 1 to {most}, separated by commas, not {text!r}")
    return [int(p) for p in parts]
