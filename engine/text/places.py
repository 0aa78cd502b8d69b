"""Positions of tokens in a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Generator, Sequence
from html import unescape
from typing import Final

from engine.text.tokenizers.left_to_right import SPACE

JOINER: Final = "@@"  # ends a piece of subword-nmt that is not the last one of its word
STEP_CHARACTERS: Final = 2_000  # folded at a time
STEP_PIECES: Final = 200
MAX_GAP: Final = 64  # folded characters between two pieces

Range = tuple[int, int]


def locate(text: str, pieces: Sequence[str]) -> Generator[None, None, list[Range | None]]:
    """Find the range of characters of each token in a text, in steps; None for a token that is not found.

    text: text that was encoded.
    pieces: vocabulary's symbol of each token.

    Tokenizers normalise, so text and pieces are compared folded (NFKC, case) and without white space.
    """
    folded, origin = list[str](), list[int]()
    for begin in range(0, len(text), STEP_CHARACTERS):
        part, places = _fold_characters(text[begin : begin + STEP_CHARACTERS])
        folded.append(part)
        origin += [begin + place for place in places]
        yield
    bodies = dict[str, str]()  # folded pieces
    plain, ranges, cursor, skipped = "".join(folded), list[Range | None](), 0, 0
    for number, piece in enumerate(pieces):
        if number % STEP_PIECES == STEP_PIECES - 1:
            yield
        if piece not in bodies:
            bodies[piece] = _fold_characters(_plain_piece(piece))[0]
        body = bodies[piece]
        at = plain.find(body, cursor, cursor + MAX_GAP + len(body)) if body else -1
        if at < 0 and body[:1].isalnum():  # the model did not read sentences without letters
            skipped = max(skipped, cursor)  # no letter or digit is between
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
