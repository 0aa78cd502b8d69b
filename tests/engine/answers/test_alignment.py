"""Alignments through two models, compared with a product computed character by character."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answers.alignment import through
from tests.support.finished import make_alignments

END = "</s>"
WORDS = st.lists(st.sampled_from(["ab", "cde", "f", "ghij"]), min_size=1, max_size=4)
TEXTS = st.lists(WORDS, min_size=1, max_size=4)


def cut(draw, words):
    """Draw pieces of words, as a tokenizer may split them, with end-of-sentence."""
    pieces = []
    for word in words:
        edges = sorted(draw(st.sets(st.integers(1, len(word) - 1)) if len(word) > 1 else st.just(set())))
        parts = [word[i:j] for i, j in zip([0, *edges], [*edges, len(word)], strict=True)]
        pieces += ["▁" + parts[0], *parts[1:]]
    return [*pieces, END]


def aligned(draw, source, target):
    """Draw alignments of sentences of two texts, with random attention."""
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    sources, targets = [cut(draw, s) for s in source], [cut(draw, t) for t in target]
    rows = [generator.dirichlet(np.ones(len(s)), len(t)) for s, t in zip(sources, targets, strict=True)]
    texts = [" ".join(word for words in side for word in words) for side in (source, target)]
    return make_alignments(*texts, sources, targets, rows)


def resplit(draw, sentences):
    """Draw other sentences with the same words."""
    words = [word for sentence in sentences for word in sentence]
    edges = sorted(draw(st.sets(st.integers(1, max(1, len(words) - 1)), max_size=3)))
    parts = [words[i:j] for i, j in zip([0, *edges], [*edges, len(words)], strict=True)]
    return [part for part in parts if part]


@st.composite
def pivots(draw):
    pivot = draw(TEXTS)
    first = aligned(draw, [draw(WORDS) for _ in pivot], pivot)
    again = pivot if draw(st.booleans()) else resplit(draw, pivot)
    return first, aligned(draw, again, [draw(WORDS) for _ in again])


@given(pivots())
def test_rows_of_a_composed_alignment_sum_to_one_whatever_the_sentences_are(pair):
    first, second = pair
    composed = through(first, second)
    assert [found.target for found in composed] == [sentence.target for sentence in second]
    for found, sentence in zip(composed, second, strict=True):
        assert (
            found.matrix.shape == (len(found.target), len(found.source)) and found.matrix.dtype == np.float32
        )
        np.testing.assert_allclose(found.matrix.sum(1), 1, atol=1e-5)
        assert len(found.source_places) == len(found.source) and found.source[-1] == END
        assert found.target_places == sentence.target_places


@given(pivots())
def test_a_composed_alignment_is_the_product_character_by_character(pair):
    first, second = pair
    at = {}  # where a character of the pivot is: its sentence and piece of the first's
    for number, sentence in enumerate(first):
        for piece, place in enumerate(sentence.target_places):
            at |= dict.fromkeys(range(*place), (number, piece)) if place else {}
    for found, sentence in zip(through(first, second), second, strict=True):
        places = [place for place in sentence.source_places if place]
        read = sorted({at[c][0] for place in places for c in range(*place)})
        assert found.source == [piece for number in read for piece in first[number].source]
        wanted = np.zeros(found.matrix.shape)
        ends = np.cumsum([len(first[number].source) for number in read])
        for j, place in enumerate(sentence.source_places):
            known = [at[c] for c in range(*place)] if place else [(read[-1], -1)]
            for number, piece in known:
                last = ends[read.index(number)]
                columns = slice(last - len(first[number].source), last)
                wanted[:, columns] += np.outer(sentence.matrix[:, j], first[number].matrix[piece]) / len(
                    known
                )
        np.testing.assert_allclose(found.matrix, wanted, atol=1e-6)


def test_pieces_that_are_not_found_in_the_pivot_follow_their_neighbours():
    first = make_alignments("a b", "c d", [["▁a", "▁b", END]], [["▁c", "▁d", END]], [np.eye(3)])
    second = make_alignments(
        "c d", "e", [["▁c", "<unk>", END]], [["▁e", END]], [np.array([[0, 1, 0], [0, 0, 1.0]])]
    )
    (found,) = through(first, second)
    assert found.matrix == pytest.approx(np.array([[1, 0, 0], [0, 0, 1]]))


def test_without_attention_of_the_first_model_there_is_no_alignment():
    second = make_alignments("c", "e", [["▁c", END]], [["▁e", END]], [np.eye(2)])
    assert through([], second) == []
