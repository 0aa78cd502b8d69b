"""Quotation marks and brackets: checks of an answer, and sentences without them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from engine.text.languages import rules_of
from engine.text.languages.rules import ENGLISH_QUOTATION
from engine.text.placeables.markup import Format, PlainText

SINGLE: Final = "'‚‘’‹›"
DOUBLE: Final = '"„“”«»'
MARK: Final = re.compile(rf"[{SINGLE}{DOUBLE}()\[\]]")
SPACES: Final = "\u00a0\u202f "  # inside French quotation marks
SPACED: Final = frozenset(SPACES)
BEFORE_QUOTATION: Final = " \u00a0\u202f([–—"
AFTER_QUOTATION: Final = " .,;:!?…)]\"'’”»›–—"
MAX_PAIRS: Final = 100  # further marks of a sentence are read as text


class _Mark(NamedTuple):
    """A mark at the characters [begin, end) of a text.

    kind: "quote", "(" or "[".
    """

    begin: int
    end: int
    kind: str
    opens: bool
    closes: bool


@dataclass(frozen=True, slots=True)
class PairedMarks:
    """The marks of a sentence.

    pairs: first and last mark of each pair, in order. A mark at one end of the sentence without a partner is
        paired with an empty mark at the other end: its partner may be in another sentence.
    strays: number of other double quotation marks and brackets.
    """

    pairs: tuple[tuple[_Mark, _Mark], ...]
    strays: int

    @property
    def counts(self) -> Counter[tuple[str, bool, bool]]:
        """Number of pairs by kind, and by whether the first and the last mark are not empty."""
        return Counter((a.kind, a.begin < a.end, b.begin < b.end) for a, b in self.pairs)


def keeps_pairs(source: str, answer: str) -> bool:
    """Return whether an answer has as many pairs of marks as its source, and no more strays.

    source: source sentence.
    answer: translation of the sentence.
    """
    source_pairs, answer_pairs = find_pairs(source), find_pairs(answer)
    return source_pairs.counts == answer_pairs.counts and answer_pairs.strays <= source_pairs.strays


def quoted_words(text: str) -> set[str]:
    """Return the words that a text quotes alone: the "house"."""
    quoted = (text[a.end : b.begin] for a, b in find_pairs(text).pairs if a.kind == "quote")
    return {word for word in quoted if word.isalpha()}


def close_as_opened(text: str, language: str) -> str:
    """Write the closing quotation mark of each pair as the partner of its opening mark.

    Models mix straight and typographic marks.

    text: answer.
    language: code of the language of the answer.
    """
    outer, outer_last, inner, inner_last = rules_of(language).quotation_marks or ENGLISH_QUOTATION
    partners = {'"': '"', "'": "'", outer.strip(SPACES): outer_last, inner.strip(SPACES): inner_last}
    pairs = find_pairs(text).pairs if MARK.search(text) else ()
    for opening, closing in sorted(pairs, key=lambda pair: pair[1], reverse=True):
        first, last = (text[mark.begin : mark.end].strip(SPACES) for mark in (opening, closing))
        partner = partners.get(first)
        apostrophe = first not in SINGLE and last in "'’"
        if partner and last and not apostrophe and last != partner.strip(SPACES):
            text = text[: closing.begin] + partner + text[closing.end :]
    return text


def without_pairs(text: str, language: str) -> PlainText:
    """Remove the pairs of marks from a sentence, and return them as formats.

    text: sentence.
    language: code of the language of the answer, which gets its own marks; straight marks stay straight.
    """
    if not MARK.search(text):
        return PlainText(text)
    parts, length, position = list[str](), 0, 0
    # `around`: indices of the open pairs, innermost last, after -1 for no pair
    formats, around = list[Format](), [-1]
    for mark, opens in _sorted_marks(find_pairs(text)):
        parts.append(text[position : mark.begin])
        length, position = length + mark.begin - position, mark.end
        written = _localised(text[mark.begin : mark.end].strip(SPACES), language, last=not opens)
        if opens:
            formats.append(Format(length, length, written, parent=around[-1]))
            around.append(len(formats) - 1)
        else:
            number = around.pop()
            formats[number] = replace(formats[number], end=length, after=written)
    return PlainText("".join([*parts, text[position:]]), tuple(formats))


def find_pairs(text: str) -> PairedMarks:
    """Find properly nested pairs of marks with text between them. Takes time linear in the sentence."""
    opened, pairs, strays = list[_Mark](), list[tuple[_Mark, _Mark]](), list[_Mark]()
    for mark in _marks(text):
        same = (i for i in range(len(opened) - 1, -1, -1) if opened[i].kind == mark.kind)
        partner = next(same, None) if mark.closes else None
        if partner is not None and opened[partner].end < mark.begin and len(pairs) < MAX_PAIRS:
            pairs.append((opened[partner], mark))
            strays += opened[partner + 1 :]
            del opened[partner:]
        elif mark.opens and len(opened) < MAX_PAIRS:
            opened.append(mark)
        else:
            strays.append(mark)
    strays += opened
    for mark in list(strays):
        begin, end = mark.begin == 0, mark.end == len(text)
        if begin != end and (mark.opens if begin else mark.closes) and _is_significant(text, mark):
            # an empty mark at the other end of the sentence; `begin` counts as 0 or 1
            edge = mark._replace(begin=len(text) * begin, end=len(text) * begin)
            pairs.append((mark, edge) if begin else (edge, mark))
            strays.remove(mark)
    return PairedMarks(tuple(sorted(pairs)), sum(_is_significant(text, mark) for mark in strays))


def _sorted_marks(found: PairedMarks) -> list[tuple[_Mark, bool]]:
    """Return the marks of all pairs in the order of the text, and whether each opens its pair."""
    marks = [(mark, not last) for pair in found.pairs for last, mark in enumerate(pair)]
    # empty marks at the ends of the sentence are outermost
    return sorted(marks, key=lambda m: (m[0].begin, m[0].end) if m[1] else (m[0].begin, m[0].end + 1))


def _is_significant(text: str, mark: _Mark) -> bool:
    """Return whether a mark without a partner is an error; a single quote may be an apostrophe."""
    return mark.kind != "quote" or text[mark.begin : mark.end].strip(SPACES) in DOUBLE


def _marks(text: str) -> Iterator[_Mark]:
    """Yield the marks of a sentence, and whether each may open or close a pair."""
    for match in MARK.finditer(text):
        mark, (begin, end) = match[0], match.span()
        before, after = text[begin - 1 : begin] or " ", text[end : end + 1] or " "
        if mark in "()[]":
            yield _Mark(begin, end, "(" if mark in "()" else "[", mark in "([", mark in ")]")
        elif mark in "«‹" and before in BEFORE_QUOTATION and text[end : end + 1] in SPACED:  # « mot »
            yield _Mark(begin, end + 1, "quote", True, False)
        elif mark in "»›" and after in AFTER_QUOTATION and text[max(0, begin - 1) : begin] in SPACED:
            yield _Mark(begin - 1, end, "quote", False, True)
        else:
            opens = not after.isspace() and not before.isalnum() and mark != "”"
            closes = not before.isspace() and not after.isalnum() and mark not in "„‚"
            yield _Mark(begin, end, "quote", opens, closes)


def _localised(mark: str, language: str, *, last: bool) -> str:
    """Return a mark in the form of a language.

    last: whether the mark closes its pair.
    """
    marks = rules_of(language).quotation_marks
    if not mark or marks is None or mark in "'\"()[]":
        return mark
    # `marks` are opening and closing, first double, then single
    return marks[2 * (mark in SINGLE) + last]
