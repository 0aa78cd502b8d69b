"""Parts of a text that are no words: everything but words and ordinary marks stays as it is.

A part between white space is ordinary if it is words with apostrophes, hyphens and punctuation. Every other
part is one phrase, with the phrases of the grammar that touch it: "2d6+3", "a[1:-1]", "::before". Phrases of
code side by side, and numbers with a sign between them, are one phrase too: "R U R' U'", "p < 0.05".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from engine.text.placeables.masked_text import NUMBERS, MaskedText, Phrase

# stand-ins for phrases: code and numbers; signs without letters and digits; names and abbreviations; borders,
# pictures and phrases of the caller
HELD: Final = "\ufdd0"
SIGN: Final = "\ufdd1"
NAME: Final = "x"
APART: Final = "\n"
# any character except ASCII and Latin signs, punctuation, symbols, pictures, private use and stand-ins
LETTER: Final = (
    r"[^\x00-@\[-`{-©«-´¶-¹»-¿×÷\u2000-\u2bff\u2e00-\u2e7f\u3000-\u3020\ue000-\uf8ff\ufdd0\ufdd1\ufe0f\uff00-\uff20"
    "\U0001f000-\U0001faff]"
)
QUOTES: Final = "\"'„“”«»‚‘’‹›「」『』（）"
STOPS: Final = ".,;:!?…‥·。、，！？：；،؟؛।"
UNIT: Final = (  # Haus  Datei(en)  90er  HTML5-Server  Seite¹
    rf"(?:{HELD}%?{LETTER}*+|\d{{1,4}}(?!x[\da-f]){LETTER}{{1,12}}+|{SIGN}{LETTER}{{3,}}+"
    rf"|{LETTER}++(?:\({LETTER}{{1,6}}\){LETTER}*+|\d{{1,3}}(?=-{LETTER}{{2}})"
    rf"|(?<={LETTER}{{3}})[{HELD}{SIGN}])?+)"
)
JOIN: Final = rf"(?:(?!::|//)[–—/.,;:!?…]{{1,3}}[{QUOTES}]?|/-|--?|['’‘ʼ‐‑]|[*:_·](?=in))"
ORDINARY: Final = (
    rf"(?:[{QUOTES}(\[¿¡–—…-]|\.{{2,}}+){{0,4}}+(?:{UNIT}(?:{JOIN}{UNIT})*+)?+-?(?:[{QUOTES})\]{STOPS}*])*+[–—-]?"
    "|[&–—-]|--"
)
MAX_CHARACTERS: Final = 400  # longer parts without white space are left to the grammar
# no words: a prime after a letter, two phrases with signs between, letters of two alphabets, EUR/USD
UNUSUAL: Final = (
    rf"(?=(?:[B-Z]|{HELD})['′][\s,;.])|(?=\S{{0,40}}?{HELD}[^\w\s{HELD}]{{1,8}}{HELD})"
    r"|(?=\S{0,40}?(?:[a-zA-Z][α-ωΑ-Ω]|[α-ωΑ-Ω][a-zA-Z]))"
    r"|(?=[A-Z]{2,5}(?:/[A-Z]{2,5}){1,4}[.,;:!?)]?(?!\S))"
)
# letters of languages without spaces, except a letter of faces: Thai, Khmer, Japanese, Chinese
UNSPACED: Final = "\u0e01-\u0eff\u1780-\u17ff\u3041-\u30c3\u30c5-\u30fa\u3400-\u9fff"
NONWORD: Final = re.compile(
    rf"(?<!\S)(?:{UNUSUAL}|(?!(?:{ORDINARY})(?!\S)))(?!{HELD}(?!\S)|\S{{0,{MAX_CHARACTERS}}}?[{UNSPACED}])\S{{1,{MAX_CHARACTERS}}}+(?!\S)"
)
# a letter or acronym that may be one side of a formula: p < 0.05
SYMBOL: Final = re.compile(
    r"(?<![^\s(\[])(?:[b-hj-np-xzα-ω]|[A-HJ-NP-ZΑ-Ω]|[A-Z]{2,3}|[-–])(?![^\s.,;:!?)]|\.[ \n]?\S)"
)
UNIT_LETTER: Final = frozenset("AFJKNTVWbcdegjklmnprtvwz")  # after a number: 6.3 A  7.5 t
PIECE: Final = re.compile(r"\S[\s\S]{0,2000}(?!\S)|\S+")  # searched at once
OPENING: Final = re.compile(rf"[{QUOTES}(\[¿¡]*+")
CLOSING: Final = re.compile(rf"[{QUOTES})\]{STOPS}]+\Z")
FEW_PARTS: Final = 4  # of a group, in which a formula has its sign
SPACES: Final = " \t\u00a0"
PRIMES: Final = ("'", "′")
FINAL_STOP: Final = re.compile(r"(?<!\.)[.,;:]\Z")
PARTNERS: Final = {")": "(", "]": "[", "'": "'", '"': '"'}
EDGE: Final = re.compile(r"[-*+>#|=~_.…]+")  # marks of a line, not of its words
FORMULA: Final = re.compile("[=<>≤≥≈≠×÷±∈∀∃]")
SIGNS_OF_FORMULAS: Final = re.compile(r"[=<>≤≥≈≠×÷±+*^~@∈]{1,3}")


class _CodePart(NamedTuple):
    """The characters [begin, end) of a masked text that may become one phrase.

    kind: "code", "number", "sign" of a formula, or "symbol", a letter that may belong to it.
    text: characters of the source.
    """

    begin: int
    end: int
    kind: str
    text: str


def hold_nonwords(masked: MaskedText, mark: str) -> Generator[None, None, MaskedText]:
    """Mask, in steps, the parts of a text that are no words, with the phrases in them.

    masked: text with masked phrases.
    mark: mark of its phrases; without phrases, a private-use character that the text lacks.
    """
    places = _places(masked)
    seen, held = _with_stand_ins(masked, places), list[tuple[int, int]]()
    for piece in PIECE.finditer(seen):
        yield
        for match in NONWORD.finditer(seen, *piece.span()):
            begin, end = _core(seen, *match.span())
            if end - begin > 1 or seen[begin:end] not in (HELD, SIGN, ""):
                held.append((begin, end))
    return _masked(masked, mark, places, held) if held else masked


def join_code(masked: MaskedText) -> MaskedText:
    """Make one phrase of phrases of code side by side, and of each formula."""
    places = _places(masked)
    seen = _with_stand_ins(masked, places)
    parts = [
        _CodePart(place, place + 1, kind, phrase.source)
        for place, phrase in zip(places, masked.phrases, strict=True)
        if (kind := _kind(phrase, seen[place]))
    ]
    if not parts:
        return masked
    parts += [_CodePart(*match.span(), "symbol", match[0]) for match in SYMBOL.finditer(seen)]
    held = _joined(seen, sorted(parts))
    return _masked(masked, masked.mark, places, held) if held else masked


def _places(masked: MaskedText) -> list[int]:
    """Return the positions of the phrases of a text."""
    return [i for i, c in enumerate(masked.text) if c == masked.mark] if masked.phrases else []


def _with_stand_ins(masked: MaskedText, places: Sequence[int]) -> str:
    """Return a text with a stand-in for each of its phrases, at these places."""
    characters = list(masked.text)
    for place, phrase in zip(places, masked.phrases, strict=True):
        characters[place] = _stand_in(phrase)
    return "".join(characters)


def _stand_in(phrase: Phrase) -> str:
    if phrase.border or phrase.requested or max(phrase.source) > "\uffff":
        return APART
    if phrase.name or phrase.unknown or phrase.read_as:
        return NAME
    return HELD if any(c.isalpha() or c.isdecimal() for c in phrase.source) else SIGN


def _kind(phrase: Phrase, stand_in: str) -> str:
    """Return the kind of a phrase as a part, "" if it is none."""
    if phrase.border or stand_in == SIGN:
        return "sign" if SIGNS_OF_FORMULAS.fullmatch(phrase.source) else "code" * (stand_in == SIGN)
    if stand_in != HELD:
        return ""
    return "number" if NUMBERS.fullmatch(phrase.source) else "code"


def _core(seen: str, begin: int, end: int) -> tuple[int, int]:
    """Return begin and end of a part of a text without the marks around it that belong to its sentence."""
    text, opening = seen[begin:end], OPENING.match(seen, begin, end)
    closing = CLOSING.search(text)
    first = opening.end() - begin if opening else 0
    last = max(first, closing.start()) if closing else len(text)
    if not any(c.isalnum() or c == HELD for c in text[first:last]):  # signs only: $?
        if EDGE.fullmatch(text) and _is_at_edge(seen, begin, end):
            return begin, begin
        stop = FINAL_STOP.search(text)
        return begin, begin + stop.start() if stop else end
    last += last == 1 and text[1:2] in PRIMES
    while last < len(text) and _opens(text[first:last], text[last]):
        last += 1
    while first and _closes(text[first:last], text[first - 1]):
        first -= 1
    return begin + first, begin + last


def _is_at_edge(seen: str, begin: int, end: int) -> bool:
    """Return whether the characters [begin, end) begin or end their line."""
    while begin and seen[begin - 1] in SPACES:
        begin -= 1
    while end < len(seen) and seen[end] in SPACES:
        end += 1
    return seen[begin - 1 : begin] in ("", "\n") or seen[end : end + 1] in ("", "\n")


def _opens(text: str, last: str) -> bool:
    """Return whether a text has the partner of a closing mark."""
    opening = PARTNERS.get(last)
    if opening is None:
        return False
    return text.count(opening) % 2 == 1 if opening == last else text.count(opening) > text.count(last)


def _closes(text: str, first: str) -> bool:
    """Return whether a text has the partner of an opening bracket."""
    closing = {"(": ")", "[": "]"}.get(first)
    return closing is not None and text.count(closing) > text.count(first)


def _joined(seen: str, parts: Sequence[_CodePart]) -> list[tuple[int, int]]:
    """Join the parts of formulas and runs of code; return begin and end of each new phrase."""
    joined, group = list[tuple[int, int]](), list[_CodePart]()

    def close() -> None:
        while group and group[-1].kind in ("sign", "symbol") and not _is_unit(group[-2:]):
            group.pop()
        while group and _begins_nothing(group):
            del group[0]
        if len(group) > 1:
            joined.append((group[0].begin, group[-1].end))
        group.clear()

    for part in parts:
        if group and not _may_join(seen, group, part):
            close()
        group.append(part)
    close()
    return joined


def _begins_nothing(group: Sequence[_CodePart]) -> bool:
    """Return whether the first part of a group is "=", or a letter without a sign after it."""
    if group[0].kind == "symbol":
        return len(group) == 1 or group[1].kind != "sign"
    return group[0].text == "="


def _is_unit(parts: Sequence[_CodePart]) -> bool:
    """Return whether parts are a number and the letter of its unit."""
    return len(parts) > 1 and parts[0].kind == "number" and parts[1].text in UNIT_LETTER


def _may_join(seen: str, group: Sequence[_CodePart], right: _CodePart) -> bool:
    """Return whether a part belongs to the group of parts before it."""
    left = group[-1]
    gap = seen[left.end : right.begin]
    if gap == " ":
        kinds = {left.kind, right.kind}
        return "sign" in kinds or kinds in ({"code"}, {"code", "symbol"}) or _is_unit((left, right))
    if gap not in (", ", "; ", ": ", " : "):
        return False
    opened = sum(map(left.text.count, "<([{")) > sum(map(left.text.count, ">)]}"))
    formula = any(FORMULA.search(part.text) for part in group[-FEW_PARTS:])
    return opened or (formula and FORMULA.search(right.text) is not None)


def _masked(
    masked: MaskedText, mark: str, places: Sequence[int], held: Sequence[tuple[int, int]]
) -> MaskedText:
    """Return a text with each of these parts as one phrase."""
    parts, phrases, position, number = list[str](), list[Phrase](), 0, 0
    for begin, end in held:
        first, last = bisect_left(places, begin), bisect_left(places, end)
        text, inner = masked.text[begin:end], range(first, last)
        target = masked.spell(text, inner, {i: masked.phrases[i].target for i in inner})
        phrases += [*masked.phrases[number:first], Phrase(masked.spell(text, inner, {}), target, False)]
        parts += [masked.text[position:begin], mark]
        position, number = end, last
    parts.append(masked.text[position:])
    return MaskedText("".join(parts), mark, (*phrases, *masked.phrases[number:]))
