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
    family: Annotated[
        str | None,
        typer.Option(
            help="Tokenizer of a model made from a Hugging Face folder: nllb, m2m100, small100, mbart50, t5, "
            "madlad, byt5, pegasus, bart, marian; plain: none. Default: by the vocabulary."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="translate or summarize; default: by the kind of model.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="Text before each source, for T5.")] = None,
    characters: Annotated[
        bool | None,
        typer.Option(help="Each character is a symbol; default: if the vocabulary has only characters."),
    ] = None,
) -> None:
    """Import an encoder-decoder of CTranslate2 (binary versions 1 to 6); int8 stays int8."""
    from export.importers.settings import CTranslate2Import

    settings = CTranslate2Import(
        source=source,
        target=target,
        pieces=tuple(pieces or ()),
        codes=codes,
        prefix=prefix,
        family=family,
        task=task,
        prompt=prompt,
        characters=characters,
    )
    common.convert("ctranslate2", folder, out, settings)
