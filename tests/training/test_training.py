"""Training: the loss against torch's own, resuming, placeholders, and a bundle that has learnt its task."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece as spm
import torch
import torch.nn.functional as F

from cli.train import perplexity
from engine.api import Placement, Service, ServiceSettings, TextOptions
from engine.bundle.adaptive import Bands
from engine.bundle.bundle import Bundle, open_bundle
from engine.errors import InvalidRequest
from engine.models import ARCHITECTURES
from engine.models.adaptive import AdaptiveSoftmax
from engine.text.detect import detect
from tests.training.numbers import TINY, write_numbers
from training import curve, data
from training.loss import adaptive_cross_entropy, linear_cross_entropy
from training.package import FAMILIES, Example, Measurement, package, state_scores
from training.recipe import Recipe, Train, load
from training.scores import bleu, rouge
from training.trainer import FIRST, Trainer, TrainingStopped, plan_updates, rate

RECIPES = Path(__file__).parents[2] / "training" / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.toml"))
CORPORA = Path(__file__).parents[3] / "shared" / "corpora"
FEW = 12


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    write_numbers(folder, {"train": 1500, "valid": 60, "test": 60})
    (folder / "few").mkdir()
    few = data.read_pairs(folder / "numbers" / "valid.tsv.gz", 0, 1)[:FEW]
    for part in ("train", "valid"):
        with gzip.open(folder / "few" / f"{part}.tsv.gz", "wt", encoding="utf-8") as out:
            out.writelines(f"{source}\t{target}\n" for source, target in few)
    return folder


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    path = tmp_path_factory.mktemp("recipes") / "numbers.toml"
    path.write_text(TINY, encoding="utf-8")
    return load(path, "cpu")


@pytest.fixture(scope="module")
def vocabulary(corpora: Path, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("vocabulary") / "vocabulary"
    data.train_vocabulary(recipe, data.read_pairs(corpora / "numbers" / "train.tsv.gz", 0, 1), prefix)
    return prefix.with_suffix(".model")


@pytest.fixture(scope="module")
def trained(recipe: Recipe, corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("trained")
    Trainer(recipe, corpora, folder / "run", "cpu").fit()
    return package(recipe, folder / "run", folder / "numbers", "cpu")


def shorter(tmp_path: Path, **changes: object) -> Recipe:
    path = tmp_path / "recipe.toml"
    path.write_text(TINY, encoding="utf-8")
    return load(path, "cpu", {k: str(v) for k, v in changes.items()})


# what each architecture's [model] says beyond its sides, and what both sides say
RESIDUAL = {"embed_dim": 32, "conv_dim": 32, "ffn_dim": 48, "heads": 4, "kernel_sizes": [3, 3]}
SEES_ALL = RESIDUAL | {"kernel_sizes": [0, 0]}
CONVS2S = {"embed_dim": 32, "widths": [32, 48], "kernel_sizes": [3, 3], "residuals": [1, 1]}
SLICENET = {"embed_dim": 48, "layers": 1, "separability": 0}
SHARED = {"share_embeddings": True, "share_output": True}
MODELS: dict[str, dict[str, object]] = {
    "aan": {"encoder": SEES_ALL | {"mixer": "attention"}, "decoder": SEES_ALL | {"mixer": "average"}},
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
        "encoder": SEES_ALL | {"mixer": "attention"},
        "decoder": SEES_ALL | {"mixer": "ssru"},
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
def test_every_architecture_learns_a_few_pairs_by_heart_and_becomes_a_bundle(
    architecture: str, corpora: Path, vocabulary: Path, tmp_path: Path
) -> None:
    rates = {f"{kind}_dropout": 0.01 for kind in ("input", "relu", "attention", "symbol", "weight")}
    changes = {"updates": 70, "save_every": 70, "warmup": 10, "average": 1, "smoothing": 0.0, **rates}
    changes |= {"learning_rate": 0.01, "dropout": 0.01}
    recipe = shorter(tmp_path, **changes)
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
    # without a source, which of the texts it is stays unknown until its first words
    unknown = FEW * np.log(FEW) / tokens if modelling else 0.0
    assert before > 2.0
    assert trainer.validate() < unknown + 0.25
    bundle = package(recipe, run, tmp_path / "bundle", "cpu")
    assert bundle.config.architecture == architecture
    card = bundle.file("README.md").read_text("utf-8")
    assert FAMILIES[architecture].split(" (")[0] in card
    assert ("preset `transformer_tiny`" in card) == ("preset" in model)
    if modelling:  # what it is served with, in fp16, is what was trained
        texts = [target for _, target in data.read_pairs(corpora / "few" / "valid.tsv.gz", 0, 1)]
        served = np.log(perplexity(bundle.path, texts)["perplexity"])
        assert served == pytest.approx(trainer.validate(), abs=0.02)


def test_the_adaptive_loss_is_the_likelihood_of_the_adaptive_softmax() -> None:
    torch.manual_seed(0)
    bands = Bands((10, 30), 2.0)
    softmax = AdaptiveSoftmax(bands, 41, 16)
    features, target = torch.randn(200, 16), torch.randint(0, 41, (200,))
    want = -softmax(features).gather(1, target[:, None]).sum()
    torch.testing.assert_close(adaptive_cross_entropy(softmax, features, target), want, rtol=1e-5, atol=1e-3)
    few = target < 10  # no row for a tail
    want = -softmax(features[few]).gather(1, target[few][:, None]).sum()
    got = adaptive_cross_entropy(softmax, features[few], target[few])
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("biased", [False, True])
def test_the_fused_loss_equals_torchs_cross_entropy_in_value_and_gradients(biased: bool) -> None:
    torch.manual_seed(0)
    features = torch.randn(1100, 16, requires_grad=True)
    weight = torch.randn(37, 16, requires_grad=True)
    target = torch.randint(0, 37, (1100,))
    bias = torch.randn(37, requires_grad=True) if biased else None
    loss, nll = linear_cross_entropy(features, weight, bias, target, smoothing=0.1)
    loss.backward()
    parameters = [features, weight, *([bias] if biased else [])]
    got = [p.grad.clone() for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    logits = F.linear(features, weight, bias)
    want = F.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
    want.backward()
    torch.testing.assert_close(loss, want, rtol=1e-5, atol=1e-3)
    plain = F.cross_entropy(logits, target, reduction="sum")
    torch.testing.assert_close(nll, plain.detach(), rtol=1e-5, atol=1e-3)
    for ours, parameter in zip(got, parameters, strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-3)


def test_the_rate_rises_linearly_then_falls_as_the_schedule_says() -> None:
    cosine = Train(updates=1000, batch_tokens=1, learning_rate=1.0, warmup=100)
    assert rate(cosine, 0) == pytest.approx(0.01)
    assert rate(cosine, 99) == pytest.approx(1.0)
    assert rate(cosine, 550) == pytest.approx(0.5)
    assert rate(cosine, 1000) == pytest.approx(0.0)
    root = Train(updates=1000, batch_tokens=1, learning_rate=1.0, warmup=100, schedule="inverse_sqrt")
    assert rate(root, 399) == pytest.approx(0.5)


def test_what_both_sides_share_becomes_a_placeholder_on_both_sides() -> None:
    pairs = [("Tom kam am 3.5. nach Boston.", "Tom came to Boston on 3.5.")] * 400
    replaced = data.with_placeholders(pairs, 0.25, seed=1)
    changed = [pair for pair in replaced if pair != pairs[0]]
    assert 60 < len(changed) < 140
    for source, target in changed:
        used = [p for p in data.PLACEHOLDERS if p in source]
        assert len(used) == 3
        assert sorted(used) == sorted(p for p in data.PLACEHOLDERS if p in target)
        assert "Tom" not in source + target
        assert "Boston" not in source + target


def test_batches_hold_every_pair_once_within_the_budget() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(4, 50, rng.integers(1, 30)).astype(np.int32) for _ in range(300)]
    pairs = data.Pairs(rows, rows[::-1])
    batches = data.batches(pairs, budget=200, seed=3)
    assert sorted(i for batch in batches for i in batch) == list(range(300))
    for batch in batches:
        widest = max(max(len(pairs.sources[i]), len(pairs.targets[i])) for i in batch)
        assert widest * len(batch) <= 200 or len(batch) == 1


def test_copied_targets_are_part_of_their_sources_and_end_as_they_do() -> None:
    sources = [np.array([*range(10, 10 + n), 2], np.int32) for n in (1, 5, 60, 200)]
    pieces = data.copying(data.Pairs(sources, sources), seed=0)
    for target, piece, source in zip(pieces.targets, pieces.sources, sources, strict=True):
        assert target[-1] == piece[-1] == 2
        assert len(target) > 1
        assert set(target) <= set(piece) <= set(source)
        assert (np.diff(target[:-1]) == 1).all()


def test_a_killed_run_goes_on_and_ends_where_an_unbroken_one_ends(
    recipe: Recipe, corpora: Path, tmp_path: Path
) -> None:
    whole = Trainer(shorter(tmp_path, updates=12, save_every=6), corpora, tmp_path / "a", "cpu")
    averaged = whole.fit()
    stopped = Trainer(shorter(tmp_path, updates=12, save_every=6), corpora, tmp_path / "b", "cpu")
    run_until(stopped, 8)  # killed after its checkpoint at 6
    again = Trainer(shorter(tmp_path, updates=12, save_every=6), corpora, tmp_path / "b", "cpu")
    assert again.update == 6
    resumed = torch.load(again.fit(), weights_only=True)
    for name, tensor in torch.load(averaged, weights_only=True).items():
        torch.testing.assert_close(resumed[name], tensor, rtol=1e-4, atol=1e-5)


def test_the_generator_of_a_gpu_is_in_a_checkpoint_and_goes_on_from_there(
    recipe: Recipe, corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout there is drawn by it: without its state a resumed run would be another."""
    state, asked = torch.arange(16, dtype=torch.uint8), []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: (asked.append(device), state)[1])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *given: asked.append(given))
    trainer = Trainer(shorter(tmp_path, updates=2, save_every=2), corpora, tmp_path / "run", "cpu")
    trainer.train_to(1)
    trainer.device = torch.device("cuda:1")
    trainer._save()
    with monkeypatch.context() as loading:  # the tensors are the CPU's here
        load = torch.load
        loading.setattr(torch, "load", lambda path, **more: load(path, **more | {"map_location": "cpu"}))
        trainer._resume()
    assert asked[0] == torch.device("cuda:1")
    (restored, device) = asked[1]
    assert torch.equal(restored, state)
    assert device == torch.device("cuda:1")


def test_a_run_asked_to_stop_saves_and_goes_on_from_there(
    recipe: Recipe, corpora: Path, tmp_path: Path
) -> None:
    trainer = Trainer(shorter(tmp_path, updates=12, save_every=100), corpora, tmp_path / "run", "cpu")
    trainer.train_to(3)
    trainer.stop()
    with pytest.raises(TrainingStopped, match="update 4; run it again"):
        trainer.fit()
    again = Trainer(shorter(tmp_path, updates=12, save_every=100), corpora, tmp_path / "run", "cpu")
    assert (again.update, again.tokens) == (4, trainer.tokens)
    again.fit()
    points = curve.read(tmp_path / "run")
    assert [point.update for point in points] == [3, 4, 12]
    assert points[0].tokens < points[1].tokens < points[2].tokens
    assert points[2].valid["numbers"] < points[0].valid["numbers"]


def test_a_plan_fits_the_time_that_is_left() -> None:
    recipe = load(RECIPES / "tatoeba-de-en.toml", "cuda")
    full = plan_updates(recipe, 100, 1e9).train
    assert (full.updates, full.warmup) == (recipe.train.updates, recipe.train.warmup)
    short = plan_updates(recipe, 100, 900.0).train
    assert (short.updates, short.warmup) == (1_000, 100)
    assert plan_updates(recipe, 100, -5.0).train.updates == 100
    assert short.save_every > short.updates  # pieces save at their ends


def test_a_run_that_ends_at_a_time_has_planned_its_last_update(corpora: Path, tmp_path: Path) -> None:
    trainer = Trainer(shorter(tmp_path, updates=10**6), corpora, tmp_path / "run", "cpu")
    assert trainer.fit(seconds=2.0).is_file()
    train = trainer.recipe.train
    assert FIRST <= trainer.update == train.updates < 10**6
    assert rate(train, train.updates) == pytest.approx(train.final_rate * train.learning_rate)
    assert curve.read(tmp_path / "run")[-1].update == trainer.update


def test_a_run_that_begins_with_a_bundle_knows_what_the_bundle_knew(
    trained: Bundle, recipe: Recipe, corpora: Path, tmp_path: Path
) -> None:
    start = trained
    first = Trainer(recipe, corpora, tmp_path / "again", "cpu", start)
    assert first.validate() < 0.5
    wider = replace(recipe, vocabulary=replace(recipe.vocabulary, characters="§%"))
    second = Trainer(wider, corpora, tmp_path / "wider", "cpu", start)
    words = spm.SentencePieceProcessor(model_file=str(tmp_path / "wider" / "vocabulary.model"))
    assert words.get_piece_size() == recipe.vocabulary.size
    assert words.unk_id() not in words.encode("§%")
    assert second.validate() < 1.5  # though two of 58 pieces had to make room; some 4 without the bundle
    narrow = replace(recipe, model={**recipe.model, "decoder": {**recipe.model["decoder"], "ffn_dim": 48}})
    with pytest.raises(InvalidRequest, match="describes another model"):
        Trainer(narrow, corpora, tmp_path / "narrow", "cpu", start)


def test_a_bundle_cuts_sentences_at_the_length_that_nearly_all_of_its_sources_had(
    trained: Bundle, corpora: Path, tmp_path: Path
) -> None:
    assert trained.max_sentence_tokens == 16  # its sources have fewer: the least that a bundle may say
    lines = [f"{'eins ' * count}\tone" for count in (*[20] * 98, 30, 30, 99)]
    with gzip.open(tmp_path / "pairs.tsv.gz", "wt", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in lines)
    words = spm.SentencePieceProcessor(model_file=str(trained.file("vocabulary.model")))
    found = data.learnt_length(trained.file("vocabulary.model"), tmp_path / "pairs.tsv.gz")
    assert found == len(words.encode("eins " * 30)) + 1


def test_a_model_reads_as_much_of_a_source_as_it_was_trained_on(
    trained: Bundle, corpora: Path, tmp_path: Path
) -> None:
    cropped = shorter(tmp_path, crop_source=4, updates=2, save_every=2, average=1)
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


def run_until(trainer: Trainer, update: int) -> None:
    class Killed(Exception):
        pass

    step = trainer.optimizer.step

    def stop(*args: object) -> None:
        if trainer.update == update:
            raise Killed
        step(*args)

    trainer.optimizer.step = stop
    with pytest.raises(Killed):
        trainer.fit()


async def test_a_trained_bundle_translates_what_it_was_taught(
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
    assert scores["BLEU"] > 80
    measurement = Measurement("`test.tsv.gz`", scores, "convoy evaluate numbers")
    for _ in range(2):  # measured again, it takes the place of what was stated before
        bundle = state_scores(bundle, [measurement], [Example("eins", "one", "a | b")])
    card = open_bundle(bundle.path).file("README.md").read_text(encoding="utf-8")
    assert card.count(f"| BLEU | `test.tsv.gz` | {scores['BLEU']:.2f} |") == 1
    assert "| eins | one | a \\| b |" in card
    assert "CC0-1.0" in card
    assert "A full training is still due" in card
    curve = open_bundle(bundle.path).file("training.svg").read_text(encoding="utf-8")
    assert "validation, numbers" in curve
    assert "](training.svg)" in card


def test_rouge_is_the_mean_f1_of_the_pairs() -> None:
    scores = rouge(["a cat sat", "dogs bark"], ["a cat sat", "nothing alike"])
    assert scores["ROUGE-1"] == pytest.approx(50.0)
    assert scores["ROUGE-2"] == pytest.approx(50.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_shipped_recipes_are_complete_for_both_devices(name: str, device: str) -> None:
    recipe = load(RECIPES / f"{name}.toml", device)
    assert recipe.name == name
    assert recipe.config().encoder.layers == 4
    assert (recipe.train.updates == 40_000) == (device == "cuda")


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_recipe_reads_the_columns_of_its_corpus(name: str) -> None:
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
    if recipe.task == "summarize":  # both are English: the shorter is the summary
        assert all(len(source) > len(target) for source, target in pairs)
        return
    for code, texts in zip((recipe.source, recipe.target), zip(*pairs, strict=True), strict=True):
        assert detect("\n".join(texts[:100]), ["de", "en", "fr"]).ranked[0][0] == code


def test_languages_of_shipped_recipes_meet_in_english() -> None:
    """What makes a pivot of any two of them, once they are trained."""
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
def test_a_recipe_with_a_fault_is_refused_by_name(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=complaint):
        load(path, "cpu")
