"""Each architecture learns a few pairs, and a trained bundle translates, truncates and has a card."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece as spm

from cli.train import perplexity
from engine.api import Placement, Service, ServiceSettings, TextOptions
from engine.bundle.bundle import Bundle, open_bundle
from engine.errors import InvalidRequest
from engine.models import ARCHITECTURES
from engine.text.known_words import KNOWN_WORDS_FILE
from tests.training.numbers import FEW_PAIRS, recipe_with
from training import data
from training.package import FAMILIES, Example, Measurement, add_scores, package
from training.recipe import Recipe
from training.scores import bleu
from training.trainer import Trainer

# [model] of each architecture
RESIDUAL = {"embed_dim": 32, "conv_dim": 32, "ffn_dim": 48, "heads": 4, "kernel_sizes": [3, 3]}
ATTENTIVE = RESIDUAL | {"kernel_sizes": [0, 0]}
CONVS2S = {"embed_dim": 32, "widths": [32, 48], "kernel_sizes": [3, 3], "residuals": [1, 1]}
SLICENET = {"embed_dim": 48, "layers": 1, "separability": 0}
SHARED = {"share_embeddings": True, "share_output": True}


MODELS: dict[str, dict[str, object]] = {
    "aan": {"encoder": ATTENTIVE | {"mixer": "attention"}, "decoder": ATTENTIVE | {"mixer": "average"}},
    "cnn": {"encoder": RESIDUAL | {"mixer": "convolution"}, "decoder": RESIDUAL | {"mixer": "convolution"}},
    "convs2s": {
        "encoder": CONVS2S,
        "decoder": CONVS2S | {"attention": [0, 1]},
        "output_bias": True,
        "scale_embeddings": False,
    },
    "dynamicconv": {"encoder": RESIDUAL, "decoder": RESIDUAL | {"mixer": "lightweight"}},
    "lightconv_lm": {
        "decoder": RESIDUAL | {"normalize_before": True},
        "adaptive": {"softmax": {"cutoffs": [20, 40], "factor": 2.0}},
    },
    "slicenet": {
        "encoder": SLICENET,
        "decoder": SLICENET | {"attention": "transformer", "heads": 2},
        **SHARED,
    },
    "ssru": {
        "encoder": ATTENTIVE | {"mixer": "attention"},
        "decoder": ATTENTIVE | {"mixer": "ssru"},
        **SHARED,
    },
    "transformer": {
        "preset": "transformer_tiny",
        "encoder": {"activation": "gelu"},
        "decoder": {"kernel_sizes": [0]},
        **SHARED,
    },
}


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_architecture_learns_a_few_pairs_and_becomes_a_bundle(
    architecture: str, corpora: Path, vocabulary: Path, tmp_path: Path
) -> None:
    rates = {f"{kind}_dropout": 0.01 for kind in ("input", "relu", "attention", "symbol", "weight")}
    changes = {"updates": 70, "save_every": 70, "warmup": 10, "average": 1, "smoothing": 0.0, **rates}
    changes |= {"learning_rate": 0.01, "dropout": 0.01}
    recipe = recipe_with(tmp_path, **changes)
    model = MODELS[architecture]
    modelling = architecture == "lightconv_lm"
    recipe = replace(
        recipe,
        corpus=replace(recipe.corpus, folder="few", placeholder_share=0.0),
        task="language-model" if modelling else "translate",
        model=model if "preset" in model else {"architecture": architecture, **model},
    )
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(vocabulary, run / "vocabulary.model")
    trainer = Trainer(recipe, corpora, run, "cpu")
    before = trainer.validate()
    trainer.fit()
    tokens = sum(map(len, trainer.valid.targets))
    # a language model can't predict the first word of a text
    unknown = FEW_PAIRS * np.log(FEW_PAIRS) / tokens if modelling else 0.0
    assert before > 2.0
    assert trainer.validate() < unknown + 1.0  # 0.00 to 0.10 by the processor's rounding
    bundle = package(recipe, run, tmp_path / "bundle", "cpu")
    assert bundle.config.architecture == architecture
    card = bundle.file("README.md").read_text("utf-8")
    assert FAMILIES[architecture].split(" (")[0] in card
    assert ("preset `transformer_tiny`" in card) == ("preset" in model)
    assert (KNOWN_WORDS_FILE in bundle.files()) == (not modelling)
    if modelling:  # served in fp16 the model has the trained perplexity
        texts = [target for _, target in data.read_pairs(corpora / "few" / "valid.tsv.gz", 0, 1)]
        served = np.log(perplexity(bundle.path, texts)["perplexity"])
        assert served == pytest.approx(trainer.validate(), abs=0.02)


def test_bundle_cuts_sentences_at_the_99th_percentile_of_source_lengths(
    trained: Bundle, corpora: Path, tmp_path: Path
) -> None:
    assert trained.max_sentence_tokens == 16  # the smallest limit of a bundle: its sources are shorter
    lines = [f"{'eins ' * count}\tone" for count in (*[20] * 98, 30, 30, 99)]
    with gzip.open(tmp_path / "pairs.tsv.gz", "wt", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in lines)
    words = spm.SentencePieceProcessor(model_file=str(trained.file("vocabulary.model")))
    found = data.learnt_length(trained.file("vocabulary.model"), tmp_path / "pairs.tsv.gz")
    assert found == len(words.encode("eins " * 30)) + 1


def test_bundle_truncates_sources_at_the_length_of_training(
    trained: Bundle, corpora: Path, tmp_path: Path
) -> None:
    cropped = recipe_with(tmp_path, crop_source=4, updates=2, save_every=2, average=1)
    trainer = Trainer(cropped, corpora, tmp_path / "run", "cpu", trained)
    assert max(map(len, trainer.train.sources)) == 5
    trainer.fit()
    bundle = package(cropped, tmp_path / "run", tmp_path / "bundle", "cpu")
    assert bundle.truncates
    assert not trained.truncates
    service = Service.open([bundle.path], ServiceSettings(Placement(lanes=((3, 2),))))
    service.start()
    (answer,) = service.run_many("numbers", ["eins zwei drei vier fünf sechs"], TextOptions(split=False))
    service.stop()
    assert answer.truncated
    assert answer.source_tokens == 5


def test_run_started_from_a_bundle_begins_with_its_low_loss(
    trained: Bundle, recipe: Recipe, corpora: Path, tmp_path: Path
) -> None:
    start = trained
    first = Trainer(recipe, corpora, tmp_path / "same", "cpu", start)
    assert first.validate() < 0.5
    wider = replace(recipe, vocabulary=replace(recipe.vocabulary, characters="§%"))
    second = Trainer(wider, corpora, tmp_path / "wider", "cpu", start)
    words = spm.SentencePieceProcessor(model_file=str(tmp_path / "wider" / "vocabulary.model"))
    assert words.get_piece_size() == recipe.vocabulary.size
    assert words.unk_id() not in words.encode("§%")
    assert second.validate() < 1.5  # two of 58 pieces were replaced; the loss is about 4 without the bundle
    narrow = replace(recipe, model={**recipe.model, "decoder": {**recipe.model["decoder"], "ffn_dim": 48}})
    with pytest.raises(InvalidRequest, match="describes another model"):
        Trainer(narrow, corpora, tmp_path / "narrow", "cpu", start)


async def test_trained_bundle_translates_its_language(
    trained: Bundle, recipe: Recipe, corpora: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="has not finished"):
        package(recipe, tmp_path / "run", tmp_path / "early", "cpu")
    bundle = open_bundle(Path(shutil.copytree(trained.path, tmp_path / "numbers")))
    tests = data.read_pairs(corpora / "numbers" / "test.tsv.gz", 0, 1)
    service = Service.open([bundle.path], ServiceSettings(Placement(lanes=((3, 16),))))
    service.start()
    results = await service.run("numbers", [source for source, _ in tests])
    service.stop()
    scores = bleu([r.text for r in results], [target for _, target in tests])
    assert scores["BLEU"] > 50  # 79 to 85 by the processor's rounding; a model that has learned nothing has 0
    measurement = Measurement("`test.tsv.gz`", scores, "convoy evaluate numbers")
    for _ in range(2):  # new scores replace the old ones
        bundle = add_scores(bundle, [measurement], [Example("eins", "one", "a | b")])
    card = open_bundle(bundle.path).file("README.md").read_text(encoding="utf-8")
    assert card.count(f"| BLEU | `test.tsv.gz` | {scores['BLEU']:.2f} |") == 1
    assert "| eins | one | a \\| b |" in card
    assert "CC0-1.0" in card
    assert "A full training is still due" in card
    curve = open_bundle(bundle.path).file("training.svg").read_text(encoding="utf-8")
    assert "validation, numbers" in curve
    assert "](training.svg)" in card
