"""Tokens added to a vocabulary after training, such as `<hl>`; they are found before a text is split."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.bundle.bundle import Bundle
from engine.errors import BundleError


@dataclass(frozen=True, slots=True)
class AddedToken:
    """An added token. Its options have the names of the package `tokenizers`.

    token: id of the token.
    lstrip, rstrip: whether spaces before and after belong to the token.
    single_word: whether the token is found only as a whole word.
    shown: whether answers show the token.
    """

    token: int
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    shown: bool = True


class AddedTokens:
    """The added tokens of a vocabulary."""

    def __init__(self, tokens: Mapping[str, AddedToken]) -> None:
        """Index added tokens.

        tokens: added token by symbol.
        """
        self._tokens = tokens
        self.symbols = {added.token: symbol for symbol, added in tokens.items()}
        self.shown = {added.token: symbol for symbol, added in tokens.items() if added.shown}
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_as_pattern, longest_first, map(tokens.get, longest_first))))

    def encode(self, text: str, encode: Callable[[str], Iterable[int]]) -> list[int]:
        """Encode a text with added tokens.

        text: any text.
        encode: returns the ids of a text without added tokens.
        """
        ids, begin, strip = list[int](), 0, False
        for match in self._pattern.finditer(text) if self._tokens else ():
            added = self._tokens[match[0]]
            if before := _stripped(text[begin : match.start()], left=strip, right=added.lstrip):
                ids += encode(before)
            ids.append(added.token)
            begin, strip = match.end(), added.rstrip
        if rest := _stripped(text[begin:], left=strip, right=False):
            ids += encode(rest)
        return ids

    def word_starts(
        self, tokens: Sequence[int], silent: Callable[[int], bool], spaced: Callable[[int], bool]
    ) -> list[int]:
        """Return the indices of tokens that begin a word; an added token is a word.

        tokens: ids of a text.
        silent: returns whether an id has no text.
        spaced: returns whether the token at an index begins with a space.
        """
        starts, after_added = list[int](), True
        for i, token in enumerate(map(int, tokens)):
            if silent(token):
                continue
            added = token in self.shown
            if added or after_added or spaced(i):
                starts.append(i)
            after_added = added
        return starts


def open_added(bundle: Bundle, tokens: Mapping[str, AddedToken]) -> AddedTokens:
    """Return the added tokens of a bundle. Raises BundleError if the model lacks their ids.

    bundle: bundle of the tokens.
    tokens: added token by symbol.
    """
    config = bundle.config
    most, special = min(config.source_vocab, config.target_vocab), (config.bos, config.pad, config.eos)
    for symbol, added in tokens.items():
        if not symbol or not 0 <= added.token < most or added.token in (*special, config.unk):
            raise BundleError(
                f"{bundle.path}: the added token {symbol!r} has the id {added.token}, which is special or "
                f"not below the model's {most:,} tokens: convert it again"
            )
    return AddedTokens(tokens)


def _as_pattern(symbol: str, added: AddedToken | None) -> str:
    escaped = re.escape(symbol)
    return rf"(?<!\w){escaped}(?!\w)" if added is not None and added.single_word else escaped


def _stripped(text: str, *, left: bool, right: bool) -> str:
    text = text.lstrip() if left else text
    return text.rstrip() if right else text
