"""Lexical shortlists of students, text and binary, against a plain version of Marian's rules."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from export.importers.marian.bergamot_shortlist import Pruning, StudentVocabularies, read_shortlist
from tests.export.importers.test_bergamot_hostile import lexicon

SIZE = 40  # pieces; the model has one more row
PIECES = {"</s>": 0, "<unk>": 1} | {f"p{i}": i for i in range(2, SIZE)}
NAMES = {i: name for name, i in PIECES.items()}
tokens = st.integers(0, SIZE - 1)
texts = st.lists(
    st.tuples(st.one_of(tokens, st.just(-1)), tokens, st.sampled_from([0.0, 0.1, 0.25, 0.25, 0.5, 1.0])),
    max_size=60,
)
sources = st.lists(tokens, min_size=1, max_size=6)


def vocabularies(shared):
    return StudentVocabularies(PIECES, PIECES, SIZE + 1, 1, shared)


def chosen(lists, first, source, shared):
    """Return the tokens that Marian allows (data/shortlist.cpp, generate()): a multiple of 8."""
    on = set(range(first))
    for s in source:
        on |= {*lists.get(s, ()), *([s] if shared else [])}
    more = first
    while len(on) % 8 and more < SIZE:
        on.add(more)
        more += 1
    return sorted(on)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, sources, st.integers(2, 9), st.integers(1, 4), st.booleans())
def test_text_shortlist_allows_the_same_tokens_as_marian(tmp_path, lines, source, first, best, shared):
    path = tmp_path / "lex.s2t"
    path.write_text("".join(f"{NAMES.get(t, 'NULL')} {NAMES[s]} {p}\n" for t, s, p in lines))
    found = read_shortlist(path, vocabularies(shared), Pruning(first, best, 0.1), check=False)
    probabilities = {(s, t): p for t, s, p in lines if t >= 0}  # the last of a repeated pair counts
    lists = {}
    for s in range(SIZE):
        row = sorted(((p, t) for (f, t), p in probabilities.items() if f == s and p > 0.1), reverse=True)
        lists[s] = [t for _, t in row[:best]]
    assert found.of(source).tolist() == chosen(lists, first, source, shared)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sets(tokens, min_size=1, max_size=7), min_size=SIZE, max_size=SIZE), sources, st.booleans()
)
def test_binary_shortlist_allows_its_lists(tmp_path, lists, source, shared):
    path = tmp_path / "lex.bin"
    path.write_bytes(lexicon([sorted(row) for row in lists], first=5))
    found = read_shortlist(path, vocabularies(shared), Pruning(), check=False)
    assert found.of(source).tolist() == chosen(dict(enumerate(lists)), 5, source, shared)
    assert np.all(found.likely[SIZE] == -1)  # the row of the padding
