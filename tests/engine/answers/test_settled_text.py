"""The certain beginning of the text of a growing target."""

from __future__ import annotations

from functools import cache

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from engine.text.tokenizers.pieces import Pieces
from tests.engine.text.test_tokenizers import real_tokenizer, toy
from tests.support.golden_fixtures import real_golden


@cache
def with_bytes():
    """Return a SentencePiece model with bytes for unknown characters."""
    import io

    out = io.BytesIO()
    lines = [line for r in real_golden()["results"] for line in (r["src"], r["ref"])]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        vocab_size=600,
        byte_fallback=True,
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
    )
    return Pieces(sentencepiece.SentencePieceProcessor(model_proto=out.getvalue()))


@given(tokens=st.lists(st.integers(0, 599), max_size=25), text=st.text(max_size=12))
def test_certain_text_of_pieces_begins_every_longer_text(tokens, text):
    tokenizer = with_bytes()
    for ids in (tokens, tokenizer.encode(text), [*tokenizer.encode(text), *tokens]):
        final = tokenizer.decode(ids)
        for end in range(len(ids) + 1):
            assert final.startswith(tokenizer.decode_whole_words(ids[:end]))


def test_character_that_is_spelled_in_bytes_is_lacking():
    assert not with_bytes().lacks("e")
    assert with_bytes().lacks("東")


MOSES = [
    "@-@",
    "a",
    "l&apos;",
    "&apos;",
    "&quot;",
    "'",
    '"',
    "``",
    "„",
    "s",
    "Jones",
    ".",
    ",",
    "$",
    "(",
    ")",
]
MOSES += ["&apos;s", "%", "?", "日", "本", "1", ":", "ssa", "x@@", "&amp;", "@@", "-", "li", "e"]


@pytest.mark.parametrize("language", ["en", "de", "fr", "it", "fi", "cs", "es"])
def test_certain_text_of_moses_words_begins_every_longer_text(language, tmp_path):
    lines = "".join(f"{word} 1\n" for word in dict.fromkeys(MOSES))
    tokenizer = toy(tmp_path, lines, target_language=language)

    @given(tokens=st.lists(st.integers(2, 3 + len(set(MOSES))), max_size=14))
    def check(tokens):
        final = tokenizer.decode(tokens)
        for end in range(len(tokens) + 1):
            assert final.startswith(tokenizer.decode_whole_words(tokens[:end]))

    check()


def test_a_czech_sentence_has_no_certain_text_because_its_end_decides(tmp_path):
    """Moses' rule for decimal numbers depends on the last two words, for a number anywhere."""
    tokenizer = toy(tmp_path, "x 1\ny 1\n1 1\ne 1\n. 1\n", target_language="cs")
    tokens = [4, 5, 6, 7, 6, 8]
    assert tokenizer.decode(tokens) == "x y1 e1."
    assert tokenizer.decode(tokens[:4]) == "x y 1 e"
    assert [tokenizer.decode_whole_words(tokens[:end]) for end in range(6)] == [""] * 6


def test_real_translations_become_certain_word_by_word():
    tokenizer = real_tokenizer()
    beginnings = 0
    for result in real_golden()["results"]:
        tokens = result["hyps"][0]["tokens"]
        for end in range(len(tokens) + 1):
            beginning = tokenizer.decode_whole_words(tokens[:end])
            assert result["text"].startswith(beginning)
            assert result["text"][len(beginning) :][:1] in ("", " ") or not beginning
            beginnings += bool(beginning)
    assert beginnings > 1000  # enough beginnings for the test to mean something
