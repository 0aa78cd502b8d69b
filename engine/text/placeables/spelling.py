"""Amounts and names that the model has read as they are, spelled in its answer as the source spells them.

An answer that has nearly what the source has need not be decoded again: the same digits with other
separators, a name in small letters, with a broken word, or without its last ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from os.path import commonprefix
from typing import Final

from engine.text.placeables.grammar import BEGINNING, KINDS
from engine.text.placeables.names import PARTICLES

TRUSTED: Final = re.compile(
    BEGINNING + f"(?:{'|'.join(kind.pattern for kind in KINDS if kind.treatment == 'read')})"
)
WORD: Final = re.compile(r"[^\W\d_]++(?:-[^\W\d_]++)*+")
MIN_NAME_LETTERS: Final = 3  # of the word of a name that says where it stands: shorter ones are words too
MIN_LOST_TOKENS: Final = 3  # of a word that a model loses; others may have been translated
MIN_COMMON_LETTERS: Final = 2  # that a broken word of a name begins with, as the name does


def spell_amounts(text: str, amounts: set[str]) -> str:
    """Write amounts as the source has them, where the model has written the same digits and signs with other
    separators or in another order: "1,7" for "1.7", "5000 €" for "€5,000".

    text: the answer.
    amounts: numbers and codes that it must have.
    """
    lost = amounts.difference([match[0] for match in TRUSTED.finditer(text)]) if amounts else amounts
    if not lost:
        return text
    written = {_without_separators(amount): amount for amount in lost}

    def rewrite(match: re.Match[str]) -> str:
        return match[0] if match[0] in amounts else written.get(_without_separators(match[0]), match[0])

    return TRUSTED.sub(rewrite, text)


def _without_separators(amount: str) -> tuple[str, str]:
    """The digits of an amount in order, and its other characters but for separators."""
    digits = "".join(filter(str.isdigit, amount))
    return digits, "".join(sorted(c for c in amount if not (c.isdigit() or c.isspace() or c in ".,'’")))


def spell_names(text: str, names: Iterable[str], count: Callable[[str], int]) -> str:
    """Write names as the source has them: "Oscar Wilde" for "Oscar wilde", "George Orwell" for "George" or
    "George Orwill".

    text: the answer.
    names: that it must have. One stays lost where nothing says its place, two places may be meant, or a part
        of it may have been translated.
    count: counts the source tokens of a word.
    """
    for name in names:
        if name not in text:
            text = _respell_name(text, name, count)
    return text


def _respell_name(text: str, name: str, count: Callable[[str], int]) -> str:
    places = [m.span() for m in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)]
    place = (places[0] if len(places) == 1 else None) if places else _name_span(text, name.split(" "), count)
    return text if place is None else text[: place[0]] + name + text[place[1] :]


def _name_span(text: str, name: Sequence[str], count: Callable[[str], int]) -> tuple[int, int] | None:
    """Begin and end of the words of an answer that stand for a name; None where that is in doubt.

    name: its words, of which one must be present, once; those behind it may have been lost.
    count: counts the source tokens of a word.
    """
    places = [match.span() for match in WORD.finditer(text)]
    words = [text[begin:end] for begin, end in places]
    known = (n for n, word in enumerate(name) if words.count(word) == 1 and _is_distinctive(word))
    number = next(known, None)
    first = -1 if number is None or len(name) < 2 else words.index(name[number]) - number
    if number is None or first < 0:
        return None
    after = first
    for word, present in zip(name, words[first:], strict=False):
        beside = after == first or text[places[after - 1][1] : places[after][0]] == " "
        if not beside or (present != word and not present[0].isupper()):
            break
        if present != word and not _resembles(present, word):
            return None
        after += 1
    lost, others = name[after - first :], words[:first] + words[after:]
    doubtful = (
        after <= first + number
        or any(min(count(word), count(word.lower())) < MIN_LOST_TOKENS for word in lost)
        or any(_resembles(other, word) for other in others for word in name)
    )
    return None if doubtful else (places[first][0], places[after - 1][1])


def _is_distinctive(word: str) -> bool:
    return len(word) >= MIN_NAME_LETTERS and word not in PARTICLES


def _resembles(word: str, other: str) -> bool:
    """Whether a word with a capital may be a broken other."""
    common = commonprefix([word.casefold(), other.casefold()])
    return word[0].isupper() and len(common) >= MIN_COMMON_LETTERS
