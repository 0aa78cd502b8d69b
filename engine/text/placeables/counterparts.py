"""Titles before names, dates and abbreviations, which have a fixed form in each language.

Models translate "Frau" before a placeholder badly, "9 novembre" between two, and the dots of "z. B.". So the
whole phrase is masked, and the answer gets it in the form of its own language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from heapq import merge
from operator import itemgetter
from typing import Final

from engine.text.codes import primary
from engine.text.form import capitalised
from engine.text.known_words import KnownWords
from engine.text.languages import rules_of
from engine.text.languages.rules import ClockTimes, Dates, LanguageRules

NUMERIC_DATE: Final = r",? \d{{1,2}}[./]\d{{1,2}}[./](?:\d{{4}}|\d{{2}})?"
# short weekdays: a range, or before a date or time in digits
DAYS: Final = (
    rf"(?<![\w-])(?P<days>{{day}}(?: ?[–/-] ?{{day}}){{{{1,2}}}}(?!\w)|{{day}}(?={NUMERIC_DATE}"
    rf"|,?:? \d{{{{1,2}}}}(?:[.:/]\d| ?[–-] ?\d| ?h(?!\w)| Uhr| ?[ap]\.?m)"
    rf"|,? (?:{{date}})))(?:{NUMERIC_DATE})?"
)
LONGEST_TITLE: Final = 32  # characters, with a greeting
SPACE: Final = "[ \u00a0\u202f]"
ENDS_LIST: Final = re.compile(r"[\"”“»’)]{0,2}\s*(?:[^\W\d_a-zß-öø-ÿ]|\Z)")
ENDS_LINE: Final = re.compile(r"[\"”“»’)]{0,2}[ \t]*(?:\n|\Z)")
DIGITS: Final = re.compile(r"\d+")
NUMBERED: Final = re.compile(r"(?<=[.°º,\s])(?=[A-Z_/-]*\d).*")  # the number after an abbreviation
# an end of a range of times: 9  9:30  9 h 30  9 p.m.
CLOCK: Final = re.compile(r"(?P<hour>\d{1,2})(?: ?[.:h] ?(?P<minutes>\d\d))?(?:.*?(?P<half>[ap])\.?m)?.*")
AFTER_DIGITS: Final = re.compile(r"\D{1,5}\Z")
RANGE_MARK: Final = " ?[–-] ?"
# words with dots in a sentence, and a number after them: op. cit.  Rn. 21
ABBREVIATIONS: Final = re.compile(
    r"(?<![\w.@/'’-])(?:[^\W\d_]{1,6}\.(?: (?=\w{1,6}\.[ ,;)]))?){1,4}"
    r"(?:[ \u00a0]\d[\d.,/–-]{0,12}(?<=\d)[a-z]?(?!\w)|(?=,|\)| [\da-zß-öø-ÿ(]))"
)
DOTTED: Final = re.compile(r"[^\W\d_]+")
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
    text: str, languages: tuple[str, str], *, signs: bool = True, known: KnownWords | None = None
) -> Iterator[tuple[int, int, str]]:
    """Find dates, times and abbreviations: begin and end of each, in order, and its counterpart.

    text: any text.
    languages: codes of the languages of the text and of the answer.
    signs: whether the text has signs of placeables; otherwise only times in words are found.
    known: words of the language; abbreviations that are not among them stay as they are.
    """
    rules = rules_of(languages[0]), rules_of(languages[1])
    pattern, times = _pattern(*languages) if signs else None, rules[0].clock_times
    lowered = text.lower() if times else ""
    may_have_time = times and any(map(lowered.__contains__, times.signs))
    clock = _times(*languages) if may_have_time else None
    found = _find_times(text, clock, rules) if clock else iter(())
    if pattern:
        others = ((*match.span(), _counterpart(match, *rules)) for match in pattern.finditer(text))
        found = merge(
            found, others, _find_abbreviations(text, known) if known else iter(()), key=itemgetter(0)
        )
    last = 0
    for place in found:
        if place[0] >= last:
            yield place
            last = place[1]


def _find_abbreviations(text: str, known: KnownWords) -> Iterator[tuple[int, int, str]]:
    """Find abbreviations without a counterpart, which stay as they are: op. cit."""
    rules = rules_of(known.language)
    numbered, titles = "|".join(rules.numbered_words), rules.title_words | rules.own_title_words
    read = _long_forms(known.language)
    for match in ABBREVIATIONS.finditer(text):
        words = DOTTED.findall(match[0])
        is_read = read and read[0].search(text, match.start(), match.end() + len(" a"))
        if is_read or words[-1] in titles:
            continue
        before_number = match[0][-1] != "." and numbered and re.fullmatch(numbered, words[-1])
        unknown = any(len(word) == 1 or not known.knows(word) for word in words)
        if before_number or unknown or len(words) > 1:
            yield *match.span(), match[0]


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
    """Return the counterpart of a date, weekdays, a time in digits, an ordinal number or an abbreviation."""
    found = match.groupdict()
    if target.clock_times and found.get("range"):
        return _preposition(found["since"], target) + _range_of_times(found["range"], source, target)
    if target.clock_times and found.get("hour"):
        return _time_of_24_hours(match, target.clock_times)
    if target.ordinals and found.get("ordinal"):
        return target.ordinals.write(DIGITS.findall(match[0])[0])
    if source.dates and found.get("days"):
        short = source.dates.short_days
        return re.sub(
            rf"({'|'.join(short)})\.?", lambda day: _short_day(short.index(day[1]), target), match["days"]
        ) + match[0].removeprefix(match["days"]).removeprefix(",")
    return _date_or_abbreviation(match[0], source, target)


def _short_day(number: int, target: LanguageRules) -> str:
    """Return the short form of a weekday, counted from Monday on."""
    assert target.dates
    return target.dates.short_days[number] + target.dates.day_dot


def _date_or_abbreviation(written: str, source: LanguageRules, target: LanguageRules) -> str:
    """Return the counterpart of a date or an abbreviation."""
    for meaning, short in source.abbreviations.items():
        if re.fullmatch(short.pattern, written):
            number = NUMBERED.search(written)
            return target.abbreviations[meaning].written + (f" {number[0]}" if number else "")
    assert source.dates and target.dates
    month = source.dates.month_of(written)
    numbers = DIGITS.findall(written)
    year = next((number for number in numbers if len(number) == YEAR_DIGITS), "")
    *others, day = (number for number in numbers if number != year)
    day_form = target.dates.form.partition(" ")[0]
    first_day = {"1": target.dates.first_day}
    days = [day_form.format(first_day.get(number, number)) for number in others]
    marks = re.split(rf"{source.dates.day}", written)[1 : 1 + len(others)] if others else []
    words = {source.conjunction: target.conjunction, source.dates.until: target.dates.until}
    listed = "".join(
        number + mark.replace(mark.strip(), words.get(mark.strip(), mark.strip()))
        for number, mark in zip(days, marks, strict=True)
    )
    written_year = target.dates.year_form.format(year) if year else ""
    return (
        listed + target.dates.form.format(first_day.get(day, day), target.dates.months[month]) + written_year
    )


def _preposition(written: str | None, target: LanguageRules) -> str:
    """Return the counterpart of a preposition before a range of times with a space after it, "" for None."""
    since = f"{target.dates.since} " if written and target.dates else ""
    return capitalised(since) if written and written[0].isupper() else since


def _range_of_times(times: str, source: LanguageRules, target: LanguageRules) -> str:
    """Return a range of times by the clock of 24 hours: "3–5 p.m." is "15–17 Uhr"."""
    assert source.dates and target.dates and target.clock_times
    first, mark, last = re.split(rf"({RANGE_MARK}| {source.dates.until} )", times, maxsplit=1)
    ends = [CLOCK.fullmatch(end.lower()) for end in (first, last)]
    assert ends[0] and ends[1]
    hours = _hours_of_range(ends[0], ends[1])
    full, exact = target.clock_times.in_digits
    begin, end = (
        exact.format(hour, time["minutes"]) if time["minutes"] else full.format(hour)
        for hour, time in zip(hours, ends, strict=True)
        if time
    )
    joined = mark if mark.strip() != source.dates.until else f" {target.dates.until} "
    unit = AFTER_DIGITS.search(end)
    begin = begin.removesuffix(unit[0]) if unit and joined != f" {mark.strip()} " else begin
    return begin + joined + end


def _hours_of_range(first: re.Match[str], last: re.Match[str]) -> list[int]:
    """Return the hours of the ends of a range, matches of `CLOCK`, by the clock of 24 hours."""
    hours = [int(end["hour"]) for end in (first, last)]
    later = last["half"]
    if later:
        # 9–5 p.m. begins in the morning
        before_noon = hours[0] % HALF_DAY_HOURS > hours[1] % HALF_DAY_HOURS
        earlier = first["half"] or ("a" if before_noon else later)
        hours = [
            hour % HALF_DAY_HOURS + HALF_DAY_HOURS * (half == "p")
            for hour, half in zip(hours, (earlier, later), strict=True)
        ]
    return hours


def _time_of_24_hours(time: re.Match[str], written: ClockTimes) -> str:
    """Return a time in digits in the form of a language: "5:30 p.m." is "17 h 30", "à 17h" is "at 17:00"."""
    halves = [time[name] for name in time.groupdict() if re.fullmatch(r"p\d?", name)]
    hour = int(time["hour"])
    hour = hour % HALF_DAY_HOURS + HALF_DAY_HOURS * any(halves) if halves else hour
    full, exact = written.in_digits
    preposition = time.groupdict().get("at") or ""
    at = capitalised(written.at) if preposition.istitle() else written.at
    return (preposition and at) + (
        exact.format(hour, time["minutes"]) if time["minutes"] else full.format(hour)
    )


@lru_cache(REMEMBERED_PAIRS)
def _pattern(language: str, into: str) -> re.Pattern[str] | None:
    """Compile a pattern of dates, times and shared abbreviations; None if a language has no dates."""
    source, target = rules_of(language), rules_of(into)
    if source is target or not source.dates or not target.dates:
        return None
    shared = [short for meaning, short in source.abbreviations.items() if meaning in target.abbreviations]
    dates, until = source.dates, source.dates.until
    part = rf"{dates.day}(?:, ?|{RANGE_MARK}| ?& ?| (?:{source.conjunction}|{until}) )"
    listed = rf"(?<![\w.,])(?:{part}){{1,4}}{dates.day} ?(?:{{}})(?:,? \d{{4}})?(?!\w)"
    patterns = [form.replace("{}", _months(dates)) for form in (listed, dates.pattern)]
    patterns += _patterns_of_ranges(source, target)
    patterns += [rf"(?<!\w)(?:{'|'.join(short.pattern for short in shared)})(?!\w)"] if shared else []
    times, written = source.clock_times, target.clock_times
    patterns += [times.digits] if times and times.digits and written and written.in_digits[0] else []
    return re.compile("|".join(patterns))


def _months(dates: Dates) -> str:
    """Return alternatives of the names and abbreviations of months."""
    return "|".join([*dates.months, *(rf"{short}\.?" for short in dates.short_months)])


def _patterns_of_ranges(source: LanguageRules, target: LanguageRules) -> list[str]:
    """Return patterns of ranges of times, short weekdays and ordinal numbers that both languages have."""
    dates, times, written = source.dates, source.clock_times, target.clock_times
    patterns = list[str]()
    if not dates or not target.dates:
        return patterns
    until = dates.until
    if times and times.first and written and written.in_digits[0]:
        since = rf"(?:(?i:(?P<since>{dates.since}) )(?=[^–-]{{1,20}} {until} ))?+"
        patterns += [
            rf"(?<![\w.,:/–-]){since}(?P<range>{times.first}(?:{RANGE_MARK}| {until} ){times.last})(?!\w)"
        ]
    if dates.short_days and target.dates.short_days:
        days = rf"(?:{'|'.join(dates.short_days)})(?!\w)\.?"
        patterns += [DAYS.format(day=days, date=dates.pattern.replace("{}", _months(dates)))]
    if source.ordinals and target.ordinals:
        patterns += [rf"(?P<ordinal>{source.ordinals.pattern})(?![\w/])"]
    return patterns


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
