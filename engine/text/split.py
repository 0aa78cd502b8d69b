"""Long text to sentences and back, by sentencex (the sentence splitter of Wikimedia, some 240 languages)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import sentencex

from engine.errors import TooLarge

# where a sentence that is too long is cut, best place first
CUTS: Final = (
    re.compile(r"(?<=[,;:.!?…)–—]\s)|(?<=[，；：、。！？])"),
    re.compile(r"(?<=\s)(?=\S)"),
    re.compile(r"(?<=.)(?=.)", re.DOTALL),
)
# white space beyond the plain space, and lone surrogates: sentencex 1.0 panics on "A\xa0." and on surrogates
UNUSUAL: Final = re.compile(r"[^\S ]|[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Layout:
    """A text as sentences and the white space around them: gaps[0] sentences[0] gaps[1] ... gaps[-1]."""

    sentences: list[str]
    gaps: list[str]

    def join(self, translations: Sequence[str], between: str = "") -> str:
        """Put one translation in the place of each sentence; white space stays as it was.

        `between` goes where two sentences touched: " " suits a translation from Chinese to English.
        """
        assert len(translations) == len(self.sentences)
        inner = [gap or between for gap in self.gaps[1:-1]]
        gaps = [self.gaps[0], *inner, self.gaps[-1]] if self.sentences else self.gaps
        parts = [part for pair in zip(gaps, translations, strict=False) for part in pair]
        return "".join([*parts, gaps[-1]])


def split(
    text: str, language: str, fits: Callable[[str], bool] | None = None, seen: str | None = None
) -> Layout:
    """Split a text into sentences; a line break always ends one. Joining the sentences gives the text again.

    language: a code like "de" or "de-AT"; unknown ones are split by the library's general rules. fits: when
    given, sentences for which it is false are split further by `break_long` (which may raise TooLarge).
    seen: a text of the same length and lines in which the ends of sentences are looked for instead.
    """
    sentences: list[str] = []
    gaps = [""]
    for segment in _segments(text, text if seen is None else seen, language):
        for part in break_long(segment, fits) if fits and segment.strip() else [segment]:
            sentence = part.strip()
            begin = part.index(sentence)
            gaps[-1] += part[:begin]
            if sentence:
                sentences.append(sentence)
                gaps.append("")
            gaps[-1] += part[begin + len(sentence) :]
    return Layout(sentences, gaps)


def break_long(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut a sentence into parts that fit: after clause punctuation, else at spaces, else anywhere.

    The parts joined give the sentence. Raises TooLarge when not even one character fits.
    """
    return list(_fitting(sentence, fits, 0))


def _fitting(text: str, fits: Callable[[str], bool], level: int) -> Iterator[str]:
    if fits(text):
        yield text
        return
    if level == len(CUTS):
        raise TooLarge(f"not even the single character {text!r} fits the model's longest source")
    pieces = CUTS[level].split(text)
    begin = 0
    while begin < len(pieces):
        count = _most(pieces, begin, fits)
        if count:
            yield "".join(pieces[begin : begin + count])
        else:
            yield from _fitting(pieces[begin], fits, level + 1)
        begin += max(count, 1)


def _most(pieces: list[str], begin: int, fits: Callable[[str], bool]) -> int:
    """About the largest number of pieces from `begin` that fit together, by doubling and bisection."""

    def fit(count: int) -> bool:
        return fits("".join(pieces[begin : begin + count]))

    left = len(pieces) - begin
    good, bad = 0, 1
    while bad <= left and fit(bad):
        good, bad = bad, bad * 2
    bad = min(bad, left + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fit(middle) else (good, middle)
    return good


def _segments(text: str, seen: str, language: str) -> Iterator[str]:
    position = 0
    for line in seen.splitlines(keepends=True):
        plain = UNUSUAL.sub(" ", line)  # as many characters, so the library's cuts are ours
        end = position + len(line)
        for found in sentencex.segment(language, plain):
            yield text[position : position + len(found)]
            position += len(found)
        assert position == end
