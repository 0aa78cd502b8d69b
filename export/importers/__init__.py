"""`convert` makes bundles of foreign models. Each folder here is a source; the modules are shared.

settings       settings of an import, for each source
importing      the steps of every import: check, read, report problems, write
proving        the last steps: graphs, a proof, placeholders, a comparison with the model's own engine
weights        renames weights and checks that they fit a model
json_object    reads JSON objects of foreign files
downloads      recognises Git LFS pointers and web pages in place of files
checkpoint     reads weights and options of pickled files without running code in them
torch_files    files of `torch.save`, without torch
pickles        pickles with a closed list of names
buckets        buckets of distances of T5's attention bias
fairseq        checkpoints, dictionaries and BPE codes of fairseq
marian         Marian's own layout; students of Firefox Translations and Bergamot
huggingface    folders of `transformers`, Marian's among them
ctranslate2    models in CTranslate2's format, and packages of Argos Translate
tensorflow     tensor2tensor's SliceNet and THUMT's averaged attention
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from export.importers import settings as of
from export.shapes import stand_in

if TYPE_CHECKING:
    from engine.bundle.bundle import Bundle, Stage


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A source of models.

    module: name of its `ModelReader` (`export.importers.importing`), below this package.
    settings: class of its settings.
    """

    module: str
    settings: type[of.ImportSettings]


SOURCES: Final = {
    "argos": ImportSource("ctranslate2.argos", of.ImportSettings),
    "bergamot": ImportSource("marian.bergamot", of.StudentImport),
    "ctranslate2": ImportSource("ctranslate2.importer", of.CTranslate2Import),
    "fairseq": ImportSource("fairseq.importer", of.FairseqImport),
    "hf": ImportSource("huggingface.importer", of.HuggingFaceImport),
    "marian": ImportSource("marian.native", of.MarianImport),
    "tensor2tensor": ImportSource("tensorflow.tensor2tensor", of.Tensor2TensorImport),
    "thumt": ImportSource("tensorflow.thumt", of.ThumtImport),
}
HF_SETTINGS: Final = "config.json"  # file of a folder in Hugging Face's layout


def convert(
    source: str,
    folder: Path,
    out: Path,
    settings: of.ImportSettings | None = None,
    *,
    overwrite: bool = False,
    stages: Iterable[Stage] = (),
) -> Bundle:
    """Import the model of a folder as a bundle.

    source: name of the source, a key of `SOURCES`.
    folder: folder of the model.
    out: the bundle's folder.
    settings: settings, of the source's class; None: its defaults.
    overwrite: replace an existing `out`.
    stages: steps that add files before the bundle is renamed to `out` (`engine.bundle.bundle.WriteOptions`).

    Raises CheckpointError with everything that is missing, unsupported, damaged or does not fit; BundleError
    if `out` exists. Nothing is written before everything was checked.
    """
    entry, folder = SOURCES[source], Path(folder)
    stand_in()
    from export.importers.importing import convert_by

    module = entry.module
    if source == "marian" and (folder / HF_SETTINGS).is_file():
        module = "huggingface.marian"
    reader: Any = import_module(f"{__name__}.{module}")
    return convert_by(
        reader, folder, Path(out), settings or entry.settings(), overwrite=overwrite, stages=stages
    )
