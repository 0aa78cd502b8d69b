"""Recognise models that were converted from folders of `transformers`, by their vocabularies.

Users of such models tokenize with `transformers`, whose tokenizers add the end of a source and the symbols of
languages. The converter therefore leaves `add_source_eos` false, and model.bin does not record the rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.tokenizers.byte_bpe import SPACE_CHARACTER
from export.importers.ctranslate2.variables import Variables
from export.importers.huggingface.language_codes import MBART_25, language_symbols
from export.importers.huggingface.word_text import BEGIN, END
from export.importers.json_object import read_object

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
PLAIN: Final = "plain"  # value of --family: sources are as config.json describes them
FAIRSEQ_SYMBOLS: Final = ["<s>", "<pad>", "</s>", "<unk>"]
T5_SYMBOLS: Final = {"<pad>", "</s>", "<unk>"}
MASK: Final = "<mask>"
BYTE_SYMBOLS: Final = [chr(byte) for byte in range(256)]
SMALL_100_LAYERS: Final = (12, 3)  # its vocabulary is that of M2M-100
BIAS: Final = "encoder/layer_0/self_attention/relative_attention_bias"
LAYER: Final = re.compile(r"(encoder|decoder)/layer_([0-9]+)/")


@dataclass(frozen=True, slots=True)
class TextFamily:
    """Text convention of a family of `transformers`.

    kind: kind of our tokenizer.
    source_symbol: language whose symbol a source begins with, none | source | target.
    target_symbol: whether a target begins with the symbol of its language.
    task: task of most models of the family.
    newline: symbol of a line break.
    first: symbol that every source begins with.
    prompts: whether a prompt may precede sources.
    one_direction: whether a source ends with its language and a target begins with its own.
    """

    kind: str = "mapped-pieces"
    source_symbol: str = "none"
    target_symbol: bool = False
    task: str = "translate"
    newline: str | None = None
    first: str | None = None
    prompts: bool = True
    one_direction: bool = False


MULTILINGUAL: Final = TextFamily(source_symbol="source", target_symbol=True)
# by the value of --family
FAMILIES: Final[Mapping[str, TextFamily]] = {
    "nllb": MULTILINGUAL,
    "m2m100": MULTILINGUAL,
    "small100": TextFamily(source_symbol="target"),
    "mbart50": MULTILINGUAL,
    "mbart25": replace(MULTILINGUAL, one_direction=True),
    "barthez": TextFamily(task="summarize", first="<s>"),  # BARTpho too
    "t5": TextFamily(),
    "codet5": TextFamily(kind="byte-bpe", first="<s>"),
    "madlad": TextFamily(source_symbol="target"),
    "byt5": TextFamily(kind="bytes"),
    "pegasus": TextFamily(task="summarize", newline="<n>"),
    "bart": TextFamily(kind="byte-bpe", task="summarize", first="<s>", prompts=False),
    "bert": TextFamily(kind="word-pieces"),
    "marian": TextFamily(kind="marian"),
}
# form of a language symbol, by the family that has it
LANGUAGE_FORMS: Final = {
    "m2m100": re.compile(r"__[a-z]{2,3}__"),
    "nllb": re.compile(r"[a-z]{3}_[A-Z][a-z]{3}"),
    "mbart50": re.compile(r"[a-z]{2}_[A-Z]{2}"),
    "madlad": re.compile(r"<2[A-Za-z_]{2,16}>"),
}


def choose_family(
    folder: Path, chosen: str | None, symbols: Sequence[str], options: Mapping[str, Any], variables: Variables
) -> TextFamily | None:
    """Return the family of a model; None if its sources are as its config.json describes them.

    folder: folder of the model.
    chosen: value of --family, or None.
    symbols: symbols of the source vocabulary by id.
    options: content of config.json.
    variables: content of model.bin.

    Raises CheckpointError if the vocabulary looks like one of `transformers` but fits no family.
    """
    if chosen is not None:
        if chosen != PLAIN and chosen not in FAMILIES:
            raise CheckpointError(f"--family must be one of {PLAIN}, {', '.join(FAMILIES)}, not {chosen!r}")
        return FAMILIES.get(chosen)
    name = _multilingual(folder, symbols, variables)
    if name == "mbart50" and options["decoder_start_token"] is None and _is_first_mbart(symbols):
        name = "mbart25"
    if name is None and not options["add_source_eos"]:
        name = _byte_or_word_pieces(symbols, variables)
        name = name or (_biased(symbols) if BIAS in variables else _other(symbols, options, variables))
        if name is None and (symbols[:4] == FAIRSEQ_SYMBOLS or len(language_symbols(symbols)) > 1):
            raise CheckpointError(
                f"{folder}: config.json adds no end to sources, and the vocabulary does not determine "
                f"which symbols its tokenizer adds; give --family: {', '.join(FAMILIES)}, or {PLAIN} for none"
            )
    return None if name is None else FAMILIES[name]


def _multilingual(folder: Path, symbols: Sequence[str], variables: Variables) -> str | None:
    """Return the family by the language symbols of the vocabulary."""
    counts = {name: sum(map(bool, map(form.fullmatch, symbols))) for name, form in LANGUAGE_FORMS.items()}
    name = max(counts, key=lambda each: counts[each])
    if counts[name] < 2 or (name == "madlad") != (BIAS in variables):
        return None
    if name != "madlad" and symbols[:4] != FAIRSEQ_SYMBOLS:
        return None
    return "small100" if name == "m2m100" and _is_small_100(folder, variables) else name


def _is_small_100(folder: Path, variables: Variables) -> bool:
    """Return whether a model with the vocabulary of M2M-100 is SMaLL-100."""
    if (folder / TOKENIZER_CONFIG).is_file():
        named = read_object(folder / TOKENIZER_CONFIG).get("tokenizer_class")
        return str(named).startswith("SMALL100")
    layers = {match.groups() for match in map(LAYER.match, variables.arrays) if match}
    counts = tuple(sum(side == name for name, _ in layers) for side in ("encoder", "decoder"))
    return counts == SMALL_100_LAYERS


def _is_first_mbart(symbols: Sequence[str]) -> bool:
    """Return whether mBART-25 has all languages of a vocabulary."""
    return {s for s in symbols if LANGUAGE_FORMS["mbart50"].fullmatch(s)} <= set(MBART_25)


def _byte_or_word_pieces(symbols: Sequence[str], variables: Variables) -> str | None:
    """Return the family of a model with byte-level BPE, or with BERT's pieces."""
    if {BEGIN, END} <= set(symbols):
        return "bert"
    if not any(symbol.startswith(SPACE_CHARACTER) for symbol in symbols):
        return None
    if BIAS in variables:
        return "codet5" if set(symbols[:4]) == set(FAIRSEQ_SYMBOLS) else None
    return "bart" if symbols[:4] == FAIRSEQ_SYMBOLS else None


def _biased(symbols: Sequence[str]) -> str | None:
    """Return the family of a model with T5's attention bias."""
    if list(symbols[3 : 3 + len(BYTE_SYMBOLS)]) == BYTE_SYMBOLS:
        return "byt5"
    return "t5" if set(symbols[:4]) >= T5_SYMBOLS else None


def _other(symbols: Sequence[str], options: Mapping[str, Any], variables: Variables) -> str | None:
    """Return the family of a model with absolute positions and one pair of languages."""
    if variables.number("decoder/start_from_zero_embedding", 0):
        return "marian" if options["decoder_start_token"] == options["eos_token"] else None
    if symbols[:3] == ["<pad>", "</s>", "<mask_1>"]:
        return "pegasus"
    of_mbart = "encoder/layernorm_embedding/gamma" in variables and MASK in symbols
    return "barthez" if symbols[:4] == FAIRSEQ_SYMBOLS and of_mbart else None
