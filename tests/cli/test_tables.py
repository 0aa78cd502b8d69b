"""Tables of commands: limits of keys, sums of scores, and pairs of lines."""

import math
from collections import deque

import pytest

from cli.keys import _format_limit
from cli.score import Sum, _pairs
from engine.api import InvalidRequest


def test_limits_of_keys_are_words():
    assert [_format_limit(value) for value in (None, -1, 0, 5, "", "anna")] == [
        "server's", "any", "0", "5", "-", "anna",
    ]  # fmt: skip


def test_perplexity_of_words_counts_the_end_of_each_line():
    sums = Sum(lines=2, tokens=8, words=6, score=-8 * math.log(4))
    figures = sums.figures()
    assert figures["loss"] == pytest.approx(2.0)
    assert figures["perplexity"] == pytest.approx(4.0)
    assert figures["word_perplexity"] == pytest.approx(4.0)  # 6 words and 2 ends of lines


@pytest.mark.parametrize(
    ("texts", "sources", "shorter"), [("a\n", "b\nc\n", "t.txt"), ("a\nb\n", "c\n", "s.txt")]
)
def test_each_text_needs_its_own_source(tmp_path, texts, sources, shorter):
    (tmp_path / "t.txt").write_text(texts, "utf-8")
    (tmp_path / "s.txt").write_text(sources, "utf-8")
    waiting = deque()
    with pytest.raises(InvalidRequest, match=rf"{shorter} ends before line 2"):
        list(_pairs(tmp_path / "t.txt", tmp_path / "s.txt", waiting))
    assert list(waiting) == ["a"]
