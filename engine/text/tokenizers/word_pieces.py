"""WordPiece, BERT's pieces (Devlin et al. 2019): words are cut from the left into the longest known pieces.

Han characters and punctuation are words of their own. A piece that continues a word begins with "##".
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers.added import AddedToken, AddedTokens, open_added
from engine.text.tokenizers.left_to_right import LeftToRight

CONTINUED: Final = "##"
MAX_WORD_CHARACTERS: Final = 100  # BERT's limit; a longer word is unknown
MAX_PIECE_CHARACTERS: Final = 256
CACHED_WORDS: Final = 1 << 16
# blocks of Han characters in BERT's rules
HAN: Final = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)
CLOSING: Final = frozenset(".?!,")  # no space comes before them
APOSTROPHE: Final = "'"


@dataclass(frozen=True, slots=True)
class WordPieceSettings:
    """`text` of config.json for the kind "word-pieces".

    vocabulary: name of a file of symbols, one a line in the order of ids.
    first: ids that a source begins with.
    lowercase: whether words are lowered.
    strip_accents: whether accents are removed.
    split_han: whether each Han character is a word.
    added: added token by symbol.
    prompt: text before each source.
    """

    vocabulary: str
    first: tuple[int, ...]
    lowercase: bool = False
    strip_accents: bool = False
    split_han: bool = True
    added: Mapping[str, AddedToken] = field(default_factory=dict)
    prompt: str = ""


class WordPieces(LeftToRight):
    """A tokenizer by `WordPieceSettings`."""

    def __init__(
        self,
        settings: WordPieceSettings,
        added: AddedTokens,
        symbols: Sequence[str],
        special: frozenset[int],
        unk: int,
    ) -> None:
        """Make a tokenizer.

        settings: settings of the bundle.
        added: added tokens of the vocabulary.
        symbols: symbol of each id.
        special: ids without a text.
        unk: id of words that the vocabulary lacks.
        """
        self._settings, self._added, self._unk = settings, added, unk
        self._symbols, self._special = symbols, special | set(added.symbols) - set(added.shown)
        self._ids = {symbol: token for token, symbol in enumerate(symbols) if token not in self._special}
        self._longest = max(map(len, symbols), default=0)
        self._cut = lru_cache(CACHED_WORDS)(self._cut_word)

    def lacks(self, character: str) -> bool:
        return self._unk in self.encode_target(character)

    def encode(self, text: str) -> list[int]:
        return [*self._settings.first, *self.encode_target(self._settings.prompt + text)]

    def encode_target(self, text: str) -> list[int]:
        return self._added.encode(
            text, lambda part: [token for word in self._words_of(part) for token in self._cut(word)]
        )

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self._spelled(tokens))

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        """Decode whole words: all except the last one, which a piece may continue."""
        return "".join(self._spelled(tokens)[:-1])

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        return [
            i
            for i, token in enumerate(map(int, tokens))
            if token not in self._special and not self._symbol(token).startswith(CONTINUED)
        ]

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return self.decode(tokens).removeprefix(CONTINUED)

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        return [self._symbol(int(token)) for token in tokens]

    def _symbol(self, token: int) -> str:
        """Return the symbol of an id; a model may have more rows than its vocabulary has symbols."""
        added = self._added.symbols.get(token)
        return added or (self._symbols[token] if token < len(self._symbols) else f"<{token}>")

    def _spelled(self, tokens: Sequence[int]) -> list[str]:
        """Return the words of a target, each with the space before it.

        No space is between two words if one of them is a Han character, and the spaces at punctuation are
        those of BERT's library.
        """
        parts = list[list[str]]()  # pieces of each word
        for token in map(int, tokens):
            known = token < len(self._symbols) or token in self._added.shown
            if token in self._special or not known:
                continue
            symbol = self._symbol(token)
            if parts and symbol.startswith(CONTINUED):
                parts[-1].append(symbol.removeprefix(CONTINUED))
            else:
                parts.append([symbol])
        words = ["".join(pieces) for pieces in parts]
        return [word if not i or self._joined(words, i) else f" {word}" for i, word in enumerate(words)]

    def _joined(self, words: Sequence[str], i: int) -> bool:
        """Return whether no space is before word `i`."""
        before, word = words[i - 1], words[i]
        if self._settings.split_han and (_is_wide(before[-1]) or _is_wide(word[0])):
            return True
        inner = word == APOSTROPHE and i + 1 < len(words) and words[i + 1] not in CLOSING
        return inner or word in CLOSING or (i > 1 and before == APOSTROPHE)

    def _words_of(self, text: str) -> Iterator[str]:
        """Yield the words of a text, and each mark of punctuation."""
        settings = self._settings
        clean = "".join(map(_clean, text))
        if settings.split_han:
            clean = "".join(f" {c} " if _is_han(c) else c for c in clean)
        for spaced in unicodedata.normalize("NFC", clean).split():
            word = spaced.lower() if settings.lowercase else spaced
            if settings.strip_accents:
                decomposed = unicodedata.normalize("NFD", word)
                word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
            begin = 0
            for at, character in enumerate(word):
                if _is_mark(character):
                    yield from filter(None, (word[begin:at], character))
                    begin = at + 1
            if word[begin:]:
                yield word[begin:]

    def _cut_word(self, word: str) -> tuple[int, ...]:
        """Return the longest pieces of a word from the left; unk if there is none at some position."""
        if len(word) > MAX_WORD_CHARACTERS:
            return (self._unk,)
        ids, begin = list[int](), 0
        while begin < len(word):
            mark = CONTINUED if begin else ""
            longest = min(len(word), begin + self._longest)
            ends = (end for end in range(longest, begin, -1) if mark + word[begin:end] in self._ids)
            end = next(ends, None)
            if end is None:
                return (self._unk,)
            ids.append(self._ids[mark + word[begin:end]])
            begin = end
        return tuple(ids)


def _clean(character: str) -> str:
    """Return a space for white space, nothing for control characters, otherwise the character."""
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return " "
    return "" if character == "\ufffd" or unicodedata.category(character)[0] == "C" else character


def _is_han(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in HAN)


def _is_wide(character: str) -> bool:
    """Return whether a character belongs to a text without spaces: Han, or punctuation of its width."""
    return _is_han(character) or (_is_mark(character) and unicodedata.east_asian_width(character) in "WF")


def _is_mark(character: str) -> bool:
    """Return whether BERT's rules count a character as punctuation: also the symbols of ASCII, such as $."""
    ascii_mark = "!" <= character <= "~" and not character.isalnum()
    return ascii_mark or unicodedata.category(character)[0] == "P"


def read_symbols(path: Path) -> list[str]:
    """Read symbols, one a line in the order of ids. Raises BundleError that names the file."""
    try:
        symbols = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as text ({error}); copy it again") from error
    symbols = [symbol.rstrip("\r") for symbol in symbols]
    if not all(0 < len(symbol) <= MAX_PIECE_CHARACTERS for symbol in symbols):
        raise BundleError(f"{path}: each line must hold one symbol; copy it again")
    return symbols


def open_word_pieces(bundle: Bundle) -> WordPieces:
    """Open the tokenizer of a bundle by `WordPieceSettings`.

    Raises BundleError on wrong settings and on a vocabulary of another model.
    """
    settings, config = bundle.text_settings(WordPieceSettings), bundle.config
    symbols = read_symbols(bundle.file(settings.vocabulary))
    if config.unk is None or not all(0 <= token < config.source_vocab for token in settings.first):
        raise BundleError(
            f"{bundle.path}: its text settings have ids that the model lacks: convert the bundle again"
        )
    special = frozenset(i for i in (config.bos, config.pad, config.eos, config.unk) if i is not None)
    fitting = symbols[: min(config.source_vocab, config.target_vocab)]
    return WordPieces(
        settings, open_added(bundle, settings.added), fitting, special | set(settings.first), config.unk
    )
