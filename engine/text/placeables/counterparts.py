"""Titles before names, dates and abbreviations, which have a fixed form in each language.

Models translate "Frau" before a placeholder badly, "9 novembre" between two, and the dots of "z. B.". So the
whole phrase is masked, and the answer gets it in the form of its own language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from heapq import merge
from typing import Final

from engine.text.codes import primary
from engine.text.form import capitalised
from engine.text.languages import rules_of
from engine.text.languages.rules import LanguageRules

LONGEST_TITLE: Final = 32  # characters, with a greeting
SPACE: Final = "[ \u00a0\u202f]"
ENDS_LIST: Final = re.compile(r"[\"”“»’)]{0,2}\s*(?:[^\W\d_a-zß-öø-ÿ]|\Z)")
ENDS_LINE: Final = re.compile(r"[\"”“»’)]{0,2}[ \t]*(?:\n|\Z)")
DIGITS: Final = re.compile(r"\d+")
YEAR_DIGITS: Final = 4
HALF_DAY_HOURS: Final = 12
REMEMBERED_PAIRS: Final = 256


def title_before(text: str, name: int, languages: tuple[str, str]) -> tuple[int, str]:
    """Find the title before a name.

    text: any text.
    name: position of the name.
    languages: codes of the languages of the text and of the answer.

    Returns the position of the title, and its counterpart with a space after it; `name` and "" if there is no
    title that both languages have.
    """
    titles = _titles(*languages)
    match = titles[0].search(text, max(0, name - LONGEST_TITLE), name) if titles else None
    return (match.start(), titles[1][match[1]] + " ") if match and titles else (name, "")


def find_counterparts(
    text: str, languages: tuple[str, str], *, signs: bool = True
) -> Iterator[tuple[int, int, str]]:
    """Find dates, times and abbreviations: begin and end of each, in order, and its counterpart.

    text: any text.
    languages: codes of the languages of the text and of the answer.
    signs: whether the text has signs of placeables; otherwise only times in words are found.
    """
    rules = rules_of(languages[0]), rules_of(languages[1])
    pattern, times = _pattern(*languages) if signs else None, rules[0].clock_times
    lowered = text.lower() if times else ""
    may_have_time = times and any(map(lowered.__contains__, times.signs))
    clock = _times(*languages) if may_have_time else None
    found = _find_times(text, clock, rules) if clock else iter(())
    if pattern:
        others = ((*match.span(), _counterpart(match, *rules)) for match in pattern.finditer(text))
        found = merge(found, others)
    yield from found


def find_long_forms(text: str, language: str) -> Iterator[tuple[int, int, str]]:
    """Find abbreviations: begin and end of each, in order, and the words that it stands for.

    text: any text.
    language: code of its language.

    A dot that ends a line, or a list before another sentence, is no part of the abbreviation.
    """
    found = _long_forms(primary(language))
    if found is None:
        return
    (pattern, long_forms), conjunction = found, rules_of(language).conjunction + " "
    for match in pattern.finditer(text):
        written, end = match[0], match.end()
        words = long_forms.get(_key(written)) or long_forms[_key(written[0].lower() + written[1:])]
        words = capitalised(words) if written[0].isupper() and _key(written) not in long_forms else words
        ends = ENDS_LIST if words.startswith(conjunction) else ENDS_LINE
        if written[-1] == "." and ends.match(text, end):
            end -= 1
        yield match.start(), end, words


def _key(written: str) -> str:
    """Return an abbreviation without its spaces."""
    return "".join(written.split())


@lru_cache(REMEMBERED_PAIRS)
def _long_forms(language: str) -> tuple[re.Pattern[str], Mapping[str, str]] | None:
    """Return a pattern of a language's abbreviations, and the words of each by `_key`; None without any."""
    forms = rules_of(language).long_forms
    if not forms:
        return None
    written = (re.escape(form).replace(r"\ ", f"{SPACE}?") for form in sorted(forms, key=len, reverse=True))
    # a capital begins a sentence or is a name: Max. 5 kg, but not: Das ist Max. Wer bist du?
    end = f"(?={SPACE}?[\\da-zß-öø-ÿ])"
    either_case = (f"{f}|{f[0].upper()}{f[1:]}{end}" if f[0].islower() else f for f in written)
    pattern = re.compile(rf"(?<![\w.@#/&’'-])(?:{'|'.join(either_case)})(?![\w/&-]|\.\w)")
    return pattern, {_key(form): words for form, words in forms.items()}


def _find_times(
    text: str, times: re.Pattern[str], rules: tuple[LanguageRules, LanguageRules]
) -> Iterator[tuple[int, int, str]]:
    """Find times in words: "um halb acht" is "at half past seven"."""
    for match in times.finditer(text):
        source, target = rules[0].clock_times, rules[1].clock_times
        assert source and target and match.lastgroup
        minutes, next_hour, _ = map(int, match.lastgroup[1:].split("_"))
        hour = source.hours.index(match[match.lastgroup].lower()) - next_hour
        article, form, later = target.forms[minutes]
        written = form.format(target.hours[(hour + later) % len(target.hours)])
        written = (target.at if match["at"] else "") + article + written
        usual = source.at if match["at"] else source.forms[minutes][1]  # "Viertel" always has a capital
        capital = match[0][0].isupper() and (usual[0].islower() or not text[: match.start()].strip())
        yield *match.span(), capitalised(written) if capital else written


def _counterpart(match: re.Match[str], source: LanguageRules, target: LanguageRules) -> str:
    """Return the counterpart of a date, a time in digits or an abbreviation."""
    if target.clock_times and match.groupdict().get("hour"):
        return _time_of_24_hours(match, target.clock_times.in_digits)
    return _date_or_abbreviation(match[0], source, target)


def _date_or_abbreviation(written: str, source: LanguageRules, target: LanguageRules) -> str:
    """Return the counterpart of a date or an abbreviation."""
    for meaning, short in source.abbreviations.items():
        if re.fullmatch(short.pattern, written):
            number = DIGITS.search(written)
            return target.abbreviations[meaning].written + (f" {written[number.start() :]}" if number else "")
    numbers = DIGITS.findall(written)
    assert source.dates and target.dates
    year = next((number for number in numbers if len(number) == YEAR_DIGITS), "")
    day = next(number for number in numbers if number != year)
    month = source.dates.month_of(written)
    day = target.dates.first_day if day == "1" else day
    written_year = target.dates.year_form.format(year) if year else ""
    return target.dates.form.format(day, target.dates.months[month]) + written_year


def _time_of_24_hours(time: re.Match[str], forms: tuple[str, str]) -> str:
    """Return a time in digits in the form of a language: "5:30 p.m." is "17 h 30"."""
    halves = [time[name] for name in time.groupdict() if name.startswith("p")]
    hour = int(time["hour"])
    hour = hour % HALF_DAY_HOURS + HALF_DAY_HOURS * any(halves) if halves else hour
    return forms[1].format(hour, time["minutes"]) if time["minutes"] else forms[0].format(hour)


@lru_cache(REMEMBERED_PAIRS)
def _pattern(language: str, into: str) -> re.Pattern[str] | None:
    """Compile a pattern of dates, times and shared abbreviations; None if a language has no dates."""
    source, target = rules_of(language), rules_of(into)
    if source is target or not source.dates or not target.dates:
        return None
    shared = [short for meaning, short in source.abbreviations.items() if meaning in target.abbreviations]
    months = [*source.dates.months, *(rf"{short}\.?" for short in source.dates.short_months)]
    patterns = [source.dates.pattern.replace("{}", "|".join(months))]
    patterns += [rf"(?<!\w)(?:{'|'.join(short.pattern for short in shared)})(?!\w)"] if shared else []
    times, written = source.clock_times, target.clock_times
    patterns += [times.digits] if times and times.digits and written and written.in_digits[0] else []
    return re.compile("|".join(patterns))


@lru_cache(REMEMBERED_PAIRS)
def _times(language: str, into: str) -> re.Pattern[str] | None:
    """Compile a pattern of times in words, with a group for the hour; None if a language has no times."""
    source, target = rules_of(language).clock_times, rules_of(into).clock_times
    if source is target or not source or not target:
        return None
    hours = "|".join(sorted(source.hours, key=len, reverse=True))
    written = [
        (minutes, (f"(?:{article})?" if article else "") + form, later)
        for minutes, (article, form, later) in source.forms.items()
    ]
    forms = [
        form.format(f"(?P<m{minutes}_{later}_{number}>{hours})")
        for number, (minutes, form, later) in enumerate((*written, *source.others))
    ]
    return re.compile(rf"(?i)(?<![\w-])(?P<at>{source.at})?(?:{'|'.join(forms)})(?![\w-])")


@lru_cache(REMEMBERED_PAIRS)
def _titles(language: str, into: str) -> tuple[re.Pattern[str], dict[str, str]] | None:
    """Return a pattern of a title at the end of a text, and the counterpart of each title."""
    source, target = rules_of(language).titles, rules_of(into).titles
    written: dict[str, str] = {}
    for title in [title for title in source if title in target]:
        for form in source[title]:
            written.setdefault(form, target[title][0])
    if not written:
        return None
    alternatives = "|".join(map(re.escape, sorted(written, key=len, reverse=True)))
    return re.compile(rf"(?<!\w)({alternatives}) \Z"), written
