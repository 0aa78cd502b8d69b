"""What must not be translated: found in a text, replaced by the model's placeholder symbols, and put back.

A text is masked: one mark, a private-use character that the text lacks, stands for each phrase. Sentences are
split with the marks in place, so that no phrase is cut; then each mark of a sentence becomes a symbol that
the model was trained to copy ("<ph0>", "<ph1>", ...). `mend` makes sure that each comes out exactly once.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from engine.errors import InvalidRequest, TooLarge
from engine.text.patterns import CODE, EMOJI, EMOJI_STAND_IN, NUMBER, PATTERNS
from engine.text.phrases import Phrases

PRIVATE: Final = range(0xE000, 0xF700)
NUMBERS: Final = re.compile(NUMBER)
TRUSTED: Final = re.compile(f"{NUMBER}|{CODE}")
PICTURES: Final = re.compile(EMOJI)
SOLID: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with the spans (begin, end) of it that must come out as they are, in order and apart."""

    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Phrase:
    """What stood in the source and what stands in the answer.

    asked: by the caller, not found by a pattern.
    span: number of the caller's span, or -1.
    trusted: digits and codes, which the model reads at first.
    """

    source: str
    target: str
    asked: bool
    span: int = -1
    trusted: bool = False

    @property
    def stand_in(self) -> str:
        """A character of the same kind."""
        if self.source[-1].isdigit() or NUMBERS.fullmatch(self.source):
            return "1"
        return EMOJI_STAND_IN if not self.asked and PICTURES.fullmatch(self.source) else "X"


@dataclass(frozen=True, slots=True)
class KeptSpan:
    """Where a protected phrase stands in the answer.

    span: number of the caller's span, or -1.
    """

    begin: int
    end: int
    span: int


@dataclass(frozen=True, slots=True)
class MaskedText:
    """text: with `mark` in place of each of the phrases, in order."""

    text: str
    mark: str = ""
    phrases: tuple[Phrase, ...] = ()

    @property
    def original(self) -> str:
        """The text with its phrases as they were."""
        return self.spell(self.text, range(len(self.phrases)), {})

    @property
    def stand_in(self) -> str:
        """The text with a digit, a picture or a letter for each mark, for the splitter: "Am 2. Mai" is one
        sentence."""
        if not self.phrases:
            return self.text
        first, *rest = self.text.split(self.mark)
        letters = (phrase.stand_in for phrase in self.phrases)
        return first + "".join(letter + part for letter, part in zip(letters, rest, strict=True))

    def count(self, text: str) -> int:
        return text.count(self.mark) if self.mark else 0

    def spell(self, text: str, phrases: Sequence[int], symbols: Mapping[int, str]) -> str:
        """Spell a part of the text in which the marks stand for `phrases`, each as its symbol or, without
        one, as it was."""
        if not self.mark:
            return text
        first, *rest = text.split(self.mark)
        spelled = (symbols.get(number, self.phrases[number].source) for number in phrases)
        return first + "".join(word + part for word, part in zip(spelled, rest, strict=True))

    def garbles(self, text: str, phrases: Sequence[int]) -> bool:
        """Tell whether a text lacks one of the numbers and codes among `phrases`, or has one more often."""
        expected = Counter(self.phrases[number].source for number in phrases)
        present = Counter(match[0] for match in TRUSTED.finditer(text))
        return any(present[number] != count for number, count in expected.items())

    def at_most(self, count: int) -> MaskedText:
        """Mask no more phrases than `count`: those which nobody asked for are not masked, the last first.
        Raises TooLarge when too many were asked for."""
        many = len(self.phrases) - count
        if many <= 0:
            return self
        unasked = [i for i, phrase in enumerate(self.phrases) if not phrase.asked]
        if len(unasked) < many:
            raise TooLarge(f"the model keeps at most {count} phrases of a text: let it be split")
        shown = set(unasked[len(unasked) - many :])
        first, *rest = self.text.split(self.mark)
        parts = [first]
        for i, part in enumerate(rest):
            parts += [self.phrases[i].source if i in shown else self.mark, part]
        phrases = (phrase for i, phrase in enumerate(self.phrases) if i not in shown)
        return MaskedText("".join(parts), self.mark, tuple(phrases))

    def restore(self, text: str, order: Sequence[int]) -> tuple[str, list[KeptSpan]]:
        """Put phrase order[i] in the place of mark i. `text` may be the beginning of one for that order."""
        if not self.mark:
            return text, []
        first, *rest = text.split(self.mark)
        parts, places, length = [first], list[KeptSpan](), len(first)
        for part, index in zip(rest, order, strict=False):
            phrase = self.phrases[index]
            places.append(KeptSpan(length, length + len(phrase.target), phrase.span))
            parts += [phrase.target, part]
            length += len(phrase.target) + len(part)
        return "".join(parts), places


def mask(
    marked: MarkedText,
    *,
    ignore: Iterable[str] = (),
    glossary: Mapping[str, str] | None = None,
    protect: bool = False,
    symbols: Sequence[str] = (),
    spaced: bool = True,
    lacks: Callable[[str], bool] | None = None,
    local: Callable[[str], str] | None = None,
) -> MaskedText:
    """Mask what must come out as it is, or as a glossary says.

    marked: the text and its spans, which are masked first.
    ignore, glossary: phrases, the longest first, to the letter and as whole words when `spaced`.
    protect: mask also what PATTERNS find, and words that the model can't read.
    symbols: the model's placeholders, which mean nothing when a text spells them.
    lacks: whether the model has no way to write a character.
    local: how the target language writes a number; by default as it stands.

    Raises InvalidRequest on empty phrases and spans that overlap. Takes time linear in the text.
    """
    targets = dict.fromkeys(ignore) | dict(glossary or {})
    if not all(map(str.strip, targets)):
        raise InvalidRequest("a phrase of ignore or glossary is empty")
    if not (targets or protect or marked.spans):
        return MaskedText(marked.text)
    text, present = marked.text, set(marked.text)
    mark = next((chr(code) for code in PRIVATE if chr(code) not in present), None)
    if mark is None:
        raise InvalidRequest("the text uses every private-use character: nothing in it can be protected")
    finders = Phrases(targets, spaced=spaced), Phrases(symbols, spaced=False)
    foreign = (c for c in present if c > "~" and unicodedata.category(c)[0] in "LMNS")
    lacking = frozenset(c for c in foreign if lacks and lacks(c))
    phrases, parts, position = list[Phrase](), list[str](), 0

    def hide(begin: int, end: int) -> None:
        """Mask what is to be masked between two places."""
        nonlocal position
        part = text[begin:end]
        sources = [finder.find(part) for finder in finders]
        if protect:
            sources += [_matches(part), _unknown(part, lacking)]
        for first, last in _in_turn(sources):
            own = (phrase := part[first:last]) in targets or phrase in symbols
            phrases.append(_phrase(phrase, targets.get(phrase), own, local))
            parts.extend((text[position : begin + first], mark))
            position = begin + last

    last = 0
    for number, (begin, end) in enumerate(marked.spans):
        if not last <= begin < end <= len(text):
            raise InvalidRequest(f"the span {begin} to {end} is empty, beyond the text or overlaps another")
        hide(last, begin)
        phrase = text[begin:end]
        phrases.append(Phrase(phrase, phrase, True, number))
        parts.extend((text[position:begin], mark))
        position = last = end
    hide(last, len(text))
    return MaskedText("".join([*parts, text[position:]]), mark, tuple(phrases))


def _phrase(phrase: str, target: str | None, own: bool, local: Callable[[str], str] | None) -> Phrase:
    trusted = not own and TRUSTED.fullmatch(phrase) is not None
    if trusted and local:
        target = local(phrase)
        trusted = target == phrase  # others are not left to the model
    return Phrase(phrase, phrase if target is None else target, own, trusted=trusted)


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile("|".join(PATTERNS))


def _matches(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _pattern().finditer(text))


def _unknown(text: str, lacking: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Words with a character that the model can't read; of several, one after the other, the whole run."""
    if not lacking:
        return
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


def _in_turn(sources: Sequence[Iterator[tuple[int, int]]]) -> Iterator[tuple[int, int]]:
    """Ranges from several ordered sources without overlaps: the first one counts, then the first source."""
    heads = [next(source, None) for source in sources]
    position = 0
    while True:
        for i, head in enumerate(heads):
            while head and head[0] < position:
                head = next(sources[i], None)
            heads[i] = head
        ready = [(head[0], i) for i, head in enumerate(heads) if head]
        if not ready:
            return
        first = heads[min(ready)[1]]
        assert first
        yield first
        position = first[1]
