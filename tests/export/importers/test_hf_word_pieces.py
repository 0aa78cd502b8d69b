"""BERT's pieces in folders of Hugging Face (Chinese BART and T5) against the tokenizer of `transformers`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from tests.support.hf_models import NEWER, WISH, imported, transformers
from tests.support.hf_tokenizers import HAN
from tests.support.marian_models import sentences

FAMILY = "bart-chinese", "relu6"
LINES = [
    f"{HAN}\u3002 caf\u00e9  don't 'ba' say 'de' now? $3,5 (x) ba-de ",
    "  a\tb\u200bc\u00a0d\u3000e\ufffd\x07 ",
    "\u00c9 \ufb01 \u0133 " + "x" * 100 + " " + "x" * 101,
    f"A{HAN}b\u30d0\uac00 \U00020000 \u0301e",
    "ba[MASK]de !",
    *sentences(20, 9),
]


def copied(place: Path, **options: Any) -> Path:
    folder = shutil.copytree(imported(*FAMILY)[0].path, place / "hf")
    said = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(said | options))
    return folder


RULES = [
    {},
    {"do_lower_case": False},
    {"do_lower_case": False, "strip_accents": True},
    {"do_lower_case": True, "strip_accents": False},
    {"tokenize_chinese_chars": False},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("whole", [False, True], ids=["vocab.txt", "tokenizer.json"])
def test_ids_equal_berts_tokenizer_with_each_option(tmp_path, rules, whole) -> None:
    folder = copied(tmp_path)
    theirs = transformers.BertTokenizerFast(str(imported(*FAMILY)[0].path / "parts" / "vocab.txt"), **rules)
    if whole:
        (folder / "vocab.txt").unlink(missing_ok=True)
        theirs.backend_tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    else:
        (folder / "tokenizer.json").unlink(missing_ok=True)
        shutil.copy(folder / "parts" / "vocab.txt", folder)
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "BertTokenizer"} | rules)
        )
    bundle = convert("hf", folder, tmp_path / "out", WISH)
    ours = open_tokenizer(bundle)
    for line in LINES:
        assert [*ours.encode(line), bundle.config.eos] == theirs(line).input_ids, line


def test_answers_have_the_spaces_of_berts_library_and_none_at_han_characters() -> None:
    folder, bundle = imported(*FAMILY)
    ours = open_tokenizer(bundle)
    for line in ["don't 'ba' say 'de' now? (x) ba - de, de.", f"a {HAN} b", *sentences(10, 9)]:
        ids = ours.encode_target(line)
        spaced = folder.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        theirs = clean(spaced)
        if not NEWER:
            tidy = {"skip_special_tokens": True, "clean_up_tokenization_spaces": True}
            assert theirs == re.sub(rf" ?([{HAN}]) ?", r"\1", folder.tokenizer.decode(ids, **tidy))
        assert ours.decode(ids) == theirs


def clean(text: str) -> str:
    """Return a text with the spaces of `clean_up_tokenization`, and none at Han characters."""
    for mark in ".?!,":
        text = text.replace(f" {mark}", mark)
    return re.sub(rf" ?([{HAN}]) ?", r"\1", text.replace(" ' ", "'"))


def test_whole_words_of_a_growing_answer_are_never_taken_back() -> None:
    ours = open_tokenizer(imported(*FAMILY)[1])
    for line in LINES:
        ids, shown = ours.encode_target(line), ""
        for end in range(len(ids) + 1):
            grown = ours.decode_whole_words(ids[:end])
            assert grown.startswith(shown)
            assert ours.decode(ids).startswith(grown)
            shown = grown


def test_words_begin_where_a_piece_does_not_continue_one() -> None:
    ours = open_tokenizer(imported(*FAMILY)[1])
    ids = ours.encode(f"ba dezzzz{HAN[:2]}!")
    starts = ours.words(ids, target=False)
    names = ours.pieces(ids, target=False)
    assert [i for i in range(1, len(ids)) if not names[i].startswith("##")] == starts
    ends = [*starts[1:], len(ids)]
    spelled = [ours.word(ids[i:j], target=False) for i, j in zip(starts, ends, strict=True)]
    assert spelled == ["ba", "dezzzz", *HAN[:2], "!"]


def test_text_cannot_spell_the_end_or_an_unknown_symbol() -> None:
    ours, config = open_tokenizer(imported(*FAMILY)[1]), imported(*FAMILY)[1].config
    assert config.eos not in ours.encode("a [SEP] b [CLS] [PAD]")
    assert ours.lacks("\u3042")
    assert not ours.lacks(HAN[0])


CHANGES = [
    ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n", r"lacks \[SEP\]"),
    ("vocab.txt", "[PAD]\n\n[CLS]\n", "one symbol"),
    ("vocab.txt", "[UNK]\n[PAD]\n[SEP]\n[CLS]\n", r"eos_token_id = 3 is not \[SEP\], 2"),
    ("vocab.txt", "version https://git-lfs.github.com/spec", "Git LFS pointer"),
    ("tokenizer.json", '{"model": {"type": "Unigram"}}', "is not the tokenizer of BERT"),
    ("tokenizer.json", '{"model": {"type": "WordPiece", "vocab": {"a": 0}}}', "is not the tokenizer of BERT"),
]


@pytest.mark.parametrize(("name", "content", "message"), CHANGES)
def test_damaged_vocabulary_is_refused_in_one_line(tmp_path, name, content, message) -> None:
    folder = copied(tmp_path)
    for known in ("vocab.txt", "tokenizer.json"):
        (folder / known).unlink(missing_ok=True)
    (folder / name).write_text(content)
    with pytest.raises(CheckpointError, match=message) as error:
        convert("hf", folder, tmp_path / "out", WISH)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ids", [{"[PAD]": 1, "[UNK]": 0}, {"a": 2}, {"a\nb": 0}, {"a": "x"}])
def test_wrong_ids_of_a_tokenizer_json_are_refused(tmp_path, ids) -> None:
    folder = copied(tmp_path)
    (folder / "vocab.txt").unlink(missing_ok=True)
    made = transformers.BertTokenizerFast(str(imported(*FAMILY)[0].path / "parts" / "vocab.txt"))
    content = json.loads(made.backend_tokenizer.to_str())
    content["model"]["vocab"] = ids
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"token ids are not 0, 1, 2|lacks \[CLS\]") as error:
        convert("hf", folder, tmp_path / "out", WISH)
    assert "\n" not in str(error.value)
