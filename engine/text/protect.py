"""What must not be translated: found in a text, replaced by the model's placeholder symbols, and put back.

A text is masked: one mark, a private-use character that the text lacks, stands for each phrase. Sentences are
split with the marks in place, so that no phrase is cut; then each mark of a sentence becomes a symbol that
the model was trained to copy ("<ph0>", "<ph1>", ...). `mend` makes sure that each comes out exactly once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.errors import InvalidRequest, TooLarge
from engine.text.pieces import SPACE

PRIVATE: Final = range(0xE000, 0xF900)
NUMBER: Final = r"(?<!\w)\d+(?:[.,:]\d+)*(?!\w)"  # with its separators
# what programs and readers need to the letter: addresses, fields of formats
PATTERNS: Final = (
    r"(?:https?|ftp)://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]",
    r"\bwww\.[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]",
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    r"\$?\{\{[^{}\n]*\}\}",
    r"[$%#]?\{[^{}\s]*\}",
    r"%\(\w+\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z](?!\w)",
    r"(?<![\w%])%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh?|ll?|z)?[sdifuxXeEgGcr@](?!\w)",
    NUMBER,
)


@dataclass(frozen=True, slots=True)
class Marked:
    """A text with the spans (begin, end) of it that must come out as they are, in order and apart."""

    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Phrase:
    """What stood in the source and what stands in the answer. asked: by the caller, not found by a pattern.
    span: number of the caller's span, or -1. number: digits, which the model may be trusted with at first."""

    source: str
    target: str
    asked: bool
    span: int = -1
    number: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a protected phrase stands in the answer. span: number of the caller's span, or -1."""

    begin: int
    end: int
    span: int


@dataclass(frozen=True, slots=True)
class Masked:
    """text: with `mark` in place of each of the phrases, in order."""

    text: str
    mark: str = ""
    phrases: tuple[Phrase, ...] = ()

    @property
    def stand_in(self) -> str:
        """The text with a digit or a letter for each mark, for the splitter: "Am 2. Mai" is one sentence."""
        if not self.phrases:
            return self.text
        first, *rest = self.text.split(self.mark)
        letters = ("1" if phrase.source[-1].isdigit() else "X" for phrase in self.phrases)
        return first + "".join(letter + part for letter, part in zip(letters, rest, strict=True))

    def count(self, text: str) -> int:
        return text.count(self.mark) if self.mark else 0

    def spell(self, text: str, phrases: Sequence[int], symbols: Mapping[int, str]) -> str:
        """A part of the text in which the marks stand for `phrases`, each as its symbol or, without one, as
        it was."""
        if not self.mark:
            return text
        first, *rest = text.split(self.mark)
        spelled = (symbols.get(number, self.phrases[number].source) for number in phrases)
        return first + "".join(word + part for word, part in zip(spelled, rest, strict=True))

    def lost(self, text: str, phrases: Sequence[int]) -> bool:
        """Whether a text lacks one of the numbers among `phrases`, or has one more often than they do."""
        wanted = Counter(self.phrases[number].source for number in phrases)
        found = Counter(re.findall(NUMBER, text))
        return any(found[number] != count for number, count in wanted.items())

    def at_most(self, count: int) -> Masked:
        """With no more phrases than that: those which nobody asked for are not masked, the last first.
        Raises TooLarge when too many were asked for."""
        many = len(self.phrases) - count
        if many <= 0:
            return self
        unasked = [i for i, phrase in enumerate(self.phrases) if not phrase.asked]
        if len(unasked) < many:
            raise TooLarge(f"the model keeps at most {count} phrases of a text: let it be split")
        shown = set(unasked[len(unasked) - many :])
        first, *rest = self.text.split(self.mark)
        made = [first]
        for i, part in enumerate(rest):
            made += [self.phrases[i].source if i in shown else self.mark, part]
        left = (phrase for i, phrase in enumerate(self.phrases) if i not in shown)
        return Masked("".join(made), self.mark, tuple(left))

    def restore(self, text: str, order: Sequence[int]) -> tuple[str, list[Kept]]:
        """Put phrase order[i] in the place of mark i. `text` may be the beginning of one for that order."""
        if not self.mark:
            return text, []
        first, *rest = text.split(self.mark)
        made, kept, length = [first], list[Kept](), len(first)
        for part, index in zip(rest, order, strict=False):
            phrase = self.phrases[index]
            kept.append(Kept(length, length + len(phrase.target), phrase.span))
            made += [phrase.target, part]
            length += len(phrase.target) + len(part)
        return "".join(made), kept


def mask(
    marked: Marked,
    *,
    ignore: Iterable[str] = (),
    glossary: Mapping[str, str] | None = None,
    protect: bool = False,
    symbols: Sequence[str] = (),
    spaced: bool = True,
) -> Masked:
    """Mask the spans of a text, then its `ignore` and `glossary` phrases (the longest first, to the letter
    and as whole words when `spaced`), then with `protect` what PATTERNS find. symbols: the model's, which
    mean nothing when a text spells them. Raises InvalidRequest on empty phrases and spans that overlap.
    """
    becomes = dict.fromkeys(ignore) | dict(glossary or {})
    if any(not phrase.strip() for phrase in becomes):
        raise InvalidRequest("a phrase of ignore or glossary is empty")
    asked = [_exactly(phrase, spaced) for phrase in sorted(becomes, key=len, reverse=True)]
    found = asked + (list(PATTERNS) if protect else [])
    if not found and not marked.spans:
        return Masked(marked.text)
    pattern = re.compile("|".join([*map(re.escape, sorted(symbols, key=len, reverse=True)), *found]))
    mark = next((chr(code) for code in PRIVATE if chr(code) not in marked.text), None)
    if mark is None:
        raise InvalidRequest("the text uses every private-use character: nothing in it can be protected")
    phrases: list[Phrase] = []

    def hide(match: re.Match[str]) -> str:
        phrase = match.group()
        target = becomes.get(phrase)
        wanted = phrase in becomes or phrase in symbols
        number = not wanted and phrase[0].isdigit() and re.fullmatch(NUMBER, phrase) is not None
        phrases.append(Phrase(phrase, phrase if target is None else target, wanted, number=number))
        return mark

    parts, position = [], 0
    for number, (begin, end) in enumerate(marked.spans):
        if not position <= begin < end <= len(marked.text):
            raise InvalidRequest(f"the span {begin} to {end} is empty, beyond the text or overlaps another")
        parts.append(pattern.sub(hide, marked.text[position:begin]))
        phrase = marked.text[begin:end]
        phrases.append(Phrase(phrase, phrase, True, number))
        parts.append(mark)
        position = end
    parts.append(pattern.sub(hide, marked.text[position:]))
    return Masked("".join(parts), mark, tuple(phrases))


def _exactly(phrase: str, spaced: bool) -> str:
    before = r"(?<!\w)" if spaced and phrase[0].isalnum() else ""
    after = r"(?!\w)" if spaced and phrase[-1].isalnum() else ""
    return before + re.escape(phrase) + after


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a target: at token `at`, remove `remove` tokens and put the symbol there, if any."""

    at: int
    remove: int
    symbol: str | None


def whole(pieces: Sequence[str], wanted: Sequence[str], symbols: frozenset[str]) -> bool:
    """Whether each wanted symbol is there exactly once, and no other."""
    return sorted(p for p in pieces if p in symbols) == sorted(wanted)


def mend(
    pieces: Sequence[str],
    wanted: Mapping[str, int],
    symbols: frozenset[str],
    attention: Any,
    words: Sequence[int],
) -> list[Edit]:
    """Edits, last position first, after which each wanted symbol is there exactly once and no other.

    wanted: each symbol's position in the source. attention: [target + 1, source]. words: where words begin.
    Of a symbol that came out twice the copy that attended to it most stays; what is too many becomes a
    missing symbol, as far as there are any; else a missing one goes where it was attended to most.
    """
    at: dict[str, int] = {}
    spare: list[int] = []
    for i, piece in enumerate(pieces):
        if piece not in symbols:
            continue
        column = wanted.get(piece)
        if column is None:
            spare.append(i)
        elif piece not in at:
            at[piece] = i
        elif attention[i, column] > attention[at[piece], column]:
            spare.append(at[piece])
            at[piece] = i
        else:
            spare.append(i)
    edits: list[Edit] = []
    for symbol, column in wanted.items():
        if symbol in at:
            continue
        if spare:
            best = max(spare, key=lambda i: attention[i, column])
            spare.remove(best)
            edits.append(Edit(best, 1, symbol))
        else:
            edits.append(Edit(_place(pieces, attention[:, column], symbols, words), 0, symbol))
    edits += [_removal(pieces, i) for i in spare]
    # at one place what stands there goes first, and of several that come the last: each then stays before it
    ordered = sorted(enumerate(edits), key=lambda pair: (-pair[1].at, -pair[1].remove, -pair[0]))
    return [edit for _, edit in ordered]


def _removal(pieces: Sequence[str], at: int) -> Edit:
    """Without the symbol, and without the space before it unless that parts two words."""
    after = pieces[at + 1] if at + 1 < len(pieces) else SPACE
    alone = at > 0 and pieces[at - 1] == SPACE and not after[:1].isalnum()
    return Edit(at - alone, 1 + alone, None)


def _place(pieces: Sequence[str], weights: Any, symbols: frozenset[str], words: Sequence[int]) -> int:
    """Before the word that attended most, or before the punctuation that ends the sentence."""
    free = [i for i in range(len(pieces) + 1) if i == len(pieces) or pieces[i] not in symbols]
    best = max(free, key=lambda i: weights[i])
    if best < len(pieces) and any(c.isalnum() for c in pieces[best]):
        return max((word for word in words if word <= best), default=0)
    while best and best not in words and not any(c.isalnum() for c in pieces[best - 1]):
        best -= 1
    return best
