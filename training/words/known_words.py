"""Learn the known words of a bundle from sentence pairs (`engine.text.known_words`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Final

from engine.text.given_names import MAX_CAPITALS_SHARE
from engine.text.known_words import KnownWords, ends_as_place, hashes, is_compound, stem
from engine.text.languages import rules_of

MIN_TIMES: Final = 2  # a model does not learn a word from one sentence
MAX_COPIED: Final = 0.5  # share of the sentences in which a word stays as it is, if it has a translation
ANY_WORD: Final = re.compile(r"[^\W\d_]+")


def learn(pairs: Iterable[tuple[str, str]], language: str) -> KnownWords:
    """Return the known words of sentence pairs.

    pairs: sources and translations.
    language: code of the language of the sources.
    """
    counter = _WordCounts(language)
    for source, target in pairs:
        counter.count(source, frozenset(ANY_WORD.findall(target)))
    words, nouns = counter.small_words(), rules_of(language).nouns is not None
    if nouns:
        capitals_anywhere = counter.capitals()
        nouns_and_words = words.union(
            word
            for word in capitals_anywhere.translated(MIN_TIMES)
            if not (word.endswith("s") and capitals_anywhere.stays(word[:-1]))  # Johns
        )
        stems, capitals = _simple_stems(nouns_and_words, language), set[str]()
    else:
        stems, capitals = {stem(word, language) for word in words}, set(counter.inside.translated(1))
    titles = set(counter.before_names.translated(1))
    translated = set(counter.acronyms.translated(MIN_TIMES))
    kept = {word for word in counter.acronyms.all if stem(word, language) in stems} - translated
    capitals = {word for word in capitals if not word.isupper()} | translated
    return KnownWords(language, *map(hashes, (stems, capitals, titles, kept)))


class _Uses:
    """Numbers of sentences with a word, and of sentences whose translation has it too."""

    def __init__(self) -> None:
        self.all, self.copied = Counter[str](), Counter[str]()

    def add(self, word: str, target_words: Set[str]) -> None:
        self.all[word] += 1
        self.copied[word] += word in target_words

    def stays(self, word: str) -> bool:
        """Return whether a word usually stays as it is, as a name does."""
        return self.copied[word] > MAX_COPIED * self.all[word]

    def translated(self, times: int) -> Iterator[str]:
        """Yield the words of at least `times` sentences that usually have a translation."""
        for word, count in self.all.items():
            if count >= times and self.copied[word] < MAX_COPIED * count:
                yield word


class _WordCounts:
    """Counts the words of sentences.

    small: words in small letters.
    first: words with a capital at the beginning of a sentence, or in a heading.
    inside: words with a capital within a sentence.
    before_names: words with a capital before a word with a capital that its translation has too.
    acronyms: words in capitals, in sentences with small letters.
    """

    def __init__(self, language: str) -> None:
        self.pattern = re.compile(rules_of(language).word)
        self.small, self.first = _Uses(), _Uses()
        self.inside, self.before_names, self.acronyms = _Uses(), _Uses(), _Uses()

    def count(self, source: str, target_words: Set[str]) -> None:
        """Count the words of a source.

        source: sentence.
        target_words: words of its translation.
        """
        matches = list(self.pattern.finditer(source))
        words = [match[0] for match in matches]
        gaps = [source[a.end() : b.start()] for a, b in zip(matches, matches[1:], strict=False)]
        capitals = sum(word[0].isupper() for word in words[1:])
        heading = capitals > MAX_CAPITALS_SHARE * max(1, len(words) - 1)
        following = zip([*gaps, ""], [*words[1:], ""], strict=True)
        for word, before, (gap, after) in zip(words, [".", *gaps], following, strict=False):
            begins = heading or before.strip(" ,") != ""
            name_follows = not heading and gap == " " and after.istitle() and after in target_words
            with_capital = self.before_names if name_follows else self.first if begins else self.inside
            for part in {word, *word.split("-")}:
                self._uses(part, with_capital, source).add(part, target_words)

    def _uses(self, word: str, with_capital: _Uses, source: str) -> _Uses:
        """Return the counts that a word belongs to; a single capital belongs to none of them."""
        if not word[:1].isupper():
            return self.small
        if len(word) == 1:
            return _Uses()
        return self.acronyms if word.isupper() and not source.isupper() else with_capital

    def small_words(self) -> set[str]:
        """Return the words in small letters, and the translated ones at the beginning of sentences."""
        names = Counter[str]()  # sentences whose translation keeps the word, by the word in small letters
        for word, count in self.capitals().copied.items():
            names[word.lower()] += count
        words = {word for word, count in self.small.all.items() if count >= max(MIN_TIMES, names[word])}
        return words.union(self.first.translated(MIN_TIMES))

    def capitals(self) -> _Uses:
        """Return the occurrences of words with capitals anywhere."""
        every = _Uses()
        for part in (self.first, self.inside, self.before_names):
            every.all += part.all
            every.copied += part.copied
        return every


def _simple_stems(words: Iterable[str], language: str) -> set[str]:
    """Return the stems of words, without compounds of other words that do not end like places."""
    stems = set[str]()
    for word in sorted(words, key=lambda word: (len(word), word)):
        if ends_as_place(word, language) or not is_compound(word, language, stems.__contains__):
            stems.add(stem(word, language))
    return stems
