"""Placeholders for phrases that must not be translated.

Masking replaces each phrase of a text by one mark, a private-use character that the text lacks. Sentences are
split with the marks in place, so no phrase is cut. Then each mark of a sentence becomes a symbol that the
model was trained to copy ("<ph0>", "<ph1>", ...). `mend` makes sure that each symbol comes out exactly once.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Final

from engine.errors import InvalidRequest
from engine.text.foreign import QUOTATION as FOREIGN_SIGN
from engine.text.foreign import find_foreign_quotations
from engine.text.languages import rules_of
from engine.text.numbers import find_numbers
from engine.text.placeables.counterparts import find_counterparts, find_long_forms
from engine.text.placeables.dense import cut_dense_lines
from engine.text.placeables.grammar import PROSE, SIGNS, Placeable, find_placeables
from engine.text.placeables.masked_text import MarkedText, MaskedText, Phrase
from engine.text.placeables.names import NameRule, find_abbreviations, find_acronyms, find_names_with_titles
from engine.text.placeables.nonwords import hold_nonwords, join_code
from engine.text.placeables.phrases import Phrases, merge_ranges, targets_of

REMEMBERED_MODELS: Final = 64  # models with an index of their symbols
PRIVATE: Final = range(0xE000, 0xF700)
TAG_AROUND: Final = re.compile(r"<[A-Za-z/][^<>]{1,400}>")
# a time that the answer names by the clock of 24 hours, or of 12 hours: 19 Uhr
HALF_DAY: Final = re.compile(r"\d ?[AaPp]\.?[Mm]\.?$|^\d\d.Uhr$")
MAX_READ_TOKENS: Final = 4  # of an unknown word that the model reads itself
SOLID: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class MaskRules:
    """Rules for masking texts.

    ignore: phrases that stay unchanged; the longest match wins.
    glossary: entry to target phrase; the longest match wins. `phrases.py` has the forms of an entry.
    protect: whether placeables and words with unknown characters are masked too.
    nonwords: whether parts that are no words are masked; language models copy these, and read markup.
    symbols: placeholders of the model; where a text spells one, it is masked.
    spaced: whether phrases are found as whole words only.
    lacks: returns whether the source vocabulary lacks a character.
    names: rule for names, or None to mask no names.
    languages: codes of the languages of text and answer, for dates and abbreviations; None leaves these.
    local: writes a number in the form of the target language; None leaves numbers.
    number_words: whether numbers in words are compared with the answer.
    long_forms: whether the model reads abbreviations as the words that they stand for.
    """

    ignore: Sequence[str] = ()
    glossary: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False
    nonwords: bool = True
    symbols: Sequence[str] = ()
    spaced: bool = True
    lacks: Callable[[str], bool] | None = None
    names: NameRule | None = None
    languages: tuple[str, str] | None = None
    local: Callable[[str], str] | None = None
    number_words: bool = False
    long_forms: bool = False


def mask(marked: MarkedText, rules: MaskRules) -> Generator[None, None, MaskedText]:
    """Mask, in steps, the caller's spans in a text, and between them the phrases that the rules find.

    marked: text with the caller's spans.
    rules: kinds of phrases to find.

    Raises InvalidRequest on empty phrases and overlapping spans. Takes time linear in the text.
    """
    if not all(map(str.strip, (*rules.ignore, *rules.glossary))):
        raise InvalidRequest("a phrase of ignore or glossary is empty")
    targets = targets_of(rules.ignore, rules.glossary)
    if not (targets or rules.protect or marked.spans):
        return MaskedText(marked.text)
    text = marked.text
    phrases, parts, position = list[Phrase](), list[str](), 0
    mark = _unused_mark(text)
    for found in _phrases(marked, rules, targets):
        if found is None:
            yield
            continue
        begin, end, phrase = found
        phrases.append(phrase)
        parts += [text[position:begin], mark]
        position = end
    masked = MaskedText(text)
    if phrases:
        masked = MaskedText("".join([*parts, text[position:]]), mark, tuple(phrases))
    if not (rules.protect and rules.nonwords) or PROSE.match(text):
        return masked
    masked = yield from hold_nonwords(masked, mark)
    return join_code(cut_dense_lines(masked))


def _unused_mark(text: str) -> str:
    """Return a private-use character that a text lacks. Raises InvalidRequest if it has them all."""
    first = chr(PRIVATE[0])
    if first not in text:
        return first
    characters = set(text)
    mark = next((chr(code) for code in PRIVATE if chr(code) not in characters), None)
    if mark is None:
        raise InvalidRequest("the text uses every private-use character: nothing in it can be protected")
    return mark


def _phrases(
    marked: MarkedText, rules: MaskRules, targets: Mapping[str, str | None]
) -> Iterator[tuple[int, int, Phrase] | None]:
    """Yield begin, end and phrase: the caller's spans, and the phrases found between them, in order.

    None is yielded after each step of the search.
    """
    text = marked.text
    finder = _Finder(rules, targets, set(text))
    last = 0
    for begin, end in marked.spans:
        if not last <= begin < end <= len(text):
            raise InvalidRequest(f"the span {begin} to {end} is empty, beyond the text or overlaps another")
        last = end
    tags = _tags_with_spans(marked) if rules.protect else {}

    def masked_span(numbered: tuple[int, tuple[int, int]]) -> tuple[int, int]:
        """Return the tag around a span with its index, or the span."""
        return tags.get(*numbered)

    last = 0
    for (begin, end), group in groupby(enumerate(marked.spans), masked_span):
        yield from finder.find(text, last, begin)
        phrase = text[begin:end]
        spans = tuple((number, a - begin, b - begin) for number, (a, b) in group)
        yield begin, end, Phrase(phrase, phrase, True, spans)
        last = end
    yield from finder.find(text, last, len(text))


def _tags_with_spans(marked: MarkedText) -> dict[int, tuple[int, int]]:
    """Map the index of each caller's span within a tag to the whole tag, which is masked instead."""
    if not marked.spans or "<" not in marked.text:
        return {}
    begins, ends = ([span[side] for span in marked.spans] for side in (0, 1))
    around: dict[int, tuple[int, int]] = {}
    for match in TAG_AROUND.finditer(marked.text):
        # the caller's spans that begin and end within the tag
        first, last = bisect_right(begins, match.start()), bisect_left(ends, match.end())
        around |= dict.fromkeys(range(first, last), match.span())
    return around


class _Finder:
    """Finds phrases by rules.

    targets: target of each phrase of the caller; None for a phrase that stays unchanged.
    characters: all characters of the text.
    """

    def __init__(self, rules: MaskRules, targets: Mapping[str, str | None], characters: Set[str]) -> None:
        self.rules, self.targets = rules, targets
        self.names = rules.names if rules.protect else None
        self.known = self.names.known if self.names else None
        self.requested = Phrases(targets, spaced=rules.spaced) if targets else _symbols(())
        self.finders = self.requested, _symbols(tuple(rules.symbols))
        # ASCII is left out: a vocabulary may lack a capital letter and still know its words in small letters
        foreign = (c for c in characters if c > "~" and unicodedata.category(c)[0] in "LMNS")
        self.lacking = frozenset(c for c in foreign if rules.lacks and rules.lacks(c))

    def find(self, text: str, begin: int, end: int) -> Iterator[tuple[int, int, Phrase] | None]:
        """Yield begin, end and phrase of each phrase in text[begin:end], and None after each step."""
        part = text[begin:end]
        spans = [finder.find(part) for finder in self.finders if finder.may_find(part)]
        signs = bool(self.rules.protect and not PROSE.match(part) and SIGNS.search(part))
        kinds = (yield from find_placeables(part)) if signs else {}
        fixed = yield from self._counterparts(part, signs=signs)
        names = yield from self._names(part)
        numbers = yield from self._numbers(part)
        words = yield from self._long_forms(part)
        fixed = _without_beginnings(part, fixed, names)
        spans += [iter(found) for found in (fixed, words, kinds, names, numbers) if found]
        if self.rules.protect:
            spans += self._words(part)
        if not spans:  # the usual case; the loop below takes as long as all above
            return
        ready, forms = numbers | names, fixed | _titled(names)
        for span in merge_ranges(spans):
            yield None
            source, kind, form = part[slice(*span)], kinds.get(span), forms.get(span)
            phrase = words.get(span) or (None if kind else ready.get(span))
            if form or phrase is None:
                phrase = self._phrase(source, kind, form)
            yield begin + span[0], begin + span[1], phrase

    def _counterparts(self, part: str, *, signs: bool) -> Generator[None, None, dict[tuple[int, int], str]]:
        """Map each date, time in words and abbreviation of a part of the text to its form in the answer.

        part: part of the text.
        signs: whether it has signs of placeables.
        """
        languages = self.rules.languages
        found = find_counterparts(part, languages, signs=signs, known=self.known) if languages else iter(())
        return (yield from self._without_requested(part, found))

    def _names(self, part: str) -> Generator[None, None, dict[tuple[int, int], Phrase]]:
        """Map each name or other unknown word of a part of the text, with its title, to its phrase.

        The model reads an unknown word of few tokens itself first, as it may know a similar word.
        """
        rule = self.names
        found = dict(find_names_with_titles(part, rule)) if rule else {}
        names = {(word.begin, word.end): word.name for word in found}
        forms = ((word.begin, word.end, form) for word, form in found.items())
        phrases = dict[tuple[int, int], Phrase]()
        for span, form in (yield from self._without_requested(part, forms)).items():
            source, name = part[slice(*span)], names[span]
            short = rule is not None and (not rule.known or rule.count_tokens(source) <= MAX_READ_TOKENS)
            trusted = short and form == source and self.lacking.isdisjoint(source)
            phrases[span] = Phrase(source, form, False, trusted=trusted, name=name, unknown=not name)
        return phrases

    def _numbers(self, part: str) -> Generator[None, None, dict[tuple[int, int], Phrase]]:
        """Map each number in words of a part of the text to its phrase."""
        languages = self.rules.languages if self.rules.number_words else None
        compared = languages and rules_of(languages[1]).number_words
        found = find_numbers(part, languages[0]) if languages and compared else iter(())
        digits = yield from self._without_requested(part, ((n.begin, n.end, str(n.value)) for n in found))
        return {
            span: Phrase(part[slice(*span)], value, False, trusted=True, in_words=True)
            for span, value in digits.items()
        }

    def _long_forms(self, part: str) -> Generator[None, None, dict[tuple[int, int], Phrase]]:
        """Map each abbreviation of a part of the text to its phrase, which the model reads in words."""
        languages = self.rules.languages if self.rules.long_forms else None
        found = find_long_forms(part, languages[0]) if languages else iter(())
        words = yield from self._without_requested(part, found)
        return {
            span: Phrase(part[slice(*span)], part[slice(*span)], False, trusted=True, read_as=form)
            for span, form in words.items()
        }

    def _words(self, part: str) -> list[Iterator[tuple[int, int]]]:
        """Return iterators of acronyms, quotations in other languages and words with unknown characters."""
        words = list[Iterator[tuple[int, int]]]()
        if (rule := self.names) and not rule.known:
            words += find_acronyms(part, rule), find_abbreviations(part, rule)
        if self.rules.languages and FOREIGN_SIGN.search(part):
            words.append(find_foreign_quotations(part, self.rules.languages[0]))
        if self.lacking:
            words.append(_unreadable_words(part, self.lacking))
        return words

    def _without_requested(
        self, part: str, found: Iterator[tuple[int, int, str]]
    ) -> Generator[None, None, dict[tuple[int, int], str]]:
        """Return the found ranges without a phrase of the caller, each with its form in the answer."""
        targets = dict[tuple[int, int], str]()
        for begin, end, target in found:
            if not self.targets or next(self.requested.find(part[begin:end]), None) is None:
                targets[begin, end] = target
            yield
        return targets

    def _phrase(self, phrase: str, kind: Placeable | None, name: str | None) -> Phrase:
        """Make a phrase of the text `phrase`.

        kind: kind of a placeable; None for other phrases.
        name: form of a name, date or abbreviation in the answer; None for other phrases.
        """
        treatment = kind.treatment if kind else "keep"
        read, border = treatment == "read", treatment == "border"
        target, local = self.targets.get(phrase, name), self.rules.local
        requested = phrase in self.targets or phrase in self.rules.symbols
        timed = name is not None and HALF_DAY.search(phrase) is not None
        number = (read or timed) and not requested
        trusted = number or (not requested and name == phrase and self.lacking.isdisjoint(phrase))
        if number and local and not timed:
            target = local(phrase)
            trusted = target == phrase  # the model does not convert numbers
        answer = phrase if target is None else target
        named = name is not None and not number
        return Phrase(phrase, answer, requested, trusted=trusted, name=named, border=border)


def _without_beginnings(
    text: str, fixed: Mapping[tuple[int, int], str], names: Mapping[tuple[int, int], Phrase]
) -> dict[tuple[int, int], str]:
    """Return the phrases with a fixed form, except abbreviations at the beginning of a name: E. coli."""
    ends = dict(iter(names))
    return {
        (begin, end): form
        for (begin, end), form in fixed.items()
        if ends.get(begin, 0) <= end or form != text[begin:end]
    }


def _titled(names: Mapping[tuple[int, int], Phrase]) -> dict[tuple[int, int], str]:
    """Return the form in the answer of each name with a title; it is no initial: M. Petit."""
    return {span: name.target for span, name in names.items() if name.target != name.source}


@lru_cache(REMEMBERED_MODELS)
def _symbols(symbols: tuple[str, ...]) -> Phrases:
    """Return the finder of a model's placeholders."""
    return Phrases(symbols, spaced=False)


def _unreadable_words(text: str, lacking: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run of words with characters that the model lacks."""
    last: tuple[int, int] | None = None
    for match in SOLID.finditer(text):
        word = match[0]
        if lacking.isdisjoint(word):
            continue
        solid = [i for i, c in enumerate(word) if c.isalnum() or c in lacking]
        begin, end = match.start() + solid[0], match.start() + solid[-1] + 1
        if last and text[last[1] : begin].isspace():
            last = (last[0], end)
            continue
        if last:
            yield last
        last = (begin, end)
    if last:
        yield last
