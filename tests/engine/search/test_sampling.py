"""Samples: seeds, frequencies, nucleus, and random numbers on numpy and torch."""

import dataclasses
import math

import array_api_compat.numpy as xnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.search import filters
from engine.types import DecodeOptions
from tests.support.cases import random_jobs
from tests.support.fake import EOS, PAD, FakeExecutor, FakeModel
from tests.support.lanes import decode
from tests.support.oracle import noise


def test_sample_depends_only_on_its_seed():
    model = FakeModel(40, seed=9)
    source = [7, 8, 9, EOS]
    options = DecodeOptions(beam_size=3, n_best=3, sampling=True, seed=12345, max_length=10)
    (alone,) = decode(FakeExecutor(model, slots=1, beams=3), [(source, options)])
    for slots, place in ((4, 0), (4, 2), (6, 5)):
        jobs = random_jobs(slots, slots - 1, 40, 8)
        jobs.insert(place, (source, options))
        among = decode(FakeExecutor(model, slots=slots, beams=8), jobs)[place]
        assert among.hypotheses == alone.hypotheses
    other = dataclasses.replace(options, seed=12346)
    (different,) = decode(FakeExecutor(model, slots=1, beams=3), [(source, other)])
    assert [h.tokens for h in different.hypotheses] != [h.tokens for h in alone.hypotheses]


def test_frequencies_of_samples_match_the_model():
    model = FakeModel(12, seed=1)
    source = [5, 6, EOS]
    jobs = [
        (source, DecodeOptions(beam_size=4, n_best=4, sampling=True, seed=s, min_length=0, max_length=1))
        for s in range(1000)
    ]
    found = decode(FakeExecutor(model, slots=8), jobs)
    drawn = [(h.tokens or [EOS])[0] for outcome in found for h in outcome.hypotheses]
    assert len(drawn) == 4000
    wanted = np.exp(model.whole(source, [])[1])
    wanted[PAD] = 0.0  # pad is never drawn; the others are renormalised
    wanted /= wanted.sum()
    counts = np.bincount(drawn, minlength=12) / len(drawn)
    assert np.abs(counts - wanted).max() < 4 * 0.5 / math.sqrt(len(drawn))


def test_nucleus_includes_the_token_that_crosses_its_mass():
    scores = np.log(np.array([[[0.5, 0.3, 0.2]]], np.float32))
    top_k = np.array([64])
    for top_p, highest in ((0.2, 0), (0.49, 0), (0.51, 1), (0.79, 1), (0.81, 2), (math.inf, 2)):
        picks = {
            int(filters.draw(xnp, scores, top_k, np.array([top_p]), np.array([[u]]))[0, 0])
            for u in np.linspace(0, 1 - 1e-9, 101)
        }
        assert picks == set(range(highest + 1))


@given(st.integers(0, 2**63 - 1), st.integers(0, 63), st.integers(0, 2000))
def test_noise_of_int64_arrays_equals_unsigned_arithmetic(seed, beam, position):
    found = filters.uniform(xnp, np.array([seed]), np.array([beam]), np.array([position]))
    assert found.tolist() == [noise(seed, beam, position)]
    assert 0 <= found[0] < 1


def test_noise_is_the_same_on_torch():
    torch = pytest.importorskip("torch")
    xtorch = pytest.importorskip("array_api_compat.torch")
    counters = np.random.default_rng(0).integers(0, 2**63 - 1, size=(3, 500))
    wanted = filters.uniform(xnp, *counters)
    found = filters.uniform(xtorch, *(torch.from_numpy(c) for c in counters))
    assert found.tolist() == wanted.tolist()
