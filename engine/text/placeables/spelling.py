"""Spelling of amounts and names in answers, for phrases that the model read without placeholders.

An answer is mended, and not decoded again, if it has the same digits with other separators, or a name in
small letters, with a misspelled word or without its last words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from os.path import commonprefix
from typing import Final

from engine.text.given_names import PARTICLES
from engine.text.languages.rules import LETTERS
from engine.text.placeables.grammar import BEGINNING, KINDS

TRUSTED: Final = re.compile(
    BEGINNING + f"(?:{'|'.join(kind.pattern for kind in KINDS if kind.treatment == 'read')})"
)
WORD: Final = re.compile(r"[^\W\d_]++(?:-[^\W\d_]++)*+")
MIN_NAME_LETTERS: Final = 3  # shorter words of a name may be ordinary words of an answer
MIN_LOST_TOKENS: Final = 3  # a missing word of fewer tokens may have been translated
MIN_COMMON_LETTERS: Final = 2  # least common beginning of a misspelled word and its name
MIN_COMMON_SHARE: Final = 0.8  # common beginning of a word and its translation, as a share of the word
MAX_ENDING_LETTERS: Final = 3  # letters that a translation has more than its word


def spell_amounts(text: str, amounts: set[str]) -> str:
    """Replace amounts that have other separators or another order than in the source.

    So "1.7" replaces "1,7", and "€5,000" replaces "5000 €".

    text: answer.
    amounts: numbers and codes of the source.
    """
    lost = amounts.difference([match[0] for match in TRUSTED.finditer(text)]) if amounts else amounts
    if not lost:
        return text
    written = {_without_separators(amount): amount for amount in lost}

    def rewrite(match: re.Match[str]) -> str:
        return match[0] if match[0] in amounts else written.get(_without_separators(match[0]), match[0])

    return TRUSTED.sub(rewrite, text)


def _without_separators(amount: str) -> tuple[str, str]:
    """Return the digits of an amount in order, and its other characters without separators, sorted."""
    digits = "".join(filter(str.isdigit, amount))
    return digits, "".join(sorted(c for c in amount if not (c.isdigit() or c.isspace() or c in ".,'’")))


def spell_names(text: str, names: Iterable[str], count: Callable[[str], int]) -> str:
    """Replace misspelled names: "Oscar Wilde" replaces "Oscar wilde", "George Orwell" replaces "George".

    text: answer.
    names: names of the source. A name stays lost if the answer has no place or two places for it, or if a
        part of the name may have been translated.
    count: returns the number of source tokens of a word.
    """
    for name in names:
        if name not in text:
            text = _respell_name(text, name, count)
    return text


def _respell_name(text: str, name: str, count: Callable[[str], int]) -> str:
    """Replace the one place of a name in an answer by the name, or return the answer unchanged."""
    written = re.escape(name).replace(r"\ ", "[ -]")  # a model writes Galaxy-S23 for Galaxy S23
    spans = [m.span() for m in re.finditer(rf"(?<!\w){written}(?!\w)", text, re.IGNORECASE)]
    # two spans leave it open which one is the name
    span = (spans[0] if len(spans) == 1 else None) if spans else _name_span(text, name.split(" "), count)
    return text if span is None else text[: span[0]] + name + text[span[1] :]


def _name_span(text: str, name: Sequence[str], count: Callable[[str], int]) -> tuple[int, int] | None:
    """Return begin and end of the words of an answer that stand for a name, or None in doubt.

    name: words of the name. The answer must have one of them exactly once; later words may be lost.
    count: returns the number of source tokens of a word.
    """
    places = [match.span() for match in WORD.finditer(text)]
    words = [text[begin:end] for begin, end in places]
    unique = (n for n, word in enumerate(name) if words.count(word) == 1 and _is_distinctive(word))
    number = next(unique, None)  # the word of the name by which it is found in the answer
    first = -1 if number is None or len(name) < 2 else words.index(name[number]) - number
    if number is None or first < 0:
        return None
    after = first
    for word, answer_word in zip(name, words[first:], strict=False):
        adjacent = after == first or text[places[after - 1][1] : places[after][0]] == " "
        if not adjacent or (answer_word != word and not answer_word[0].isupper()):
            break
        if answer_word != word and not _resembles(answer_word, word):
            return None
        after += 1
    lost, other_words = name[after - first :], words[:first] + words[after:]
    doubtful = (
        after <= first + number
        or any(min(count(word), count(word.lower())) < MIN_LOST_TOKENS for word in lost)
        or any(_resembles(other, word) for other in other_words for word in name)
    )
    return None if doubtful else (places[first][0], places[after - 1][1])


def _is_distinctive(word: str) -> bool:
    return len(word) >= MIN_NAME_LETTERS and word not in PARTICLES


def _resembles(word: str, other: str) -> bool:
    """Return whether a word with a capital may be a misspelling of another word."""
    common = commonprefix([word.casefold(), other.casefold()])
    return word[0].isupper() and len(common) >= MIN_COMMON_LETTERS


def has_similar_word(answer: str, word: str) -> bool:
    """Return whether a word, or one with the same beginning, is in an answer: Feminismus, feminism."""
    if re.search(rf"(?<!\w){re.escape(word)}", answer):
        return True
    small, least, most = word.lower(), MIN_COMMON_SHARE * len(word), len(word) + MAX_ENDING_LETTERS
    others = (other for other in re.findall(LETTERS, answer.lower()) if len(other) <= most)
    return any(len(commonprefix([small, other])) >= least for other in others)
