"""`convoy convert argos`: read unpacked packages of Argos Translate (`packages.open_package`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from export.importers.ctranslate2.importer import read_for_library
from export.importers.ctranslate2.packages import MODEL_FOLDER, TRANSLATION, read_package
from export.importers.ctranslate2.texts import TextRules
from export.importers.importing import ImportedModel, ProblemList
from export.importers.settings import CTranslate2Import, ImportSettings

# defaults of Argos Translate; its ARGOS_BEAM_SIZE is 4 by default
ARGOS_DEFAULTS: Final[dict[str, Any]] = {"beam_size": 4, "length_penalty": 0.2, "max_length_b": 256}
PIECES, CODES = "sentencepiece.model", "bpe.model"


def read(folder: Path, settings: ImportSettings, problems: ProblemList) -> ImportedModel:
    """Read the package of a folder.

    folder: folder of the package, which holds metadata.json.
    settings: unused; metadata.json names the languages.
    problems: receives whatever is missing, unsupported or does not fit.
    """
    package = problems.attempt(lambda: read_package(folder))
    if package is not None and package.kind != TRANSLATION:
        problems.add(f"{folder}: is a package of the type {package.kind!r}, not of translation")
    pieces, codes = folder / PIECES, folder / CODES
    if not pieces.is_file() and not codes.is_file():
        problems.add(f"{folder}: holds neither {PIECES} nor {CODES}")
    problems.stop()
    assert package is not None
    cut = pieces.is_file()
    chosen = CTranslate2Import(
        source=package.source,
        target=package.target,
        pieces=(pieces,) if cut else (),
        codes=None if cut else codes,
        prefix=package.prefix,
    )
    rules = TextRules(moses=not cut, replace_unknown=True, families=False)
    model = read_for_library(folder / MODEL_FOLDER, chosen, rules, problems)
    notes = (f"Version of the package: {package.version[:40] or 'unknown'}", *model.notes)
    origin = model.origin.replace("ctranslate2", "argos")
    return replace(model, origin=origin, generation=ARGOS_DEFAULTS, notes=notes)
