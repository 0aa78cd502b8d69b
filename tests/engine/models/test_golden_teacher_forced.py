"""Compare the torch models with the reference: encoder, log-probabilities, attention, full and
incremental."""

from __future__ import annotations

import random

import array_api_compat.torch as xp
import numpy as np
import pytest
import torch

from engine.executors.history import History
from engine.models import load
from engine.models.model import Past
from tests.support.golden_fixtures import NAMES, fixture, folder, imported, parameters, right_padded

BATCHES = range(6)
WITHOUT_ATTENTION = ("old061_dyn_glu",)


def model_of(name):
    bundle = imported(name)
    return load(bundle.config, bundle.weights())


def members_of(model):
    """Return each member of an ensemble with the suffix of its arrays; "" for a single model."""
    if not model.config.members:
        return [(model, "")]
    return [(member, f"_m{i}") for i, member in enumerate(model.members)]


def prepared(source):
    """Return right-padded source, real and mask of a left-padded source."""
    tokens = torch.from_numpy(right_padded(source))
    real = (tokens != 1).float()
    return tokens, real, torch.zeros_like(real).masked_fill(real == 0, float("-inf"))


def memory_of(model, source):
    tokens, real, mask = prepared(source)
    return model.encode(tokens, torch.arange(tokens.shape[1]), real), mask


def close(ours, reference, tolerance=1e-4):
    # some logits of ConvS2S are near -40, where a unit in the last place is 4e-6
    np.testing.assert_allclose(ours.numpy(), reference, rtol=2e-6, atol=tolerance)


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
    checked = 0
    for member, suffix in members_of(model):
        for prefix in (key.removesuffix(f"_enc{suffix}") for key in arrays if key.endswith(f"_enc{suffix}")):
            source = arrays[f"{prefix}_src"]
            tokens, real, _ = prepared(source)
            encoded = member.encoder(tokens, torch.arange(tokens.shape[1]), real)
            wanted = arrays[f"{prefix}_enc{suffix}"]
            if not isinstance(encoded, tuple):
                encoded, wanted = [encoded], [wanted]
            for ours, theirs in zip(encoded, wanted, strict=True):  # ConvS2S has two outputs
                close(ours[tokens != 1], theirs[source != 1])
            checked += 1
    assert checked >= 4


@pytest.mark.parametrize("name", parameters(*[n for n in NAMES if n not in WITHOUT_ATTENTION]))
@torch.no_grad()
def test_the_attention_equals_the_reference(name):
    model, arrays = model_of(name), fixture(name).arrays
    suffixes = [suffix for _, suffix in members_of(model)]
    found = [key.removesuffix(f"_attn{suffixes[0]}") for key in arrays if key.endswith(f"_attn{suffixes[0]}")]
    assert len(found) >= 5
    for prefix in found:
        source, previous = arrays[f"{prefix}_src"], arrays[f"{prefix}_prev"]
        memory, mask = memory_of(model, source)
        _, attention = model.decode(torch.from_numpy(previous), memory, mask)
        theirs = np.mean([arrays[f"{prefix}_attn{suffix}"] for suffix in suffixes], 0)
        for row in range(len(source)):
            tokens, words = int((previous[row] != 1).sum()), source[row] != 1
            ours = attention[row, :tokens, : int(words.sum())]
            close(ours, theirs[row, :tokens][:, words])


@pytest.mark.parametrize("name", parameters())
@torch.no_grad()
def test_steps_equal_the_full_pass_while_beams_change_places(name):
    """Two targets per source are fed token by token and swap beams at random; no state is ever moved."""
    model, arrays = model_of(name), fixture(name).arrays
    previous = torch.from_numpy(arrays["tf3_prev"])
    memory, mask = memory_of(model, arrays["tf3_src"])
    targets = torch.stack([previous, previous.roll(1, 0)], 1)  # [slots, 2, time]
    full = [model.decode(targets[:, h], memory, mask)[0] for h in (0, 1)]
    slots, beams, time = targets.shape
    history = History(model.state_spec, slots, beams, xp, torch.device("cpu"), torch.float32)
    draw = random.Random(0)
    place = [0, 1]  # the beam of each target
    for step in range(time):
        before, place = place, draw.choice([[0, 1], [1, 0]]) if step else [0, 1]
        at = torch.tensor([place.index(b) for b in range(beams)])  # the target of each beam
        parents = torch.tensor(before)[at].expand(slots, beams)
        positions = torch.full((slots, 1), step)
        past = Past(*history.advance(parents, positions))
        found = model.step(targets[:, at, step], positions, memory, mask, past)
        for h in range(beams):
            close(found.features[:, place[h]], full[h][:, step].numpy(), 2e-5)
        history.write(found.columns, positions)


@torch.no_grad()
@pytest.mark.skipif(folder("real-de-en") is None, reason="no ../shared/golden/real-de-en")
def test_real_hypotheses_have_the_scores_of_the_reference():
    """Scores are the mean log-probability per token, end-of-sentence included, at length penalty 1."""
    from tests.support.golden_fixtures import real_golden

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
