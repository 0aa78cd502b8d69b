"""`convoy convert marian`: a folder of a Marian model (OPUS-MT) to a bundle.

Two layouts are read: that of Hugging Face (`export.importers.marian_hf`) and Marian's own
(`export.importers.marian_native`).
What is refused and where the search differs: docs/import.md.
"""

from __future__ import annotations

from pathlib import Path

from engine.bundle.bundle import Bundle
from engine.errors import CheckpointError
from export.importers import marian_hf, marian_native
from export.importers.hf_files import CONFIG
from export.importers.marian_model import MarianModel, Settings, convert_by


def convert(folder: Path, out: Path, settings: Settings | None = None, *, overwrite: bool = False) -> Bundle:
    """Import the model of `folder` as the bundle `out`; raises what `convert_by` raises."""
    return convert_by(_read_folder, folder, out, settings or Settings(), overwrite=overwrite)


def _read_folder(folder: Path, settings: Settings) -> MarianModel:
    """By the layout of the folder."""
    if (folder / CONFIG).is_file():
        return marian_hf.read(folder, settings)
    if marian_native.models(folder):
        return marian_native.read(folder, settings)
    raise CheckpointError(
        f"{folder}: holds neither config.json (Hugging Face) nor *.npz or *.bin (Marian's own); name the "
        "folder with the model's files"
    )
