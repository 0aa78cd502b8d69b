"""Tokenizers, compared with fairseq's tokens and with SentencePiece."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from engine.bundle.bundle import Description, open_bundle, write_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.errors import BundleError
from engine.text.tokenizers import fairseq
from engine.text.tokenizers.dictionary import SPECIALS
from engine.text.tokenizers.tokenizer import open_tokenizer, share_tokenizers
from tests.support.golden_fixtures import REAL, ROOT, SELECTION, real_golden

STACK = StackConfig(embed_dim=8, conv_dim=8, ffn_dim=8, heads=2, kernel_sizes=(3,))
PLACEHOLDERS = [f"<ph{i}>" for i in range(16)]


def bundle_of(path, text, files, source, target, **config):
    model = ModelConfig("dynamicconv", source, target, STACK, STACK, **config)
    weights = {"a": np.ones(1, np.float32)}
    return write_bundle(
        path, Description("toy", "translate", "de", "en", model, text), weights, files, half=False
    )


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A small SentencePiece model, trained on the 200 sentence pairs of real-de-en."""
    folder = tmp_path_factory.mktemp("pieces")
    lines = [line for r in real_golden()["results"] for line in (r["src"], r["ref"])]
    (folder / "corpus.txt").write_text("\n".join(lines), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / "vocabulary"),
        vocab_size=400,
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
        user_defined_symbols=PLACEHOLDERS,
        minloglevel=2,
    )
    return folder / "vocabulary.model"


@pytest.fixture(scope="module")
def joint(pieces, tmp_path_factory):
    text = {"kind": "sentencepiece", "model": "vocabulary.model"}
    path = tmp_path_factory.mktemp("joint") / "toy"
    return open_tokenizer(bundle_of(path, text, {"vocabulary.model": pieces}, 400, 400))


@cache
def real_tokenizer():
    folder = SELECTION / REAL
    chosen = fairseq.FairseqSettings("dict.de.txt", "dict.en.txt", "bpecodes", "de", "en")
    source, target = (fairseq.read_dictionary(folder / f"dict.{code}.txt") for code in ("de", "en"))
    return fairseq.Fairseq(chosen, (source, target), fairseq.read_bpe(folder / "bpecodes"))


# SentencePiece


def test_pieces_equal_those_of_the_sentencepiece_library(joint, pieces):
    library = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    for result in real_golden()["results"][:50]:
        ids = joint.encode(result["src"])
        assert ids == library.encode(result["src"]) == joint.encode_target(result["src"])
        assert joint.decode([0, *ids, 2, 1]) == library.decode(ids)
        if 3 not in ids:  # the library returns the text of unknown pieces
            assert joint.pieces(ids, target=True) == library.encode(result["src"], out_type=str)


def test_placeholders_are_single_tokens_and_are_decoded(joint):
    assert joint.placeholders == tuple(PLACEHOLDERS)
    ids = joint.encode("Maria <ph0> eine <ph15>.")
    assert [joint.pieces([i], target=False)[0] for i in ids].count("<ph15>") == 1
    assert joint.decode(ids) == "Maria <ph0> eine <ph15>."


@given(st.text(st.characters()))
def test_no_text_yields_control_ids(joint, text):
    assert {0, 1, 2}.isdisjoint(joint.encode(text))
    assert joint.encode("</s><pad><s>" + text) != [2, 1, 0]


def test_vocabulary_of_another_model_is_refused(pieces, tmp_path):
    text = {"kind": "sentencepiece", "model": "vocabulary.model"}
    other = bundle_of(tmp_path / "a", text, {"vocabulary.model": pieces}, 401, 401)
    with pytest.raises(BundleError, match="has 400 pieces"):
        open_tokenizer(other)
    moved = bundle_of(tmp_path / "b", text, {"vocabulary.model": pieces}, 400, 400, pad=0, bos=1)
    with pytest.raises(BundleError, match="bos, pad, eos, unk"):
        open_tokenizer(moved)
    damaged = bundle_of(tmp_path / "c", text, {"vocabulary.model": b"no model"}, 400, 400)
    with pytest.raises(BundleError, match="not a SentencePiece model"):
        open_tokenizer(damaged)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"kind": "words"}, "unknown text kind 'words'.*fairseq"),
        ({"kind": "sentencepiece", "model": "x"}, "no file 'x'"),
        ({"kind": "sentencepiece"}, "no file"),
        ({"kind": "sentencepiece", "vocabulary": "x"}, "unknown text settings"),
        ({"kind": "fairseq"}, "lacks the keys 'source_dictionary', 'target_dictionary'"),
        (
            {"kind": "fairseq", "source_dictionary": 1, "target_dictionary": "d", "x": 1},
            "unknown keys ..x...*must be of type str",
        ),
        ({"kind": "fairseq", "source_dictionary": "d", "target_dictionary": "d"}, "dictionary has 5 symbols"),
    ],
)
def test_errors_name_invalid_text_settings(tmp_path, text, message):
    bundle = bundle_of(tmp_path / "toy", text, {"d": b"a 1\n"}, 9, 9)
    with pytest.raises(BundleError, match=message):
        open_tokenizer(bundle)


# Moses, BPE and fairseq dictionaries


def test_ids_and_texts_equal_those_of_fairseq():
    tokenizer = real_tokenizer()
    for result in real_golden()["results"]:
        ids = tokenizer.encode(result["src"])
        assert [*ids, 2] == result["source_ids"]
        assert " ".join(tokenizer.pieces(ids, target=False)) == result["source_bpe"]
        assert tokenizer.decode(result["hyps"][0]["tokens"]) == result["text"]


def test_threads_share_a_tokenizer():
    tokenizer = real_tokenizer()
    results = real_golden()["results"] * 2
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda r: [*tokenizer.encode(r["src"]), 2], results))
    assert found == [r["source_ids"] for r in results]


def test_shared_tokenizer_belongs_to_one_bundle(tmp_path, pieces):
    text = {"kind": "sentencepiece", "model": "vocabulary.model"}
    first, other = (
        bundle_of(tmp_path / name, text, {"vocabulary.model": pieces}, 400, 400, max_source=length)
        for name, length in (("first", 64), ("other", 32))
    )
    with patch.dict("engine.text.tokenizers.tokenizer._SHARED"):
        share_tokenizers([first])
        assert open_tokenizer(first) is open_tokenizer(open_bundle(first.path))
        assert open_tokenizer(other) is not open_tokenizer(first)
    assert open_tokenizer(first) is not open_tokenizer(first)


def test_target_prefix_uses_the_target_dictionary():
    tokenizer = real_tokenizer()
    ids = tokenizer.encode_target("I don't know")
    assert tokenizer.pieces(ids, target=True) == ["I", "don", "&apos;t", "know"]
    assert tokenizer.decode(ids) == "I don't know"


@given(st.text(st.characters()))
def test_any_text_is_encoded_without_control_ids(text):
    tokenizer = real_tokenizer()
    for ids in (tokenizer.encode(text), tokenizer.encode_target(text)):
        assert all(3 <= i < 8152 for i in ids)
        tokenizer.decode(ids)


def toy(tmp_path, lines, **options):
    (tmp_path / "dict.txt").write_bytes(lines.encode())
    dictionary = fairseq.read_dictionary(tmp_path / "dict.txt")
    chosen = fairseq.FairseqSettings("dict.txt", "dict.txt", **options)
    return fairseq.Fairseq(chosen, (dictionary, dictionary), None)


def test_pretokenized_text_is_looked_up_word_by_word(tmp_path):
    tokenizer = toy(tmp_path, "bab@@ 3\nü 2\nda 1\nmadeupword0000 0\n", pretokenized=True)
    assert tokenizer.encode(" bab@@ ü\tda\nx </s> <pad> madeupword0000") == [4, 5, 6, 3, 3, 3, 7]
    assert tokenizer.decode([4, 5, 6, 2]) == "babü da"
    assert tokenizer.decode([6, 4]) == "da bab"
    assert tokenizer.pieces([0, 1, 2, 3, 4], target=True) == ["<s>", "<pad>", "</s>", "<unk>", "bab@@"]


def test_iwslt_text_is_lowercased(tmp_path):
    tokenizer = toy(tmp_path, "maria 3\n&amp; 2\nx-y 1\n", lowercase=True, aggressive=False, normalize=None)
    assert tokenizer.encode("MARIA & x-Y") == [4, 5, 6]
    plain = dataclasses.replace(fairseq.FairseqSettings("d", "d"), escape=False)
    assert fairseq.MosesSide(plain, "en", None)("a & b") == ["a", "&", "b"]


def test_dictionaries_follow_the_rules_of_fairseq(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_bytes("a b 5\nä\u2028c -1 \r\nx 1\nx 2 #fairseq:overwrite\n".encode())
    found = fairseq.read_dictionary(path)
    assert found.symbols == (*SPECIALS, "a b", "ä\u2028c", "x", "x")
    assert found.ids["x"] == 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1\nb\n", "line 2: must be 'symbol count'"),
        (b"a 1\n\nb 1\n", "line 2"),
        (b"a one\n", "line 1"),
        (b"a 1 #fairseq:later\n", "line 1"),
        (b"a 1\nb 1\na 2\n", "line 3: 'a' occurs twice"),
        (b"<unk> 1\n", "'<unk>' occurs twice"),
        (b"\xff 1\n", "UTF-8"),
    ],
)
def test_error_names_the_line_of_an_invalid_dictionary(tmp_path, content, message):
    (tmp_path / "dict.txt").write_bytes(content)
    with pytest.raises(BundleError, match=rf"dict\.txt.*{message}"):
        fairseq.read_dictionary(tmp_path / "dict.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#version: 0.2\na b\na\n", "line 3: must be two units"),
        (b"a b 77\na b\n", "line 2: must be two units and a count"),
        (b"#version: 0.9\na b\n", "version"),
        (b"\xff b\n", "UTF-8"),
    ],
)
def test_error_names_the_line_of_invalid_bpe_codes(tmp_path, content, message):
    (tmp_path / "codes").write_bytes(content)
    with pytest.raises(BundleError, match=message):
        fairseq.read_bpe(tmp_path / "codes")


def test_tokenizers_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import engine.text.tokenizers.tokenizer, engine.text.split"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)
