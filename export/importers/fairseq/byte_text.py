"""Text sides of byte-level BPE (fairseq's `gpt2`, `hf_byte_bpe`) and of bytes.

Dictionaries list numbers of GPT-2's vocabulary, or bytes as characters; both become the pieces of one
tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Content
from engine.errors import BundleError, CheckpointError
from engine.text.tokenizers.byte_bpe import CHARACTERS, ByteBpeSettings, read_merges
from engine.text.tokenizers.dictionary import Dictionary
from engine.text.tokenizers.left_to_right import SPACE
from engine.text.tokenizers.mapped_pieces import read_ids

# numbers of pieces, and merges: names of fairseq and of `transformers`
FILES: Final = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
BYTE_LEVEL: Final = ("gpt2", "hf_byte_bpe")  # values of fairseq's --bpe
BYTES: Final = "bytes"
FILLER: Final = "madeupword"  # fairseq fills dictionaries up to a multiple of 8
VOCABULARY, MERGES = "vocab.json", "merges.txt"
PRINTED: Final = frozenset((*range(32, 127), *range(161, 173), *range(174, 256)))  # bytes that are characters


def find_byte_level(folders: Sequence[Path]) -> tuple[Path, Path] | None:
    """Return the files of byte-level BPE, or None. Raises CheckpointError if one of two is missing."""
    for folder in dict.fromkeys(folders):
        for names in FILES:
            numbers, merges = (folder / name for name in names)
            if numbers.is_file() and not merges.is_file():
                raise CheckpointError(
                    f"{folder}: holds byte-level BPE ({names[0]}) without {names[1]}; put it there, or "
                    f"remove {names[0]} to import the model for segmented text"
                )
            if numbers.is_file():
                return numbers, merges
    return None


def byte_text(
    folder: Path, sides: tuple[Dictionary, Dictionary], files: tuple[Path, Path] | None, spaced: bool
) -> tuple[dict[str, Any], Mapping[str, Content]]:
    """Return the tokenizer settings with their "kind", and their files.

    folder: the model's folder, which errors name.
    sides: dictionaries of source and target.
    files: files of byte-level BPE; None: each byte is a symbol.
    spaced: whether a text without a space at its beginning gets one.

    Raises CheckpointError if the dictionaries differ, or list other symbols than the files.
    """
    source, target = sides
    if source.symbols != target.symbols:
        raise CheckpointError(
            f"{folder}: byte-level symbols need one dictionary for both sides, and these differ; with "
            "--pretokenized, texts are symbols between spaces"
        )
    try:
        symbols = _byte_symbols() if files is None else _numbers(files[0])
        merges: Content = b"" if files is None else files[1]
        if files is not None:
            read_merges(files[1])
    except BundleError as error:
        raise CheckpointError(str(error)) from error
    ids = {piece: source.ids[symbol] for piece, symbol in symbols.items() if symbol in source.ids}
    if len(ids) * 2 < sum(not symbol.startswith(FILLER) for symbol in source.ids):
        name = "bytes" if files is None else f"numbers of {files[0].name}"
        raise CheckpointError(
            f"{folder}: most symbols of its dictionary are not {name}; the folder mixes files of two models"
        )
    settings = ByteBpeSettings(VOCABULARY, MERGES, (), (), prefix_space=spaced)
    contents: dict[str, Content] = {
        VOCABULARY: json.dumps(ids, ensure_ascii=False).encode(),
        MERGES: merges,
    }
    return {"kind": "byte-bpe", **asdict(settings)}, contents


def _numbers(path: Path) -> dict[str, str]:
    """Return the symbol of the dictionary by piece: the number of the piece."""
    return {piece: str(number) for piece, number in read_ids(path).items()}


def _byte_symbols() -> dict[str, str]:
    """Return the symbol of the dictionary by byte, which our pieces write as a character."""
    symbols = {byte: chr(byte if byte in PRINTED else 256 + byte) for byte in range(256)}
    return {CHARACTERS[byte]: symbol for byte, symbol in (symbols | {32: SPACE}).items()}
