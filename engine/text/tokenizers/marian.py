"""Tokenizers of Marian models, such as OPUS-MT: a SentencePiece model and a vocabulary for each side.

The SentencePiece models normalise the text; as in `transformers`, Moses rules are not applied. Sources of
models with several target languages begin with a token such as ">>deu<<".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers.added import AddedToken, AddedTokens, open_added
from engine.text.tokenizers.left_to_right import SPACE, LeftToRight
from engine.text.tokenizers.mapped_pieces import read_ids
from engine.text.tokenizers.pieces import read_processor

UNKNOWN: Final = "<unk>"
END: Final = "</s>"
BYTE: Final = re.compile("<0x[0-9A-F]{2}>")
OPENING, CLOSING = ">>", "<<"  # around the code of a target language


@dataclass(frozen=True, slots=True)
class MarianSettings:
    """`text` of config.json for the kind "marian".

    source_model, target_model: names of SentencePiece models in the bundle; null: texts are symbols between
        spaces.
    source_vocabulary, target_vocabulary: names of JSON files, symbol to id; null: ids of the SentencePiece
        model.
    languages: symbol of each target language by code.
    sources: codes of the source languages, if there are several.
    added: added token by symbol.
    """

    source_model: str | None
    target_model: str | None
    source_vocabulary: str | None
    target_vocabulary: str | None
    languages: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    added: Mapping[str, AddedToken] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SideVocabulary:
    """Pieces of one side and their ids.

    model: SentencePieceProcessor, or None for symbols between spaces.
    ids: id by symbol.
    symbols: symbol by id.
    """

    model: Any
    ids: Mapping[str, int]
    symbols: Mapping[int, str]

    def split(self, text: str) -> list[str]:
        """Split a text into pieces."""
        return text.split() if self.model is None else list(self.model.encode(text, out_type=str))

    def join(self, pieces: Sequence[str]) -> str:
        """Join pieces to a text; a piece that the SentencePiece model lacks is written unchanged."""
        if self.model is None:
            return " ".join(pieces)
        text: str = self.model.decode_pieces(list(pieces))
        return text.replace(SPACE, " ").strip()


@dataclass(slots=True)
class Marian(LeftToRight):
    """A tokenizer by `MarianSettings`.

    source, target: vocabularies of the two sides.
    special: ids of padding, end and unknown; a text with their symbols gets unk.
    unk: id of pieces that the vocabulary lacks.
    languages: id of each target language by code.
    added: added tokens of the vocabulary.
    language: id that sources begin with, or None.
    beginning: ids that a target begins with.
    """

    source: SideVocabulary
    target: SideVocabulary
    special: frozenset[int]
    unk: int
    languages: Mapping[str, int]
    added: AddedTokens
    language: int | None = None
    beginning: tuple[int, ...] = ()

    def into(self, code: str) -> Marian:
        """Return the same tokenizer for another target language."""
        return replace(self, language=self.languages[code])

    def encode(self, text: str) -> list[int]:
        language, text = self._split_language(text)
        return [*([] if language is None else [language]), *self._ids(self.source, text)]

    def lacks(self, character: str) -> bool:
        """Return whether the source vocabulary lacks a character or splits it into bytes."""
        pieces = self.source.split(character)
        return any(p not in self.source.ids or BYTE.fullmatch(p) is not None for p in pieces)

    def encode_target(self, text: str) -> list[int]:
        return self._ids(self.target, text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens, with the text of added tokens between runs of pieces."""
        text, run = "", list[str]()
        for token in map(int, tokens):
            if token in self.added.shown:
                text, run = self._append_pieces(text, run) + self.added.shown[token], []
            elif token not in self.special and token not in self.added.symbols:
                run.append(self.target.symbols.get(token, UNKNOWN))
        return self._append_pieces(text, run)

    def _append_pieces(self, text: str, run: Sequence[str]) -> str:
        """Append the text of pieces, with the space before them that the library drops."""
        spaced = text and run and (self.target.model is None or run[0].startswith(SPACE))
        return text + (" " if spaced else "") + self.target.join(run) if run else text

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        """Return the indices of tokens that begin a word; the token of a language is no word."""
        side = self.target if target else self.source
        language_first = not target and len(tokens) > 1 and tokens[0] in self.languages.values()
        pieces, first = self.pieces(tokens, target=target), int(language_first)
        starts = (i == first or side.model is None or pieces[i].startswith(SPACE) for i in range(len(pieces)))
        return [i for i, begins in enumerate(starts) if begins and i >= first]

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        symbols = (self.target if target else self.source).symbols
        return [symbols.get(int(t)) or self.added.symbols.get(int(t), UNKNOWN) for t in tokens]

    def _ids(self, side: SideVocabulary, text: str) -> list[int]:
        """Return the ids of a text in a side's vocabulary; a special symbol becomes unk."""

        def encode(part: str) -> list[int]:
            ids = (side.ids.get(piece, self.unk) for piece in side.split(part))
            return [self.unk if token in self.special else token for token in ids]

        return self.added.encode(text, encode)

    def _split_language(self, text: str) -> tuple[int | None, str]:
        """Take the language off a text such as ">>deu<< Hello": its id, or `self.language`, and the rest."""
        code, closing, rest = text.removeprefix(OPENING).partition(CLOSING)
        if text.startswith(OPENING) and closing and code.lower() in self.languages:
            return self.languages[code.lower()], rest
        return self.language, text


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read symbols with their ids. Raises BundleError naming the file."""
    vocabulary = read_ids(path)
    if len(set(vocabulary.values())) != len(vocabulary):
        raise BundleError(f"{path}: gives two symbols the same id; copy it again")
    if UNKNOWN not in vocabulary or END not in vocabulary:
        raise BundleError(f"{path}: lacks {UNKNOWN} or {END}, so it is not the vocabulary of a Marian model")
    return vocabulary


def read_side(model: Path | None, vocabulary: Path | None) -> SideVocabulary:
    """Read one side of a model. Raises BundleError naming the file.

    model: SentencePiece model, or None.
    vocabulary: JSON file of symbols and ids, or None; at least one of the two files is needed.
    """
    processor = None if model is None else read_processor(model)
    if vocabulary is not None:
        ids = read_vocabulary(vocabulary)
    else:
        assert processor is not None
        ids = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    return SideVocabulary(processor, ids, {i: symbol for symbol, i in ids.items()})


def language_codes(vocabulary: Mapping[str, int]) -> dict[str, str]:
    """Return the symbol (">>deu<<") of each target language in a vocabulary, by its code in lower case."""
    marked = (s for s in vocabulary if s.startswith(OPENING) and s.endswith(CLOSING) and len(s) > 4)
    return {symbol[len(OPENING) : -len(CLOSING)].lower(): symbol for symbol in marked}


def open_marian(bundle: Bundle) -> Marian:
    """Open the tokenizer of a bundle by `MarianSettings`.

    Raises BundleError on wrong settings and on vocabularies of another model.
    """
    settings = _settings(bundle)
    sides = []
    for model, vocabulary, size in (
        (settings.source_model, settings.source_vocabulary, bundle.config.source_vocab),
        (settings.target_model, settings.target_vocabulary, bundle.config.target_vocab),
    ):
        side = read_side(
            None if model is None else bundle.file(model),
            None if vocabulary is None else bundle.file(vocabulary),
        )
        if max(side.symbols) >= size:
            name = vocabulary or model
            raise BundleError(
                f"{bundle.path}: {name} has the id {max(side.symbols)}, the model only {size} tokens; the "
                "bundle mixes files of two models: convert it again"
            )
        sides.append(side)
    source, target = sides
    config = bundle.config
    if config.unk is None or source.ids.get(END, config.eos) != config.eos:
        raise BundleError(f"{bundle.path}: its vocabularies give {END} another id; convert it again")
    unknown = sorted(symbol for symbol in settings.languages.values() if symbol not in source.ids)
    if unknown:
        raise BundleError(f"{bundle.path}: the source vocabulary lacks {unknown}; convert it again")
    languages = {code: source.ids[symbol] for code, symbol in settings.languages.items()}
    if languages and bundle.target not in languages:
        raise BundleError(f"{bundle.path}: target {bundle.target!r} is none of {sorted(languages)}")
    special = frozenset((config.pad, config.eos, config.unk))
    added = open_added(bundle, settings.added)
    return Marian(source, target, special, config.unk, languages, added, languages.get(bundle.target))


def _settings(bundle: Bundle) -> MarianSettings:
    """Read the settings of a bundle. Raises BundleError if a side has neither model nor vocabulary."""
    settings = bundle.text_settings(MarianSettings)
    for side in ("source", "target"):
        if getattr(settings, f"{side}_model") is getattr(settings, f"{side}_vocabulary") is None:
            raise BundleError(
                f"{bundle.path}: text: neither {side}_model nor {side}_vocabulary; convert the bundle again"
            )
    return settings
