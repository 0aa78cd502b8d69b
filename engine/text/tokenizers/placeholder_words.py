"""Placeholders for models that have none of their own: words of their vocabulary that they copy.

`placeholders.json` of a bundle names the words (`convoy placeholders` chooses them). In a sentence that a
model is asked with, each is written as a private-use character, so that no text spells one by accident.
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
from engine.text.tokenizer import Tokenizer

FILE: Final = "placeholders.json"
FIRST: Final = 0xF700  # of the private-use characters
MOST: Final = 64
SYMBOL: Final = re.compile(f"[{chr(FIRST)}-{chr(FIRST + MOST - 1)}]")


@dataclass(frozen=True, slots=True)
class BorrowedWord:
    """A word that is one token, `source` and `target` on the two sides."""

    word: str
    source: int
    target: int


class BorrowingTokenizer:
    """A tokenizer for sentences that hold placeholders: there the tokens of the words are these."""

    def __init__(self, base: Tokenizer, borrowed: tuple[BorrowedWord, ...]) -> None:
        self.base, self.borrowed = base, borrowed
        self.placeholders = symbols_of(borrowed)
        self.replaces_unk, self.beginning = base.replaces_unk, base.beginning

    def lacks(self, character: str) -> bool:
        return self.base.lacks(character)

    def encode(self, text: str) -> list[int]:
        """Encode a text with the words that its symbols stand for.

        They are put in as they are where each is one token there, else with spaces around them.
        """
        symbols = SYMBOL.findall(text)
        if not symbols:
            return self.base.encode(text)
        expected = [self._of(symbol).source for symbol in symbols]
        own = {word.source for word in self.borrowed}
        ids: list[int] = []
        for around in ("", " "):
            spelled = SYMBOL.sub(lambda match, s=around: s + self._of(match[0]).word + s, text)  # type: ignore[misc]
            ids = self.base.encode(spelled)
            if [token for token in ids if token in own] == expected:
                break
        return ids

    def encode_target(self, text: str) -> list[int]:
        return [self._of(text).target] if SYMBOL.fullmatch(text) else self.base.encode_target(text)

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
        ids = ((word.target if target else word.source) for word in self.borrowed)
        symbols = dict(zip(ids, self.placeholders, strict=True))
        pieces = self.base.pieces(tokens, target=target)
        return [symbols.get(token, piece) for token, piece in zip(tokens, pieces, strict=True)]

    def _of(self, symbol: str) -> BorrowedWord:
        return self.borrowed[ord(symbol) - FIRST]

    def _restore_symbols(self, text: str, tokens: Sequence[int]) -> str:
        """The text with each word that is a placeholder's token as its symbol: looked for from where the text
        of the tokens before it ends."""
        symbols = {
            word.target: (word.word, symbol)
            for word, symbol in zip(self.borrowed, self.placeholders, strict=True)
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


def symbols_of(borrowed: Sequence[BorrowedWord]) -> tuple[str, ...]:
    return tuple(chr(FIRST + i) for i in range(len(borrowed)))


def read_borrowed(bundle: Bundle, tokenizer: Tokenizer) -> tuple[BorrowedWord, ...]:
    """Read the words that a bundle lends as placeholders; none where its vocabulary has symbols of its own.

    Raises BundleError on a file that is none, or of another vocabulary.
    """
    if tokenizer.placeholders or FILE not in bundle.files():
        return ()
    path, remedy = bundle.file(FILE), f"run: convoy placeholders {bundle.path}"
    description = read_json(path, dict, remedy)
    try:
        borrowed = tuple(
            BorrowedWord(str(word), int(source), int(target)) for word, source, target in description["words"]
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BundleError(f"{path}: names no words ({error}); {remedy}") from error
    config = bundle.config
    sizes = (config.source_vocab, config.target_vocab)
    inside = all(0 <= w.source < sizes[0] and 0 <= w.target < sizes[1] and w.word for w in borrowed)
    apart = len({w.source for w in borrowed}) == len({w.target for w in borrowed}) == len(borrowed) <= MOST
    if not (inside and apart):
        raise BundleError(f"{path}: is of another vocabulary; {remedy}")
    return borrowed


def dump(borrowed: Sequence[BorrowedWord], kept: float) -> bytes:
    """Make the file's content.

    kept: the share of sentences in which the model itself kept them all.
    """
    rows = [[word.word, word.source, word.target] for word in borrowed]
    return json.dumps({"words": rows, "kept": round(kept, 4)}, ensure_ascii=False, indent=1).encode() + b"\n"
