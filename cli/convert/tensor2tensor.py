"""`convoy convert tensor2tensor`: import SliceNets that tensor2tensor trained."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.convert.flags import (
    Checkpoint,
    Conversion,
    Folder,
    Out,
    SourceNamed,
    StoreHalf,
    TargetNamed,
    Vocabularies,
    conversion_flags,
)


@conversion_flags
def tensor2tensor(
    folder: Folder,
    out: Out,
    common: Conversion,
    source: SourceNamed,
    target: TargetNamed,
    checkpoint: Checkpoint = None,
    vocabulary: Vocabularies = None,
    target_space: Annotated[
        int | None,
        typer.Option(help="Target space of the problem, if it is not in hparams.json; default: 0."),
    ] = None,
    half: StoreHalf = False,
) -> None:
    """Import a SliceNet of tensor2tensor: its checkpoint, hparams.json and subword vocabulary."""
    from export.importers.settings import Tensor2TensorImport

    settings = Tensor2TensorImport(
        source=source,
        target=target,
        half=half,
        checkpoint=checkpoint,
        vocabularies=tuple(vocabulary or ()),
        target_space=target_space,
    )
    common.convert("tensor2tensor", folder, out, settings)
