"""Placeholders for phrases that must not be translated.

Masking replaces each phrase of a text by one mark, a private-use character that the text lacks. Sentences are
split with the marks in place, so no phrase is cut. Then each mark of a sentence becomes a symbol that the
model was trained to copy ("<ph0>", "<ph1>", ...). `mend` makes sure that each symbol comes out exactly once.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Final

from engine.errors import InvalidRequest, TooLarge
from engine.text.placeables.amounts import EMOJI, NUMBER
from engine.text.placeables.counterparts import find_counterparts
from engine.text.placeables.grammar import (
    EMOJI_STAND_IN,
    SIGNS,
    Placeable,
    kind_of,
    long_placeables,
    matches,
    placeables,
)
from engine.text.placeables.names import ACRONYM, NameRule, find_acronyms, find_names_with_titles
from engine.text.placeables.phrases import Phrases, merge_ranges
from engine.text.placeables.spelling import TRUSTED, spell_amounts, spell_names

REMEMBERED_MODELS: Final = 64  # models with an index of their symbols
PRIVATE: Final = range(0xE000, 0xF700)
NUMBERS: Final = re.compile(NUMBER)
PICTURES: Final = re.compile(EMOJI)
TAG_AROUND: Final = re.compile(r"<[A-Za-z/][^<>]{1,400}>")
SOLID: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with spans (begin, end) that must not be translated, ordered and disjoint."""

    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Phrase:
    """A masked phrase.

    source: phrase in the source.
    target: phrase in the answer.
    requested: whether the caller asked for the phrase; otherwise a pattern found it.
    spans: number, begin and end of each span of the caller within the phrase.
    trusted: whether the model reads the phrase itself first, not a placeholder: digits, codes, names.
    name: whether the phrase is a name.
    """

    source: str
    target: str
    requested: bool
    spans: tuple[tuple[int, int, int], ...] = ()
    trusted: bool = False
    name: bool = False

    def kept(self, begin: int, end: int) -> list[KeptSpan]:
        """Return the caller's spans in an answer with the phrase at [begin, end), or the phrase itself."""
        found = [KeptSpan(begin + first, begin + last, number) for number, first, last in self.spans]
        return found or [KeptSpan(begin, end, -1)]

    @property
    def stand_in(self) -> str:
        """A character of the same kind as the phrase."""
        if self.source[-1].isdigit() or NUMBERS.fullmatch(self.source):
            return "1"
        return EMOJI_STAND_IN if not self.requested and PICTURES.fullmatch(self.source) else "X"


@dataclass(frozen=True, slots=True)
class KeptSpan:
    """Characters [begin, end) of an answer that are a phrase.

    span: index of the phrase; in a result, index of the caller's span or -1.
    """

    begin: int
    end: int
    span: int


@dataclass(frozen=True, slots=True)
class MaskedText:
    """A text with a mark in the place of each phrase.

    text: text with marks.
    mark: character that stands for a phrase; "" if there are no phrases.
    phrases: phrase of each mark, in order.
    """

    text: str
    mark: str = ""
    phrases: tuple[Phrase, ...] = ()

    @property
    def original(self) -> str:
        """The text before masking."""
        return self.spell(self.text, range(len(self.phrases)), {})

    @property
    def stand_in(self) -> str:
        """The text with a digit, a picture or a letter for each mark.

        The splitter reads this text, since "Am 2. Mai" is one sentence.
        """
        if not self.phrases:
            return self.text
        first, *rest = self.text.split(self.mark)
        letters = (phrase.stand_in for phrase in self.phrases)
        return first + "".join(letter + part for letter, part in zip(letters, rest, strict=True))

    def count(self, text: str) -> int:
        return text.count(self.mark) if self.mark else 0

    def spell(self, text: str, phrases: Sequence[int], symbols: Mapping[int, str]) -> str:
        """Replace the marks in a part of the text.

        text: part of the text, with marks.
        phrases: index of the phrase of each mark.
        symbols: placeholder by index of a phrase; other phrases are spelled as in the source.
        """
        if not self.mark:
            return text
        first, *rest = text.split(self.mark)
        spelled = (symbols.get(number, self.phrases[number].source) for number in phrases)
        return first + "".join(word + part for word, part in zip(spelled, rest, strict=True))

    def garbles(self, text: str, phrases: Sequence[int]) -> bool:
        """Return whether an answer has wrong counts of trusted phrases.

        text: answer.
        phrases: indices of trusted phrases. A name must occur at least as often as here, a number or code
            exactly as often.
        """
        expected = Counter(self.phrases[number] for number in phrases)
        present = Counter(match[0] for match in TRUSTED.finditer(text))
        return any(
            text.count(phrase.source) < count if phrase.name else present[phrase.source] != count
            for phrase, count in expected.items()
        )

    def respelled(self, text: str, phrases: Sequence[int], count: Callable[[str], int]) -> str:
        """Spell numbers, codes and names in an answer as in the source.

        text: answer.
        phrases: indices of the trusted phrases that the model read.
        count: returns the number of source tokens of a word.
        """
        read = [self.phrases[number] for number in phrases]
        text = spell_amounts(text, {phrase.source for phrase in read if not phrase.name})
        return spell_names(text, [phrase.source for phrase in read if phrase.name], count)

    def at_most(self, count: int) -> MaskedText:
        """Return the text with at most `count` phrases masked.

        The last phrases that the caller did not ask for are unmasked. Raises TooLarge if the caller asked for
        more than `count`.
        """
        many = len(self.phrases) - count
        if many <= 0:
            return self
        found = [i for i, phrase in enumerate(self.phrases) if not phrase.requested]
        if len(found) < many:
            raise TooLarge(f"the model keeps at most {count} phrases of a text: let it be split")
        shown = set(found[len(found) - many :])
        first, *rest = self.text.split(self.mark)
        parts = [first]
        for i, part in enumerate(rest):
            parts += [self.phrases[i].source if i in shown else self.mark, part]
        phrases = (phrase for i, phrase in enumerate(self.phrases) if i not in shown)
        return MaskedText("".join(parts), self.mark, tuple(phrases))

    @property
    def places(self) -> list[tuple[int, int, Phrase]]:
        """Begin and end of each phrase in the text before masking, and the phrase."""
        places, length = list[tuple[int, int, Phrase]](), 0
        for part, phrase in zip(self.text.split(self.mark) if self.mark else (), self.phrases, strict=False):
            begin = length + len(part)
            length = begin + len(phrase.source)
            places.append((begin, length, phrase))
        return places

    def restore(self, text: str, order: Sequence[int]) -> tuple[str, list[KeptSpan]]:
        """Replace mark i of an answer by the target of phrase order[i].

        text: answer with marks.
        order: indices of phrases, at least as many as there are marks.

        Returns the text and the places of the phrases in it.
        """
        if not self.mark:
            return text, []
        first, *rest = text.split(self.mark)
        parts, places, length = [first], list[KeptSpan](), len(first)
        for part, index in zip(rest, order, strict=False):
            phrase = self.phrases[index]
            places.append(KeptSpan(length, length + len(phrase.target), index))
            parts += [phrase.target, part]
            length += len(phrase.target) + len(part)
        return "".join(parts), places

    def caller_spans(self, places: Sequence[KeptSpan]) -> list[KeptSpan]:
        """Return the places of the caller's spans in an answer from those of its phrases."""
        return [span for p in places for span in self.phrases[p.span].kept(p.begin, p.end)]


@dataclass(frozen=True, slots=True)
class MaskRules:
    """Rules for masking texts.

    ignore: phrases that stay unchanged; the longest match wins.
    glossary: source phrase to target phrase; the longest match wins.
    protect: whether placeables and words with unknown characters are masked too.
    symbols: placeholders of the model; where a text spells one, it is masked.
    spaced: whether phrases are found as whole words only.
    lacks: returns whether the source vocabulary lacks a character.
    names: rule for names, or None to mask no names.
    languages: codes of the languages of text and answer, for dates and abbreviations; None leaves these.
    local: writes a number in the form of the target language; None leaves numbers.
    """

    ignore: Sequence[str] = ()
    glossary: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False
    symbols: Sequence[str] = ()
    spaced: bool = True
    lacks: Callable[[str], bool] | None = None
    names: NameRule | None = None
    languages: tuple[str, str] | None = None
    local: Callable[[str], str] | None = None


def mask(marked: MarkedText, rules: MaskRules) -> MaskedText:
    """Mask the caller's spans in a text, and between them the phrases that the rules find.

    marked: text with the caller's spans.
    rules: kinds of phrases to find.

    Raises InvalidRequest on empty phrases and overlapping spans. Takes time linear in the text.
    """
    targets = dict.fromkeys(rules.ignore) | dict(rules.glossary)
    if not all(map(str.strip, targets)):
        raise InvalidRequest("a phrase of ignore or glossary is empty")
    if not (targets or rules.protect or marked.spans):
        return MaskedText(marked.text)
    text = marked.text
    phrases, parts, position = list[Phrase](), list[str](), 0
    mark = _unused_mark(text)
    for begin, end, phrase in _phrases(marked, rules, targets):
        phrases.append(phrase)
        parts += [text[position:begin], mark]
        position = end
    if not phrases:
        return MaskedText(text)
    return MaskedText("".join([*parts, text[position:]]), mark, tuple(phrases))


def find_phrases(marked: MarkedText, rules: MaskRules) -> list[tuple[int, int, Phrase]]:
    """Return begin, end and phrase of each phrase that `mask` would mask."""
    return list(_phrases(marked, rules, dict.fromkeys(rules.ignore) | dict(rules.glossary)))


def _unused_mark(text: str) -> str:
    first = chr(PRIVATE[0])
    if first not in text:
        return first
    present = set(text)
    mark = next((chr(code) for code in PRIVATE if chr(code) not in present), None)
    if mark is None:
        raise InvalidRequest("the text uses every private-use character: nothing in it can be protected")
    return mark


def _phrases(
    marked: MarkedText, rules: MaskRules, targets: Mapping[str, str | None]
) -> Iterator[tuple[int, int, Phrase]]:
    """Yield begin, end and phrase: the caller's spans, and the phrases found between them, in order."""
    text = marked.text
    finder = _Finder(rules, targets, set(text))
    last = 0
    for begin, end in marked.spans:
        if not last <= begin < end <= len(text):
            raise InvalidRequest(f"the span {begin} to {end} is empty, beyond the text or overlaps another")
        last = end
    tags = _tags_with_spans(marked) if rules.protect else {}

    def place(one: tuple[int, tuple[int, int]]) -> tuple[int, int]:
        return tags.get(*one)

    last = 0
    for (begin, end), group in groupby(enumerate(marked.spans), place):
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
        self.own = Phrases(targets, spaced=rules.spaced) if targets else _symbols(())
        self.finders = self.own, _symbols(tuple(rules.symbols))
        # ASCII is left out: a vocabulary may lack a capital letter and still know its words in small letters
        foreign = (c for c in characters if c > "~" and unicodedata.category(c)[0] in "LMNS")
        self.lacking = frozenset(c for c in foreign if rules.lacks and rules.lacks(c))

    def find(self, text: str, begin: int, end: int) -> Iterator[tuple[int, int, Phrase]]:
        """Yield begin, end and phrase of each phrase in text[begin:end]."""
        part = text[begin:end]
        sources = [finder.find(part) for finder in self.finders if finder.may_find(part)]
        signs = self.rules.protect and SIGNS.search(part)
        kinds = dict(_matches(part)) if signs else {}
        fixed, names = self._counterparts(part) if signs else {}, self._names(part)
        sources += [iter(found) for found in (fixed, kinds, names) if found]
        if self.rules.protect:
            sources += self._words(part)
        if not sources:  # the usual case; the loop below takes as long as all above
            return
        for place in merge_ranges(sources):
            read = place in kinds and kinds[place].treatment == "read"
            phrase = self._phrase(part[slice(*place)], read=read, name=fixed.get(place, names.get(place)))
            yield begin + place[0], begin + place[1], phrase

    def _counterparts(self, part: str) -> dict[tuple[int, int], str]:
        """Map each date and abbreviation of a part of the text to its form in the answer."""
        languages = self.rules.languages
        return self._without_own_phrases(part, find_counterparts(part, languages)) if languages else {}

    def _names(self, part: str) -> dict[tuple[int, int], str]:
        """Map each name of a part of the text, with its title, to its form in the answer."""
        rule = self.rules.names if self.rules.protect else None
        return self._without_own_phrases(part, find_names_with_titles(part, rule)) if rule else {}

    def _words(self, part: str) -> list[Iterator[tuple[int, int]]]:
        """Return iterators of the acronyms of a part of the text and of words with unknown characters."""
        rule, words = self.rules.names, list[Iterator[tuple[int, int]]]()
        if rule and ACRONYM.search(part):
            words.append(find_acronyms(part, rule))
        if self.lacking:
            words.append(_unreadable_words(part, self.lacking))
        return words

    def _without_own_phrases(
        self, part: str, found: Iterator[tuple[int, int, str]]
    ) -> dict[tuple[int, int], str]:
        """Return the found ranges without a phrase of the caller, each with its form in the answer."""
        return {(b, e): target for b, e, target in found if next(self.own.find(part[b:e]), None) is None}

    def _phrase(self, phrase: str, *, read: bool, name: str | None) -> Phrase:
        target, local = self.targets.get(phrase, name), self.rules.local
        own = phrase in self.targets or phrase in self.rules.symbols
        number = read and not own
        trusted = number or (not own and name == phrase and self.lacking.isdisjoint(phrase))
        if number and local:
            target = local(phrase)
            trusted = target == phrase  # the model does not convert numbers
        source = phrase if target is None else target
        return Phrase(phrase, source, own, trusted=trusted, name=name is not None and not number)


@lru_cache(REMEMBERED_MODELS)
def _symbols(symbols: tuple[str, ...]) -> Phrases:
    return Phrases(symbols, spaced=False)


def _matches(text: str) -> Iterator[tuple[tuple[int, int], Placeable]]:
    return ((match.span(), kind_of(match)) for match in matches(placeables(), long_placeables(), text))


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
