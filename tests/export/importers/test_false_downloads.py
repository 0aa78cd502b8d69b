"""A Git LFS pointer or a web page in place of a file of a model is refused by that name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.errors import CheckpointError
from export.importers import SOURCES, convert
from tests.export.importers.test_bergamot import make as make_student
from tests.support import argos_packages, marian_models
from tests.support.ctranslate2_imports import imported as imported_ctranslate2
from tests.support.golden_fixtures import fixture
from tests.support.native_marian_models import SSRU

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n"
PAGE = b"\n<!DOCTYPE html>\n<html><head><title>Not Found</title></head></html>\n"


@pytest.mark.parametrize(("content", "cause"), [(POINTER, "is a Git LFS pointer"), (PAGE, "is a web page")])
@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("ctranslate2", "model.bin"),
        ("ctranslate2", "config.json"),
        ("ctranslate2", "shared_vocabulary.json"),
        ("fairseq", "checkpoint.pt"),
        ("fairseq", "dict.src.txt"),
        ("bergamot", "model.deen.intgemm.bin"),
        ("bergamot", "vocab.deen.spm"),
        ("marian", "vocab.json"),
        ("marian", "source.spm"),
        ("marian", "model.safetensors"),
    ],
)
def test_pointer_or_page_is_named_instead_of_damage(
    tmp_path: Path, source: str, name: str, content: bytes, cause: str
) -> None:
    folder = tmp_path / "deen"
    if source == "ctranslate2":
        shutil.copytree(imported_ctranslate2("OpenNMT-py", None, tmp_path / "made")[0], folder)
    elif source == "fairseq":
        shutil.copytree(fixture("dyn_glu").path, folder)
    elif source == "bergamot":
        make_student(folder, SSRU)
    else:
        marian_models.make(folder, "relu")
    assert (folder / name).is_file()
    (folder / name).write_bytes(content)
    pair = ("src", "tgt") if source == "fairseq" else ("de", "en")
    settings = SOURCES[source].settings(source=pair[0], target=pair[1])
    with pytest.raises(CheckpointError) as error:
        convert(source, folder, tmp_path / "out", settings)
    assert f"{name}: {cause}" in str(error.value)
    assert str(error.value).count(name) == 1
    assert "\n" not in str(error.value)


def test_page_in_place_of_a_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "translate-de_en.argosmodel").write_bytes(PAGE)
    with pytest.raises(CheckpointError, match="argosmodel: is a web page"):
        argos_packages.convert(tmp_path / "translate-de_en.argosmodel", tmp_path / "out")
