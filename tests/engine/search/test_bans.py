"""Banned tokens: repeated n-grams, and tokens with a limited count."""

import dataclasses
from collections import Counter

import array_api_compat.numpy as xnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ExecutorFailed
from engine.search import filters
from engine.types import DecodeOptions
from tests.support.fake import EOS, PAD, FakeExecutor, FakeModel
from tests.support.lanes import decode
from tests.support.oracle import repeating


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.integers(1, 12),
)
def test_banned_ngrams_equal_the_plain_rule(seed, sizes, columns):
    """Histories are random, with garbage and pads after each slot's step."""
    g = np.random.default_rng(seed)
    history = g.integers(0, 5, size=(len(sizes), 3, columns))
    history[:, :, 0] = EOS
    history[:, :, 1:][history[:, :, 1:] == EOS] = 0
    step = g.integers(0, columns, size=len(sizes))
    found = filters.repeats(xnp, history, step, np.array(sizes), largest=max(sizes), pad=PAD)
    tight = filters.tighten(xnp, found, PAD)
    assert tight.shape[2] <= found.shape[2]
    for slot, size in enumerate(sizes):
        for beam in range(3):
            past = tuple(history[slot, beam, : step[slot] + 1].tolist())
            wanted = repeating(past, size) - {PAD}
            assert set(found[slot, beam].tolist()) - {PAD} == wanted
            assert set(tight[slot, beam].tolist()) - {PAD} == wanted
            assert EOS not in wanted


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.dictionaries(st.integers(3, 7), st.integers(0, 3), max_size=4), min_size=1, max_size=5),
    st.integers(1, 12),
)
def test_exhausted_tokens_equal_the_plain_rule(seed, limits, columns):
    """Histories are random; the initial token may be limited too."""
    g = np.random.default_rng(seed)
    history = g.integers(3, 8, size=(len(limits), 3, columns))
    step = g.integers(0, columns, size=len(limits))
    tokens, most = (np.full((len(limits), 4), fill) for fill in (PAD, 0))
    for slot, own in enumerate(limits):
        tokens[slot, : len(own)], most[slot, : len(own)] = list(own), list(own.values())
    found = filters.exhausted(xnp, history, step, tokens, most, pad=PAD)
    for slot, own in enumerate(limits):
        for beam in range(3):
            past = history[slot, beam, 1 : step[slot] + 1].tolist()
            wanted = {token for token, count in own.items() if past.count(token) >= count}
            assert set(found[slot, beam].tolist()) - {PAD} == wanted


@pytest.mark.parametrize("kind", [{}, {"beam_size": 1}, {"sampling": True}, {"diverse_groups": 2}])
def test_no_answer_has_a_limited_token_more_often_than_allowed_and_neighbours_do_not_change(kind):
    model, source = FakeModel(9, seed=2, eos_bias=-3.0), [4, 5, EOS]
    free = DecodeOptions(**{"beam_size": 4, "n_best": kind.get("beam_size", 4), "max_length": 12} | kind)
    frequent = Counter(decode(FakeExecutor(model), [(source, free)])[0].hypotheses[0].tokens)
    (token, often), *_ = frequent.most_common()
    assert often > 1
    for most in range(often):
        limited = dataclasses.replace(free, quotas=((token, most), (8, 1)))
        jobs = [(source, limited), (source, free), ([6, EOS], free)]
        outcomes = decode(FakeExecutor(model), jobs)
        assert all(h.tokens.count(token) <= most for h in outcomes[0].hypotheses)
        assert all(h.tokens.count(8) <= 1 for h in outcomes[0].hypotheses)
        assert max(h.tokens.count(token) for h in outcomes[0].hypotheses) == most
        alone = decode(FakeExecutor(model), jobs[1:])
        assert [o.hypotheses for o in outcomes[1:]] == [o.hypotheses for o in alone]


def test_no_answer_repeats_an_ngram_unless_the_rule_is_off():
    model = FakeModel(9, seed=2, eos_bias=-3.0)
    repeated = []
    for size in (0, 1, 2, 3):
        options = DecodeOptions(beam_size=2, no_repeat_ngram_size=size, max_length=14)
        (outcome,) = decode(FakeExecutor(model), [([4, 5, EOS], options)])
        if isinstance(outcome, ExecutorFailed):  # six tokens, each once, can not fill fourteen places
            assert size == 1
            continue
        tokens, n = [EOS, *outcome.hypotheses[0].tokens], size or 2
        grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
        repeated.append(len(set(grams)) < len(grams))
    assert repeated[0]
    assert not any(repeated[1:])
