"""Selection of the best tokens as a CUDA kernel, compared with the torch reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.calls import Kernels
from engine.kernels.selection import SELECT_COLUMNS, SELECT_ROOM
from engine.models.select import select
from tests.support.cuda_kernels import BRAIN, FLOAT, HALF, NEEDS_COMPILER, Place, selection


def check_selection(place, logits, rules, unk, eos, k):
    """Check that scores are equal, and ids too if their score is finite and unique."""
    want, wanted = select(F.log_softmax(logits.double(), -1).float(), rules, unk, eos, k)
    scores, ids = place.select(logits, tuple(rules), unk, eos, k)
    torch.testing.assert_close(scores, want, rtol=1e-5, atol=1e-5)
    all_scores = F.log_softmax(logits.double(), -1).float()
    all_scores[..., eos] -= rules.eos_penalty[:, None]
    if unk is not None:
        all_scores[..., unk] -= rules.unk_penalty[:, None]
    finite = torch.isfinite(scores)
    at = all_scores.gather(2, ids)
    torch.testing.assert_close(at[finite], scores[finite], rtol=1e-5, atol=1e-5)
    for row, chosen in zip(finite.flatten(0, 1), ids.flatten(0, 1), strict=True):
        assert len(set(chosen[row].tolist())) == int(row.sum())
    apart = (want[..., :-1] - want[..., 1:] > 1e-4) & finite[..., :-1]
    apart[..., 1:] &= apart[..., :-1].clone()
    assert torch.equal(ids[..., :-1][apart], wanted[..., :-1][apart])
    return scores, ids


@pytest.mark.parametrize(
    ("dtype", "slots", "beams", "vocab", "bans", "k"),
    [
        (FLOAT, 2, 3, 47, 1, 6),  # fewer than the threads of a block
        (FLOAT, 1, 2, 4096, 40, 64),
        (FLOAT, 1, 1, 1021, 3, 10),
        (HALF, 2, 2, 1000, 2, 8),
        (BRAIN, 2, 2, 1000, 2, 8),
    ],
)
@pytest.mark.parametrize("unk", [3, None])
def test_selection_equals_the_reference(place, dtype, slots, beams, vocab, bans, k, unk):
    logits, rules = selection(dtype, slots, beams, vocab, bans)
    check_selection(place, logits, rules, unk, 2, k)


@given(data=st.data())
@NEEDS_COMPILER
def test_any_selection_with_ties_bans_and_penalties_equals_the_reference(host, data):
    place = Place(Kernels(host), "cpu")
    host.descending = data.draw(st.booleans())
    vocab = data.draw(st.integers(5, 600))
    k = data.draw(st.integers(1, min(vocab, 12)))
    logits, rules = selection(FLOAT, 2, 1, vocab, data.draw(st.integers(1, 5)), data.draw(st.integers(0, 99)))
    logits = logits.mul(data.draw(st.sampled_from([0.0, 0.3, 1.0]))).round()  # many equal scores
    penalties = st.sampled_from([0.0, -3.5, 2.5, float("inf")])
    rules = rules._replace(
        unk_penalty=torch.full((2,), data.draw(penalties)), eos_penalty=torch.full((2,), data.draw(penalties))
    )
    scores, ids = check_selection(place, logits, rules, 3, 2, k)
    for row, chosen in zip(scores.flatten(0, 1), ids.flatten(0, 1), strict=True):
        order = [(-s, i) for s, i in zip(row.tolist(), chosen.tolist(), strict=True) if np.isfinite(s)]
        assert order == sorted(order)  # equal scores: the lower id first


def test_forced_token_keeps_its_score_and_excludes_others(place):
    logits, rules = selection(FLOAT, 2, 2, 300, 2)
    forced = torch.tensor([[7, -1], [2, 3]])
    banned = rules.banned.clone()
    banned[0, 0, 0] = 7  # a forced token may be a banned one
    scores, ids = check_selection(place, logits, rules._replace(forced=forced, banned=banned), 3, 2, 5)
    assert ids[0, 0].tolist() == [7] * 5
    assert torch.isneginf(scores[0, 0, 1:]).all()
    assert torch.isfinite(scores[0, 1]).all()


def test_row_with_nan_allows_no_token_and_other_rows_are_unaffected(place):
    logits, rules = selection(FLOAT, 4, 1, 300, 1)
    want = place.select(logits, tuple(rules), 3, 2, 4)
    logits[0, 0, 123] = torch.nan
    logits[1, 0, 5] = torch.inf
    logits[2, 0] = -torch.inf
    forced = rules.forced.clone()
    forced[1] = 9
    scores, ids = place.select(logits, (forced, *rules[1:]), 3, 2, 4)
    assert torch.isneginf(scores[:3]).all()
    assert torch.equal(scores[3], want[0][3])
    assert torch.equal(ids[3], want[1][3])


def test_missing_candidates_have_score_minus_infinity(place):
    logits, rules = selection(FLOAT, 1, 1, 64, 62)
    rules = rules._replace(banned=torch.arange(62)[None, None], unk_penalty=torch.zeros(1))
    scores, ids = place.select(logits, tuple(rules), 3, 2, 8)
    assert torch.isfinite(scores[0, 0]).tolist() == [True, True] + [False] * 6
    assert set(ids[0, 0, :2].tolist()) == {62, 63}


def test_rows_with_candidates_in_few_columns_are_selected_correctly(place):
    """A thread reads every 256th vector of four. Only 63 threads see good tokens, so there are more
    candidates than can be ranked at once."""
    g = torch.Generator().manual_seed(0)
    logits = torch.rand((1, 1, 64, 256, 4), generator=g)
    logits[:, :, :, :63] += 5
    assert logits[:, :, :, :63].numel() > SELECT_ROOM
    assert logits[0, 0, 0].numel() == SELECT_COLUMNS * 4
    rules = selection(FLOAT, 1, 1, 65536, 1)[1]
    check_selection(place, logits.flatten(2), rules, 3, 2, 64)
