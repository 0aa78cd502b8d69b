"""Numbers of a text in digits and in words, to compare a source with its answer.

The comparison is generous: each number that some reading of the words gives is one of the text's. So "halb
acht" is 7:30, 8:30 and 19:30 and never 2:30, and "nineteen eighty-four" is 1984, 19, 84 and 103.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from engine.text.languages import rules_of
from engine.text.languages.rules import NumberWords

DIGITS: Final = re.compile(r"\d+")
# digits with the marks between them: 1,234.56  2:30
WRITTEN: Final = re.compile(r"\d+(?:[.,:/'’ \u00a0\u202f-]\d+)*")
MAX_PARTS: Final = 12  # parts of a number in words: one million two hundred and three
MAX_DIGITS: Final = 18  # longer runs of digits are compared as strings
HALVES: Final = frozenset({5, 50, 30})  # half: 0.5, 50 %, 2:30
QUARTERS: Final = frozenset({25, 75, 15, 45})
DOZEN: Final = 12
ORDINARY: Final = 2  # words for smaller numbers have other meanings: a, second, once
CLOCK: Final = frozenset({0, 15, 30, 45})
MILLION: Final = 1_000_000
# abbreviations of large numbers: 5 Mio.  €3bn  20k
SHORT_MAGNITUDE: Final = re.compile(r"(?i:m(?:io|rd|ds?|ln|n)|bn|tsd|[bm]illi(?:on|ard))|\d ?[kKmMbB](?!\w)")


class NumberInWords(NamedTuple):
    """A number at the characters [begin, end) of a text: seventy-five."""

    begin: int
    end: int
    value: int


def has_numbers(text: str, language: str) -> bool:
    """Return whether a text has digits, or numbers in words above two.

    text: text in any case.
    language: code of its language; without number words in its rules only digits count.
    """
    words = rules_of(language).number_words
    if any(map(str.isdigit, text)):
        return True
    return words is not None and any(_sum(parts) > ORDINARY for parts in _runs(text.casefold(), words))


def foreign_numbers(text: str, other: str, language: str) -> list[str]:
    """Return the numbers in digits of a text that another text has neither in digits nor in words.

    text: text with numbers in digits.
    other: text with the same meaning.
    language: code of the other text's language; without number words in its rules no number is foreign.
    """
    words = rules_of(language).number_words
    written = WRITTEN.findall(text) if words else []
    if not (written and words):
        return []
    known = {_plain(run) for number in WRITTEN.findall(other) for run in (number, *DIGITS.findall(number))}
    rest = [number for number in written if not _is_known(number, known)]
    if not rest:
        return []
    known |= set(map(str, _values(other.casefold(), words)))
    return [number for number in rest if not _is_known(number, known)]


def foreign_words(text: str, other: str, languages: tuple[str, str]) -> list[int]:
    """Return the numbers in words of a text, above two, that another text has neither in digits nor in words.

    text, other: two texts with the same meaning.
    languages: codes of their languages; without number words in the rules of both no number is foreign.
    """
    words, others = (rules_of(language).number_words for language in languages)
    runs = list(_runs(text.casefold(), words)) if words else []
    if not (runs and others):
        return []
    known = _values(other.casefold(), others) | set(range(ORDINARY + 1))
    return [_sum(parts) for parts in runs if _sum(parts) not in known and not known.issuperset(parts)]


def find_numbers(text: str, language: str) -> Iterator[NumberInWords]:
    """Yield the numbers from three to a million in words, in order; not ordinals, "hundred" and "thousand"
    alone and years such as "nineteen eighty".

    text: text in any case.
    language: code of its language; without number words in its rules no number is found.
    """
    words = rules_of(language).number_words
    lowered = text.lower()
    if not words or not any(map(lowered.__contains__, words.signs)) or len(lowered) != len(text):
        return
    _, run = _patterns(words)
    for match in run.finditer(lowered):
        if found := _number_of(match[0], words):
            begin, end = match.start(), match.start() + found[0]
            # four-year-old, ELF-Interpreter
            if "-" not in (text[begin - 1 : begin], text[end : end + 1]) and not text[begin:end].isupper():
                yield NumberInWords(begin, end, found[1])


def names_number(text: str, number: int, language: str) -> bool:
    """Return whether a text has a number in digits or in words.

    text: text in any case.
    number: number.
    language: code of the language of the text.
    """
    words = rules_of(language).number_words
    digits = {_plain(found) for found in WRITTEN.findall(text)}
    return str(number) in digits or (words is not None and number in _whole_values(text.casefold(), words))


def foreign_magnitudes(text: str, other: str, languages: tuple[str, str]) -> list[int]:
    """Return the words of a text for a million or more, if another text has no such number.

    text, other: two texts with the same meaning.
    languages: codes of their languages; without number words in the rules of both no number is foreign.
    """
    words, others = (rules_of(language).number_words for language in languages)
    if "illi" not in text or not (words and others) or SHORT_MAGNITUDE.search(other):
        return []
    if any(len(_plain(number)) > len("999999") for number in WRITTEN.findall(other)):
        return []
    return [max(parts) for parts in _runs(text.casefold(), words) if max(parts) >= MILLION]


def shortened_words(text: str, other: str, languages: tuple[str, str]) -> list[int]:
    """Return the numbers in several words, 13 to 99, of a text that another text shortens: 95 to 90.

    Times are not compared.

    text, other: two texts with the same meaning.
    languages: codes of their languages; without number words in the rules of both no number is shortened.
    """
    words, others = (rules_of(language).number_words for language in languages)
    if not (words and others):
        return []
    text, other = text.casefold(), other.casefold()
    numbers = [_sum(parts) for parts in _runs(text, words) if len(parts) > 1]
    numbers = [number for number in numbers if DOZEN < number < 100]
    if not numbers or _has_time(text, words) or _has_time(other, others):
        return []
    found = any(_sum(parts) > ORDINARY for parts in _runs(other, others))
    known = _values(other, others)
    # a difference of one may be an article: a dozen
    return [n for n in numbers if found and all(abs(n - value) > ORDINARY for value in known)]


def _number_of(run: str, words: NumberWords) -> tuple[int, int] | None:
    """Return the length and value of the cardinal number that a run of number words begins with, None if the
    run may mean something else.

    run: number words in small letters.
    words: number words of the language.
    """
    part, _ = _patterns(words)
    groups = re.split(rf"\s(?:{words.joiner})\s", run)
    if "," in run or (words.units_first and (" " in run or len(groups) > 1)):
        return None
    parts = [[words.parts[found] for found in part.findall(group)] for group in groups]
    joined = [value for group in parts for value in group]
    if len(joined) > 1 and joined[-1] >= MILLION and " " in run:  # ninety million
        run, joined = run[: run.rindex(" ")], joined[:-1]
    value = _cardinal(joined, words)
    # "one hundred and two", "vingt et un"; not "twenty and five"
    sums = any(before[-1] < 100 and after[0] not in (1, 11) for before, after in pairwise(parts))
    if sums or not value or value <= ORDINARY:
        return None
    if len(joined) > 1:
        ends = tuple(words.parts)
    elif value < 100:
        ends = words.signs
    else:  # a thousand thanks
        return None
    return (len(run), value) if run.endswith(ends) and not run.endswith(words.ordinals) else None


def _cardinal(parts: Sequence[int], words: NumberWords) -> int | None:
    """Return the value of a number below a million in words, None if its parts are no single number.

    parts: value of each part.
    words: number words of the language.
    """
    total = current = 0
    for part in parts:
        if part == 1000 and not total:
            total, current = max(current, 1) * 1000, 0
        elif part == 100 and current < 100:
            current = max(current, 1) * 100
        elif part and part in _after_tens(current % 100, words):
            current += part
        else:
            return None
    return total + current


def _after_tens(tens: int, words: NumberWords) -> range:
    """Return the parts of a number that may come after a part below a hundred."""
    if not tens:
        return range(1, 100)
    if words.units_first:
        return range(10 if tens < 10 else 100, 100, 10)
    if tens in words.long_tens:
        return range(1, 20)
    if words.long_tens and tens in (10, 70, 90):
        return range(7 if tens == 10 else 1, 10)
    return range(1, 10 if tens in range(20, 100, 10) else 0)


def _whole_values(text: str, words: NumberWords) -> set[int]:
    """Return the numbers of a text in small letters, without the parts of longer numbers in words."""
    values = set[int]()
    for parts in _runs(text, words):
        numbers, begin = list[int](), 0
        while begin < len(parts):  # the longest number that begins here
            ends = range(len(parts), begin, -1)
            end = next((end for end in ends if _cardinal(parts[begin:end], words)), begin + 1)
            numbers.append(_sum(parts[begin:end]))
            begin = end
        # nineteen eighty-four
        values |= {*numbers, int("".join(map(str, numbers)))}
    half = bool(re.search(rf"(?<!\w)(?:{words.half})", text))
    values |= {value // 2 for value in values if value >= DOZEN} if half else set()  # half a dozen
    return values | _values_of_times(text, words, _values(text, words), half=half)


def _has_time(text: str, words: NumberWords) -> bool:
    """Return whether a text in small letters has a word of times: half, o'clock."""
    begins = f"{words.half}|{words.quarter}|(?:{words.clock})(?!\\w)"
    return re.search(rf"(?<!\w)(?:{begins})", text) is not None


def _is_known(number: str, known: set[str]) -> bool:
    return _plain(number) in known or all(_plain(run) in known for run in DIGITS.findall(number))


def _plain(number: str) -> str:
    """Return the digits of a number without marks and without zeros at its beginning."""
    digits = "".join(DIGITS.findall(number))
    return str(int(digits)) if len(digits) <= MAX_DIGITS else digits


def _values(text: str, words: NumberWords) -> set[int]:
    """Return all numbers that the words of a text in small letters may be."""
    values = {int(run) for run in DIGITS.findall(text) if len(run) <= MAX_DIGITS}
    for parts in _runs(text, words):
        values |= _readings(parts)
    half = bool(re.search(rf"(?<!\w)(?:{words.half})", text))
    # half a dozen, half a million; smaller numbers are hours
    values |= {value // 2 for value in values if value >= DOZEN} if half else set()
    return values | _values_of_times(text, words, values, half=half)


def _values_of_times(text: str, words: NumberWords, values: set[int], *, half: bool) -> set[int]:
    """Return the numbers by which another language may name the times of day of a text.

    text: text in small letters.
    words: number words of its language.
    values: numbers of the text.
    half: whether the text has the word for a half.
    """
    quarter = re.search(rf"(?<!\w)(?:{words.quarter})", text)
    shares = (HALVES if half else frozenset()) | (QUARTERS if quarter else frozenset())
    if not shares and not re.search(rf"(?<!\w)(?:{words.clock})(?!\w)", text):
        return set()
    hours = {hour + shift for hour in values if hour <= 24 for shift in (-12, -1, 11, 12)}
    return {*shares, *hours, *(60 - minutes for minutes in values if minutes < 60), *CLOCK}


def _runs(text: str, words: NumberWords) -> Iterator[list[int]]:
    """Yield the parts of each number in words: [2, 100, 3] for "two hundred and three"."""
    part, run = _patterns(words)
    for match in run.finditer(text):
        parts = [words.parts[found] for found in part.findall(match[0])]
        for begin in range(0, len(parts), MAX_PARTS):
            yield parts[begin : begin + MAX_PARTS]


def _readings(parts: Sequence[int]) -> set[int]:
    """Return the values of all parts next to each other, and of two of them as one: 1984 for 19 and 84."""
    ends = range(len(parts) + 1)
    sums = {(first, last): _sum(parts[first:last]) for first, last in combinations(ends, 2)}
    pairs = {int(f"{sums[a, b]}{sums[b, c]}") for a, b, c in combinations(ends, 3)}
    return {*sums.values(), *pairs, int("".join(map(str, parts)) or 0)}


def _sum(parts: Sequence[int]) -> int:
    """Return the value of a number in words: hundreds and thousands multiply, all else is added."""
    total = current = 0
    for part in parts:
        if part >= 1000:
            total, current = total + max(current, 1) * part, 0
        elif part == 100:
            current = max(current, 1) * 100
        else:
            current += part
    return total + current


@cache
def _patterns(words: NumberWords) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a part of a number in words, and of a number, both in small letters."""
    part = "|".join(sorted(words.parts, key=len, reverse=True))
    link, ending = f"-?(?:(?:{words.joiner})-?)?", f"(?:{words.ending})?(?!\\w)"
    joined = f"(?:{part})(?:{link}(?:{part})){{0,{MAX_PARTS}}}{ending}"
    run = rf"(?<!\w){joined}(?:(?:[ ,-]|\s(?:{words.joiner})\s){joined})*+"
    return re.compile(f"(?:{part})(?={link}(?:{part})|{ending})"), re.compile(run)
