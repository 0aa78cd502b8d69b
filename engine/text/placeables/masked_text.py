"""Texts with a mark in the place of each phrase, and the phrases.

A mark is a private-use character that the text lacks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from engine.errors import TooLarge
from engine.text.numbers import names_number
from engine.text.placeables.amounts import EMOJI, NUMBER
from engine.text.placeables.grammar import BORDER, EMOJI_STAND_IN
from engine.text.placeables.spelling import TRUSTED, has_similar_word, spell_amounts, spell_names
from engine.text.wrapping import ONE_LINE, Wrapping

NUMBERS: Final = re.compile(NUMBER)
PICTURES: Final = re.compile(EMOJI)


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with spans (begin, end) that must not be translated, ordered and disjoint.

    borders: places of the text where a format begins or ends.
    lines: lines into which its answer is wrapped, if the text is the answer of another model.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()
    borders: tuple[int, ...] = ()
    lines: Wrapping = ONE_LINE


@dataclass(frozen=True, slots=True)
class Phrase:
    """A masked phrase.

    source: phrase in the source.
    target: phrase in the answer.
    requested: whether the caller asked for the phrase; otherwise a pattern found it.
    spans: number of each span of the caller in the phrase, with begin and end in characters of the phrase.
    trusted: whether the model reads the phrase itself first, not a placeholder: digits, codes, names.
    name: whether the phrase is a name.
    unknown: whether the model has not learnt the phrase; the answer has it or a similar word.
    border: whether the text on both sides of the phrase is translated separately.
    hinted: whether the model reads the phrase itself and gets its target with it.
    in_words: whether the phrase is a number in words, and its target the same number in digits.
    read_as: words that the model reads and translates in the place of the phrase; "" for other phrases.
    """

    source: str
    target: str
    requested: bool
    spans: tuple[tuple[int, int, int], ...] = ()
    trusted: bool = False
    name: bool = False
    unknown: bool = False
    border: bool = False
    hinted: bool = False
    in_words: bool = False
    read_as: str = ""

    def is_lost(self, answer: str, language: str) -> bool:
        """Return whether an answer lacks a number in words or an unknown word.

        answer: answer of the model.
        language: code of its language.
        """
        if self.in_words:
            return not names_number(answer, int(self.target), language)
        return self.unknown and not has_similar_word(answer, self.target)

    def kept(self, begin: int, end: int) -> list[KeptSpan]:
        """Return the caller's spans in an answer with the phrase at [begin, end), or the phrase itself."""
        spans = [KeptSpan(begin + first, begin + last, number) for number, first, last in self.spans]
        return spans or [KeptSpan(begin, end, -1)]

    @property
    def stand_in(self) -> str:
        """A character of the same kind as the phrase."""
        if self.border:
            return BORDER
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
        symbols: words by index of a phrase; other phrases are spelled as in the source.
        """
        if not self.mark:
            return text
        first, *rest = text.split(self.mark)
        spelled = (symbols.get(number, self.phrases[number].source) for number in phrases)
        return first + "".join(word + part for word, part in zip(spelled, rest, strict=True))

    def garbles(self, text: str, phrases: Sequence[int], language: str) -> bool:
        """Return whether an answer has wrong counts of trusted phrases.

        text: answer.
        phrases: indices of trusted phrases. A name must occur at least as often as here, a number or code
            exactly as often, and a target that differs from its phrase at least as often. A number in words
            must occur in words or in digits.
        language: code of the language of the answer.
        """
        read = [self.phrases[number] for number in phrases if not self.phrases[number].read_as]
        if any(phrase.is_lost(text, language) for phrase in read):
            return True
        expected = Counter(phrase for phrase in read if not (phrase.in_words or phrase.unknown))
        actual = Counter(match[0] for match in TRUSTED.finditer(text))
        return any(
            _count_names(text, phrase.target) < count
            if phrase.name
            else text.count(phrase.target) < count
            if phrase.target != phrase.source
            else actual[phrase.source] != count
            for phrase, count in expected.items()
        )

    def respelled(self, text: str, phrases: Sequence[int], count: Callable[[str], int]) -> str:
        """Spell numbers, codes and names in an answer as in the source.

        text: answer.
        phrases: indices of the trusted phrases that the model read.
        count: returns the number of source tokens of a word.
        """
        read = [self.phrases[number] for number in phrases]
        read = [phrase for phrase in read if not (phrase.hinted or phrase.in_words or phrase.read_as)]
        words = [phrase.source for phrase in read if phrase.name or phrase.unknown]
        text = spell_amounts(text, {phrase.source for phrase in read}.difference(words))
        return spell_names(text, words, count)

    def at_most(self, count: int) -> MaskedText:
        """Return the text with at most `count` phrases masked.

        The last phrases that the caller did not ask for are unmasked. Raises TooLarge if the caller asked for
        more than `count`.
        """
        surplus = len(self.phrases) - count
        if surplus <= 0:
            return self
        unrequested = [i for i, phrase in enumerate(self.phrases) if not phrase.requested]
        if len(unrequested) < surplus:
            raise TooLarge(f"the model keeps at most {count} phrases of a text: let it be split")
        return self._without(set(unrequested[len(unrequested) - surplus :]))

    @property
    def hinted(self) -> MaskedText:
        """The text whose phrases with a translation by the caller are hinted."""
        phrases = (
            replace(phrase, trusted=True, hinted=True)
            if phrase.requested and not phrase.spans and phrase.source != phrase.target
            else phrase
            for phrase in self.phrases
        )
        return replace(self, phrases=tuple(phrases))

    @property
    def borders(self) -> MaskedText:
        """The text with only the phrases masked that need no placeholder."""
        return self._without({i for i, p in enumerate(self.phrases) if not (p.border or p.read_as)})

    def _without(self, unmasked: Set[int]) -> MaskedText:
        """Return the text without the marks of some phrases, given by their numbers."""
        if not unmasked:
            return self
        first, *rest = self.text.split(self.mark)
        parts = [first]
        for i, part in enumerate(rest):
            parts += [self.phrases[i].source if i in unmasked else self.mark, part]
        phrases = (phrase for i, phrase in enumerate(self.phrases) if i not in unmasked)
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

    @property
    def written(self) -> list[tuple[int, int, Phrase]]:
        """The places without phrases that the model reads in other words, whose words are its own."""
        return [place for place in self.places if not place[2].read_as]

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
            after = part[1:] if _end_with_one_dot(phrase.target, part) else part
            parts += [phrase.target, after]
            length += len(phrase.target) + len(after)
        return "".join(parts), places

    def caller_spans(self, places: Sequence[KeptSpan]) -> list[KeptSpan]:
        """Return the places of the caller's spans in an answer from those of its phrases."""
        return [span for p in places for span in self.phrases[p.span].kept(p.begin, p.end)]


def _count_names(text: str, name: str) -> int:
    """Return the number of times that a text has a name, perhaps with one letter more: Toms."""
    return len(re.findall(rf"(?<![A-Za-z]){re.escape(name)}(?![a-z]{{2}})", text))


def _end_with_one_dot(abbreviation: str, after: str) -> bool:
    """Return whether the dot of a phrase such as "U.S." or "1." also ends the sentence."""
    return abbreviation[-2:-1].isalnum() and abbreviation[-1] == "." and after[:1] == "." != after[1:2]
