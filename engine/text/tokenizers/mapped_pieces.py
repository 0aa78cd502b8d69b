"""SentencePiece pieces with other ids, and symbols for languages, as in families of Hugging Face.

An id is SentencePiece's (T5), or SentencePiece's plus 1 (mBART-50, NLLB-200) or plus 103 (PEGASUS), or from a
list (M2M-100). Sources or targets of multilingual models begin with the symbol of a language.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.bundle.json_file import read_json
from engine.errors import BundleError
from engine.text.tokenizers.added import AddedToken, AddedTokens, open_added
from engine.text.tokenizers.left_to_right import SPACE, LeftToRight
from engine.text.tokenizers.pieces import read_processor

SYMBOL_SIDES: Final = ("none", "source", "target")


@dataclass(frozen=True, slots=True)
class PieceSettings:
    """`text` of config.json for the kind "mapped-pieces".

    model: name of the SentencePiece model.
    vocabulary: name of a JSON file, symbol to id; null: an id is the SentencePiece model's plus `offset`.
    offset: difference of ids, without a vocabulary.
    special: ids of further symbols.
    added: added token by symbol.
    languages: symbol of each target language by code.
    sources: codes of the source languages, if there are several.
    source_symbol: language whose symbol a source begins with, none | source | target.
    written: whether that symbol is text before the source, which is split with it, and not an id.
    target_symbol: whether a target begins with the symbol of its language.
    prompt: text before each source.
    newline: symbol of a line break.
    first: ids that each source begins with.
    last: ids that each source ends with.
    composed: whether texts are changed to Unicode's form NFC first.
    """

    model: str
    vocabulary: str | None = None
    offset: int = 0
    special: Mapping[str, int] = field(default_factory=dict)
    added: Mapping[str, AddedToken] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    source_symbol: str = "none"
    written: bool = False
    target_symbol: bool = False
    prompt: str = ""
    newline: str | None = None
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    composed: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Ids of pieces.

    ids: id of the model by id of the SentencePiece model.
    pieces: id of the SentencePiece model by id of the model.
    symbols: symbol of each other id.
    """

    ids: Sequence[int]
    pieces: Mapping[int, int]
    symbols: Mapping[int, str]


@dataclass(slots=True)
class MappedPieces(LeftToRight):
    """A tokenizer by `PieceSettings`.

    processor: the SentencePiece model.
    table: ids of the pieces.
    settings: settings of the bundle.
    unk: id of pieces that the vocabulary lacks.
    added: added tokens of the vocabulary.
    beginning: ids that a target begins with.
    first: ids that a source begins with.
    opening: text before each source.
    """

    processor: Any
    table: Table
    settings: PieceSettings
    unk: int
    added: AddedTokens
    beginning: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    opening: str = ""

    @property
    def languages(self) -> Mapping[str, int]:
        """Token of each target language, by code."""
        settings = self.settings
        return {code: settings.special[symbol] for code, symbol in settings.languages.items()}

    def between(self, source: str, target: str) -> MappedPieces:
        """Return the same tokenizer for other languages.

        source, target: codes of the languages; a code that is not in `languages` gets no symbol.
        """
        settings, ids = self.settings, self.languages
        # language whose symbol a source begins with, if the model has such a symbol
        language = {"source": source, "target": target}.get(settings.source_symbol)
        first, opening = settings.first, settings.prompt
        if language is not None and language in ids:
            if settings.written:
                opening = f"{settings.languages[language]} {opening}"
            else:
                first = (*first, ids[language])
        beginning = (ids[target],) if settings.target_symbol and target in ids else ()
        return replace(self, first=first, opening=opening, beginning=beginning)

    def lacks(self, character: str) -> bool:
        return self.unk in self._ids(character)

    def encode(self, text: str) -> list[int]:
        return [*self.first, *self._ids(self.opening + text), *self.settings.last]

    def encode_target(self, text: str) -> list[int]:
        return self._ids(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens, with the text of added tokens between runs of pieces."""
        text, run = "", list[int]()
        for token in map(int, tokens):
            if token in self.added.shown:
                text, run = text + self._decode_run(run, after=text) + self.added.shown[token], []
            elif token in self.table.pieces:
                run.append(self.table.pieces[token])
        text = (text + self._decode_run(run, after=text)).strip()
        return text if self.settings.newline is None else text.replace(self.settings.newline, "\n")

    def _decode_run(self, run: Sequence[int], *, after: str) -> str:
        """Decode pieces, with the space before them that the library drops.

        after: text before the pieces.
        """
        text: str = self.processor.decode(list(run)) if run else ""
        return f" {text}" if after and run and self.processor.id_to_piece(run[0]).startswith(SPACE) else text

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        """Return the indices of tokens that begin a word; the symbol of a language is no word."""
        names, pieces = self.pieces(tokens, target=target), self.table.pieces
        return self.added.word_starts(
            tokens,
            lambda token: token not in pieces and token not in self.added.shown,
            lambda i: names[i].startswith(SPACE),
        )

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        return [self._symbol(int(token)) for token in tokens]

    def _symbol(self, token: int) -> str:
        """Return the piece or the symbol of a token."""
        if token in self.table.pieces:
            piece: str = self.processor.id_to_piece(self.table.pieces[token])
            return piece
        return self.table.symbols.get(token, "<unk>" if token == self.unk else f"<{token}>")

    def _ids(self, text: str) -> list[int]:
        table = self.table.ids
        text = unicodedata.normalize("NFC", text) if self.settings.composed else text
        return self.added.encode(text, lambda part: [table[piece] for piece in self.processor.encode(part)])


def open_mapped_pieces(bundle: Bundle) -> MappedPieces:
    """Open the tokenizer of a bundle by `PieceSettings`. Raises BundleError on files of another model."""
    settings, config = _settings(bundle), bundle.config
    if config.unk is None:
        raise BundleError(f"{bundle.path}: its config has no unk: convert the bundle again")
    processor = read_processor(bundle.file(settings.model))
    vocabulary_ids = None if settings.vocabulary is None else read_ids(bundle.file(settings.vocabulary))
    table = table_of(processor, settings, vocabulary_ids, config.unk)
    largest = max((*table.ids, *table.symbols, *settings.first, *settings.last), default=0)
    if largest >= min(config.source_vocab, config.target_vocab):
        raise BundleError(
            f"{bundle.path}: its text has the id {largest}, the model fewer tokens; the bundle mixes files "
            "of two models: convert it again"
        )
    tokenizer = MappedPieces(processor, table, settings, config.unk, open_added(bundle, settings.added))
    return tokenizer.between(bundle.source, bundle.target)


def table_of(
    processor: Any, settings: PieceSettings, vocabulary_ids: Mapping[str, int] | None, unk: int
) -> Table:
    """Map the pieces of a SentencePiece model to the ids of a model.

    processor: the SentencePiece model.
    settings: offset and special symbols.
    vocabulary_ids: symbol to id, or None to use the offset; a piece that it lacks becomes `unk`.
    unk: id of pieces that the vocabulary lacks.
    """
    count = range(processor.get_piece_size())
    # numbers of the pieces without a text
    silent = {
        i for i in count if processor.is_control(i) or processor.is_unknown(i) or processor.is_unused(i)
    }
    if vocabulary_ids is None:
        ids = [unk if processor.is_unknown(i) else i + settings.offset for i in count]
    else:
        ids = [vocabulary_ids.get(processor.id_to_piece(i), unk) for i in count]
    special = dict(settings.special) | {symbol: added.token for symbol, added in settings.added.items()}
    pieces = {token: i for i, token in enumerate(ids) if i not in silent and token != unk}
    symbols = {token: symbol for symbol, token in special.items() if token not in pieces}
    return Table(ids, pieces, symbols)


def read_ids(path: Path) -> dict[str, int]:
    """Read symbols with their ids. Raises BundleError naming the file."""
    ids = read_json(path, dict, "copy it again")
    if not all(type(i) is int and i >= 0 for i in ids.values()):
        raise BundleError(f"{path}: must be an object of symbols with their ids; copy it again")
    return ids


def _settings(bundle: Bundle) -> PieceSettings:
    """Read the settings of a bundle. Raises BundleError that names every error."""
    settings = bundle.text_settings(PieceSettings)
    lacking = [symbol for symbol in settings.languages.values() if symbol not in settings.special]
    problems = [f"the language symbols {lacking[:3]} have no ids"] if lacking else []
    if any(token < 0 for token in settings.special.values()):
        problems.append("an id of a special symbol is negative")
    if settings.source_symbol not in SYMBOL_SIDES:
        problems.append(
            f"source_symbol must be one of {', '.join(SYMBOL_SIDES)}, not {settings.source_symbol!r}"
        )
    if problems:
        raise BundleError(f"{bundle.path}: text: {'; '.join(problems)}; convert the bundle again")
    return settings
