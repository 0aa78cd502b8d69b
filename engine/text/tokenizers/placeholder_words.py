"""Placeholders for models without placeholder symbols: words of the vocabulary that the model copies.

`placeholders.json` of a bundle names the words (`convoy placeholders` chooses them). Before encoding, a
sentence has a private-use character for each word, since a user's text may contain the word itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.bundle.json_file import read_json
from engine.errors import BundleError
from engine.text.tokenizers.tokenizer import Tokenizer

PLACEHOLDERS_FILE: Final = "placeholders.json"
# private-use character of the first word; the others follow
FIRST_SYMBOL: Final = 0xF700
MAX_WORDS: Final = 64
SYMBOL: Final = re.compile(f"[{chr(FIRST_SYMBOL)}-{chr(FIRST_SYMBOL + MAX_WORDS - 1)}]")


@dataclass(frozen=True, slots=True)
class PlaceholderWord:
    """A word that is a single token.

    source, target: ids of the token on the two sides.
    """

    word: str
    source: int
    target: int


class PlaceholderTokenizer:
    """A tokenizer of sentences with symbols of placeholder words.

    base: tokenizer of the bundle.
    words: placeholder word of each symbol.
    """

    def __init__(self, base: Tokenizer, words: tuple[PlaceholderWord, ...]) -> None:
        self.base, self.placeholder_words = base, words
        self.placeholders = symbols_of(words)
        self.replaces_unk, self.beginning = base.replaces_unk, base.beginning

    def lacks(self, character: str) -> bool:
        return self.base.lacks(character)

    def encode(self, text: str) -> list[int]:
        """Encode a text with a placeholder word in the place of each symbol.

        The words get spaces around them if one of them is not a single token without spaces.
        """
        symbols = SYMBOL.findall(text)
        if not symbols:
            return self.base.encode(text)
        expected = [self._word_of(symbol).source for symbol in symbols]
        own = {word.source for word in self.placeholder_words}
        ids: list[int] = []
        for around in ("", " "):
            spelled = SYMBOL.sub(lambda match, s=around: s + self._word_of(match[0]).word + s, text)  # type: ignore[misc]
            ids = self.base.encode(spelled)
            if [token for token in ids if token in own] == expected:
                break
        return ids

    def encode_target(self, text: str) -> list[int]:
        return [self._word_of(text).target] if SYMBOL.fullmatch(text) else self.base.encode_target(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._restore_symbols(self.base.decode(tokens), tokens)

    def replace_unknown(self, tokens: Sequence[int], attention: Any, source: str) -> str:
        return self._restore_symbols(self.base.replace_unknown(tokens, attention, source), tokens)

    def decode_whole_words(self, tokens: Sequence[int]) -> str:
        return self._restore_symbols(self.base.decode_whole_words(tokens), tokens)

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        return self.base.words(tokens, target=target)

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return self.base.word(tokens, target=target)

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        ids = ((word.target if target else word.source) for word in self.placeholder_words)
        symbols = dict(zip(ids, self.placeholders, strict=True))
        pieces = self.base.pieces(tokens, target=target)
        return [symbols.get(token, piece) for token, piece in zip(tokens, pieces, strict=True)]

    def _word_of(self, symbol: str) -> PlaceholderWord:
        return self.placeholder_words[ord(symbol) - FIRST_SYMBOL]

    def _restore_symbols(self, text: str, tokens: Sequence[int]) -> str:
        """Replace each placeholder word in a decoded text by its symbol.

        The word of token i is searched for near the end of the text of tokens 0 to i.
        """
        symbols = {
            word.target: (word.word, symbol)
            for word, symbol in zip(self.placeholder_words, self.placeholders, strict=True)
        }
        parts, position = list[str](), 0
        for i, token in enumerate(tokens):
            if token not in symbols:
                continue
            word, symbol = symbols[token]
            begin = max(position, len(self.base.decode(tokens[: i + 1])) - len(word) - 1)
            at = text.find(word, begin)
            at = text.find(word, position) if at < 0 else at
            if at >= 0:
                parts += [text[position:at], symbol]
                position = at + len(word)
        return "".join([*parts, text[position:]])


def symbols_of(words: Sequence[PlaceholderWord]) -> tuple[str, ...]:
    return tuple(chr(FIRST_SYMBOL + i) for i in range(len(words)))


def read_placeholder_words(bundle: Bundle, tokenizer: Tokenizer) -> tuple[PlaceholderWord, ...]:
    """Read the placeholder words of a bundle, or () if its vocabulary has placeholder symbols.

    Raises BundleError on a file without words or with words of another vocabulary.
    """
    if tokenizer.placeholders or PLACEHOLDERS_FILE not in bundle.files():
        return ()
    path, remedy = bundle.file(PLACEHOLDERS_FILE), f"run: convoy placeholders {bundle.path}"
    description = read_json(path, dict, remedy)
    try:
        words = tuple(
            PlaceholderWord(str(word), int(source), int(target))
            for word, source, target in description["words"]
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BundleError(f"{path}: has no valid list of words ({error}); {remedy}") from error
    config = bundle.config
    sizes = (config.source_vocab, config.target_vocab)
    inside = all(0 <= w.source < sizes[0] and 0 <= w.target < sizes[1] and w.word for w in words)
    apart = len({w.source for w in words}) == len({w.target for w in words}) == len(words) <= MAX_WORDS
    if not (inside and apart):
        raise BundleError(f"{path}: has words of another vocabulary; {remedy}")
    return words


def dump(words: Sequence[PlaceholderWord], kept: float) -> bytes:
    """Return the content of `placeholders.json`.

    words: placeholder words.
    kept: share of sentences in which the model copied a word, from 0 to 1.
    """
    rows = [[word.word, word.source, word.target] for word in words]
    return json.dumps({"words": rows, "kept": round(kept, 4)}, ensure_ascii=False, indent=1).encode() + b"\n"
