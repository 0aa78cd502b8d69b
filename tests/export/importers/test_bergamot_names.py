"""Languages of a student by the names of its files and its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.answers.text_model import TextModel
from engine.errors import CheckpointError
from engine.types import DecodeOptions
from export.importers import convert
from export.importers.marian.student_files import find_student

UNKNOWN = (None, None)


def languages(folder: Path, model: str, vocabulary: str) -> tuple[str | None, str | None]:
    """Return the languages of a folder with empty files of these names."""
    folder.mkdir(parents=True)
    for name in (model, vocabulary):
        (folder / name).touch()
    return find_student(folder).languages


@pytest.mark.parametrize(
    ("folder", "model", "vocabulary", "pair"),
    [
        ("any", "model.deen.intgemm.alphas.bin", "vocab.deen.spm", ("de", "en")),
        ("tiny", "model.en-zh_hant.intgemm8.bin", "vocab.spm", ("en", "zh-Hant")),
        ("tiny", "model.zh_hanten.intgemm.alphas.bin", "vocab.zh_hanten.spm", ("zh-Hant", "en")),
        ("tiny", "model.hbseng.intgemm.alphas.bin", "vocab.hbseng.spm", ("hbs", "eng")),
        ("de-en", "model.intgemm.alphas.bin", "vocab.spm", ("de", "en")),
        ("ende.student.tiny11", "model.intgemm.alphas.bin", "vocab.deen.spm", ("en", "de")),
        ("tiny", "model.bin", "vocab.spm", UNKNOWN),
        ("base", "model.base.bin", "vocab.spm", UNKNOWN),
        ("best", "model.best.npz", "vocab.deen.spm", UNKNOWN),
        ("opus-mt-de-en", "model.npz", "opus.spm", UNKNOWN),
        ("deen", "model.bin", "vocab.spm", UNKNOWN),
    ],
)
def test_names_determine_the_languages(
    folder: str, model: str, vocabulary: str, pair: tuple[str | None, str | None], tmp_path: Path
) -> None:
    assert languages(tmp_path / folder, model, vocabulary.replace("opus", "vocab")) == pair


def test_student_without_languages_is_refused_by_the_options_that_name_them(tmp_path: Path) -> None:
    from tests.export.importers.test_bergamot import make
    from tests.support.native_marian_models import SSRU

    make(tmp_path / "tiny", SSRU)
    for path in (tmp_path / "tiny").iterdir():
        path.rename(path.with_name(path.name.replace(".deen", "")))
    with pytest.raises(CheckpointError, match="give --source and --target"):
        convert("bergamot", tmp_path / "tiny", tmp_path / "out")


def test_script_of_a_language_is_no_part_of_the_rule_for_spaces(tmp_path: Path) -> None:
    """The sentences of a translation from Chinese get spaces whatever its script."""
    pair = languages(tmp_path / "tiny", "model.zh_hanten.intgemm.alphas.bin", "vocab.zh_hanten.spm")
    assert TextModel("translate", *pair, None, DecodeOptions(), None, 2).space("", "One.") == " "
