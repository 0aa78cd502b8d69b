"""Tokenizers of models whose vocabularies are lists of symbols: CTranslate2, Argos, THUMT.

Text is split by SentencePiece, by Moses and BPE codes of subword-nmt, or into characters, or is symbols
between spaces.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.bundle.bundle import Bundle
from engine.bundle.json_file import read_json
from engine.errors import BundleError
from engine.text.tokenizers.dictionary import Dictionary
from engine.text.tokenizers.fairseq import Fairseq, FairseqSettings, read_bpe
from engine.text.tokenizers.fairseq_pieces import Characters, DictionaryPieces
from engine.text.tokenizers.pieces import read_processor

MAX_SYMBOL_CHARACTERS: Final = 4096


@dataclass(frozen=True, slots=True)
class SymbolsSettings:
    """`text` of config.json for the kind "symbols".

    source_vocabulary, target_vocabulary: names of JSON files, lists of symbols by id.
    source_pieces, target_pieces: names of SentencePiece models, both or none.
    bpe: name of a file of BPE codes, applied after Moses.
    source_language, target_language: languages of the Moses rules.
    normalize, escape: Moses options, see `engine.text.tokenizers.fairseq.FairseqSettings`.
    prefix: symbol without a text at the beginning of every target, such as the symbol of a language.
    begin: symbol at the beginning of every source.
    unknown: symbol of words that a vocabulary lacks.
    replace_unknown: whether unknown target symbols become source symbols without a request for it.
    characters: each character of a text is a symbol.

    Without pieces, BPE codes and characters, texts are symbols between spaces.
    """

    source_vocabulary: str
    target_vocabulary: str
    source_pieces: str | None = None
    target_pieces: str | None = None
    bpe: str | None = None
    source_language: str = "en"
    target_language: str = "en"
    normalize: str | None = None
    escape: bool = False
    prefix: str | None = None
    begin: str | None = None
    unknown: str = "<unk>"
    replace_unknown: bool = False
    characters: bool = False


def read_list(path: Path) -> list[str]:
    """Read symbols by id from a JSON file. Raises BundleError naming the file."""
    symbols = read_json(path, list, "copy it again")
    if not all(isinstance(s, str) and len(s) <= MAX_SYMBOL_CHARACTERS for s in symbols):
        raise BundleError(f"{path}: must be a list of symbols; copy it again")
    return symbols


def make_dictionary(symbols: Sequence[str], silent: Collection[int], unk: int) -> Dictionary:
    """Make a dictionary; the first id of a symbol counts.

    symbols: symbol of each id.
    silent: ids without a text.
    unk: id of symbols that the dictionary lacks.
    """
    special = {*silent, unk}
    ids: dict[str, int] = {}
    for i, symbol in enumerate(symbols):
        if i not in special:
            ids.setdefault(symbol, i)
    return Dictionary(tuple(symbols), ids, frozenset(silent), unk)


def open_symbols(bundle: Bundle) -> Fairseq | DictionaryPieces:
    """Open the tokenizer of a bundle by `SymbolsSettings`.

    Raises BundleError on wrong settings and on vocabularies of another model.
    """
    settings, config = _settings(bundle), bundle.config
    source = _side(bundle, settings, settings.source_vocabulary, config.source_vocab)
    target = _side(bundle, settings, settings.target_vocabulary, config.target_vocab)
    first = _first_ids(bundle, "source", source, settings.begin)
    beginning = _first_ids(bundle, "target", target, settings.prefix)
    if settings.source_pieces and settings.target_pieces:
        names = settings.source_pieces, settings.target_pieces
        before, after = (read_processor(bundle.file(name)) for name in names)
        return DictionaryPieces((before, after), source, target, first, beginning)
    if settings.characters:
        return DictionaryPieces((Characters(), Characters()), source, target, first, beginning)
    moses = FairseqSettings(
        source_dictionary=settings.source_vocabulary,
        target_dictionary=settings.target_vocabulary,
        source_language=settings.source_language,
        target_language=settings.target_language,
        normalize=settings.normalize,
        aggressive=False,
        escape=settings.escape,
        pretokenized=settings.bpe is None,
    )
    bpe = read_bpe(bundle.file(settings.bpe)) if settings.bpe else None
    return Fairseq(moses, (source, target), bpe, first=first, beginning=beginning)


def _side(bundle: Bundle, settings: SymbolsSettings, name: str, size: int) -> Dictionary:
    """Read the vocabulary of one side.

    name: file of the vocabulary.
    size: number of symbols of the model.
    """
    config, symbols = bundle.config, read_list(bundle.file(name))
    if len(symbols) != size:
        raise BundleError(
            f"{bundle.path}: {name} has {len(symbols)} symbols, the model {size}; the bundle mixes files "
            "of two models: convert it again"
        )
    if settings.unknown not in symbols:
        raise BundleError(f"{bundle.path}: {name} lacks {settings.unknown!r}; convert the bundle again")
    unk = symbols.index(settings.unknown)
    silent = {i for i in (config.bos, config.pad, config.eos) if i is not None}
    if name == settings.target_vocabulary and config.start is not None:
        silent.add(config.start)
    silent |= {symbols.index(symbol) for symbol in (settings.prefix,) if symbol in symbols}
    return make_dictionary(symbols, silent - {unk}, unk)


def _first_ids(bundle: Bundle, side: str, dictionary: Dictionary, symbol: str | None) -> tuple[int, ...]:
    """Return the ids at the beginning of every text of a side: the id of `symbol`, if any."""
    if symbol is None:
        return ()
    if symbol not in dictionary.symbols:
        raise BundleError(f"{bundle.path}: the {side} vocabulary lacks {symbol!r}; convert it again")
    return (dictionary.symbols.index(symbol),)


def _settings(bundle: Bundle) -> SymbolsSettings:
    """Read the settings of a bundle. Raises BundleError on wrong ones."""
    settings = bundle.text_settings(SymbolsSettings)
    if bundle.config.unk is None:
        raise BundleError(
            f"{bundle.path}: a vocabulary of symbols needs a symbol for unknown words: convert it again"
        )
    if (settings.source_pieces is None) != (settings.target_pieces is None):
        raise BundleError(
            f"{bundle.path}: text: source_pieces needs target_pieces and vice versa; convert the bundle again"
        )
    return settings
