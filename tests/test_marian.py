"""Models of OPUS-MT against `transformers`' own MarianMTModel, on every executor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.bundle import graph_name, graph_parts
from engine.executors.onnx import OnnxExecutor, open_sessions
from engine.executors.torch import TorchExecutor
from engine.lane import Lane
from engine.models import load
from engine.native import library
from engine.text.tokenizer import open_tokenizer
from engine.types import Request
from export.marian import Settings, convert
from export.onnx import graphs
from tests.marian_models import OPTIONS, make, sentences
from tests.models import BACKENDS


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """name -> (Hugging Face folder with its model, our bundle); each made once."""
    made = {}
    root = tmp_path_factory.mktemp("marian")

    def of(name):
        if name not in made:
            folder = make(root / name / "hf", name)
            made[name] = folder, convert(folder.path, root / name / "bundle")
        return made[name]

    return of


def executor(bundle, backend, beams, slots=4):
    if backend == "torch":
        return TorchExecutor(load(bundle.config, bundle.weights()), beams, slots)
    kernels = backend.removeprefix("onnx-")
    made = graphs(bundle.config)
    parts = {part: made[graph_name(part, "fp32", kernels)] for part in graph_parts(bundle.config)}
    operators = library() if kernels == "native" else None
    return OnnxExecutor(open_sessions(bundle.config, parts, bundle.weights(), 1, operators), beams, slots)


def decoded(made, bundle, sources, **options):
    """Tokens and score of each source's best answer, all in flight together."""
    answers = {}
    lane = Lane(made, lambda request, outcome: answers.__setitem__(id(request), outcome))
    chosen = bundle.options.__class__(
        **{f: getattr(bundle.options, f) for f in bundle.options.__slots__} | options
    )
    requests = [Request(source, chosen, lambda _: None) for source in sources]
    waiting = list(requests)
    while waiting or lane.active:
        if waiting and lane.free:
            lane.admit([waiting.pop(0)])
        lane.step()
    return [answers[id(request)].hypotheses for request in requests]


def sources_of(folder, count, seed=5):
    return [folder.tokenizer(line).input_ids for line in sentences(count, seed)]


def reference(folder, source, **options):
    """Tokens without the first and the end, and the score, of `generate`."""
    found = folder.model.generate(
        torch.tensor([source]), return_dict_in_generate=True, output_scores=True, **options
    )
    tokens = found.sequences[0, 1:].tolist()
    return tokens[: tokens.index(0)], float(found.sequences_scores[0]) if options.get(
        "num_beams", 4
    ) > 1 else None


@pytest.mark.parametrize("name", OPTIONS)
def test_the_encoder_and_teacher_forced_logits_are_those_of_transformers(models, name):
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
    but_pad = [i for i in range(vocab) if i != pad]  # ours makes it impossible, as renormalize_logits does
    torch.testing.assert_close(logits[..., but_pad], theirs.logits[..., but_pad], rtol=0, atol=1e-4)
    assert (logits[..., pad] < -5000).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPTIONS)
def test_greedy_and_beam_answers_are_those_of_transformers(models, name, backend):
    folder, bundle = models(name)
    sources = sources_of(folder, 6)
    for beams, penalty in ((1, 1.0), (4, 1.0), (4, 0.6)):
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


def test_debug(models):
    folder, bundle = models("post-norm swish")
    made = executor(bundle, "torch", 4)
    for h in decoded(made, bundle, sources_of(folder, 6)):
        print(len(h[0].tokens), h[0].finish, h[0].score)
