"""The torch models against the reference: encoder, log-probabilities, attention, full and incremental."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from engine.models import load
from engine.models.model import Past
from tests.golden_fixtures import fixture, folder, imported, parameters, right_padded

BATCHES = range(6)


def model_of(name):
    bundle = imported(name)
    return load(bundle.config, bundle.weights())


def prepared(source):
    """Right-padded source, real and mask of a left-padded one."""
    tokens = torch.from_numpy(right_padded(source))
    real = (tokens != 1).float()
    return tokens, real, torch.zeros_like(real).masked_fill(real == 0, float("-inf"))


def memory_of(model, source):
    tokens, real, mask = prepared(source)
    return model.encode(tokens, torch.arange(tokens.shape[1]), real), mask


def close(ours, reference, tolerance=1e-4):
    np.testing.assert_allclose(ours.numpy(), reference, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", parameters())
@torch.no_grad()
def test_teacher_forced_log_probabilities_equal_the_reference(name):
    model, arrays = model_of(name), fixture(name).arrays
    checked = 0
    for prefix in (*(f"tf{k}" for k in BATCHES), "long"):
        if f"{prefix}_lprobs" not in arrays:
            continue
        previous = arrays[f"{prefix}_prev"]
        memory, mask = memory_of(model, arrays[f"{prefix}_src"])
        features, _ = model.decode(torch.from_numpy(previous), memory, mask)
        scores = model.log_probs(features)
        tokens = previous != 1
        close(scores[torch.from_numpy(tokens)], arrays[f"{prefix}_lprobs"][tokens])
        checked += 1
    assert checked >= 5


@pytest.mark.parametrize("name", parameters())
@torch.no_grad()
def test_the_encoder_equals_the_reference_at_tokens(name):
    model, arrays = model_of(name), fixture(name).arrays
    found = [key.removesuffix("_enc") for key in arrays if key.endswith("_enc")]
    assert len(found) >= 4
    for prefix in found:
        source = arrays[f"{prefix}_src"]
        tokens, real, _ = prepared(source)
        encoded = model.encoder(tokens, torch.arange(tokens.shape[1]), real)
        close(encoded[tokens != 1], arrays[f"{prefix}_enc"][source != 1])


@pytest.mark.parametrize("name", parameters("dyn_glu", "dyn_noglu", "light_glu", "light_noglu", "dyn_glu_b"))
@torch.no_grad()
def test_the_attention_equals_the_reference(name):
    model, arrays = model_of(name), fixture(name).arrays
    found = [key.removesuffix("_attn") for key in arrays if key.endswith("_attn")]
    assert len(found) >= 5
    for prefix in found:
        source, previous = arrays[f"{prefix}_src"], arrays[f"{prefix}_prev"]
        memory, mask = memory_of(model, source)
        _, attention = model.decode(torch.from_numpy(previous), memory, mask)
        for row in range(len(source)):
            tokens, words = int((previous[row] != 1).sum()), source[row] != 1
            ours = attention[row, :tokens, : int(words.sum())]
            close(ours, arrays[f"{prefix}_attn"][row, :tokens][:, words])


@pytest.mark.parametrize("name", parameters())
@torch.no_grad()
def test_steps_equal_the_full_pass_while_beams_change_places(name):
    """Two targets per source are fed token by token and swap beams at random, followed by the index alone."""
    model, arrays = model_of(name), fixture(name).arrays
    previous = torch.from_numpy(arrays["tf3_prev"])
    memory, mask = memory_of(model, arrays["tf3_src"])
    targets = torch.stack([previous, previous.roll(1, 0)], 1)  # [slots, 2, time]
    full = [model.decode(targets[:, h], memory, mask)[0] for h in (0, 1)]
    slots, beams, time = targets.shape
    rings = {s.name: torch.zeros(slots, s.window, beams, s.dim) for s in model.state_spec}
    windows = {s.window for s in model.state_spec}
    draw = random.Random(0)
    places = []  # by step: the beam of each target
    for step in range(time):
        places.append(draw.choice([[0, 1], [1, 0]]))
        place = places[-1]
        tokens = torch.zeros(slots, beams, dtype=torch.int64)
        index = {w: torch.zeros(slots, beams, w, dtype=torch.int64) for w in windows}
        for h in range(beams):
            tokens[:, place[h]] = targets[:, h, step]
            for window in windows:
                for age in range(window):
                    then = step - 1 - age
                    beam = places[then][h] if then >= 0 else 0
                    column = torch.arange(slots) * window + then % window
                    index[window][:, place[h], window - 1 - age] = column * beams + beam
        positions = torch.full((slots, 1), step)
        found = model.step(tokens, positions, memory, mask, Past(rings, index, {}, None))
        for h in range(beams):
            close(found.features[:, place[h]], full[h][:, step].numpy(), 2e-5)
        for ring_name, column in found.columns.items():
            ring = rings[ring_name]
            ring[:, step % ring.shape[1]] = column


@torch.no_grad()
@pytest.mark.skipif(folder("real-de-en") is None, reason="no ../shared/golden/real-de-en")
def test_real_hypotheses_have_the_scores_of_the_reference():
    """Scores are the mean log-probability per token, end-of-sentence included, at length penalty 1."""
    from tests.golden_fixtures import real_golden

    model = model_of("real-de-en")
    for result in real_golden()["results"][:40]:
        source = np.array([result["source_ids"]] * len(result["hyps"]))
        longest = max(len(h["tokens"]) for h in result["hyps"])
        target = np.ones((len(source), longest), np.int64)
        for row, hypothesis in zip(target, result["hyps"], strict=True):
            row[: len(hypothesis["tokens"])] = hypothesis["tokens"]
        previous = np.concatenate([np.full((len(target), 1), 2), target[:, :-1]], 1)
        previous[target == 1] = 1
        memory, mask = memory_of(model, source)
        features, _ = model.decode(torch.from_numpy(previous), memory, mask)
        scores = model.log_probs(features)
        picked = scores.gather(2, torch.from_numpy(target)[:, :, None])[:, :, 0].numpy()
        real = target != 1
        close(torch.from_numpy((picked * real).sum(1) / real.sum(1)), [h["score"] for h in result["hyps"]])
