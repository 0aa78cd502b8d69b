"""Subwords, compared with ids and texts of tensor2tensor 1.15.7 (tests/golden/README.md)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import BundleError
from engine.text.tokenizers.left_to_right import whole_words
from engine.text.tokenizers.subwords import Subwords, SubwordVocabulary, read_subtokens, read_subwords
from tests.support.golden_fixtures import ROOT

VOCABULARY = ROOT / "golden" / "tensorflow" / "vocab.subwords"
GOLDEN = json.loads((ROOT / "golden" / "tensorflow" / "subwords.json").read_text())
VOCABULARY_READ = SubwordVocabulary(read_subtokens(VOCABULARY))
SUBWORDS = Subwords(VOCABULARY_READ, VOCABULARY_READ)


@pytest.mark.parametrize("case", GOLDEN["encoded"], ids=lambda case: case["text"][:12])
def test_texts_have_the_ids_of_tensor2tensor(case) -> None:
    assert SUBWORDS.encode(case["text"]) == case["ids"]
    assert SUBWORDS.decode(case["ids"]) == case["decoded"]


def test_ids_without_a_text_are_decoded_as_in_tensor2tensor() -> None:
    for case in GOLDEN["decoded"]:
        assert SUBWORDS.decode(case["ids"]) == case["decoded"]


@given(st.text())
def test_every_text_is_decoded_from_its_ids(text) -> None:
    """Exceptions, as in tensor2tensor: single spaces next to other characters than words, and surrogates."""
    clean = "".join(c for c in text if not "\ud800" <= c < "\ue000")
    back = SUBWORDS.decode(SUBWORDS.encode(clean))
    assert back.replace(" ", "") == clean.replace(" ", "")


@given(st.lists(st.integers(2, len(VOCABULARY_READ.subtokens) - 1), max_size=12), st.integers(0, 12))
def test_whole_words_stay_while_a_text_grows(tokens, count) -> None:
    assert SUBWORDS.decode(tokens).startswith(SUBWORDS.decode_whole_words(tokens[:count]))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"\xff\n", "not readable as UTF-8"), (b"'a_'\n'b_'\n'c_'\n", "lacks"), (b"'a_'\n" * 200, "has 200")],
)
def test_invalid_vocabularies_are_refused(tmp_path, content, complaint) -> None:
    path = tmp_path / "vocab"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=complaint):
        read_subwords(path, 100)


@pytest.mark.parametrize(
    ("text", "whole"),
    [("das Haus", "das"), ("Haus", ""), ("", ""), ("das Haus ", "das Haus"), ("これは本", "これは本"),
     ("これは book", "これは"), ("ｶﾅ本a", "ｶﾅ本"), ("안녕", ""), ("안녕 하", "안녕")],
)  # fmt: skip
def test_last_word_may_grow_except_in_scripts_without_spaces(text, whole) -> None:
    assert whole_words(text) == whole
