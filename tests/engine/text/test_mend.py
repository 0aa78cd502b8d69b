"""Repair of missing and repeated placeholders."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.text.placeables.mend import mend, whole

SYMBOLS = tuple(f"<ph{i}>" for i in range(16))


@given(seed=st.integers(0, 2**32 - 1))
def test_mending_gives_every_symbol_exactly_once_and_keeps_all_words(seed):
    g = np.random.default_rng(seed)
    size, columns = int(g.integers(0, 12)), 9
    choice = ["▁a", "▁b", "c", ".", "▁", *SYMBOLS[:5]]
    pieces = [str(p) for p in g.choice(choice, size)]
    wanted = {symbol: int(g.integers(columns)) for symbol in SYMBOLS[: int(g.integers(1, 5))]}
    attention = g.random((size + 1, columns))
    starts = [i for i, p in enumerate(pieces) if not i or p.startswith("▁")]
    edited, every = list(pieces), frozenset(SYMBOLS)
    for edit in mend(pieces, wanted, every, attention, starts):
        new = ["▁", edit.symbol] if edit.symbol and not edit.remove else [edit.symbol] if edit.symbol else []
        edited[edit.at : edit.at + edit.remove] = new
    assert whole(edited, list(wanted), every)
    kept = [p for p in edited if p not in every and p != "▁"]
    assert kept == [p for p in pieces if p not in every and p != "▁"]


def test_copy_with_most_attention_stays_and_the_other_becomes_a_missing_symbol():
    pieces = ["▁", "<ph0>", "▁and", "▁", "<ph0>"]
    attention = np.array([[0, 0], [0.1, 0.9], [0, 0], [0, 0], [0.8, 0.2], [0, 0]])
    edits = mend(pieces, {"<ph0>": 0, "<ph1>": 1}, frozenset(SYMBOLS), attention, [0, 2, 3])
    assert [(e.at, e.remove, e.symbol) for e in edits] == [(1, 1, "<ph1>")]


def test_missing_phrase_goes_before_the_word_or_full_stop_that_attends_to_it():
    pieces, words = ["▁I", "▁saw", "it", "."], [0, 1]
    for row, place in ((2, 1), (3, 3), (4, 3), (0, 0)):
        attention = np.zeros((5, 1))
        attention[row] = 1
        (edit,) = mend(pieces, {"<ph0>": 0}, frozenset(SYMBOLS), attention, words)
        assert (edit.at, edit.remove, edit.symbol) == (place, 0, "<ph0>")
