"""Read the text sides of models of the type mbart: mBART-50, mBART-25, BARThez, BARTpho."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from engine.errors import CheckpointError
from engine.text.codes import by_short_code, short
from export.importers.huggingface.family import TextPart
from export.importers.huggingface.files import ModelFolder, added_tokens
from export.importers.huggingface.language_codes import MBART_25
from export.importers.huggingface.text_parts import (
    FAIRSEQ,
    FAIRSEQ_MODEL,
    MASK,
    fairseq_pieces,
    mapped_pieces,
    pieces_model,
    processor_of,
)

REDUCED: Final = "dict.txt"  # BARTpho's symbols, a part of the SentencePiece model's


def mbart_text(folder: ModelFolder, source: str | None, target: str | None) -> TextPart:
    """Read the text side by its tokenizer's class, which decides where a source has its language.

    folder: folder of the model.
    source, target: codes of the languages of mBART-25, which one bundle translates.

    Raises CheckpointError if another tokenizer is named.
    """
    kind = folder.tokenizer_class() or "MBartTokenizer"  # default of `transformers` for the model type
    if kind == "MBart50Tokenizer":
        return fairseq_pieces(folder)
    if kind == "MBartTokenizer":
        return _first_mbart(folder, source, target)
    if kind == "BarthezTokenizer":
        return barthez_text(folder)
    if kind == "BartphoTokenizer":
        return _bartpho(folder)
    raise CheckpointError(
        f"{folder.path}: has the tokenizer {kind}; models of the type mbart are supported with "
        "MBartTokenizer, MBart50Tokenizer, BarthezTokenizer and BartphoTokenizer"
        f"{', IndicBART is not: take NLLB-200, which has its languages' if 'Albert' in kind else ''}"
    )


def barthez_text(folder: ModelFolder) -> TextPart:
    """Read BARThez's text side: SentencePiece's own ids; a source begins with `<s>`."""
    model, _ = pieces_model(folder, FAIRSEQ_MODEL)
    begin, processor = folder.config.get("bos_token_id"), processor_of(model)
    if type(begin) is not int or processor.piece_to_id("<s>") != begin:
        raise CheckpointError(
            f"{folder.path}: bos_token_id = {begin!r} is not <s> of its tokenizer; the folder mixes files of "
            "two models"
        )
    return mapped_pieces(folder, model, {}, processor.unk_id(), added=added_tokens(folder), first=(begin,))


def _bartpho(folder: ModelFolder) -> TextPart:
    """Read BARTpho's text side: pieces with the ids of a shorter list; a source begins with `<s>`."""
    folder.need(FAIRSEQ_MODEL, REDUCED)
    try:
        lines = (folder.path / REDUCED).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{folder.path / REDUCED}: not readable as text ({error})") from error
    ids = dict(FAIRSEQ)
    for symbol in (line.split()[0] for line in lines if line.split()):
        ids[symbol] = len(ids)
    ids.setdefault(MASK, len(ids))
    return mapped_pieces(
        folder,
        folder.path / FAIRSEQ_MODEL,
        FAIRSEQ,
        FAIRSEQ["<unk>"],
        added={s: each for s, each in added_tokens(folder).items() if s not in ids},
        vocabulary=ids,
        first=(FAIRSEQ["<s>"],),
    )


def _first_mbart(folder: ModelFolder, source: str | None, target: str | None) -> TextPart:
    """Read mBART-25's text side: the end and its language follow a source, a target begins with its own."""
    part = fairseq_pieces(folder, MBART_25)
    ids: Mapping[str, int] = part.settings["special"]
    foreign = sorted(set(part.codes.values()) - set(MBART_25))
    if foreign and folder.tokenizer_class() is None:
        raise CheckpointError(
            f"{folder.path}: names no tokenizer, and mBART's default one lacks {foreign[0]}; set "
            "tokenizer_class in tokenizer_config.json to the one that it was trained with, such as "
            "MBart50Tokenizer"
        )
    start = folder.rules.get("decoder_start_token_id")
    codes = {ids[symbol]: code for code, symbol in part.codes.items()}
    usual = {symbol: code for code, symbol in part.codes.items()}.get(str(folder.tokenizer.get("src_lang")))
    target = target or (codes.get(start) if type(start) is int else None)
    source = source or usual
    known = by_short_code(part.codes)
    if source is None or target is None or not {short(source), short(target)} <= set(known):
        raise CheckpointError(
            f"{folder.path}: name the languages with --source and --target: {', '.join(sorted(part.codes))}"
        )
    pair = known[short(source)], known[short(target)]
    first, last = (ids[part.codes[code]] for code in reversed(pair))
    own = {"languages": {}, "source_symbol": "none", "target_symbol": False}
    ending = {"last": (folder.config["eos_token_id"], last)}
    return replace(
        part,
        settings={**part.settings, **own, **ending},
        codes={},
        languages=pair,
        start=first,
        source_end=False,
    )
