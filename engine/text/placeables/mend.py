"""Repair of targets with missing or repeated placeholders, by attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.text.tokenizers.left_to_right import SPACE


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a target: at token `at`, remove `remove` tokens and insert `symbol`, if any."""

    at: int
    remove: int
    symbol: str | None


def whole(pieces: Sequence[str], expected_symbols: Sequence[str], symbols: frozenset[str]) -> bool:
    """Return whether a target has each expected placeholder exactly once, and no other.

    pieces: vocabulary pieces of the target.
    expected_symbols: placeholders of the source.
    symbols: all placeholders of the model.
    """
    return sorted(p for p in pieces if p in symbols) == sorted(expected_symbols)


def mend(
    pieces: Sequence[str],
    columns: Mapping[str, int],
    symbols: frozenset[str],
    attention: Any,
    words: Sequence[int],
) -> list[Edit]:
    """Return edits that give a target each expected placeholder exactly once and no other.

    pieces: vocabulary pieces of the target.
    columns: position of each expected placeholder in the source.
    symbols: all placeholders of the model.
    attention: float array [target + 1, source].
    words: positions of the pieces that begin a word.

    Returns edits, last position first. If a placeholder came out twice, the copy that attends most to it
    stays. Surplus placeholders are replaced by missing ones; further missing ones are inserted where the
    attention to them is largest.
    """
    # position of the copy of each placeholder that stays, and positions of surplus ones
    at: dict[str, int] = {}
    spare: list[int] = []
    for i, piece in enumerate(pieces):
        if piece not in symbols:
            continue
        column = columns.get(piece)
        if column is None:
            spare.append(i)
        elif piece not in at:
            at[piece] = i
        elif attention[i, column] > attention[at[piece], column]:
            spare.append(at[piece])
            at[piece] = i
        else:
            spare.append(i)
    edits: list[Edit] = []
    for symbol, column in columns.items():
        if symbol in at:
            continue
        if spare:
            best = max(spare, key=lambda i: attention[i, column])
            spare.remove(best)
            edits.append(Edit(best, 1, symbol))
        else:
            edits.append(Edit(_insertion_point(pieces, attention[:, column], symbols, words), 0, symbol))
    edits += [_removal_of(pieces, i) for i in spare]
    # at one position, removals come first, then insertions in reverse: each goes before the last one
    ordered = sorted(enumerate(edits), key=lambda pair: (-pair[1].at, -pair[1].remove, -pair[0]))
    return [edit for _, edit in ordered]


def _removal_of(pieces: Sequence[str], at: int) -> Edit:
    """Return an edit that removes the placeholder at `at`, and a space before it unless a word follows."""
    after = pieces[at + 1] if at + 1 < len(pieces) else SPACE
    alone = at > 0 and pieces[at - 1] == SPACE and not after[:1].isalnum()
    return Edit(at - alone, 1 + alone, None)


def _insertion_point(
    pieces: Sequence[str], weights: Any, symbols: frozenset[str], words: Sequence[int]
) -> int:
    """Return the position of the word that attends most to a placeholder, or of the final punctuation.

    weights: attention of each target piece, end-of-sentence last, to the placeholder in the source.
    """
    free = [i for i in range(len(pieces) + 1) if i == len(pieces) or pieces[i] not in symbols]
    best = max(free, key=lambda i: weights[i])
    if best < len(pieces) and any(c.isalnum() for c in pieces[best]):
        return max((word for word in words if word <= best), default=0)
    while best and best not in words and not any(c.isalnum() for c in pieces[best - 1]):
        best -= 1
    return best
