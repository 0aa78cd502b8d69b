"""Byte-level BPE equals the library `tokenizers`, with merges that it learned."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.bundle.bundle import Description, write_bundle
from engine.errors import BundleError
from engine.text.tokenizers.added import AddedTokens
from engine.text.tokenizers.byte_bpe import ByteBpe, ByteBpeSettings, read_merges
from engine.text.tokenizers.tokenizer import open_tokenizer
from tests.support.golden_fixtures import real_golden
from tests.support.models import CONFIGS, weights

tokenizers = pytest.importorskip("tokenizers")
LINES = [result["src"] for result in real_golden()["results"]]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Return the library's tokenizer and ours, with the same 600 symbols."""
    folder = tmp_path_factory.mktemp("bpe")
    library = tokenizers.ByteLevelBPETokenizer()
    library.train_from_iterator([*LINES, "aaaa aaaaa banana"] * 2, vocab_size=600, min_frequency=2)
    library.save_model(str(folder))
    ids = json.loads((folder / "vocab.json").read_text("utf-8"))
    settings = ByteBpeSettings(vocabulary="vocab.json", merges="merges.txt", first=(), beginning=())
    merges = read_merges(folder / "merges.txt")
    return library, ByteBpe(settings, AddedTokens({}), ids, merges, frozenset(), len(ids))


@given(st.one_of(st.text(max_size=40), st.text("abn ", max_size=30), st.sampled_from(LINES)))
def test_tokens_equal_those_of_the_library(learned, text):
    library, ours = learned
    tokens = library.encode(text).ids
    assert ours.encode(text) == tokens
    assert ours.decode(tokens) == text.strip()


def test_merge_rules_have_two_symbols_and_a_count_only_if_allowed(tmp_path):
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n", "utf-8")
    assert read_merges(tmp_path / "merges.txt") == [("a", "b")]
    (tmp_path / "merges.txt").write_text("a b 3\nab c\n", "utf-8")
    assert read_merges(tmp_path / "merges.txt", counted=True) == [("a", "b"), ("ab", "c")]
    for text, counted in (("a b 3", False), ("a", False), ("a b c 4", True)):
        (tmp_path / "merges.txt").write_text(text, "utf-8")
        with pytest.raises(BundleError, match=r"merges\.txt: each line must hold two symbols"):
            read_merges(tmp_path / "merges.txt", counted=counted)


@pytest.mark.parametrize(("first", "beginning"), [([0], []), ([0], [1]), ([10_000], []), ([0], [-1])])
def test_ids_around_a_text_are_in_the_vocabulary(tmp_path, first, beginning):
    text = {"kind": "byte-bpe", "vocabulary": "v.json", "merges": "m.txt", "first": first}
    about = Description("toy", "translate", "de", "en", CONFIGS["glu"], text | {"beginning": beginning})
    files = {"v.json": b'{"a": 4, "b": 5, "ab": 6}', "m.txt": b"a b\n"}
    bundle = write_bundle(tmp_path / "toy", about, weights("glu"), files, half=False)
    if -1 in beginning or 10_000 in first:
        with pytest.raises(BundleError, match="ids that the model lacks"):
            open_tokenizer(bundle)
    else:
        assert open_tokenizer(bundle).encode("abb") == [*first, 6, 5]
        assert open_tokenizer(bundle).beginning == tuple(beginning)
