"""Names of people and places that the vocabulary breaks into crumbs: a model loses such words.

Which words are taken for names was tried on validation sets (docs/text.md): a word with a capital that stands
after a title, beside another such word, or alone, in a language that writes no nouns with capitals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Final

from engine.text.languages import of_all, rules_of
from engine.text.placeables.counterparts import title_before

TITLES: Final = frozenset(of_all(lambda rules: rules.title_words))
OWN_TITLES: Final = frozenset(of_all(lambda rules: rules.own_title_words))
NO_NAMES: Final = TITLES.union(of_all(lambda rules: rules.not_names))
PLACE_PREPOSITIONS: Final = frozenset(
    of_all(lambda rules: rules.nouns.place_prepositions if rules.nouns else ())
)
# small words within names: van Beethoven, von und zu Guttenberg; after no title those of other languages only
PARTICLES: Final = frozenset(
    {"van", "von", "der", "den", "de", "da", "di", "du", "del", "della", "la", "le", "ten", "ter", "zu"}
    | {"und", "ibn", "al", "el", "dos", "y"}
)
# a text without them has no name, which is seen in a fifth of the time: a capital within a sentence; of nouns
# two beside one another, or one after a title or a word of places
CAPITAL: Final = r"[^\W\d_a-zß-öø-ÿ]-?[^\W\d_]"
MAY_BE_NAME: Final = re.compile(rf"(?<=[^\w]){CAPITAL}")
NOUNS_MAY_BE_NAME: Final = re.compile(
    rf"(?<![\w'’-]){CAPITAL}[\w'’-]*+ (?:(?:{'|'.join(sorted(PARTICLES))}) ){{0,4}}{CAPITAL}"
    rf"|\b(?:{'|'.join(sorted(TITLES | PLACE_PREPOSITIONS))})\b[.'’]?\s++"
    rf"(?:{'|'.join(sorted(PARTICLES))}|{CAPITAL})"
)
APOSTROPHES: Final = ("'", "’")
# GDPR; not those that languages translate
ACRONYM: Final = re.compile(
    r"(?<![\w'’&/.-])(?!NATO|OTAN|ONU|UNO|AIDS|SIDA|DNA|ADN|DNS)[A-ZÄÖÜ]{3,5}(?![\w'’&/-]|\.\w)"
)
MIN_ACRONYM_TOKENS: Final = 3
MIN_PLACED_TOKENS: Final = 4
MIN_TITLED_TOKENS: Final = 4  # of a name that goes with its title
MIN_TOKENS_BESIDE: Final = 2
MIN_TOKENS_OF_NOUNS: Final = 5  # of a name beside another one together, where nouns have capitals too
MAX_SMALL_TOKENS: Final = 2  # of a word that is known in small letters
MAX_CAPITALS_SHARE: Final = 0.67  # of the words after the first one; headings have more
STARTS: Final = frozenset('.!?:„“"»«\n')  # a sentence begins after them


@dataclass(frozen=True, slots=True)
class NameRule:
    """What of a text is taken for names.

    language: code of its language.
    tokens: counts the tokens of a word.
    alone: least number of tokens of a name that stands alone; nouns of languages that write nouns with
        capitals are no names.
    into: code of the language of the answer, where titles are to be written as it writes them.
    """

    language: str
    tokens: Callable[[str], int]
    alone: int
    into: str = ""


def find_names(text: str, rule: NameRule) -> Iterator[tuple[int, int]]:
    """Find begin and end of each name, in order; words beside one another are one name."""
    sign = NOUNS_MAY_BE_NAME if rules_of(rule.language).nouns else MAY_BE_NAME
    return _Reader(text, rule).names() if sign.search(text) else iter(())


def find_names_with_titles(text: str, rule: NameRule) -> Iterator[tuple[int, int, str]]:
    """Find begin and end of each name, in order, and what it is in the answer. A name that the vocabulary
    breaks into crumbs has its title with it, as the other language writes titles."""
    for begin, end in find_names(text, rule):
        first, title = begin, ""
        if rule.into and rule.tokens(text[begin:end]) >= MIN_TITLED_TOKENS:
            first, title = title_before(text, begin, (rule.language, rule.into))
        yield first, end, title + text[begin:end]


def find_acronyms(text: str, rule: NameRule) -> Iterator[tuple[int, int]]:
    """Find begin and end of each short word in capitals that the vocabulary breaks into crumbs, in small
    letters too; there are none in a text of capitals."""
    for match in ACRONYM.finditer(text) if not text.isupper() else ():
        word = match[0]
        least = min(map(rule.tokens, (word.lower(), word.capitalize())))
        if least >= len(word) - 1 - (len(word) > 4) and rule.tokens(word) >= MIN_ACRONYM_TOKENS:
            yield match.span()


class _Reader:
    """The words of a text with what a rule asks about them; tokens are counted only where they decide."""

    def __init__(self, text: str, rule: NameRule) -> None:
        self.text, self.rule, self.language = text, rule, rules_of(rule.language)
        self.nouns = self.language.nouns
        self.titles = TITLES | self.language.own_title_words
        self.particles = PARTICLES - self.language.own_particles
        self.places = [match.span() for match in re.finditer(self.language.word, text)]
        self.words = [text[begin:end] for begin, end in self.places]

    def names(self) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each name."""
        end, heading = 0, None
        for number, word in enumerate(self.words):
            if number < end or not (word in PARTICLES or (word[0].isupper() and self._capital(number))):
                continue
            before, first = self._before(number), number
            titled = before in self.titles
            if word in PARTICLES and not titled:
                continue
            if not titled and self._begins_sentence(first) and self._ordinary(first):
                continue
            end = self._end(first, PARTICLES if titled else self.particles)
            if end == first:
                continue
            if not titled:
                first, end = self._row(first, end, before)
                heading = not self.nouns and self._heading() if heading is None else heading
            if titled or (not heading and self._is_name(first, end)):
                yield self.places[first][0], self.places[end - 1][1]

    def _capital(self, number: int) -> bool:
        """Whether a word may be of a name."""
        word = self.words[number]
        if not word[0].isupper() or len(word) < 2 or word.isupper() or word in NO_NAMES:
            return False
        return not (self.nouns and word in self.nouns.pronouns)

    def _end(self, first: int, particles: Set[str]) -> int:
        """The end of the words with capitals from `first` on, with particles before them."""
        end = at = first
        while at < len(self.words) and (at == first or self._goes_on(at)):
            if self._capital(at):
                end = at + 1
            elif self.words[at] not in particles:
                break
            at += 1
        return end

    def _goes_on(self, number: int) -> bool:
        """Whether nothing but a space, or "&", parts a word from the one before it."""
        return self.text[self.places[number - 1][1] : self.places[number][0]] in (" ", " & ")

    def _before(self, number: int) -> str:
        """The word before one of the words, or the marks between; "" at the beginning of a sentence."""
        if not number:
            return ""
        word, gap = self.words[number - 1], self.text[self.places[number - 1][1] : self.places[number][0]]
        if gap.isspace() or gap in APOSTROPHES or (gap.strip() == "." and word in TITLES | OWN_TITLES):
            return word
        return "" if STARTS.intersection(gap) else gap.strip()

    def _heading(self) -> bool:
        if self.text.rstrip().endswith("?"):
            return False
        capitals = sum(self._capital(number) for number in range(1, len(self.words)))
        return len(self.words) > 1 and capitals > MAX_CAPITALS_SHARE * (len(self.words) - 1)

    def _begins_sentence(self, number: int) -> bool:
        begin = self.places[number][0]
        return not begin or self.text[max(0, begin - 2) : begin].rstrip(" ")[-1:] in STARTS

    def _tokens(self, number: int) -> int:
        """Number of tokens of a word as it is, or in small letters where these may be fewer."""
        tokens = self.rule.tokens(self.words[number])
        again = tokens > 1 or self._begins_sentence(number)
        return min(tokens, self._small(number)) if again else tokens

    def _small(self, number: int) -> int:
        word = self.words[number]
        return self.rule.tokens(word[0].lower() + word[1:])

    def _ordinary(self, number: int) -> bool:
        """Whether the capital of a word may only say that a sentence or a title begins."""
        word, small = self.words[number], self._small(number)
        tokens = self.rule.tokens(word)
        if not self.nouns:
            return small <= min(tokens, MAX_SMALL_TOKENS)
        return small < max(2, tokens) or (small == tokens and _matches(self.nouns.inflected, word))

    def _attribute(self, number: int) -> bool:
        """Whether a German word is an adjective, or a genitive such as "Toms"."""
        assert self.nouns
        word, tokens = self.words[number], self.rule.tokens(self.words[number])
        if tokens > 1 and (self._small(number) == 1 or _matches(self.nouns.adjectives, word)):
            return True
        return word[-1] == "s" and tokens > self.rule.tokens(word[:-1]) <= MAX_SMALL_TOKENS

    def _row(self, first: int, end: int, before: str) -> tuple[int, int]:
        """The words [first, end) of several that may be a name: no adjectives, and no nouns but the last."""
        if not self.nouns:
            return first + (end - first > 1 and self._translated(first)), end
        first += end - first > 1 and _matches(self.nouns.determiners, before)
        while end - first > 1 and self._attribute(first):
            first += 1
        while end - first > 1 and self._attribute(end - 1):
            end -= 1
        return first, end

    def _is_name(self, first: int, end: int) -> bool:
        """Whether the words [first, end), that stand after no title, are a name."""
        before, several = self._before(first), end - first > 1
        if not several and not (
            before in self.nouns.place_prepositions if self.nouns else self._may_stand_alone(first, before)
        ):
            return False
        *_, second, most = sorted([0, *map(self._tokens, range(first, end))])
        if not self.nouns:
            known = several and all(map(self._ordinary, range(first, end)))
            if "&" in self.text[self.places[first][0] : self.places[end - 1][1]]:  # Johnson & Johnson
                return not known
            return not known and most >= (MIN_TOKENS_BESIDE if several else self.rule.alone)
        if several:
            return second >= MIN_TOKENS_BESIDE and second + most >= MIN_TOKENS_OF_NOUNS
        return most >= MIN_PLACED_TOKENS and not self._translated(first)

    def _may_stand_alone(self, number: int, before: str) -> bool:
        """Whether a word beside no others may be a name, in a language that writes nouns in small letters."""
        country = before.lower() in self.language.country_articles
        return bool(before and self.rule.alone) and not country and not self._translated(number)

    def _translated(self, number: int) -> bool:
        return _matches(self.language.translated_names, self.words[number])


def _matches(pattern: str, word: str) -> bool:
    return re.fullmatch(pattern, word) is not None
