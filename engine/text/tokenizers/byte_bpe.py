"""Byte-level byte pair encoding of GPT-2 and BART (Radford et al. 2019).

A text is cut into words with the spaces before them. The UTF-8 bytes of each word are written as printable
characters and merged pair by pair, the earliest rule first. Every text can be encoded, and decoding returns
the same bytes. The package `tokenizers` does this too, but depends on the client of a model hub.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import regex

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers.added import AddedToken, AddedTokens, open_added
from engine.text.tokenizers.left_to_right import LeftToRight, whole_words
from engine.text.tokenizers.mapped_pieces import read_ids

WORDS: Final = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
CACHED_WORDS: Final = 1 << 16
MAX_MERGED_BYTES: Final = 1_024  # longer words are merged in parts, as merging takes quadratic time


def byte_characters() -> dict[int, str]:
    """Map each byte to a printable character: its own, or a character from 256 on."""
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printing]
    return {b: chr(b) for b in printing} | {b: chr(256 + i) for i, b in enumerate(others)}


CHARACTERS: Final = byte_characters()
BYTES: Final = {character: byte for byte, character in CHARACTERS.items()}
SPACE_CHARACTER: Final = CHARACTERS[32]


@dataclass(frozen=True, slots=True)
class ByteBpeSettings:
    """`text` of config.json for the kind "byte-bpe".

    vocabulary: name of a JSON file, symbol to id.
    merges: name of the file of merge rules.
    first: ids that a source begins with.
    beginning: ids that a target begins with.
    prefix_space: whether a text without a space at its beginning gets one.
    added: added token by symbol.
    prompt: text before each source.
    """

    vocabulary: str
    merges: str
    first: tuple[int, ...]
    beginning: tuple[int, ...]
    prefix_space: bool = False
    added: Mapping[str, AddedToken] = field(default_factory=dict)
    prompt: str = ""


class ByteBpe(LeftToRight):
    """A tokenizer by `ByteBpeSettings`."""

    def __init__(
        self,
        settings: ByteBpeSettings,
        added: AddedTokens,
        ids: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        special: frozenset[int],
        unk: int,
    ) -> None:
        """Make a tokenizer.

        settings: settings of the bundle.
        added: added tokens of the vocabulary.
        ids: symbol to id.
        merges: pairs of symbols to join, earliest rule first.
        special: ids without a text.
        unk: id of symbols that the vocabulary lacks.
        """
        self._ids, self._unk = ids, unk
        self._added, self._special = added, special | set(added.symbols) - set(added.shown)
        self._symbols = {token: symbol for symbol, token in ids.items()} | added.symbols
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._settings, self.beginning = settings, settings.beginning
        self._merged = lru_cache(CACHED_WORDS)(self._merge)

    def encode(self, text: str) -> list[int]:
        return [*self._settings.first, *self.encode_target(self._settings.prompt + text)]

    def encode_target(self, text: str) -> list[int]:
        return self._added.encode(text, self._encode_part)

    def _encode_part(self, text: str) -> list[int]:
        """Return the ids of a text without added tokens; a special symbol becomes unk."""
        if self._settings.prefix_space and not text[0].isspace():
            text = f" {text}"
        pieces = (piece for word in WORDS.findall(text) for piece in self._pieces(word))
        ids = (self._ids.get(piece, self._unk) for piece in pieces)
        return [self._unk if token in self._special else token for token in ids]

    def decode(self, tokens: Sequence[int]) -> str:
        text = b"".join(self._bytes(int(token)) for token in tokens if int(token) not in self._special)
        return text.decode("utf-8", "replace").strip()

    def _bytes(self, token: int) -> bytes:
        """Return the bytes of the text of a token."""
        if token in self._added.shown:
            return self._added.shown[token].encode()
        codes = (BYTES.get(character) for character in self._symbols.get(token, ""))
        return bytes(code for code in codes if code is not None)

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Decode whole words, without the bytes of an unfinished character at the end."""
        return whole_words(self.decode(tokens).rstrip("\ufffd"))

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        names, special = self.pieces(tokens, target=target), self._special
        return self._added.word_starts(
            tokens, special.__contains__, lambda i: names[i].startswith(SPACE_CHARACTER)
        )

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return self.decode(tokens)

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        return [self._symbols.get(int(token), f"<{int(token)}>") for token in tokens]

    def _pieces(self, word: str) -> Sequence[str]:
        """Return the pieces of a word with the space before it, as printable characters."""
        codes = word.encode()
        parts = (codes[at : at + MAX_MERGED_BYTES] for at in range(0, len(codes), MAX_MERGED_BYTES))
        return [p for part in parts for p in self._merged("".join(CHARACTERS[byte] for byte in part))]

    def _merge(self, word: str) -> tuple[str, ...]:
        """Join all occurrences of the pair with the earliest rule, again and again until no rule fits."""
        parts = list(word)
        while len(parts) > 1:
            pairs = zip(parts, parts[1:], strict=False)
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            joined, at = list[str](), 0
            while at < len(parts):
                joins = at + 1 < len(parts) and (parts[at], parts[at + 1]) == best
                joined.append(parts[at] + parts[at + 1] if joins else parts[at])
                at += 2 if joins else 1
            parts = joined
        return tuple(parts)


def read_merges(path: Path, *, counted: bool = False) -> list[tuple[str, str]]:
    """Read merge rules, one a line, earliest first. Raises BundleError naming the file.

    path: file of the rules.
    counted: whether a count may follow a rule.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as text ({error}); copy it again") from error
    rules = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if not all(len(rule) in (2, 2 + counted) for rule in rules):
        raise BundleError(f"{path}: each line must hold two symbols; copy it again")
    return [(rule[0], rule[1]) for rule in rules]


def open_byte_bpe(bundle: Bundle) -> ByteBpe:
    """Open the tokenizer of a bundle by `ByteBpeSettings`.

    Raises BundleError on wrong settings and on files of another model.
    """
    settings, config = bundle.text_settings(ByteBpeSettings), bundle.config
    ids = read_ids(bundle.file(settings.vocabulary))
    special = frozenset(i for i in (config.bos, config.pad, config.eos, config.unk) if i is not None)
    prefix_ids = {*settings.first, *settings.beginning}
    if config.unk is None or not all(0 <= token < config.target_vocab for token in prefix_ids):
        raise BundleError(
            f"{bundle.path}: its text settings have ids that the model lacks: convert the bundle again"
        )
    # symbols without a row in the model, such as BART's <mask>, are left out
    fitting = {symbol: token for symbol, token in ids.items() if token < config.source_vocab}
    added, merges = open_added(bundle, settings.added), read_merges(bundle.file(settings.merges))
    return ByteBpe(settings, added, fitting, merges, special, config.unk)
