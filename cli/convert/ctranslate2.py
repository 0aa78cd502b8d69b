"""`convoy convert ctranslate2`: import what CTranslate2's converters wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.convert.flags import (
    Folder,
    Name,
    Onnx,
    Out,
    Overwrite,
    Placeholders,
    SourceNamed,
    TargetNamed,
    finish,
)


def ctranslate2(
    folder: Folder,
    out: Out,
    source: SourceNamed,
    target: TargetNamed,
    name: Name = None,
    pieces: Annotated[
        list[Path] | None,
        typer.Option(help="SentencePiece model: one, or the source's and the target's; else of the folder."),
    ] = None,
    codes: Annotated[Path | None, typer.Option(help="Codes of subword-nmt; else of the folder.")] = None,
    prefix: Annotated[
        str | None, typer.Option(help="Symbol that every target begins with, such as a language's.")
    ] = None,
    onnx: Onnx = True,
    placeholders: Placeholders = True,
    overwrite: Overwrite = False,
) -> None:
    """Import an encoder-decoder of CTranslate2 (binary versions 2 to 6); int8 stays int8."""
    from export.shapes import stand_in

    stand_in()
    from export.importers.ctranslate2 import Settings, convert

    settings = Settings(source, target, name, tuple(pieces or ()), codes, prefix=prefix)
    finish(convert(folder, out, settings, overwrite=overwrite), onnx=onnx, placeholders=placeholders)
