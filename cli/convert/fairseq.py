"""`convoy convert fairseq`: import models that fairseq trained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from cli.convert.flags import Conversion, Folder, Half, Out, Source, Target, conversion_flags


@conversion_flags
def fairseq(
    folder: Folder,
    out: Out,
    common: Conversion,
    task: Annotated[
        str | None, typer.Option(help="translate, summarize, ...; default: the task of the model.")
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(help="File name. Several (repeated, or separated by ',' or ':') become an ensemble."),
    ] = None,
    average: Annotated[
        bool,
        typer.Option(
            "--average", help="Average the weights of the checkpoints instead of making an ensemble."
        ),
    ] = False,
    dictionaries: Annotated[
        Path | None, typer.Option(help="Folder of dict.*.txt; default: the folder of the checkpoint.")
    ] = None,
    source: Source = None,
    target: Target = None,
    normalize: Annotated[str, typer.Option(help="Language of the punctuation rules; '': none.")] = "en",
    aggressive: Annotated[bool | None, typer.Option(help="Moses: split dashes.")] = None,
    escape: Annotated[bool | None, typer.Option(help="Moses: escape &, |, <, >, ', \", [ and ].")] = None,
    lowercase: Annotated[bool | None, typer.Option(help="Lower-case the source.")] = None,
    pretokenized: Annotated[bool | None, typer.Option(help="Texts are tokens separated by spaces.")] = None,
    unk_dictionary: Annotated[
        Path | None, typer.Option(help="File of lines 'source target' for --replace-unk.")
    ] = None,
    lm: Annotated[
        Path | None, typer.Option(help="Bundle of a language model whose scores are added (--lm-path).")
    ] = None,
    lm_weight: Annotated[float, typer.Option(help="Default weight of the language model.")] = 0.0,
    half: Half = None,
) -> None:
    """Import a checkpoint of fairseq (0.6 to main), or several as an ensemble."""
    from export.importers.settings import FairseqImport

    settings = FairseqImport(
        task=task,
        checkpoints=tuple(name for argument in checkpoint or () for name in _names(folder, argument)),
        average=average,
        dictionaries=dictionaries,
        source=source,
        target=target,
        normalize=normalize,
        aggressive=aggressive,
        escape=escape,
        lowercase=lowercase,
        pretokenized=pretokenized,
        unk_dictionary=unk_dictionary,
        half=half,
        language_model=lm,
        lm_weight=lm_weight,
    )
    common.convert("fairseq", folder, out, settings)


def _names(folder: Path, argument: str) -> list[str]:
    """Return the file names in a list with commas or colons (as in fairseq's --path), or the name of one
    file."""
    whole = (folder / argument).is_file()
    return [argument] if whole else [name for name in re.split("[,:]", argument) if name]
