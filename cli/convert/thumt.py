"""`convoy convert thumt`: import averaged attention networks of their authors' code."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.convert.flags import (
    Checkpoint,
    Folder,
    Name,
    Onnx,
    Out,
    Overwrite,
    Placeholders,
    SourceNamed,
    StoreHalf,
    TargetNamed,
    Vocabularies,
    finish,
)


def thumt(
    folder: Folder,
    out: Out,
    source: SourceNamed,
    target: TargetNamed,
    name: Name = None,
    checkpoint: Checkpoint = None,
    vocabulary: Vocabularies = None,
    codes: Annotated[
        str | None, typer.Option(help="File of BPE codes; without, text is symbols between spaces.")
    ] = None,
    half: StoreHalf = False,
    onnx: Onnx = True,
    placeholders: Placeholders = True,
    overwrite: Overwrite = False,
) -> None:
    """Import an averaged attention network of THUMT (bzhangGo/transformer-aan)."""
    from export.importers.thumt import Settings, convert

    settings = Settings(source, target, name, checkpoint, tuple(vocabulary or ()), codes, half)
    finish(convert(folder, out, settings, overwrite=overwrite), onnx=onnx, placeholders=placeholders)
