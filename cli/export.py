"""`convoy export`: writes ONNX graphs and TensorRT engines of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from cli.verify import Check
    from engine.bundle.bundle import Bundle

TARGETS: Final = {"onnx": ("fp32", "int8", "fp16", "bf16"), "tensorrt": ("fp16", "bf16", "fp32")}
KEPT: Final = ("fp32", "int8")  # precisions of the graphs that every bundle has


def export(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder; the files in its onnx/ are replaced.")],
    to: Annotated[
        str, typer.Option(help="onnx, or tensorrt (run it on the GPU that will use the engine).")
    ] = "onnx",
    precision: Annotated[
        str | None,
        typer.Option(
            help="onnx: fp32, int8, fp16, with --standalone bf16; tensorrt: fp16 (default), bf16, fp32."
        ),
    ] = None,
    standalone: Annotated[
        Path | None, typer.Option(help="onnx: new folder for graphs that contain their weights.")
    ] = None,
    beams: Annotated[int, typer.Option(min=1, help="tensorrt: beam size of the engine.")] = 5,
    slots: Annotated[int, typer.Option(min=1, help="tensorrt: sentences at a time.")] = 32,
    candidates: Annotated[
        int | None,
        typer.Option(min=1, help="tensorrt: candidates of a row; default: 64, or twice the beams."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with torch; exit code 1 if the difference is too large.")
    ] = False,
    sentences: Annotated[
        Path | None, typer.Option(help="With --verify: file of source lines; default: built-in ones.")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="With --verify: file of their translations.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device of --verify and of engines: cpu or cuda.")] = "cpu",
) -> None:
    """Write the ONNX graphs or TensorRT engines of a bundle (needs the extra `torch`).

    Every bundle has fp32 and int8 graphs; --precision fp16 adds graphs for ONNX Runtime on GPUs.
    """
    from cli.verify import Check
    from engine.bundle.bundle import open_bundle

    if to not in TARGETS:
        raise InvalidRequest(f"can't export to {to!r}; known are {', '.join(TARGETS)}")
    if precision is not None and precision not in TARGETS[to]:
        raise InvalidRequest(f"no {precision!r} of {to}; known are {', '.join(TARGETS[to])}")
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise InvalidRequest(f"no device {device!r}; known are cpu, cuda, cuda:1, ...")
    opened = open_bundle(bundle)
    engine_precision = precision or TARGETS[to][0]
    if to == "tensorrt":
        if standalone:
            raise InvalidRequest("--standalone is for --to onnx: an engine always contains its weights")
        gpu = "cuda" if device == "cpu" else device
        _write_engines(opened, engine_precision, (beams, slots, candidates), gpu)
        checks = [Check(to, engine_precision, beams, slots, gpu)]
    else:
        _check_bf16(precision, standalone, device, verify)
        written = _write_graphs(opened, precision, standalone)
        compared = written if device == "cpu" else [p for p in written if p != "int8"]
        checks = [Check(to, p, beams, device=device) for p in compared]
    if verify:
        _verify(open_bundle(bundle), checks, sentences, references)


def _check_bf16(precision: str | None, standalone: Path | None, device: str, verify: bool) -> None:
    """Raise InvalidRequest if ONNX Runtime would have to run bf16 graphs on a GPU.

    precision: precision of the graphs.
    standalone: folder for the graphs; None: the bundle, for ONNX Runtime on GPUs.
    device: device that verifies them.
    verify: whether they are verified.
    """
    if precision != "bf16":
        return
    lacking = "ONNX Runtime lacks operators in bf16 on GPUs"
    if standalone is None:
        raise InvalidRequest(f"{lacking}; take --precision fp16, or --standalone FOLDER for other programs")
    if verify and device != "cpu":
        raise InvalidRequest(f"{lacking}; leave out --device {device}: the CPU verifies bf16 graphs")


def _write_graphs(bundle: Bundle, precision: str | None, standalone: Path | None) -> tuple[str, ...]:
    """Write graphs, and return their precisions: the given one, or the default of what was written."""
    if standalone:
        from export.graphs.standalone import write

        for path in write(bundle, precision or KEPT[0], standalone):
            typer.echo(f"{path}: {path.stat().st_size:,} bytes")
    else:
        from export.graphs.narrow import add_narrow_graphs
        from export.graphs.onnx import add_graphs

        written = add_graphs(bundle) if precision in (None, *KEPT) else bundle
        written = add_narrow_graphs(written, *(() if precision in (None, *KEPT) else (precision,)))
        for name in written.files():
            if name.startswith("onnx/"):
                typer.echo(f"{written.file(name)}: {written.manifest[name].size:,} bytes")
    return (precision,) if precision else KEPT[: 1 if standalone else 2]


def _write_engines(bundle: Bundle, precision: str, size: tuple[int, int, int | None], device: str) -> None:
    from export.graphs.tensorrt import LaneShape, build

    written = build(bundle, LaneShape(precision, *size), device=device)
    for name in written.files():
        if name.startswith("tensorrt/"):
            typer.echo(f"{written.file(name)}: {written.manifest[name].size:,} bytes")


def _verify(bundle: Bundle, checks: list[Check], path: Path | None, references: Path | None) -> None:
    """Print a comparison of a bundle's backends; exit with code 1 if one fails."""
    from cli.verify import sentences, table, verify

    reference_lines = references.read_text(encoding="utf-8").splitlines() if references else None
    verdicts = verify(bundle, checks, sentences(bundle, path), reference_lines)
    typer.echo(table(verdicts))
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)
