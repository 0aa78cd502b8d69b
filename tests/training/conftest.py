"""A tiny corpus, recipe and vocabulary, and the bundle that a run made of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from engine.bundle.bundle import Bundle
from tests.training.numbers import FEW_PAIRS, TINY, write_numbers
from training import data
from training.package import package
from training.recipe import Recipe, load
from training.trainer import Trainer


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    write_numbers(folder, {"train": 1500, "valid": 60, "test": 60})
    (folder / "few").mkdir()
    few = data.read_pairs(folder / "numbers" / "valid.tsv.gz", 0, 1)[:FEW_PAIRS]
    for part in ("train", "valid"):
        with gzip.open(folder / "few" / f"{part}.tsv.gz", "wt", encoding="utf-8") as out:
            out.writelines(f"{source}\t{target}\n" for source, target in few)
    return folder


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    path = tmp_path_factory.mktemp("recipes") / "numbers.toml"
    path.write_text(TINY, encoding="utf-8")
    return load(path, "cpu")


@pytest.fixture(scope="session")
def vocabulary(corpora: Path, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("vocabulary") / "vocabulary"
    data.train_vocabulary(recipe, data.read_pairs(corpora / "numbers" / "train.tsv.gz", 0, 1), prefix)
    return prefix.with_suffix(".model")


@pytest.fixture(scope="session")
def trained(recipe: Recipe, corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return a trained bundle. Only one file of tests uses it, so that only one process trains it."""
    folder = tmp_path_factory.mktemp("trained")
    Trainer(recipe, corpora, folder / "run", "cpu").fit()
    return package(recipe, folder / "run", folder / "numbers", "cpu")
