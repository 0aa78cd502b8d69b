"""`convoy convert hf`: import models in the format of Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.convert.flags import Conversion, Folder, Half, Out, Source, Target, conversion_flags


@conversion_flags
def hf(
    folder: Folder,
    out: Out,
    common: Conversion,
    source: Source = None,
    target: Target = None,
    task: Annotated[
        str | None, typer.Option(help="translate or summarize, if the architecture is for both.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Text before each source; default: from config.json.")
    ] = None,
    adapter: Annotated[
        Path | None, typer.Option(help="Folder of a LoRA adapter (peft) to merge into the weights.")
    ] = None,
    half: Half = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Store int8, a quarter of fp32, for large models on the CPU.")
    ] = False,
) -> None:
    """Import a model of Hugging Face: Marian, BART, mBART-50, PEGASUS, M2M-100, NLLB-200, FSMT, T5, mT5."""
    from export.importers.settings import HuggingFaceImport

    settings = HuggingFaceImport(
        source=source, target=target, half=half, task=task, prompt=prompt, int8=int8, adapter=adapter
    )
    common.convert("hf", folder, out, settings)
