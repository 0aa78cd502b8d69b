"""Positions of tokens in a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import unescape
from typing import Final

from engine.text.tokenizers.pieces import SPACE

JOINER: Final = "@@"  # ends a piece of subword-nmt that is not the last one of its word
MAX_GAP: Final = 64  # folded characters between two pieces

Range = tuple[int, int]


def locate(text: str, pieces: Sequence[str]) -> list[Range | None]:
    """Find the range of characters of each token in a text; None for a token that is not found.

    text: text that was encoded.
    pieces: vocabulary's symbol of each token.

    Tokenizers normalise, so text and pieces are compared folded (NFKC, case) and without white space.
    """
    plain, origin = _fold_characters(text)
    ranges: list[Range | None] = []
    cursor = 0
    for piece in pieces:
        body, _ = _fold_characters(_plain_piece(piece))
        at = plain.find(body, cursor, cursor + MAX_GAP + len(body)) if body else -1
        if at < 0 and body[:1].isalnum():  # the model did not read sentences without letters
            skipped = cursor
            while skipped < len(plain) and not plain[skipped].isalnum():
                skipped += 1
            at = plain.find(body, skipped, skipped + MAX_GAP + len(body)) if skipped > cursor else -1
        if at < 0:
            ranges.append(None)
            continue
        cursor = at + len(body)
        ranges.append((origin[at], origin[cursor - 1] + 1))
    return ranges


def _plain_piece(piece: str) -> str:
    if piece == "@-@":  # Moses' hyphen inside a word
        return "-"
    return unescape(piece.removesuffix(JOINER).replace(SPACE, " "))


def _fold_characters(text: str) -> tuple[str, list[int]]:
    """Return a text folded and without white space, and the position of each of its characters."""
    parts, origin = list[str](), list[int]()
    for place, character in enumerate(text):
        folded = unicodedata.normalize("NFKC", character).casefold() if character > "~" else character.lower()
        if not folded.isspace():
            parts.append(folded)
            origin += [place] * len(folded)
    return "".join(parts), origin
