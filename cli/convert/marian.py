"""`convoy convert marian`: import Marian's models, in its own layout or Hugging Face's."""

from __future__ import annotations

from cli.convert.flags import (
    Checkpoint,
    Folder,
    Half,
    Name,
    Onnx,
    Out,
    Overwrite,
    Placeholders,
    Source,
    Target,
    finish,
)


def marian(
    folder: Folder,
    out: Out,
    name: Name = None,
    checkpoint: Checkpoint = None,
    source: Source = None,
    target: Target = None,
    half: Half = None,
    onnx: Onnx = True,
    placeholders: Placeholders = True,
    overwrite: Overwrite = False,
) -> None:
    """Import a model of Marian (OPUS-MT), in its own layout or Hugging Face's."""
    from export.importers.marian import convert
    from export.importers.marian_model import Settings

    settings = Settings(name, source, target, checkpoint, half)
    finish(convert(folder, out, settings, overwrite=overwrite), onnx=onnx, placeholders=placeholders)
