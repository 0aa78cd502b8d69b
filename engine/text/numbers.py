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
QUARTERS: Final = frozenset({25, 75, 15, 45, 4})
BEFORE_HALF: Final = (5, 10)  # minutes: fünf vor halb vier
AROUND_HALF: Final = frozenset(30 + m for n in BEFORE_HALF for m in (-n, n))  # the same after full hours
DOZEN: Final = 12
ORDINARY: Final = 2  # words for smaller numbers have other meanings: a, second, once
CLOCK: Final = frozenset({0, 12, 15, 30, 45})  # noon, midnight and parts of hours
TENS: Final = range(10, 100, 10)
CENTURY: Final = 1900  # the fifties are the 1950s
THOUSAND: Final = 1000
MILLION: Final = 1_000_000
# Roman numerals of two or more small letters
ROMAN: Final = re.compile(r"(?<![\w'’])(?=[ivx]{2})(x{0,3})(i[xv]|v?i{0,3})(?:e|ème|st|nd|rd|th)?(?![\w'’])")
ROMAN_DIGITS: Final = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
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


def foreign_numbers(text: str, other: str, languages: tuple[str, str]) -> list[str]:
    """Return the numbers in digits of a text that another text has neither in digits nor in words.

    text, other: two texts with the same meaning.
    languages: codes of their languages; if the rules of the second one have no number words, no number is
        foreign.
    """
    own, words = (rules_of(language).number_words for language in languages)
    written = WRITTEN.findall(text) if words else []
    if not (written and words):
        return []
    known = {_plain(run) for number in WRITTEN.findall(other) for run in (number, *DIGITS.findall(number))}
    rest = [number for number in written if not _is_known(number, known)]
    if not rest:
        return []
    known |= set(map(str, _known_values(other.casefold(), words, text.casefold(), own)))
    return [number for number in rest if not _is_known(number, known)]


def foreign_words(text: str, other: str, languages: tuple[str, str]) -> list[int]:
    """Return the numbers in words of a text, above two, that another text has neither in digits nor in words.

    Idioms have no numbers.

    text, other: two texts with the same meaning.
    languages: codes of their languages; without number words in the rules of both no number is foreign.
    """
    words, others = (rules_of(language).number_words for language in languages)
    if not (words and others):
        return []
    text, other = text.casefold(), other.casefold()
    read = re.sub(rf"(?<![\w-])(?:{words.idioms})(?![\w-])", ",", text) if words.idioms else text
    runs = list(_runs(read, words))
    if all(_sum(parts) <= ORDINARY for parts in runs):
        return []
    known = _known_values(other, others, text, words) | set(range(ORDINARY + 1))
    known |= {value * 2 for value in known} if _begins(words.half, text) else set()  # half a dozen
    short = SHORT_MAGNITUDE.search(other) is not None
    return [_sum(parts) for parts in runs if not _is_named(parts, known, short_magnitude=short)]


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
    _, run, _ = _patterns(words)
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
    known = _known_values(other, others, text, words)
    # a difference of one may be an article: a dozen
    return [n for n in numbers if found and all(abs(n - value) > ORDINARY for value in known)]


def _number_of(run: str, words: NumberWords) -> tuple[int, int] | None:
    """Return the length and value of the cardinal number that a run of number words begins with, None if the
    run may mean something else.

    run: number words in small letters.
    words: number words of the language.
    """
    groups = re.split(rf"\s(?:{words.joiner})\s", run)
    if "," in run or (words.units_first and (" " in run or len(groups) > 1)):
        return None
    parts = [_values_of_parts(group, words) for group in groups]
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
    times = _values_of_times(text, words, _read_values(text, words)) - AROUND_HALF
    return _with_halves(text, words, values) | times


def _has_time(text: str, words: NumberWords) -> bool:
    """Return whether a text in small letters has a word of times: half, o'clock."""
    return _begins(rf"{words.half}|{words.quarter}|(?:{words.clock})(?!\w)", text)


def _is_named(parts: Sequence[int], known: set[int], *, short_magnitude: bool) -> bool:
    """Return whether a number in words is known as a whole, part by part, or before its magnitude.

    parts: values of its parts: 20, 7 and 1,000,000.
    known: numbers of another text.
    short_magnitude: whether that text has an abbreviation of a magnitude.
    """
    if _sum(parts) in known or known.issuperset(parts):
        return True
    *before, last = parts
    return last >= THOUSAND and (last in known or short_magnitude) and _sum(before) in known


def _is_known(number: str, known: set[str]) -> bool:
    return _plain(number) in known or all(_plain(run) in known for run in DIGITS.findall(number))


def _plain(number: str) -> str:
    """Return the digits of a number without marks and without zeros at its beginning."""
    digits = "".join(DIGITS.findall(number))
    return str(int(digits)) if len(digits) <= MAX_DIGITS else digits


def _known_values(text: str, words: NumberWords, other: str, others: NumberWords | None) -> set[int]:
    """Return the numbers of a text, and those by which a text with the same meaning may name them.

    text, other: two texts in small letters.
    words, others: number words of their languages.
    """
    values = _read_values(text, words)
    written = {int(_plain(number)) for number in WRITTEN.findall(text) if len(_plain(number)) <= MAX_DIGITS}
    magnitudes = {value for value in values if value >= MILLION}  # 1.5 million is 1,500,000
    values |= written | {n * m // share for n in written for m in magnitudes for share in (1, 10, 100)}
    values |= {sum((len(tens) * 10, ROMAN_DIGITS.index(ones))) for tens, ones in ROMAN.findall(text)}
    if words.units_first:  # compounds: siebenjähriges
        _, _, beginning = _patterns(words)
        values |= {_sum(_values_of_parts(match[0], words)) for match in beginning.finditer(text)}
    times = _values_of_times(text, words, values) | _hours_of_answer(values, other, others)
    return _with_halves(text, words, values) | _values_of_decades(values) | times


def _values_of_decades(values: set[int]) -> set[int]:
    """Return other names of decades: the fifties are the 1950s."""
    decades = {CENTURY + value for value in values if value in TENS}
    return decades | {value - CENTURY for value in values if value - CENTURY in TENS}


def _hours_of_answer(values: set[int], other: str, others: NumberWords | None) -> set[int]:
    """Return the hours by which another text in small letters may name numbers, if it has a time of day."""
    if not others or not _has_time(other, others):
        return set()
    next_hour = (1, -11, 13) if _may_name_next_hour(other, others) else ()
    return {hour + shift for hour in values if hour <= 24 for shift in (-12, 12, *next_hour)}


def _read_values(text: str, words: NumberWords) -> set[int]:
    """Return all numbers that the digits and words of a text in small letters may be."""
    values = {int(run) for run in DIGITS.findall(text) if len(run) <= MAX_DIGITS}
    for parts in _runs(text, words):
        values |= _readings(parts)
    return values


def _with_halves(text: str, words: NumberWords, values: set[int]) -> set[int]:
    """Add the half of each number to numbers of a text that has the word for a half: half a dozen.

    Smaller numbers are hours.
    """
    half = _begins(words.half, text)
    return values | {value // 2 for value in values if value >= DOZEN} if half else values


def _begins(pattern: str, text: str) -> bool:
    """Return whether a word of a text begins with a pattern."""
    return re.search(rf"(?<!\w)(?:{pattern})", text) is not None


def _may_name_next_hour(text: str, words: NumberWords) -> bool:
    """Return whether a text in small letters may have a time such as "a quarter to nine" and "halb neun"."""
    return _begins(f"{words.half}|{words.quarter}" if words.half_before else words.quarter, text)


def _values_of_times(text: str, words: NumberWords, values: set[int]) -> set[int]:
    """Return the numbers by which another language may name the times of day of a text.

    text: text in small letters.
    words: number words of its language.
    values: numbers of the text.
    """
    half = _begins(words.half, text)
    shares = (HALVES if half else frozenset()) | (QUARTERS if _begins(words.quarter, text) else frozenset())
    if not shares and not _begins(rf"(?:{words.clock})(?!\w)", text):
        return set()
    shares |= {30 + m for n in BEFORE_HALF if half and n in values for m in (-n, n)}
    earlier = (-1, 11) if _may_name_next_hour(text, words) else ()
    hours = {hour + shift for hour in values if hour <= 24 for shift in (-12, 12, *earlier)}
    return {*shares, *hours, *(60 - minutes for minutes in values if minutes < 60), *CLOCK}


def _runs(text: str, words: NumberWords) -> Iterator[list[int]]:
    """Yield the parts of each number in words: [2, 100, 3] for "two hundred and three"."""
    _, run, _ = _patterns(words)
    for match in run.finditer(text):
        parts = _values_of_parts(match[0], words)
        for begin in range(0, len(parts), MAX_PARTS):
            yield parts[begin : begin + MAX_PARTS]


def _values_of_parts(run: str, words: NumberWords) -> list[int]:
    """Return the value of each part of number words in small letters, without their endings."""
    part, _, _ = _patterns(words)
    return [words.parts[found] for found in part.findall(run) if found]


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
def _patterns(words: NumberWords) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a part of a number in words or of its ending, of a number, and of a beginning of
    a word that is a number; all in small letters.

    Only a part is in the group of the first pattern: "ach" of "achtzig", but not of "einfach".
    """
    part = "|".join(sorted(words.parts, key=len, reverse=True))
    link, ending = f"-?(?:(?:{words.joiner})-?)?", f"(?:{words.ending})?(?!\\w)"
    joined = f"(?:{part})(?:{link}(?:{part})){{0,{MAX_PARTS}}}{ending}"
    run = rf"(?<!\w){joined}(?:(?:[ ,-]|\s(?:{words.joiner})\s){joined})*+"
    one = rf"({part})(?={link}(?:{part})|{ending})|(?:{words.ending})(?!\w)"
    beginning = rf"(?<!\w)(?:{part})(?:{link}(?:{part})){{0,{MAX_PARTS}}}"
    return re.compile(one), re.compile(run), re.compile(beginning)
