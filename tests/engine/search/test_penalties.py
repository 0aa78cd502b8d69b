"""Scores of hypotheses against values computed by hand."""

import pytest

from engine.search.penalties import scorer
from engine.types import DecodeOptions


def test_only_marians_word_penalty_counts_the_end():
    """Marian counts a word for each step, also for </s> (src/translator/scorers.h)."""
    marian = DecodeOptions(beam_rule="marian", word_reward=0.5, normalize_scores=False)
    fairseq = DecodeOptions(word_reward=0.5, normalize_scores=False)
    assert scorer(marian)(-10.0, 5) == pytest.approx(-10.0 + 5 * 0.5)
    assert scorer(fairseq)(-10.0, 5) == pytest.approx(-10.0 + 4 * 0.5)
