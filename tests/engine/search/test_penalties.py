"""Scores of hypotheses, computed by hand from what others define."""

import pytest

from engine.search.penalties import scorer
from engine.types import DecodeOptions


def test_marians_word_penalty_counts_the_end_too_and_others_do_not():
    """Marian adds -1 for each step to a feature of its own, that of </s> too (src/translator/scorers.h)."""
    marian = DecodeOptions(beam_rule="marian", word_reward=0.5, normalize_scores=False)
    fairseq = DecodeOptions(word_reward=0.5, normalize_scores=False)
    assert scorer(marian)(-10.0, 5) == pytest.approx(-10.0 + 5 * 0.5)
    assert scorer(fairseq)(-10.0, 5) == pytest.approx(-10.0 + 4 * 0.5)
