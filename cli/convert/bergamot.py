"""`convoy convert bergamot`: import students of Firefox Translations and Bergamot, one or a tree of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.convert.flags import Checkpoint, Name, Onnx, Out, Overwrite, Placeholders, Source, Target, finish
from engine.errors import ConvoyError, InvalidRequest

Students = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A student's files, packed or not; with --all a tree of such folders."
    ),
]


def bergamot(
    folder: Students,
    out: Out,
    name: Name = None,
    checkpoint: Checkpoint = None,
    source: Source = None,
    target: Target = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Import each student of the tree FOLDER as a bundle in OUT, named by its pair."
        ),
    ] = False,
    alphas: Annotated[
        bool, typer.Option(help="In int8 follow the file's scales of activations; else scale row by row.")
    ] = True,
    onnx: Onnx = True,
    placeholders: Placeholders = True,
    overwrite: Overwrite = False,
) -> None:
    """Import a student of Firefox Translations or Bergamot; its int8 weights stay as they are."""
    from export.shapes import stand_in

    stand_in()
    from export.importers.bergamot import convert
    from export.importers.marian_model import Settings

    if not every:
        settings = Settings(name, source, target, checkpoint)
        finish(
            convert(folder, out, settings, alphas=alphas, overwrite=overwrite),
            onnx=onnx,
            placeholders=placeholders,
        )
        return
    if name or checkpoint or source or target:
        raise InvalidRequest(
            "--name, --checkpoint, --source and --target are of one student: leave them out with --all"
        )
    convert_all(folder, out, alphas=alphas, onnx=onnx, placeholders=placeholders, overwrite=overwrite)


def convert_all(
    tree: Path, out: Path, *, alphas: bool, onnx: bool, placeholders: bool, overwrite: bool
) -> None:
    """Import every student of a tree; one that can't be is named, the others go on, and the command exits
    with 1.

    A bundle that is there already stays unless it may be replaced, so that an interrupted import goes on.
    """
    from export.shapes import stand_in

    stand_in()
    from export.importers.bergamot import convert, find_students, names_of

    names = names_of(list(find_students(tree)), tree)
    if not names:
        raise InvalidRequest(f"{tree}: holds no student in any folder (a model in .bin or .npz)")
    failed = 0
    for name, folder in names.items():
        if (out / name).exists() and not overwrite:
            typer.echo(f"{out / name}: is there already; --overwrite replaces it")
            continue
        try:
            finish(
                convert(folder, out / name, alphas=alphas, overwrite=overwrite),
                onnx=onnx,
                placeholders=placeholders,
            )
        except ConvoyError as error:
            failed += 1
            typer.echo(f"not imported: {error}", err=True)
    if failed:
        typer.echo(f"{failed} of {len(names)} students were not imported", err=True)
        raise typer.Exit(1)
