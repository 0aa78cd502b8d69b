"""Names of people and places that the vocabulary splits into many tokens: models often lose such words.

Only bundles without known words need this rule; `engine.text.unknown_words` finds the names of others.
A word with a capital counts as a name after a title, next to another such word, or alone. In a language that
writes nouns with capitals, a single word counts only after a title or a preposition of place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

from engine.text.given_names import MAX_CAPITALS_SHARE, NOT_NAMES, OWN_TITLES, PARTICLES, TITLES, name_words
from engine.text.known_words import KnownWords
from engine.text.languages import rules_of
from engine.text.languages.rules import CapitalNouns
from engine.text.placeables import amounts
from engine.text.placeables.counterparts import title_before
from engine.text.placeables.phrases import merge_ranges
from engine.text.unknown_words import UnknownWord, find_unknown_words

APOSTROPHES: Final = ("'", "’")
# acronyms such as GDPR, except acronyms with translations
ACRONYM: Final = re.compile(
    r"(?<![\w'’&/.-])(?!NATO|OTAN|ONU|UNO|AIDS|SIDA|DNA|ADN|DNS)[A-ZÄÖÜ]{2,12}s?(?![\w'’&/-]|\.\w)"
)
# word without a vowel, which is an abbreviation in most languages; with a dot it may have a translation
CONSONANTS: Final = re.compile(
    r"(?<![\w'’&/.-])(?!(?i:[hmpst]{2,5}|[bg]r+)\b)[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]{2,6}(?![\w'’&/-]|\.(?!\s{0,9}\Z))"
)
CODE_AFTER: Final = re.compile(r" (?=[A-Z]{0,3}-?\d)(?=\w{0,11}[A-Za-z-])[\w-]{2,12}(?!\w)")  # Cessna 172S
# thresholds chosen on validation sets: models rarely lose words of fewer tokens (docs/text.md)
MIN_ACRONYM_TOKENS: Final = 3
MIN_PLACE_TOKENS: Final = 4  # a single word after a preposition of place
MIN_ENDED_PLACE_TOKENS: Final = 3  # the same with an ending of places
MIN_TITLED_TOKENS: Final = 4  # shorter names are masked without their titles
MIN_TOKENS_BESIDE: Final = 2  # the longest word of several; of capital nouns, the second longest
MIN_NOUN_PAIR_TOKENS: Final = 5  # the two longest words together, in a language of capital nouns
MAX_KNOWN_TOKENS: Final = 2  # an ordinary word, written in small letters
SENTENCE_STARTS: Final = frozenset('.!?:„“"»«\n')


@dataclass(frozen=True, slots=True)
class NameRule:
    """Rule of a bundle for names.

    language: code of the language of the text.
    count_tokens: returns the number of tokens of a word.
    min_tokens_alone: least number of tokens of a name that stands alone, or 0 for never. A language that
        writes nouns with capitals does not use it.
    target: code of the language of the answer; titles are written in it. "": titles are not masked.
    known: words of the training data; None: unknown words are left to the model.
    """

    language: str
    count_tokens: Callable[[str], int]
    min_tokens_alone: int
    target: str = ""
    known: KnownWords | None = None


def find_names(text: str, rule: NameRule) -> Iterator[tuple[int, int]]:
    """Find begin and end of each name, in order; adjacent words are one name."""
    nouns = rules_of(rule.language).nouns
    return (_NounNameFinder(text, rule, nouns) if nouns else _NameFinder(text, rule)).names()


def find_names_with_titles(text: str, rule: NameRule) -> Iterator[tuple[UnknownWord, str]]:
    """Find names and other unknown words, in order, and the form of each in the answer.

    The range of a name of many tokens includes its title, which the answer has in its own language.
    """
    if rule.known:
        words = find_unknown_words(text, rule.known)
    else:
        ranges = merge_ranges([find_names(text, rule), find_people(text, rule.language)])
        words = (UnknownWord(begin, end, True) for begin, end in ranges)
    for begin, end, name in words:
        first, title = begin, ""
        if rule.target and rule.count_tokens(text[begin:end]) >= MIN_TITLED_TOKENS:
            first, title = title_before(text, begin, (rule.language, rule.target))
        yield UnknownWord(first, end, name), title + text[begin:end]


def find_people(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Find begin and end of each common given name with its surname, and of places of two words: Peter Koch,
    Bad Homburg."""
    pattern = _people(language)
    return (match.span() for match in pattern.finditer(text)) if pattern else iter(())


@cache
def _people(language: str) -> re.Pattern[str] | None:
    """Return the pattern of a given name with a surname; None for a language without given names."""
    rules, capital, given = rules_of(language), r"[^\W\d_a-zß-öø-ÿ]", amounts.GIVEN_NAMES
    if not rules.given_names:
        return None
    # a word with a capital, unless another one follows, as in a heading
    surname = rf"{capital}[a-zß-öø-ÿ'’-]{{2,30}}(?![\w-]| {capital}[a-z])"
    if rules.nouns:
        surname = rf"(?:{'|'.join(sorted(rules.surnames))})(?![\w-])"
    begin = r"(?<![\w-])(?=[A-Z]\w{1,20}[- .][^\W\d_a-z])"
    places = rf"|(?<![\w-])(?:{'|'.join(sorted(rules.place_words)) or '(?!)'}) {capital}[a-zß-öø-ÿ-]{{3,30}}"
    return re.compile(rf"{begin}(?:{given})(?: (?:{given}|[A-Z]\.))? {surname}{places}")


def find_acronyms(text: str, rule: NameRule) -> Iterator[tuple[int, int]]:
    """Find begin and end of each acronym that is split nearly into letters, in small letters too.

    A text all in capitals has no acronyms.
    """
    for match in ACRONYM.finditer(text) if not text.isupper() else ():
        word = match[0].rstrip("s")
        # 0 if each letter is a token of its own
        known_letters = len(word) - min(map(rule.count_tokens, (word.lower(), word.capitalize())))
        allowed = (len(word) - 1) // 2
        if known_letters <= allowed and rule.count_tokens(word) >= min(MIN_ACRONYM_TOKENS, len(word)):
            yield match.span()


def find_abbreviations(text: str, rule: NameRule) -> Iterator[tuple[int, int]]:
    """Find begin and end of each word of consonants that is no token of the vocabulary: `BP`, `Rx`, `pls`."""
    abbreviates = rules_of(rule.language).short_words and not text.isupper()
    for match in CONSONANTS.finditer(text) if abbreviates else ():
        word = match[0]
        forms = word, word.lower(), word.capitalize()
        if word not in NOT_NAMES and min(map(rule.count_tokens, forms)) > 1:
            yield match.span()


class _NameFinder:
    """Finds names in a text of a language that writes nouns in small letters.

    Methods take the number of a word, or the words [first, end). Tokens are counted only for words that pass
    all other checks.
    """

    def __init__(self, text: str, rule: NameRule) -> None:
        self.text, self.rule, self.language = text, rule, rules_of(rule.language)
        self.titles = name_words(rule.language).titles
        self.particles = PARTICLES - self.language.own_particles
        self.spans = [match.span() for match in re.finditer(self.language.word, text)]
        self.words = [text[begin:end] for begin, end in self.spans]

    def names(self) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each name."""
        end = 0
        for number, word in enumerate(self.words):
            particle = word in PARTICLES
            if number < end or not (particle or (word[0].isupper() and self._may_be_in_name(number))):
                continue
            previous, first = self._previous(number), number
            titled = previous in self.titles
            ordinary = particle or (self._begins_sentence(number) and self._is_ordinary(number))
            if ordinary and not titled:
                continue
            end = self._run_end(first, PARTICLES if titled else self.particles)
            if end == first:
                continue
            if not titled:
                first, end = self._trim(first, end, previous)
            if titled or (not self._is_heading and self._is_name(first, end)):
                yield self.spans[first][0], self.spans[end - 1][1]

    def _may_be_in_name(self, number: int) -> bool:
        """Return whether a word has a capital first letter and is no acronym, title or other known word."""
        word = self.words[number]
        return word[0].isupper() and len(word) > 1 and not word.isupper() and word not in NOT_NAMES

    def _run_end(self, first: int, particles: Set[str]) -> int:
        """Return the end of the adjacent words from `first` on: words with capitals, particles between."""
        end = number = first
        while number < len(self.words) and (number == first or self._is_adjacent(number)):
            if self._may_be_in_name(number):
                end = number + 1
            elif self.words[number] not in particles:
                break
            number += 1
        return end

    def _is_adjacent(self, number: int) -> bool:
        """Return whether only a space or "&" separates a word from the previous one."""
        return self._gap_before(number) in (" ", " & ")

    def _gap_before(self, number: int) -> str:
        return self.text[self.spans[number - 1][1] : self.spans[number][0]]

    def _previous(self, number: int) -> str:
        """Return the word before a word, or the marks between them; "" at the start of a sentence."""
        if not number:
            return ""
        word, gap = self.words[number - 1], self._gap_before(number)
        if gap.isspace() or gap in APOSTROPHES or (gap.strip() == "." and word in TITLES | OWN_TITLES):
            return word
        return "" if SENTENCE_STARTS.intersection(gap) else gap.strip()

    @cached_property
    def _is_heading(self) -> bool:
        """Whether most words have capitals, as in an English heading; such words are no names."""
        if self.text.rstrip().endswith("?"):
            return False
        capitals = sum(self._may_be_in_name(number) for number in range(1, len(self.words)))
        return len(self.words) > 1 and capitals > MAX_CAPITALS_SHARE * (len(self.words) - 1)

    def _begins_sentence(self, number: int) -> bool:
        begin = self.spans[number][0]
        return not begin or self.text[max(0, begin - 2) : begin].rstrip(" ")[-1:] in SENTENCE_STARTS

    def _tokens(self, number: int) -> int:
        """Return the number of tokens of a word, with its capital or without it, whichever takes fewer."""
        tokens = self.rule.count_tokens(self.words[number])
        capital_counts = tokens == 1 and not self._begins_sentence(number)
        return tokens if capital_counts else min(tokens, self._tokens_in_small_letters(number))

    def _tokens_in_small_letters(self, number: int) -> int:
        word = self.words[number]
        return self.rule.count_tokens(word[0].lower() + word[1:])

    def _is_ordinary(self, number: int) -> bool:
        """Return whether a word may have its capital only because a sentence or a title begins."""
        small = self._tokens_in_small_letters(number)
        return small <= min(self.rule.count_tokens(self.words[number]), MAX_KNOWN_TOKENS)

    def _trim(self, first: int, end: int, previous: str) -> tuple[int, int]:
        """Return [first, end), without the first of several words if it is a name with a translation."""
        return first + (end - first > 1 and self._is_translated(first)), end

    def _is_name(self, first: int, end: int) -> bool:
        """Return whether the words [first, end), which follow no title, are a name."""
        several = end - first > 1 or self._is_before_code(first)
        if several and all(map(self._is_ordinary, range(first, end))):
            return False
        if not several and not self._may_stand_alone(first):
            return False
        if "&" in self.text[self.spans[first][0] : self.spans[end - 1][1]]:  # Johnson & Johnson
            return True
        least = MIN_TOKENS_BESIDE if several else self.rule.min_tokens_alone
        return max(map(self._tokens, range(first, end))) >= least

    def _is_before_code(self, number: int) -> bool:
        """Return whether a code follows a word: Cessna 172S."""
        return CODE_AFTER.match(self.text, self.spans[number][1]) is not None

    def _may_stand_alone(self, number: int) -> bool:
        """Return whether a word that is no country or translated name may be a name without other words."""
        previous = self._previous(number)
        if not previous or not self.rule.min_tokens_alone:
            return False
        country = previous.lower() in self.language.country_articles
        return not country and not self._is_translated(number)

    def _is_translated(self, number: int) -> bool:
        return _matches(self.language.translated_names, self.words[number])


class _NounNameFinder(_NameFinder):
    """Finds names in a text of a language that writes nouns with capitals."""

    _is_heading = False  # capitals are no sign of a heading

    def __init__(self, text: str, rule: NameRule, nouns: CapitalNouns) -> None:
        super().__init__(text, rule)
        self.nouns = nouns

    def _may_be_in_name(self, number: int) -> bool:
        return super()._may_be_in_name(number) and self.words[number] not in self.nouns.pronouns

    def _is_ordinary(self, number: int) -> bool:
        """Return whether a word is known in small letters too, as an inflected form may be."""
        word, small = self.words[number], self._tokens_in_small_letters(number)
        tokens = self.rule.count_tokens(word)
        return small < max(2, tokens) or (small == tokens and _matches(self.nouns.inflected, word))

    def _trim(self, first: int, end: int, previous: str) -> tuple[int, int]:
        """Drop a noun after its determiner, adjectives and genitives: die Provinz, Toms Geständnis."""
        first += end - first > 1 and _matches(self.nouns.determiners, previous)
        while end - first > 1 and self._is_attribute(first):
            first += 1
        while end - first > 1 and self._is_attribute(end - 1):
            end -= 1
        return first, end

    def _is_attribute(self, number: int) -> bool:
        """Return whether a word is an adjective, or a genitive such as "Toms"."""
        word, tokens = self.words[number], self.rule.count_tokens(self.words[number])
        small = tokens > 1 and self._tokens_in_small_letters(number) == 1
        if small or (tokens > 1 and _matches(self.nouns.adjectives, word)):
            return True
        return word[-1] == "s" and tokens > self.rule.count_tokens(word[:-1]) <= MAX_KNOWN_TOKENS

    def _is_name(self, first: int, end: int) -> bool:
        """Return whether a word after a preposition of place, or several words, are a name of many tokens."""
        if end - first == 1:
            place = self._previous(first) in self.nouns.place_prepositions
            ended = _matches(self.nouns.place_endings, self.words[first])
            least = MIN_ENDED_PLACE_TOKENS if ended else MIN_PLACE_TOKENS
            return place and self._tokens(first) >= least and not self._is_translated(first)
        *_, second, most = sorted(map(self._tokens, range(first, end)))
        return second >= MIN_TOKENS_BESIDE and second + most >= MIN_NOUN_PAIR_TOKENS


def _matches(pattern: str, word: str) -> bool:
    return re.fullmatch(pattern, word) is not None
