"""Vocabularies of symbols: special symbols have no text, and the first id of a symbol counts."""

import json

import pytest

from engine.bundle.bundle import Description, write_bundle
from engine.errors import BundleError
from engine.text.tokenizers.symbols import make_dictionary
from engine.text.tokenizers.tokenizer import open_tokenizer
from tests.support.models import CONFIGS, weights

CONFIG = CONFIGS["glu"]


def opened(folder, source, target, **text):
    """Open the tokenizer of a bundle with vocabularies of symbols."""
    text = {"kind": "symbols", "source_vocabulary": "s.json", "target_vocabulary": "t.json"} | text
    files = {"s.json": json.dumps(source).encode(), "t.json": json.dumps(target).encode()}
    about = Description("toy", "translate", "de", "en", CONFIG, text)
    return open_tokenizer(write_bundle(folder / "toy", about, weights("glu"), files, half=False))


def symbols(count):
    """Return symbols by id: special ones, and a word for each other id."""
    special = {CONFIG.pad: "<pad>", CONFIG.eos: "</s>", CONFIG.unk: "<unk>"}
    return [special.get(token, f"w{token}") for token in range(count)]


def test_first_id_of_a_symbol_counts():
    dictionary = make_dictionary(["<s>", "a", "<unk>", "b", "a"], {0}, 2)
    assert dictionary.ids == {"a": 1, "b": 3}
    assert dictionary.silent == {0}


def test_special_symbols_have_no_text(tmp_path):
    source, target = symbols(CONFIG.source_vocab), symbols(CONFIG.target_vocab)
    tokenizer = opened(tmp_path, source, target)
    assert tokenizer.encode("w9 unheard") == [9, CONFIG.unk]
    assert tokenizer.decode([CONFIG.pad, 9, CONFIG.eos, 10]) == "w9 w10"


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        ({"prefix": "<2en>"}, {}, r"target vocabulary lacks '<2en>'"),
        ({"begin": "<2en>"}, {}, r"source vocabulary lacks '<2en>'"),
        ({"unknown": "?"}, {}, r"lacks '\?'"),
        ({}, {"cut": 1}, "mixes files"),
        ({"source_pieces": "s.model"}, {}, "needs target_pieces"),
    ],
)
def test_vocabularies_of_another_model_are_refused(tmp_path, text, change, message):
    source, target = symbols(CONFIG.source_vocab - change.get("cut", 0)), symbols(CONFIG.target_vocab)
    with pytest.raises(BundleError, match=message):
        opened(tmp_path, source, target, **text)
