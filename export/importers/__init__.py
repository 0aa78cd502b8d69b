"""Models of others to bundles: `convert`. Rooms are sources; what they stand on lies beside them.

settings       what a person says of an import, for each source
importing      how every import goes: check, read, problems, write
proving        the last steps: graphs, a proof, placeholders, a comparison with the model's own engine
weights        weights under our names, and what keeps them from fitting
json_object    a JSON object of a file from outside
checkpoint     tensors of pickled files, without running what they hold
buckets        the distances that T5's bias of attention tells apart
fairseq        checkpoints, dictionaries and BPE codes of fairseq
marian         Marian's own layout; students of Firefox Translations and Bergamot
huggingface    folders of `transformers`, Marian's among them
ctranslate2    what CTranslate2's converters wrote, and packages of Argos Translate
tensorflow     tensor2tensor's SliceNet and THUMT's averaged attention; nobody else imports it
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
    """Where models come from.

    module: a `ModelReader` (`export.importers.importing`), below this package.
    settings: class of what a person says of such an import.
    torch: whether reading needs torch itself, and not only shapes.
    """

    module: str
    settings: type[of.ImportSettings]
    torch: bool = True


SOURCES: Final = {
    "argos": ImportSource("ctranslate2.argos", of.ImportSettings, torch=False),
    "bergamot": ImportSource("marian.bergamot", of.StudentImport, torch=False),
    "ctranslate2": ImportSource("ctranslate2.importer", of.CTranslate2Import, torch=False),
    "fairseq": ImportSource("fairseq.importer", of.FairseqImport),
    "hf": ImportSource("huggingface.importer", of.HuggingFaceImport),
    "marian": ImportSource("marian.native", of.MarianImport),
    "tensor2tensor": ImportSource("tensorflow.tensor2tensor", of.Tensor2TensorImport),
    "thumt": ImportSource("tensorflow.thumt", of.ThumtImport),
}
HF_SETTINGS: Final = "config.json"  # a folder of Marian in Hugging Face's layout holds it


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

    source: a name in `SOURCES`.
    folder: with the model's files.
    out: the bundle's folder.
    settings: of the source's class.
    overwrite: replace `out` where it is there.
    stages: what adds files to the bundle before it has its place (`engine.bundle.bundle.Writing`).

    Raises CheckpointError with all that is missing, unsupported, damaged or does not fit; BundleError when
    `out` exists. Nothing is written before everything was checked.
    """
    entry, folder = SOURCES[source], Path(folder)
    if not entry.torch:
        stand_in()
    from export.importers.importing import convert_by

    module = entry.module
    if source == "marian" and (folder / HF_SETTINGS).is_file():
        module = "huggingface.marian"
    reader: Any = import_module(f"{__name__}.{module}")
    return convert_by(
        reader, folder, Path(out), settings or entry.settings(), overwrite=overwrite, stages=stages
    )
