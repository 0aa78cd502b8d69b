"""Read text sides with BERT's pieces: Chinese BART and T5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from engine.text.tokenizers.added import AddedToken
from engine.text.tokenizers.word_pieces import CONTINUED, MAX_WORD_CHARACTERS, WordPieceSettings, read_symbols
from export.importers.huggingface.family import TextPart
from export.importers.huggingface.files import TOKENIZER_JSON, ModelFolder, added_tokens
from export.importers.huggingface.text_parts import read_or_refuse, spelled_tokens
from export.importers.json_object import read_object

BERT: Final = "BertTokenizer"
SYMBOLS: Final = "vocab.txt"
BEGIN, END, UNKNOWN, MASK = "[CLS]", "[SEP]", "[UNK]", "[MASK]"


def word_text(folder: ModelFolder, prompt: str = "") -> TextPart:
    """Read the text side of a model with BERT's tokenizer: `[CLS]` before a source, `[SEP]` after it.

    folder: folder of the model.
    prompt: text before each source.

    Raises CheckpointError that names a missing or damaged file, or an option that is not supported.
    """
    options: Mapping[str, Any] = folder.tokenizer
    files: dict[str, bytes | Path]
    if folder.has(SYMBOLS):
        symbols = read_or_refuse(lambda: read_symbols(folder.file(SYMBOLS)))
        files = {SYMBOLS: folder.path / SYMBOLS}
    else:
        symbols, own = json_pieces(folder.file(SYMBOLS, TOKENIZER_JSON))
        options, files = {**own, **options}, {SYMBOLS: "".join(f"{symbol}\n" for symbol in symbols).encode()}
    begin, end, unk = (_id(folder, symbols, symbol) for symbol in (BEGIN, END, UNKNOWN))
    if folder.config.get("eos_token_id") != end:
        raise CheckpointError(
            f"{folder.path}: eos_token_id = {folder.config.get('eos_token_id')!r} is not {END}, {end}, of "
            "its tokenizer; the folder mixes files of two models"
        )
    mask = {MASK: AddedToken(symbols.index(MASK), shown=False)} if MASK in symbols else {}
    tokens = mask | {s: t for s, t in added_tokens(folder).items() if t.token not in (begin, end, unk)}
    settings = word_settings(options, begin, spelled_tokens(folder, tokens, unk), prompt)
    return TextPart({"kind": "word-pieces", **asdict(settings)}, files, unk)


def word_settings(
    options: Mapping[str, Any], begin: int, added: Mapping[str, AddedToken], prompt: str
) -> WordPieceSettings:
    """Return the settings of BERT's pieces.

    options: content of tokenizer_config.json.
    begin: id of `[CLS]`.
    added: added token by symbol.
    prompt: text before each source.
    """
    lower, accents = bool(options.get("do_lower_case", True)), options.get("strip_accents")
    return WordPieceSettings(
        SYMBOLS,
        (begin,),
        lowercase=lower,
        strip_accents=lower if accents is None else bool(accents),
        split_han=bool(options.get("tokenize_chinese_chars", True)),
        added=added,
        prompt=prompt,
    )


def _id(folder: ModelFolder, symbols: list[str], symbol: str) -> int:
    """Return the id of a symbol. Raises CheckpointError if the vocabulary lacks it."""
    if symbol not in symbols:
        raise CheckpointError(f"{folder.path}: its tokenizer lacks {symbol}, which BERT's has")
    return symbols.index(symbol)


def json_pieces(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the symbols of a tokenizer.json by id, and options by their names in tokenizer_config.json.

    Raises CheckpointError if the file holds another kind of tokenizer.
    """
    content = read_object(path)
    model, rules, splitter = (content.get(part) or {} for part in ("model", "normalizer", "pre_tokenizer"))
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    usual = {
        "type": "WordPiece",
        "continuing_subword_prefix": CONTINUED,
        "max_input_chars_per_word": MAX_WORD_CHARACTERS,
        "unk_token": UNKNOWN,
    }
    if (
        not isinstance(vocabulary, dict)
        or any(model.get(name) != value for name, value in usual.items())
        or [part.get("type") for part in (rules, splitter)] != ["BertNormalizer", "BertPreTokenizer"]
    ):
        raise CheckpointError(f"{path}: is not the tokenizer of BERT that tokenizer_config.json names")
    symbols = sorted(vocabulary, key=lambda symbol: str(vocabulary[symbol]).zfill(9))
    if [vocabulary[symbol] for symbol in symbols] != list(range(len(symbols))) or any(
        "\n" in symbol for symbol in symbols
    ):
        raise CheckpointError(f"{path}: the token ids are not 0, 1, 2, ...; download it again")
    return symbols, {
        "do_lower_case": rules.get("lowercase"),
        "strip_accents": rules.get("strip_accents"),
        "tokenize_chinese_chars": rules.get("handle_chinese_chars"),
    }
