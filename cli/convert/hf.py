"""`convoy convert hf`: import folders of Hugging Face."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.convert.flags import Folder, Half, Name, Onnx, Out, Overwrite, Placeholders, Source, Target, finish


def hf(
    folder: Folder,
    out: Out,
    name: Name = None,
    source: Source = None,
    target: Target = None,
    task: Annotated[
        str | None, typer.Option(help="translate or summarize, where the kind leaves it open.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Written before each source; else as config.json says.")
    ] = None,
    half: Half = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Store int8, a quarter of fp32: for large models on the CPU.")
    ] = False,
    onnx: Onnx = True,
    placeholders: Placeholders = True,
    overwrite: Overwrite = False,
) -> None:
    """Import a folder of Hugging Face: Marian, BART, mBART-50, PEGASUS, M2M-100, NLLB-200, T5, mT5."""
    from export.importers.hf import convert
    from export.importers.hf_model import Overrides

    wish = Overrides(name, source, target, task, prompt, half, int8)
    finish(convert(folder, out, wish, overwrite=overwrite), onnx=onnx, placeholders=placeholders)
