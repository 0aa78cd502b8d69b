"""`convoy convert marian`: import Marian's models, in its own layout or Hugging Face's."""

from __future__ import annotations

from cli.convert.flags import Checkpoint, Conversion, Folder, Half, Out, Source, Target, conversion_flags


@conversion_flags
def marian(
    folder: Folder,
    out: Out,
    common: Conversion,
    checkpoint: Checkpoint = None,
    source: Source = None,
    target: Target = None,
    half: Half = None,
) -> None:
    """Import a model of Marian (OPUS-MT), in its own layout or Hugging Face's."""
    from export.importers.settings import MarianImport

    settings = MarianImport(source=source, target=target, half=half, checkpoint=checkpoint)
    common.convert("marian", folder, out, settings)
