"""Models of OPUS-MT against MarianMTModel of `transformers`, on every executor."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engine.bundle.bundle import graph_name, graph_parts
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.executors.torch.executor import TorchExecutor
from engine.models import load
from engine.native import library
from engine.schedule.lane import Lane
from engine.types import Request
from export.graphs.onnx import graphs
from export.importers import convert
from tests.support.marian_models import OPTIONS, make, sentences, transformers
from tests.support.models import NEEDS_LIBRARY
from tests.support.thorough import in_turn, some


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a function from a name to a Hugging Face folder with its model, and our bundle."""
    made = {}
    root = tmp_path_factory.mktemp("marian")

    def of(name):
        if name not in made:
            folder = make(root / name / "hf", name)
            made[name] = folder, convert("marian", folder.path, root / name / "bundle")
        return made[name]

    return of


def executor(bundle, backend, beams, slots=4, precision="fp32"):
    if backend == "torch":
        return TorchExecutor(load(bundle.config, bundle.weights()), beams, slots)
    kernels = backend.removeprefix("onnx-")
    made = graphs(bundle.config)
    parts = {part: made[graph_name(part, precision, kernels)] for part in graph_parts(bundle.config)}
    operators = library() if kernels == "native" else None
    return OnnxExecutor(open_sessions(bundle.config, parts, bundle.weights(), 1, operators), beams, slots)


def decoded(made, bundle, sources, rules=None, **options):
    """Return the hypotheses of each source, decoded together; `rules` are their beam rules."""
    answers = {}
    lane = Lane(made, lambda request, outcome: answers.__setitem__(id(request), outcome))
    chosen = replace(bundle.options, **options)
    rules = rules or [chosen.beam_rule] * len(sources)
    requests = [
        Request(source, replace(chosen, beam_rule=rule), lambda _: None)
        for source, rule in zip(sources, rules, strict=True)
    ]
    lane.drain(requests)
    return [answers[id(request)].hypotheses for request in requests]


def sources_of(folder, count, seed=5):
    return [folder.tokenizer(line).input_ids for line in sentences(count, seed)]


def reference(folder, source, **options):
    """Return tokens and score of `generate`, without the first token and end-of-sentence."""
    found = folder.model.generate(
        torch.tensor([source]), return_dict_in_generate=True, output_scores=True, **options
    )
    tokens = found.sequences[0, 1:].tolist()
    scores = found.sequences_scores if "sequences_scores" in found else None
    return tokens[: tokens.index(0)], None if scores is None else float(scores[0])


@pytest.mark.parametrize("name", OPTIONS)
def test_encoder_and_teacher_forced_logits_agree_with_transformers(models, name):
    folder, bundle = models(name)
    ours = load(bundle.config, bundle.weights())
    g = torch.Generator().manual_seed(2)
    pad, vocab = bundle.config.pad, bundle.config.target_vocab
    source = torch.randint(2, bundle.config.source_vocab - 1, (3, 11), generator=g)
    real = torch.ones(3, 11)
    real[1, 7:] = 0
    previous = torch.randint(2, vocab - 1, (3, 9), generator=g)
    previous[:, 0] = bundle.config.first_token
    with torch.no_grad():
        theirs = folder.model(
            input_ids=source, attention_mask=real.long(), decoder_input_ids=previous, output_attentions=True
        )
        mask = torch.where(real > 0, 0.0, -torch.inf)
        encoded = ours.encoder(source, torch.arange(11), real)
        memory = ours.encode(source, torch.arange(11), real)
        logits = ours.project(ours.decode(previous, memory, mask)[0])
    kept = real.bool()
    torch.testing.assert_close(encoded[kept], theirs.encoder_last_hidden_state[kept], rtol=0, atol=1e-4)
    but_pad = [i for i in range(vocab) if i != pad]  # padding is impossible, like with renormalize_logits
    torch.testing.assert_close(logits[..., but_pad], theirs.logits[..., but_pad], rtol=0, atol=1e-4)
    assert (logits[..., pad] < -5000).all()


RUNS = [
    pytest.param(name, backend, marks=NEEDS_LIBRARY if backend == "onnx-native" else ())
    for name, backend in in_turn(list(OPTIONS), ("onnx-pure", "torch", "onnx-native"))
]


@pytest.mark.parametrize(("name", "backend"), RUNS)
def test_greedy_and_beam_answers_agree_with_transformers(models, name, backend):
    folder, bundle = models(name)
    sources = sources_of(folder, some(6, 3))
    for beams, penalty in ((1, 1.0), (4, 0.6), (4, 1.0))[: some(3, 2)]:
        made = executor(bundle, backend, beams)
        found = decoded(made, bundle, sources, beam_size=beams, length_penalty=penalty)
        for source, (best, *_) in zip(sources, found, strict=True):
            tokens, score = reference(
                folder, source, num_beams=beams, length_penalty=penalty, early_stopping=beams > 1
            )
            assert best.finish == "stop" or len(best.tokens) == 62
            assert best.tokens == tokens, (name, beams, penalty)
            if score is not None and best.finish == "stop":
                assert best.score == pytest.approx(score, abs=1e-4)


def saved(folder, path):
    """Return a copy of the folder with the current weights of its model, pickled like older ones."""
    shutil.copytree(folder.path, path)
    (path / "model.safetensors").unlink(missing_ok=True)
    torch.save(folder.model.state_dict(), path / "pytorch_model.bin")
    return path


def test_stored_positions_are_used_if_they_differ_from_sinusoids(tmp_path):
    folder = make(tmp_path / "hf", "post-norm swish")
    usual = convert("marian", saved(folder, tmp_path / "usual"), tmp_path / "a")
    assert not usual.config.encoder.learned_positions
    with torch.no_grad():
        folder.model.model.decoder.embed_positions.weight.mul_(0.9)
    changed = convert("marian", saved(folder, tmp_path / "changed"), tmp_path / "b")
    assert changed.config.decoder.learned_positions
    assert not changed.config.encoder.learned_positions
    source = sources_of(folder, 1)[0][:20] + [0]
    previous = [changed.config.first_token, 5, 7, 9, 11]
    with torch.no_grad():
        theirs = folder.model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([previous]))
        wanted = theirs.logits.index_fill(2, torch.tensor([changed.config.pad]), -torch.inf).log_softmax(-1)
        ours = load(changed.config, changed.weights())(torch.tensor([source]), torch.tensor([previous]))
    some = slice(0, changed.config.pad)
    torch.testing.assert_close(ours[..., some], wanted[..., some], rtol=0, atol=1e-4)


def test_fp16_weights_stay_fp16(tmp_path):
    folder = make(tmp_path / "hf", "relu", half=True)
    bundle = convert("marian", folder.path, tmp_path / "out")
    stored = load_file(bundle.file("model.safetensors"))
    assert {weight.dtype for weight in stored.values()} == {np.dtype(np.float16)}
    sources = sources_of(folder, 3)
    for source, (best, *_) in zip(
        sources, decoded(executor(bundle, "torch", 4), bundle, sources), strict=True
    ):
        assert best.tokens == reference(folder, source)[0]


@pytest.mark.parametrize("backend", ["onnx-pure", "torch"])
@pytest.mark.parametrize(
    "generation",
    [
        {"num_beams": 3, "length_penalty": 0.5, "no_repeat_ngram_size": 2, "renormalize_logits": False},
        {"num_beams": 2, "max_length": 12},
        {"num_beams": 4, "min_length": 9, "renormalize_logits": False},
        {"num_beams": 4, "bad_words_ids": [[10], [11], [12], [-1]]},
        {"num_beams": 4, "renormalize_logits": False},
        {"num_beams": 1, "early_stopping": False, "max_length": 40},
    ],
)
def test_decoding_settings_give_the_answers_of_transformers(models, tmp_path, generation, backend):
    """The bundle has the settings as defaults; padding (-1 below) is banned in each."""
    folder, first = models("trained")
    words = [[first.config.pad if i < 0 else i] for (i,) in generation.get("bad_words_ids", [[-1]])]
    usual = folder.model.generation_config.to_dict()
    chosen = transformers.GenerationConfig(**{**usual, **generation, "bad_words_ids": words})
    chosen.save_pretrained(shutil.copytree(folder.path, tmp_path / "hf"))
    bundle = convert("marian", tmp_path / "hf", tmp_path / "out")
    assert bundle.options.beam_size == generation["num_beams"]
    sources = sources_of(folder, 6)
    found = decoded(executor(bundle, backend, bundle.options.beam_size), bundle, sources)
    for source, (best, *_) in zip(sources, found, strict=True):
        tokens = reference(folder, source, generation_config=chosen, use_model_defaults=False)[0]
        if (
            best.finish == "stop"
        ):  # at the limit `transformers` adds end-of-sentence without a score: another hypothesis may win
            assert best.tokens == tokens
        assert len(best.tokens) <= generation.get("max_length", 64) - 2
        assert len(best.tokens) >= generation.get("min_length", 0) - 1
    assert any(best.finish == "stop" for best, *_ in found) or "max_length" in generation


def test_settings_without_a_counterpart_are_named_in_the_card(tmp_path):
    generation = {"early_stopping": False, "repetition_penalty": 1.3, "forced_bos_token_id": 7}
    folder = make(tmp_path / "hf", "relu", generation=generation)
    bundle = convert("marian", folder.path, tmp_path / "out")
    card = (bundle.path / "README.md").read_text()
    for name, value in generation.items():
        assert f"{name} = {value!r}" in card


@pytest.mark.parametrize("name", ["trained", "several languages"])
def test_answer_does_not_depend_on_other_requests(models, name):
    folder, bundle = models(name)
    sources = sources_of(folder, 8)
    made = executor(bundle, "onnx-pure", 4)
    together = decoded(made, bundle, sources)
    for source, answers in zip(sources, together, strict=True):
        (alone,) = decoded(made, bundle, [source])
        assert [(h.tokens, h.score, h.token_scores) for h in alone] == [
            (h.tokens, h.score, h.token_scores) for h in answers
        ]
