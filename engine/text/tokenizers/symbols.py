"""Text of models whose vocabularies are plain lists of symbols: CTranslate2's, Argos's and THUMT's.

Text is cut by SentencePiece, by Moses and codes of subword-nmt, or comes as symbols between spaces.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.bundle.bundle import Bundle
from engine.bundle.json_file import read_json
from engine.errors import BundleError
from engine.text.dictionary import Dictionary
from engine.text.fairseq import Fairseq, read_bpe
from engine.text.fairseq import Settings as MosesSettings
from engine.text.fairseq_pieces import DictionaryPieces
from engine.text.pieces import read_processor

LONGEST: Final = 4096  # characters of a symbol


@dataclass(frozen=True, slots=True)
class Settings:
    """`text` of config.json for the kind "symbols".

    source_vocabulary, target_vocabulary: names of JSON files, lists of symbols by id.
    source_pieces, target_pieces: names of SentencePiece models, both or none.
    bpe: name of a file of codes of subword-nmt, applied after Moses with the two languages' rules.
    normalize, escape: of Moses, as for `engine.text.fairseq.Settings`.
    prefix: what every target begins with, such as its language's symbol; it has no text.
    begin: what every source begins with.
    unknown: the symbol of what a vocabulary lacks.
    replace_unknown: unknown target symbols become those of the source, unasked.

    With neither pieces nor codes, text comes and goes as symbols between spaces.
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


def read_list(path: Path) -> list[str]:
    """Read symbols by id from a JSON file. Raises BundleError naming the file."""
    symbols = read_json(path, list, "copy it again")
    if not all(isinstance(s, str) and len(s) <= LONGEST for s in symbols):
        raise BundleError(f"{path}: must be a list of symbols; copy it again")
    return symbols


def dictionary(symbols: Sequence[str], silent: Collection[int], unk: int) -> Dictionary:
    """Make a dictionary of these symbols.

    silent: ids that stand for nothing in a text.

    Of a symbol that is there twice the first id counts.
    """
    special = {*silent, unk}
    ids: dict[str, int] = {}
    for i, symbol in enumerate(symbols):
        if i not in special:
            ids.setdefault(symbol, i)
    return Dictionary(tuple(symbols), ids, frozenset(silent), unk)


def open_symbols(bundle: Bundle) -> Fairseq | DictionaryPieces:
    """Open the tokenizer of a bundle with vocabularies that are lists of symbols.

    Settings: those of `Settings`. Raises BundleError on wrong ones and vocabularies of another model.
    """
    settings = _settings(bundle)
    config = bundle.config
    if config.unk is None:
        raise BundleError(
            f"{bundle.path}: a vocabulary of symbols needs one for the unknown: convert it again"
        )
    sides = []
    for name, size in (
        (settings.source_vocabulary, config.source_vocab),
        (settings.target_vocabulary, config.target_vocab),
    ):
        symbols = read_list(bundle.file(name))
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
        sides.append(dictionary(symbols, silent - {unk}, unk))
    source, target = sides
    if settings.begin is not None and settings.begin not in source.symbols:
        raise BundleError(f"{bundle.path}: the source vocabulary lacks {settings.begin!r}; convert it again")
    if settings.prefix is not None and settings.prefix not in target.symbols:
        raise BundleError(f"{bundle.path}: the target vocabulary lacks {settings.prefix!r}; convert it again")
    first, beginning = (
        () if symbol is None else (side.symbols.index(symbol),)
        for side, symbol in ((source, settings.begin), (target, settings.prefix))
    )
    if settings.source_pieces and settings.target_pieces:
        names = settings.source_pieces, settings.target_pieces
        before, after = (read_processor(bundle.file(name)) for name in names)
        return DictionaryPieces((before, after), source, target, first, beginning)
    moses = MosesSettings(
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
    return Fairseq(moses, source, target, bpe, first=first, beginning=beginning)


def _settings(bundle: Bundle) -> Settings:
    settings = bundle.text_settings(Settings)
    if (settings.source_pieces is None) != (settings.target_pieces is None):
        raise BundleError(
            f"{bundle.path}: text: source_pieces and target_pieces go together; convert the bundle again"
        )
    return settings
