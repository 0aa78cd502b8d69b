"""The measurement of where sentences are cut."""

from __future__ import annotations

import sys

import pytest

from loadtest.engine import cut_lengths
from tests.support.served import bundles


def test_joined_texts_hold_neighbours_side_by_side_without_ends() -> None:
    pairs = [(f"Satz {i}: kurz?", f"Sentence {i}, short.") for i in range(400)]
    texts = list(cut_lengths.joined(pairs))
    assert len(texts) == 400 // 150
    for number, (source, reference) in enumerate(texts):
        first = number * 150
        assert source == " ".join(f"Satz {i} kurz" for i in range(first, first + 150))
        assert reference == " ".join(f"Sentence {i}, short" for i in range(first, first + 150))


def test_a_cut_is_a_row_of_the_table(tmp_path, monkeypatch, capsys) -> None:
    lines = tmp_path / "pairs.tsv"
    lines.write_text("".join(f"Haus und Hof {i}.\thouse and yard {i}.\n" for i in range(160)))
    monkeypatch.setattr(cut_lengths, "TEXT_WORDS", 60)
    arguments = [str(bundles() / "toy-de-en"), "--input", str(lines), "--cuts", "16", "24"]
    monkeypatch.setattr(sys, "argv", ["cut_lengths", *arguments])
    pytest.importorskip("sacrebleu")
    cut_lengths.main()
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("cut at | 10 texts without ends")
    assert [row.split(" | ")[0] for row in rows] == ["16", "24"]
