"""Compare ConvS2S with plain loops over fairseq's own weights."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import ConvStack
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.models import build
from engine.models.model import Dropout
from engine.search.executor import StepInput
from export.graphs.onnx import encoder_graph, step_graph
from tests.support.convs2s import EOS, GIVEN, PAD, SHAPES, VOCAB, Plain, imported, state_of


@pytest.mark.parametrize("old", [False, True], ids=["version 2", "before version 2"])
@pytest.mark.parametrize("name", list(SHAPES))
@torch.no_grad()
def test_an_imported_model_equals_the_loops_over_its_checkpoint(name: str, *, old: bool) -> None:
    state = state_of(SHAPES[name], old=old)
    model, plain = imported(SHAPES[name], state), Plain(SHAPES[name], state)
    rng = np.random.default_rng(3)
    for length, steps in ((1, 1), (2, 6), (9, 3), (17, 20)):
        source, target = ([*rng.integers(4, VOCAB, n).tolist()] for n in (length - 1, steps - 1))
        source, target = [*source, EOS], [EOS, *target]
        padded = torch.tensor([[*source, PAD, PAD, PAD], [5] * (length + 2) + [EOS]])
        real = (padded != PAD).float()
        memory = model.encode(padded, torch.arange(padded.shape[1]), real)
        mask = torch.where(real > 0, 0.0, -torch.inf)
        features, attention = model.decode(torch.tensor([target, target]), memory, mask)
        scores, weights = plain(source, target)
        np.testing.assert_allclose(model.log_probs(features)[0].numpy(), scores, atol=2e-5)
        np.testing.assert_allclose(attention[0, :, :length].numpy(), weights, atol=1e-5)
        assert not attention[0, :, length:].any()


@given(lengths=st.lists(st.integers(1, 33), min_size=2, max_size=3), seed=st.integers(0, 2**20))
def test_answer_is_bitwise_independent_of_its_batch(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sources = [[*rng.integers(4, 300, n - 1).tolist(), EOS] for n in lengths]
    fed = rng.integers(4, 300, (len(sources), 5, 2))
    parents = rng.integers(0, 2, (len(sources), 5, 2))
    together = scores_of(sources, fed, parents)
    for i, source in enumerate(sources):
        alone = scores_of([source], fed[i : i + 1], parents[i : i + 1])
        for ours, theirs in zip(alone, together, strict=True):
            np.testing.assert_array_equal(ours[0], theirs[i])


@cache
def wide_lane() -> OnnxExecutor:
    stack = ConvStack(64, (96, 96, 128), (3, 5, 1), (1, 2, 1))
    config = ModelConfig(
        architecture="convs2s",
        source_vocab=300,
        target_vocab=300,
        encoder=stack,
        decoder=replace(stack, attention=(0, 2), output_dim=48),
        output_bias=True,
        scale_embeddings=False,
    )
    model = build(config)
    model.initialise(seed=2)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    parts = {"encoder": encoder_graph(config, "fp32"), "step": step_graph(config, "fp32")}
    return OnnxExecutor(open_sessions(config, parts, weights, 1), beams=2, slots=4)


def scores_of(sources: list[list[int]], fed: np.ndarray, parents: np.ndarray) -> list[np.ndarray]:
    """Return scores [slots, beams, k] of some steps of sources that start together."""
    lane, n = wide_lane(), len(sources)
    encoded = lane.encode(sources)
    for i in range(n):
        lane.place(encoded, i, i)
    found = []
    for step in range(fed.shape[1]):
        inputs = StepInput(
            tokens=fed[:, step],
            positions=np.full((n, 1), step),
            parents=parents[:, step],
            forced=np.full((n, 2), -1),
            banned=np.full((n, 2, 1), PAD),
            temperature=np.ones(n, np.float32),
            unk_penalty=np.zeros(n, np.float32),
            eos_penalty=np.zeros(n, np.float32),
            lm_weight=np.zeros(n, np.float32),
            k=8,
        )
        found.append(lane.step(n, inputs).scores)
    return found


def test_encoder_gradients_are_scaled_by_attentions_except_embeddings() -> None:
    state = state_of(GIVEN)
    model = imported(GIVEN, state)
    source = torch.tensor([[5, 9, 12, EOS]])
    grads = []
    for training in (False, True):
        model.train(training)
        model.zero_grad()
        model(source, torch.tensor([[EOS, 7, 8]])).square().sum().backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name in ("encoder.fc2.weight", "encoder.convolutions.0.weight", "encoder.fc1.bias"):
        torch.testing.assert_close(
            grads[1][name] * 4, grads[0][name]
        )  # two attentions, used for keys and values
    torch.testing.assert_close(grads[1]["decoder.fc1.weight"], grads[0]["decoder.fc1.weight"])
    tables = [grad["encoder.embed_tokens.weight"] for grad in grads]
    assert not torch.allclose(tables[1] * 4, tables[0])  # b holds the embeddings themselves


def test_a_new_model_starts_with_the_variances_of_the_paper() -> None:
    stack = ConvStack(256, (192, 192), (3, 3), (1, 1))
    config = ModelConfig(
        architecture="convs2s",
        source_vocab=500,
        target_vocab=500,
        encoder=stack,
        decoder=replace(stack, attention=(0, 1)),
        share_output=True,
        output_bias=True,
        scale_embeddings=False,
    )
    model = build(config, Dropout(residual=0.2))
    model.initialise(seed=1)
    named = dict(model.named_parameters())
    for name, std in {
        "encoder.embed_tokens.weight": 0.1,
        "decoder.embed_tokens.weight": 0.1,
        "decoder.embed_positions.weight": 0.1,
        "encoder.fc1.weight": (0.8 / 256) ** 0.5,
        "encoder.fc2.weight": (1 / 192) ** 0.5,
        "encoder.convolutions.1.weight": (4 * 0.8 / (3 * 192)) ** 0.5,
        "decoder.attention.1.in_projection.weight": (1 / 192) ** 0.5,
    }.items():
        assert named[name].std().item() == pytest.approx(std, rel=0.02), name
    assert not named["encoder.embed_tokens.weight"][PAD].any()
    assert not named["decoder.embed_tokens.weight"][PAD].any()
    assert not named["decoder.fc3.bias"].any()
