"""Words in capitals within a sentence: the model reads them in small letters, and the answer has capitals."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Final

from engine.text.form import LINE_CHARACTERS, capitalised, has_small_letters_around, is_label
from engine.text.known_words import KnownWords
from engine.text.languages import rules_of
from engine.text.placeables.markup import MAX_FORMATS, Format, PlainText
from engine.text.placeables.masked_text import MarkedText, Phrase
from engine.text.placeables.masking import MaskRules, mask

# word in capitals within a sentence; a single letter may be an abbreviation, longer runs are no words
CAPITALS: Final = re.compile(r"(?<![\w'’&/.-])([^\W\d_a-zß-ÿ]{2,24})((?:['’][^\W\d_]{1,2})?)(?![\w&/=]|-\w)")
SENTENCE_STARTS: Final = frozenset(".!?:„“\"'\n")


def read_capitals(
    plain: PlainText, language: str, count: Callable[[str], int], known: KnownWords | None = None
) -> Generator[None, None, PlainText]:
    """Write words in capitals within a text in small letters, and return them as formats, in steps.

    plain: any text.
    language: code of its language.
    count: returns the number of tokens of a word. A word is changed if it is one token in small letters and
        several in capitals.
    known: words of the training data. A known word is changed too, an acronym is not.
    """
    parts, formats, position = list[str](), list(plain.formats), 0
    places: list[tuple[int, int, Phrase]] | None = None
    for match in CAPITALS.finditer(plain.text):
        word, (begin, end) = match[0], match.span()
        yield
        if not word.isupper() or not has_small_letters_around(plain.text, begin, end):
            continue
        if is_label(plain.text, begin, end, language):
            continue
        if places is None:
            places = (yield from mask(MarkedText(plain.text), MaskRules(protect=True))).places
        if _is_in_phrase(begin, places):
            continue
        small = _small_form(match[1], _word_before(plain.text, begin), language, count, known)
        if small is None or any(begin < edge < end for f in plain.formats for edge in (f.begin, f.end)):
            continue
        _add_capitals(plain, formats, begin, end)
        small = capitalised(small) if _begins_sentence(plain.text, begin) else small
        parts += [plain.text[position:begin], small + match[2].lower()]  # DON'T
        position = end
        if len(formats) >= 2 * MAX_FORMATS:
            break
    if not parts:
        return plain
    return replace(plain, text="".join([*parts, plain.text[position:]]), formats=tuple(formats))


def _is_in_phrase(position: int, places: list[tuple[int, int, Phrase]]) -> bool:
    """Return whether a phrase of a text, at its place, contains a position."""
    number = bisect_right(places, position, key=lambda place: place[0]) - 1
    return number >= 0 and position < places[number][1]


def _add_capitals(plain: PlainText, formats: list[Format], begin: int, end: int) -> None:
    """Append a format for a word in capitals, or extend the format of the word before it: AUF KEINEN Fall."""
    around = [i for i, f in enumerate(plain.formats) if f.begin <= begin and end <= f.end]
    new = Format(begin, end, parent=around[-1] if around else -1, capitals=True)
    last = formats[-1] if formats else new
    if last.capitals and last.parent == new.parent and plain.text[last.end : begin] == " ":
        formats[-1] = replace(last, end=end)
    else:
        formats.append(new)


def _begins_sentence(text: str, begin: int) -> bool:
    before = text[max(0, begin - LINE_CHARACTERS) : begin].rstrip(" ")
    return not before or before[-1] in SENTENCE_STARTS


def _word_before(text: str, begin: int) -> str:
    """Return the word before a space at the end of text[:begin]."""
    return text[max(0, begin - LINE_CHARACTERS) : begin - 1].rpartition(" ")[2]


def _small_form(
    word: str, before: str, language: str, count: Callable[[str], int], known: KnownWords | None
) -> str | None:
    """Return the form of a word in capitals that training has or that is one token, or None.

    word: word in capitals.
    before: word before it.
    language: code of its language.
    count: returns the number of tokens of a word.
    known: words of the training data.
    """
    if known and known.keeps(word, before):
        return None
    lowered = word.lower()
    if len(word) == len("so"):
        return lowered if lowered in rules_of(language).short_words else None
    if len(lowered) != len(word):  # positions must not change
        return None
    form = min((lowered, capitalised(lowered)), key=count)
    if known and not known.translates(word):
        return form if known.knows(lowered) else None
    # the model knows a word of one or two tokens in capitals too
    return form if count(word) > 2 and count(form) == 1 else None
