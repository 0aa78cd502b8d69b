"""`convoy convert bergamot`: read students of Firefox Translations and Bergamot.

`export.importers.marian.native` reads their network, which is Marian's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.bundle.shortlist import SHORTLIST, Shortlist
from export.importers.importing import ImportedModel, ProblemList, known_length
from export.importers.marian.bergamot_shortlist import Pruning, StudentVocabularies, read_shortlist
from export.importers.marian.model import MarianModel, to_imported_model
from export.importers.marian.native import Files, read_files
from export.importers.marian.student_files import Student, find_student
from export.importers.settings import StudentImport


def read(folder: Path, settings: StudentImport, problems: ProblemList) -> ImportedModel:
    """Read the student of a folder.

    folder: folder of the student's files.
    settings: settings of the user.
    problems: receives the problems of the weights.

    Raises CheckpointError that names a missing, unsupported or damaged file.
    """
    student = find_student(folder, settings.checkpoint)
    return to_imported_model(read_student(student, alphas=settings.alphas), folder, settings, problems)


def read_student(student: Student, *, alphas: bool = True) -> MarianModel:
    """Read and check a student's files; with `alphas` int8 uses the file's scales. Raises CheckpointError."""
    student_files = Files(student.model, student.vocabularies, student.settings)
    model = read_files(student_files, alphas=alphas)
    leftovers = tuple(option for option in model.unsupported if not option.startswith("shortlist"))
    files = dict(model.files)
    if student.shortlist is not None:
        files[SHORTLIST] = _read_shortlist(student.shortlist, student, model).dump()
    return replace(
        model,
        layout="a student of Firefox Translations or Bergamot",
        command="bergamot",
        files=files,
        unsupported=leftovers,
        languages=student.languages,
        shortlisted=student.shortlist is not None,
        max_sentence_tokens=known_length(student.settings["max-length-break"]),
    )


def _read_shortlist(path: Path, student: Student, model: MarianModel) -> Shortlist:
    """Read a student's shortlist, pruned by its settings. Raises CheckpointError."""
    assert model.config.unk is not None
    vocabularies = StudentVocabularies(
        source=model.vocabulary,
        target=model.target_vocabulary,
        size=model.config.source_vocab,
        unk=model.config.unk,
        shared=student.vocabularies[0] == student.vocabularies[1],
    )
    # after the path the setting holds the pruning of a text file, or whether a binary's checksum is checked
    setting = student.settings.get("shortlist")
    values = setting[1:] if isinstance(setting, list) else []
    numbers = [value for value in values[:3] if type(value) in (int, float)]
    pruning = Pruning(*map(int, numbers[:2]), *map(float, numbers[2:]))
    return read_shortlist(path, vocabularies, pruning, check=True in values)
