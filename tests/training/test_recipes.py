"""Recipes, learning rates and planned updates."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import InvalidRequest
from engine.text.detect import detect
from tests.training.numbers import TINY
from training import data
from training.recipe import Train, load
from training.trainer import plan_updates, rate

RECIPES = Path(__file__).parents[2] / "training" / "recipes"


NAMES = sorted(path.stem for path in RECIPES.glob("*.toml"))


CORPORA = Path(__file__).parents[3] / "shared" / "corpora"


def test_learning_rate_rises_linearly_then_follows_its_schedule() -> None:
    cosine = Train(updates=1000, batch_tokens=1, learning_rate=1.0, warmup=100)
    assert rate(cosine, 0) == pytest.approx(0.01)
    assert rate(cosine, 99) == pytest.approx(1.0)
    assert rate(cosine, 550) == pytest.approx(0.5)
    assert rate(cosine, 1000) == pytest.approx(0.0)
    root = Train(updates=1000, batch_tokens=1, learning_rate=1.0, warmup=100, schedule="inverse_sqrt")
    assert rate(root, 399) == pytest.approx(0.5)


def test_planned_updates_fit_the_remaining_time() -> None:
    recipe = load(RECIPES / "tatoeba-de-en.toml", "cuda")
    full = plan_updates(recipe, 100, 1e9).train
    assert (full.updates, full.warmup) == (recipe.train.updates, recipe.train.warmup)
    short = plan_updates(recipe, 100, 900.0).train
    assert (short.updates, short.warmup) == (1_000, 100)
    assert plan_updates(recipe, 100, -5.0).train.updates == 100
    assert short.save_every > short.updates  # each piece ends with a checkpoint


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_shipped_recipes_are_complete_for_both_devices(name: str, device: str) -> None:
    recipe = load(RECIPES / f"{name}.toml", device)
    assert recipe.name == name
    assert recipe.config().encoder.layers == 4
    assert (recipe.train.updates == 40_000) == (device == "cuda")


@pytest.mark.parametrize("name", NAMES)
def test_shipped_recipe_reads_the_right_columns_of_its_corpus(name: str) -> None:
    recipe = load(RECIPES / f"{name}.toml", "cpu")
    corpus = recipe.corpus
    if not (CORPORA / corpus.folder).is_dir():
        pytest.skip(f"the corpus {corpus.folder} is not there")
    for part in ("train", "valid", "test"):
        assert (CORPORA / corpus.folder / f"{part}.tsv.gz").exists()
    pairs = data.read_pairs(
        CORPORA / corpus.folder / "valid.tsv.gz", corpus.source_column, corpus.target_column
    )
    assert len(pairs) >= 1000
    assert all(source.strip() and target.strip() for source, target in pairs)
    if recipe.task == "summarize":  # both are English: the shorter text is the summary
        assert all(len(source) > len(target) for source, target in pairs)
        return
    for code, texts in zip((recipe.source, recipe.target), zip(*pairs, strict=True), strict=True):
        assert detect("\n".join(texts[:100]), ["de", "en", "fr"]).ranked[0][0] == code


def test_shipped_recipes_translate_from_and_into_english() -> None:
    """A pivot between any two languages needs both directions."""
    loaded = [load(RECIPES / f"{name}.toml", "cpu") for name in NAMES]
    found = {(r.source, r.target) for r in loaded if r.task == "translate"}
    assert found >= {("de", "en"), ("en", "de"), ("fr", "en"), ("en", "fr")}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TINY.replace("updates = 240", "updates = 240\nepochs = 3"), "epochs"),
        (TINY.replace('licence = "CC0-1.0"', ""), "licence"),
        (TINY.replace("[train]", "[trian]"), "train"),
        (TINY.replace("heads = 4", "heads = 5"), r"\[model\].*encoder.*heads 5"),
        (TINY.replace("share_output", "share_outputs"), r"\[model\].*share_outputs"),
        (TINY.replace('architecture = "dynamicconv"', 'preset = "lightconf"'), "no preset 'lightconf'"),
        (TINY.replace('task = "translate"', 'task = "translation"'), "task 'translation'"),
        (TINY.replace('task = "translate"', 'task = "language-model"'), "models without an encoder"),
        ("name = ", "can't read"),
    ],
)
def test_recipe_with_an_error_is_refused_by_name(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=complaint):
        load(path, "cpu")
