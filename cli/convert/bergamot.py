"""`convoy convert bergamot`: import students of Firefox Translations and Bergamot, one or a tree of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.convert.flags import Checkpoint, Conversion, Out, Source, Target, conversion_flags
from engine.errors import ConvoyError, InvalidRequest

if TYPE_CHECKING:
    from export.importers.settings import StudentImport

Students = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="Folder of a student, packed or not; with --all a tree of such folders."
    ),
]


@conversion_flags
def bergamot(
    folder: Students,
    out: Out,
    common: Conversion,
    checkpoint: Checkpoint = None,
    source: Source = None,
    target: Target = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Import each student of the tree FOLDER as a bundle in OUT, named by its languages."
        ),
    ] = False,
    alphas: Annotated[
        bool, typer.Option(help="In int8, use the activation scales of the file; otherwise scale row by row.")
    ] = True,
) -> None:
    """Import a student of Firefox Translations or Bergamot; int8 weights are not changed."""
    from export.importers.settings import StudentImport

    settings = StudentImport(source=source, target=target, checkpoint=checkpoint, alphas=alphas)
    if not every:
        common.convert("bergamot", folder, out, settings)
        return
    if common.name or checkpoint or source or target:
        raise InvalidRequest(
            "--name, --checkpoint, --source and --target are for one student: leave them out with --all"
        )
    convert_all(folder, out, common, settings)


def convert_all(tree: Path, out: Path, common: Conversion, settings: StudentImport) -> None:
    """Import every student of a tree. If one can't be imported, the others still are, and the exit code is 1.

    Existing bundles stay unless --overwrite is given, so that an interrupted import can be continued.

    tree: folder of folders of students.
    out: folder of the bundles.
    common: flags of every conversion.
    settings: conversion settings, the same for each student model.
    """
    from export.importers.marian.student_files import find_students, names_of

    names = names_of(list(find_students(tree)), tree)
    if not names:
        raise InvalidRequest(f"{tree}: no folder has a student (a model in .bin or .npz)")
    failed = 0
    for name, folder in names.items():
        if (out / name).exists() and not common.overwrite:
            typer.echo(f"{out / name}: exists; --overwrite replaces it")
            continue
        try:
            common.convert("bergamot", folder, out / name, settings)
        except ConvoyError as error:
            failed += 1
            typer.echo(f"not imported: {error}", err=True)
    if failed:
        typer.echo(f"{failed} of {len(names)} students were not imported", err=True)
        raise typer.Exit(1)
