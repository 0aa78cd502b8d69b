"""`convoy convert ctranslate2`: import models that were converted for CTranslate2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.convert.flags import Conversion, Folder, Out, SourceNamed, TargetNamed, conversion_flags


@conversion_flags
def ctranslate2(
    folder: Folder,
    out: Out,
    common: Conversion,
    source: SourceNamed,
    target: TargetNamed,
    pieces: Annotated[
        list[Path] | None,
        typer.Option(
            help="SentencePiece model, or one for source and one for target; default: in the folder."
        ),
    ] = None,
    codes: Annotated[
        Path | None, typer.Option(help="Codes file of subword-nmt; default: in the folder.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="First symbol of every target, such as the symbol of a language.")
    ] = None,
) -> None:
    """Import an encoder-decoder of CTranslate2 (binary versions 2 to 6); int8 stays int8."""
    from export.importers.settings import CTranslate2Import

    settings = CTranslate2Import(
        source=source, target=target, pieces=tuple(pieces or ()), codes=codes, prefix=prefix
    )
    common.convert("ctranslate2", folder, out, settings)
