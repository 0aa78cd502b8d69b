"""`convoy convert thumt`: import averaged attention networks that THUMT trained."""

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
def thumt(
    folder: Folder,
    out: Out,
    common: Conversion,
    source: SourceNamed,
    target: TargetNamed,
    checkpoint: Checkpoint = None,
    vocabulary: Vocabularies = None,
    codes: Annotated[
        str | None, typer.Option(help="File of BPE codes; default: texts are symbols separated by spaces.")
    ] = None,
    half: StoreHalf = False,
) -> None:
    """Import an averaged attention network of THUMT (bzhangGo/transformer-aan)."""
    from export.importers.settings import ThumtImport

    settings = ThumtImport(
        source=source,
        target=target,
        half=half,
        checkpoint=checkpoint,
        vocabularies=tuple(vocabulary or ()),
        codes=codes,
    )
    common.convert("thumt", folder, out, settings)
