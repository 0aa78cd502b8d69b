"""Models in Marian's own layout compute the same as Marian in plain numpy, and as CTranslate2."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.models import load
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.settings import MarianImport
from tests.export.importers.test_marian import decoded, executor
from tests.support.marian_models import sentences
from tests.support.marian_reference import Reference, positions
from tests.support.models import BACKENDS
from tests.support.native_marian_models import DIM, VARIANTS, make


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("native")
    made = {}

    def of(name):
        if name not in made:
            arrays, options = make(root / name / "marian", name)
            bundle = convert(
                "marian",
                root / name / "marian",
                root / name / "out",
                MarianImport(source="eng", target="nld"),
            )
            made[name] = Reference(arrays, options), bundle
        return made[name]

    return of


def ids(bundle, count, seed=8):
    tokenizer = open_tokenizer(bundle)
    return [[*tokenizer.encode(" ".join(line.split()[:3])), 0] for line in sentences(count, seed)]


@pytest.mark.parametrize("name", VARIANTS)
def test_encoder_and_log_probabilities_agree_with_marian(models, name):
    reference, bundle = models(name)
    ours = load(bundle.config, bundle.weights())
    vocab = reference.options["dim-vocabs"][1]
    for source in ids(bundle, 3):
        tokens = np.random.default_rng(len(source)).integers(2, vocab, 9).tolist()
        memory = reference.encode(source)
        with torch.no_grad():
            given_ids, real = torch.tensor([source]), torch.ones(1, len(source))
            encoded = ours.encoder(given_ids, torch.arange(len(source)), real)
            found = ours(given_ids, torch.tensor([[bundle.config.eos, *tokens]]))
        np.testing.assert_allclose(encoded[0].numpy(), memory, atol=1e-4)
        np.testing.assert_allclose(
            found[0, :, :vocab].numpy(), reference.log_probs(memory, tokens), atol=1e-4
        )
        assert (found[0, :, vocab:] < -5000).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["post-norm", "pre-norm", "separate", "aan", "aan pre-norm", "ssru"])
def test_beam_search_agrees_with_marian(models, name, backend):
    reference, bundle = models(name)
    options = bundle.options
    assert (options.beam_rule, options.beam_size, options.length_penalty) == ("marian", 4, 0.8)
    assert options.word_reward == -0.3
    sources = [source[:6] + [0] for source in ids(bundle, 3)]
    found = decoded(executor(bundle, backend, 4), bundle, sources)
    for source, (best, *_) in zip(sources, found, strict=True):
        score, tokens = reference.beam(source, beams=4, alpha=0.8, penalty=0.3, longest=2 * len(source))
        assert best.tokens == list(tokens)
        assert best.score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("name", ["post-norm", "aan"])
def test_both_beam_rules_in_one_lane_give_the_answers_of_each_alone(models, name):
    _, bundle = models(name)
    sources, made = ids(bundle, 8), executor(bundle, "onnx-pure", 4)
    rules = ["marian", "fairseq"] * 4
    together = decoded(made, bundle, sources, rules)
    for source, rule, answers in zip(sources, rules, together, strict=True):
        (alone,) = decoded(made, bundle, [source], [rule])
        assert [(h.tokens, h.score) for h in alone] == [(h.tokens, h.score) for h in answers]


@pytest.mark.parametrize("name", ["post-norm", "pre-norm", "aan", "separate"])
def test_binary_format_gives_the_same_weights(tmp_path, models, name):
    make(tmp_path / "marian", name, binary=True)
    bundle = convert(
        "marian", tmp_path / "marian", tmp_path / "out", MarianImport(source="eng", target="nld")
    )
    assert bundle.manifest["model.safetensors"] == models(name)[1].manifest["model.safetensors"]


@pytest.mark.parametrize("name", ["post-norm", "pre-norm", "relu, normalised embeddings", "separate"])
def test_ctranslate2_gives_the_same_answers_from_the_same_weights(tmp_path, models, name):
    ct2 = pytest.importorskip("ctranslate2", reason="needs ctranslate2 from PyPI")
    from ctranslate2.converters import MarianConverter

    _, bundle = models(name)
    folder = tmp_path / "marian"
    make(folder, name)
    vocabularies = sorted(folder.glob("vocab*.yml"))
    spec = MarianConverter(str(folder / "model.npz"), [str(p) for p in vocabularies])._load()
    for side in (spec.encoder, spec.decoder):  # CTranslate2's converter has a different formula
        side.position_encodings.encodings = positions(128, DIM).astype(np.float32)
    spec.validate()
    spec.optimize()
    (tmp_path / "ct2").mkdir()
    spec.save(str(tmp_path / "ct2"))
    translator = ct2.Translator(str(tmp_path / "ct2"), compute_type="float32", intra_threads=1)
    tokenizer = open_tokenizer(bundle)
    sources = ids(bundle, 6)
    found = decoded(
        executor(bundle, "torch", 1), bundle, sources, beam_size=1, unk_penalty=0.0, word_reward=0.0
    )
    for source, (best, *_) in zip(sources, found, strict=True):
        result = translator.translate_batch(
            [tokenizer.pieces(source[:-1], target=False)], beam_size=1, max_decoding_length=2 * len(source)
        )[0]
        assert result.hypotheses[0][: len(best.tokens)] == tokenizer.pieces(best.tokens, target=True)
