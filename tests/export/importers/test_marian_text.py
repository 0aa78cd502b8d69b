"""Tokenization against MarianTokenizer of `transformers`, with SentencePiece models trained here."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.bundle.bundle import open_bundle
from engine.errors import BundleError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.settings import MarianImport
from tests.support.golden_fixtures import ROOT
from tests.support.marian_models import make, sentences, train_pieces, transformers, vocabulary

CORPUS = ROOT.parent.parent / "shared" / "corpora" / "newstest"
LINES = 1_000


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Return a Hugging Face folder with three target languages, and our bundle."""
    root = tmp_path_factory.mktemp("text")
    folder = make(root / "hf", "several languages")
    return folder, convert("marian", folder.path, root / "bundle", MarianImport(target="fra"))


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    """Return both tokenizers, trained on German and English news, and other lines."""
    if not CORPUS.is_dir():
        pytest.skip("no ../shared/corpora/newstest here")
    lines = {}
    for side, language in (("source", "de"), ("target", "en")):
        with gzip.open(CORPUS / f"newstest2013.{language}.gz", "rt", encoding="utf-8") as text:
            lines[side] = list(islice(text, 3_000))
    root = tmp_path_factory.mktemp("news")
    models = {side: train_pieces(text[LINES:], 2_000) for side, text in lines.items()}
    ids = vocabulary(list(models.values()))
    folder = make(root / "hf", "relu", vocab_size=len(ids), decoder_vocab_size=len(ids), pieces=models)
    bundle = convert("marian", folder.path, root / "bundle")
    held_out = {side: [line.rstrip("\n") for line in text[:LINES]] for side, text in lines.items()}
    return folder.tokenizer, open_tokenizer(bundle), held_out


def test_thousand_lines_give_the_same_ids_and_texts_as_transformers(news):
    theirs, ours, lines = news
    assert len(lines["source"]) == len(lines["target"]) == LINES
    for line in lines["source"]:
        assert [*ours.encode(line), 0] == theirs(line).input_ids
    for line in lines["target"]:
        ids = theirs(text_target=line).input_ids
        assert [*ours.encode_target(line), 0] == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_covered_line_decodes_to_itself(news):
    _, ours, lines = news
    whole = [line for line in lines["target"] if 1 not in ours.encode_target(line)]
    assert len(whole) > LINES // 2
    same = [line for line in whole if ours.decode(ours.encode_target(line)) == " ".join(line.split())]
    assert len(same) > 0.95 * len(whole)  # SentencePiece's normalisation changes the others


def test_settled_text_is_a_prefix_of_every_longer_answer(news):
    _, ours, lines = news
    for line in lines["target"][:100]:
        ids = ours.encode_target(line)
        for end in range(len(ids)):
            assert ours.decode(ids).startswith(ours.decode_whole_words(ids[:end]))


def test_words_begin_at_spaces(toy):
    tokenizer = open_tokenizer(toy[1])
    ids = tokenizer.encode_target("BABA KOLU MANE")
    begins = tokenizer.words(ids, target=True)
    ends = [*begins[1:], len(ids)]
    words = [tokenizer.word(ids[a:b], target=True) for a, b in zip(begins, ends, strict=True)]
    assert words == ["BABA", "KOLU", "MANE"]


def test_language_token_is_no_word(toy):
    tokenizer = open_tokenizer(toy[1])
    ids = tokenizer.encode("baba kolu")
    assert ids[0] == tokenizer.languages["fra"]
    begins = tokenizer.words(ids, target=False)
    ends = [*begins[1:], len(ids)]
    found = [tokenizer.word(ids[a:b], target=False) for a, b in zip(begins, ends, strict=True)]
    assert found == ["baba", "kolu"]


def test_sources_begin_with_the_token_of_the_target_language(toy):
    folder, bundle = toy
    ours = open_tokenizer(bundle)
    assert set(ours.languages) == {"deu", "fra", "nld"}
    for line in sentences(20, 9):
        assert [*ours.encode(line), 0] == folder.tokenizer(f">>fra<< {line}").input_ids
        assert [*ours.into("nld").encode(line), 0] == folder.tokenizer(f">>nld<< {line}").input_ids


def test_text_may_begin_with_a_language_token(toy):
    folder, bundle = toy
    ours = open_tokenizer(bundle)
    assert [*ours.encode(">>deu<< baba kolu"), 0] == folder.tokenizer(">>deu<< baba kolu").input_ids
    assert ours.encode(">>xyz<< baba")[0] == ours.languages["fra"]  # no language of the model: plain text


@given(st.text(max_size=40) | st.sampled_from(["</s>", "<pad>", "a </s> b", "<unk>", ">><<"]))
def test_no_text_yields_the_ids_of_end_or_padding(toy, text):
    bundle = toy[1]
    tokenizer = open_tokenizer(bundle)
    for ids in (tokenizer.encode(text), tokenizer.encode_target(text)):
        assert not {bundle.config.eos, bundle.config.pad}.intersection(ids)
        assert all(0 <= i < bundle.config.target_vocab for i in ids)


@given(st.lists(st.integers(0, 60), max_size=12))
def test_any_ids_decode_like_transformers(toy, ids):
    folder, bundle = toy
    assert open_tokenizer(bundle).decode(ids) == folder.tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, r"unknown keys \['colour'\]"),
        ({"languages": ["deu"]}, "languages must be of type object"),
        ({"source_model": 3}, "source_model must be of type str or null, not 3"),
        ({"source_model": None, "source_vocabulary": None}, "neither source_model"),
        ({"languages": {"deu": ">>xyz<<"}}, "lacks"),
        ({"languages": {"deu": ">>deu<<"}}, "target 'fra' is none of"),
        ({"source_model": "vocab.json"}, "not a SentencePiece model"),
        ({"source_vocabulary": "source.spm"}, "not readable as JSON"),
    ],
)
def test_invalid_settings_are_refused(toy, changes, message):
    bundle = toy[1]
    with pytest.raises(BundleError, match=message):
        open_tokenizer(replace(bundle, text={**bundle.text, **changes}))


def test_vocabulary_larger_than_the_model_is_refused(toy, tmp_path):
    bundle = toy[1]
    config = replace(bundle.config, source_vocab=40, target_vocab=40, pad=39, start=39)
    with pytest.raises(BundleError, match="the model only 40 tokens"):
        open_tokenizer(replace(bundle, config=config))


def test_oracle_has_the_pinned_version():
    constraints = (ROOT.parent / "constraints.txt").read_text()
    assert f"transformers=={transformers.__version__}" in constraints


def test_bundle_holds_only_data(toy):
    bundle = open_bundle(toy[1].path)
    assert {"source.spm", "target.spm", "vocab.json"} <= set(bundle.files())
    assert json.loads(bundle.file("vocab.json").read_text())["</s>"] == 0
