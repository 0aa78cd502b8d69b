"""Models of CTranslate2's first binary version and models of characters answer like CTranslate2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.bundle.bundle import Bundle
from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions
from export.importers import convert
from export.importers.settings import CTranslate2Import
from tests.engine.executors.test_batch_independence import decode
from tests.export.importers.test_ctranslate2 import lane
from tests.support.ctranslate2_models import answers
from tests.support.ctranslate2_old import write_first_version

WISH = CTranslate2Import(source="en", target="de")
WORDS = ["a", "bad", "cab", "deal", "faced", "glacial", "hijack", "nope"]
LONGEST = 16


def first_version(tmp_path: Path, *, int16: bool = False) -> tuple[Path, Bundle]:
    folder = write_first_version(tmp_path / "model", int16=int16)
    return folder, convert("ctranslate2", folder, tmp_path / "bundle", WISH)


@pytest.mark.parametrize("int16", [False, True])
def test_first_binary_version_answers_like_ctranslate2(int16: bool, tmp_path: Path) -> None:
    folder, bundle = first_version(tmp_path, int16=int16)
    assert "(binary version 1)" in bundle.file("README.md").read_text()
    limits = {"beam_size": 1, "max_decoding_length": LONGEST, "min_decoding_length": 0}
    theirs = answers(folder, [list(word) for word in WORDS], **limits)
    tokenizer = open_tokenizer(bundle)
    options = DecodeOptions(beam_size=1, length_penalty=1.0, max_length_b=LONGEST, min_length=0)
    jobs = [(tokenizer.encode(word), options) for word in WORDS]
    jobs = [([*tokens, bundle.config.eos], each) for tokens, each in jobs]
    results = decode(lane(bundle), jobs, np.random.default_rng(0))
    for result, ((tokens, score),) in zip(results, theirs, strict=True):
        (ours,) = result.hypotheses
        assert tokenizer.pieces(ours.tokens, target=True) == tokens
        if len(tokens) < LONGEST:
            assert abs(ours.score - score) < 1e-4
    assert len({tuple(tokens) for ((tokens, _),) in theirs}) > 3


def test_vocabulary_of_characters_splits_a_word_into_its_letters(tmp_path: Path) -> None:
    _, bundle = first_version(tmp_path)
    assert bundle.text["characters"]
    tokenizer = open_tokenizer(bundle)
    assert tokenizer.pieces(tokenizer.encode("bad"), target=False) == ["b", "a", "d"]
    assert tokenizer.pieces(tokenizer.encode("bZ"), target=False) == ["b", "<unk>"]
    assert tokenizer.decode(tokenizer.encode_target("face")) == "face"


def test_characters_can_be_switched_off(tmp_path: Path) -> None:
    folder, _ = first_version(tmp_path)
    words = CTranslate2Import(source="en", target="de", characters=False)
    tokenizer = open_tokenizer(convert("ctranslate2", folder, tmp_path / "words", words))
    assert tokenizer.pieces(tokenizer.encode("b a d"), target=False) == ["b", "a", "d"]


@pytest.mark.parametrize("cut", [5, 9, 100, 2000])
def test_cut_file_of_the_first_version_is_refused(cut: int, tmp_path: Path) -> None:
    folder, _ = first_version(tmp_path)
    (folder / "model.bin").write_bytes((folder / "model.bin").read_bytes()[:cut])
    with pytest.raises(CheckpointError, match="copy it again"):
        convert("ctranslate2", folder, tmp_path / "out", WISH)
