"""`convoy words --pairs`; phrases and names are tested in tests/engine/text/test_words.py."""

from __future__ import annotations

import gzip
import shutil

import pytest

from engine.bundle.bundle import add_files, open_bundle
from engine.text.known_words import KNOWN_WORDS_FILE, read_known_words
from tests.cli.commands import done, failure


@pytest.fixture
def folder(bundle, tmp_path):
    return shutil.copytree(bundle, tmp_path / "model")


@pytest.fixture
def pairs(tmp_path):
    """Two files of sentence pairs, translation first; only together they have a word twice."""
    first, second = tmp_path / "first.tsv", tmp_path / "second.tsv.gz"
    first.write_text("1\tAltes Haus\told house\n\n", "utf-8")
    with gzip.open(second, "wt", encoding="utf-8") as out:
        out.write("2\tNeues Haus\tnew house\n")
    return first, second


def flags(*files):
    columns = ["--source-column", "2", "--target-column", "1"]
    return [*columns, *(word for file in files for word in ("--pairs", str(file)))]


def test_known_words_are_learnt_from_all_files(folder, pairs, capsys):
    done("words", folder, "--names", "4", *flags(*pairs))
    assert capsys.readouterr().out.endswith("0 phrases, --names 4, 1 known words\n")
    known = read_known_words(open_bundle(folder))
    assert known.knows("house")
    assert not known.knows("new"), "one sentence is too few"
    assert "1 words, counted without endings" in (folder / "README.md").read_text("utf-8")
    done("words", folder)
    assert capsys.readouterr().out.endswith("0 phrases, --names 4, 1 known words\n")


def test_known_words_stay_with_other_flags_and_go_with_reset(folder, pairs, capsys):
    done("words", folder, *flags(*pairs))
    done("words", folder, "--names", "4")
    assert read_known_words(open_bundle(folder)).knows("house")
    capsys.readouterr()
    done("words", folder, "--reset")
    assert capsys.readouterr().out.endswith("0 phrases, no rule for names, no known words\n")
    assert not (folder / KNOWN_WORDS_FILE).exists()
    assert KNOWN_WORDS_FILE not in open_bundle(folder).files()
    assert "known" not in (folder / "README.md").read_text("utf-8")


def test_damaged_file_is_replaced(folder, pairs, capsys):
    add_files(folder, {KNOWN_WORDS_FILE: b"damaged"})
    code, message = failure(capsys, "words", folder)
    assert (code, f"run: convoy words {folder} --pairs FILE" in message) == (2, True)
    done("words", folder, *flags(*pairs))
    assert read_known_words(open_bundle(folder)).knows("house")


def test_files_without_pairs_or_columns_are_refused(folder, pairs, tmp_path, capsys):
    empty = tmp_path / "empty.tsv"
    empty.write_text("\n", "utf-8")
    assert "no pairs to learn from" in failure(capsys, "words", folder, *flags(empty))[1]
    code, message = failure(capsys, "words", folder, *flags(*pairs), "--source-column", "3")
    assert (code, f"{pairs[0]}, line 1: only 3 columns" in message) == (2, True)
    assert KNOWN_WORDS_FILE not in open_bundle(folder).files()


def test_summaries_have_no_known_words(summarizer, pairs, capsys):
    assert "only models of one direction" in failure(capsys, "words", summarizer, *flags(*pairs))[1]
