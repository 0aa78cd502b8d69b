"""Fairseq's models of byte-level BPE, bytes and characters cut texts as fairseq's encoders do.

GPT-2's pieces come from `transformers`; symbols of bytes and characters are written out here.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from tests.support.checkpoints import namespace, state
from tests.support.hf_tokenizers import bart_tokenizer, transformers
from tests.support.marian_models import sentences

ROWS = 112  # of the smaller table of the checkpoint
LINES = ["  two   words \u00e9", "it's 3,5 \u20ac", *sentences(20, 9)]


def folder_of(place: Path, symbols: list[str], **options: Any) -> Path:
    """Write a folder with dictionaries of the symbols, filled up to the rows of the model."""
    place.mkdir()
    lines = [*symbols, *(f"madeupword{i}" for i in range(ROWS - 4 - len(symbols)))]
    for side in ("src", "tgt"):
        (place / f"dict.{side}.txt").write_text("".join(f"{symbol} 1\n" for symbol in lines))
    weights = state()
    weights["encoder.embed_tokens.weight"] = weights["encoder.embed_tokens.weight"][:ROWS].clone()
    torch.save({"args": namespace(**options), "model": weights}, place / "model.pt")
    return place


def ids_of(folder: Path, symbols: list[str]) -> list[int]:
    """Return the ids of symbols by the source's dictionary; 3 is the unknown symbol."""
    lines = (folder / "dict.src.txt").read_text().splitlines()
    ids = {line.split(" ")[0]: i for i, line in enumerate(lines, 4)}
    return [ids.get(symbol, 3) for symbol in symbols]


NAMES = [("gpt2", "encoder.json", "vocab.bpe"), ("hf_byte_bpe", "vocab.json", "merges.txt")]


@pytest.mark.parametrize(("bpe", "vocabulary", "merges"), NAMES)
@pytest.mark.parametrize("spaced", [False, True])
def test_symbols_of_byte_level_bpe_are_the_numbers_of_its_pieces(
    tmp_path: Path, bpe: str, vocabulary: str, merges: str, spaced: bool
) -> None:
    bart_tokenizer(tmp_path)
    theirs = transformers.GPT2TokenizerFast(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"), add_prefix_space=spaced
    )
    numbers = sorted({n for line in LINES[2:] for n in theirs(line).input_ids}, reverse=True)
    folder = folder_of(tmp_path / "hf", list(map(str, numbers)), bpe=bpe, bpe_add_prefix_space=spaced)
    shutil.copy(tmp_path / "vocab.json", folder / vocabulary)
    shutil.copy(tmp_path / "merges.txt", folder / merges)
    bundle = convert("fairseq", folder, tmp_path / "out")
    ours = open_tokenizer(bundle)
    for line in LINES:
        assert ours.encode(line) == ids_of(folder, list(map(str, theirs(line).input_ids)))
    assert ours.decode(ours.encode(LINES[5])) == LINES[5]


def byte_symbols(text: str) -> list[str]:
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    return ["\u2581" if b == 32 else chr(b if b in printed else 256 + b) for b in text.encode()]


@pytest.mark.parametrize("bpe", ["bytes", "characters"])
def test_each_byte_or_character_of_a_text_is_a_symbol(tmp_path: Path, bpe: str) -> None:
    def cut(text: str) -> list[str]:
        return byte_symbols(text) if bpe == "bytes" else list(text.replace(" ", "\u2581"))

    text = "\u00e9t\u00e9 de ba\u20ac!"
    symbols = sorted({s for line in [text, *LINES[2:]] for s in cut(line)})
    folder = folder_of(tmp_path / "model", symbols, bpe=bpe)
    ours = open_tokenizer(convert("fairseq", folder, tmp_path / "out"))
    for line in [text, "Zebra", *LINES[2:]]:
        assert ours.encode(line) == ids_of(folder, cut(line))
    assert ours.decode(ours.encode(text)) == text


def test_byte_level_files_of_another_dictionary_are_refused(tmp_path: Path) -> None:
    bart_tokenizer(tmp_path)
    folder = folder_of(tmp_path / "model", ["ba", "de"])
    shutil.copy(tmp_path / "vocab.json", folder / "encoder.json")
    with pytest.raises(CheckpointError, match=r"byte-level BPE \(encoder.json\) without vocab.bpe"):
        convert("fairseq", folder, tmp_path / "out")
    shutil.copy(tmp_path / "merges.txt", folder / "vocab.bpe")
    with pytest.raises(CheckpointError, match="are not numbers of encoder.json"):
        convert("fairseq", folder, tmp_path / "out")
    (folder / "dict.tgt.txt").write_text((folder / "dict.tgt.txt").read_text().replace("ba 1", "fu 1"))
    with pytest.raises(CheckpointError, match="need one dictionary for both sides"):
        convert("fairseq", folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_words_of_moses_cut_into_bytes_are_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", ["ba"], bpe="characters", tokenizer="moses")
    with pytest.raises(CheckpointError, match="cut by moses and then by characters, .* with --pretokenized"):
        convert("fairseq", folder, tmp_path / "out")
