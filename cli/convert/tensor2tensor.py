"""`convoy convert tensor2tensor`: import SliceNets that tensor2tensor trained."""

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


def tensor2tensor(
    folder: Folder,
    out: Out,
    source: SourceNamed,
    target: TargetNamed,
    name: Name = None,
    checkpoint: Checkpoint = None,
    vocabulary: Vocabularies = None,
    target_space: Annotated[
        int | None, typer.Option(help="The problem's target space, where hparams.json lacks it; else 0.")
    ] = None,
    half: StoreHalf = False,
    onnx: Onnx = True,
    placeholders: Placeholders = True,
    overwrite: Overwrite = False,
) -> None:
    """Import a SliceNet of tensor2tensor: its checkpoint, hparams.json and subword vocabulary."""
    from export.importers.tensor2tensor import Settings, convert

    settings = Settings(source, target, name, checkpoint, tuple(vocabulary or ()), target_space, half)
    finish(convert(folder, out, settings, overwrite=overwrite), onnx=onnx, placeholders=placeholders)
