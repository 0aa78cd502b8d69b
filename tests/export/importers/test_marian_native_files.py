"""Files of Marian's own layout: vocabularies, and folders that are refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.marian.files import read_symbols
from export.importers.settings import MarianImport
from tests.support.marian_models import pieces, sentences, vocabulary
from tests.support.native_marian_models import SSRU, make, with_options


def test_sentencepiece_vocabulary_keeps_its_ids(tmp_path):
    folder = tmp_path / "marian"
    arrays, options = make(folder, "post-norm")
    for path in (*folder.glob("*.spm"), *folder.glob("vocab*")):
        path.unlink()
    (folder / "vocab.spm").write_bytes(pieces("source"))
    (folder / "decoder.yml").unlink()
    bundle = convert("marian", folder, tmp_path / "out", MarianImport(source="eng", target="eng"))
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces("source"))
    tokenizer = open_tokenizer(bundle)
    for line in sentences(50, 4):
        assert tokenizer.encode(line) == processor.encode(line)
        assert tokenizer.decode(processor.encode(line)) == processor.decode(processor.encode(line))
    assert (bundle.options.beam_size, bundle.options.normalize_scores) == (12, False)


def test_without_sentencepiece_models_symbols_are_separated_by_spaces(tmp_path):
    make(tmp_path / "marian", "post-norm")
    for path in (tmp_path / "marian").glob("*.spm"):
        path.unlink()
    bundle = convert(
        "marian", tmp_path / "marian", tmp_path / "out", MarianImport(source="eng", target="nld")
    )
    tokenizer = open_tokenizer(bundle)
    symbols = ["\u2581ba", "de", "unheard"]
    known = vocabulary([pieces("source"), pieces("target")])
    assert tokenizer.encode(" ".join(symbols)) == [known.get(symbol, 1) for symbol in symbols]
    assert tokenizer.decode([2, 3]) == " ".join(list(known)[2:4])


TRICKY = [
    "yes",
    "null",
    "1",
    "~",
    "a: b",
    "#",
    "'",
    '"',
    "\\",
    "it's",
    "\x85",
    "é",
    "\u2028",
    "{",
    "- x",
    "",
    " ",
    "?",
]


@given(
    st.lists(
        st.sampled_from(TRICKY)
        | st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=9),
        unique=True,
        min_size=1,
    )
)
def test_vocabularies_in_yaml_are_read_as_written(tmp_path, symbols):
    path = tmp_path / "v.yml"
    escaped = yaml.safe_dump(
        {s: i for i, s in enumerate(symbols)}, default_style='"', allow_unicode=True, width=10**6
    )
    text = re.sub(r'!!int "(\d+)"', r"\1", escaped)
    path.write_text(text, "utf-8", newline="\n")
    assert read_symbols(path) == {s: i for i, s in enumerate(symbols)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "s2s"}, "type 's2s'"),
        ({"type": "amun"}, "type 'amun'"),
        ({"type": "multi-transformer"}, "multi-transformer"),
        ({"type": "lm-transformer"}, "lm-transformer"),
        ({"transformer-decoder-autoreg": "rnn"}, "dec-cell is not given; ssru is supported"),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}, "dec-cell = 'gru' is not supported"),
        (SSRU | {"layer-normalization": True}, "layer-normalization = True is not supported"),
        ({"right-left": True}, "right-left = True is not supported"),
        ({"transformer-ffn-activation": "tanh"}, "transformer-ffn-activation = 'tanh'"),
        ({"transformer-preprocess": "n", "transformer-postprocess": "da"}, "pre-norm"),
        ({"transformer-postprocess-emb": "a"}, "transformer-postprocess-emb = 'a' is unknown"),
        ({"transformer-no-projection": True}, "transformer-no-projection = True"),
        ({"transformer-tied-layers": [1, 1]}, "transformer-tied-layers = [1, 1]"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth = 3"),
        ({"lemma-dim-emb": 8}, "lemma-dim-emb = 8"),
        ({"dim-emb": 10**9}, "dim-emb = 1000000000 is not a valid size"),
        ({"dim-vocabs": [5]}, "dim-vocabs = [5]"),
        ({"dec-depth": 3}, "decoder_l3_self_Wq is missing"),
        ({"enc-depth": 1}, "encoder_l2_ffn_W1 is not part of the model"),
        ({"dim-vocabs": [30, 30]}, "its options say 30 tokens, Wemb or encoder_Wemb does not"),
    ],
)
def test_unsupported_options_are_named(tmp_path, changes, message):
    folder = tmp_path / "marian"
    arrays, options = make(folder, "post-norm")
    np.savez(folder / "model.npz", **with_options(arrays, options | changes))
    assert message in refusal(folder, tmp_path)


def test_tables_of_both_sides_have_the_size_of_the_options(tmp_path):
    folder = tmp_path / "marian"
    arrays, options = make(folder, "post-norm")
    name = next(name for name in arrays if name.endswith("Wemb"))
    other = {"Wemb": "encoder_Wemb"}.get(name, "Wemb")
    np.savez(folder / "model.npz", **with_options(arrays | {other: arrays[name][:-1]}, options))
    assert "Wemb or encoder_Wemb does not" in refusal(folder, tmp_path)


def refusal(folder, tmp_path):
    with pytest.raises(CheckpointError) as caught:
        convert("marian", folder, tmp_path / "out", MarianImport(source="eng", target="nld"))
    assert not (tmp_path / "out").exists()
    return str(caught.value)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_truncated_weights_are_refused(tmp_path, binary, share):
    folder = tmp_path / "marian"
    make(folder, "post-norm", binary=binary)
    (path,) = folder.glob("model.*")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    message = refusal(folder, tmp_path)
    assert path.name in message
    assert "download it again" in message


def test_pickle_inside_the_weights_is_refused(tmp_path):
    folder = tmp_path / "marian"
    arrays, options = make(folder, "post-norm")
    np.savez(folder / "model.npz", **with_options(arrays, options), evil=np.array([print], dtype=object))
    assert "evil holds Python objects, which are never read" in refusal(folder, tmp_path)


@pytest.mark.parametrize("name", ["vocab.yml", "model.npz"])
def test_missing_files_are_named(tmp_path, name):
    make(tmp_path / "marian", "post-norm")
    (tmp_path / "marian" / name).unlink()
    message = refusal(tmp_path / "marian", tmp_path)
    assert name in message or "holds neither" in message


@pytest.mark.parametrize("text", ["a: 0\nb: 0\n", "a: 0\na: 1\n", ""])
def test_symbols_and_ids_of_a_vocabulary_differ(tmp_path, text):
    (tmp_path / "vocab.yml").write_text(text, "utf-8")
    with pytest.raises(CheckpointError, match="same id|twice"):
        read_symbols(tmp_path / "vocab.yml")


def test_quotes_in_quoted_symbols_are_written_twice(tmp_path):
    (tmp_path / "vocab.yml").write_text("'it''s': 0\n\"a\\\"b\": 1\n", "utf-8")
    assert read_symbols(tmp_path / "vocab.yml") == {"it's": 0, 'a"b': 1}


@pytest.mark.parametrize("text", ["a", "a: b", "a: 1\nb", "[", "\xff: x"])
def test_vocabularies_with_invalid_lines_are_refused(tmp_path, text):
    make(tmp_path / "marian", "post-norm")
    (tmp_path / "marian" / "vocab.yml").write_text(text)
    assert "vocab.yml" in refusal(tmp_path / "marian", tmp_path)


def test_yaml_options_with_python_objects_are_refused(tmp_path):
    folder = tmp_path / "marian"
    make(folder, "post-norm")
    (folder / "decoder.yml").write_text("!!python/object/apply:os.mkdir [evil]")
    message = refusal(folder, tmp_path)
    assert "decoder.yml" in message
    assert "YAML" in message
