"""Markup in plain text: Markdown's emphasis and links, tags, soft hyphens.

The model reads the text without markup; `engine.answers.formats` adds the formats to the answer by attention.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from engine.text.placeables import borders, code
from engine.text.placeables.escapes import ESCAPE, NO_ESCAPES, Escaped, Escapes, escapes_of, read_escape
from engine.text.placeables.grammar import long_placeables, matches, placeables

# markup that the model does not read
NAME: Final = r"(?:[A-Za-z][\w:.-]*|\d{1,4})"
TAG: Final = (  # <b>, &lt;b&gt; and [b]
    rf"<(?!br\b)/?{NAME}(?:[\s=][^<>]{{0,400}})?/?>|<!--[^<>]{{0,400}}-->|&lt;/?{NAME}(?:\s[^<>\n]{{0,200}}?)?/?&gt;"
    r"|\[/?(?:b|i|u|s|url|quote|code|color|size|spoiler|center|list)(?:=[^\[\]\n]{0,200})?\]"
)
TAG_NAME: Final = re.compile(rf"(<|&lt;|\[)(/?)({NAME})")
# Masks of tools, templates, fields and codes of games that touch a word are formats: {b}bold{/b}  §6gold§r
GLUED: Final = (
    rf"(?:{code.TEMPLATE}|\{{%[^{{}}\n]{{0,200}}%\}}|\{{#[^{{}}\n]{{0,200}}#\}}|{code.MASK}"
    r"|[$%]?\{[^{}\s]{1,60}\}|[$%]?\{\{[^{}\s]{1,60}\}\}|%(?:\d{1,2}\$)?[sd@]|\\[A-Za-z]{1,10}\[[^\[\]\n]{0,20}\]"
    r"|[§&^][0-9a-fk-or]|\|c[0-9a-fA-F]{6,8}|\|r)++"
)
ONLY_PAIRS: Final = frozenset("{%$&^")  # a code that begins so is a format only if it has a partner
ACCELERATOR: Final = r"(?<![\w&])&(?=[^\W\d_a-z][a-z])"  # &File
LINK: Final = r"\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:[ \t]+\"[^\"\n]*\")?\)"  # [text](address "title")
EMPHASIS: Final = r"\*+|_+|~~+|\|\|+|==+"  # **text**  _text_  ~~text~~  ||text||  ==text==
INVISIBLE: Final = "[\u00ad\u200b\u2060\ufeff]+"  # soft hyphens and the like
SIGNS: Final = re.compile(r"[*_~=\[<&{⟦@§%|^\\\u00ad\u200b\u2060\ufeff]")  # a text without them has no markup
DELIMITERS: Final = frozenset({"*", "**", "***", "_", "__", "___", "~~", "||", "=="})
VOID_TAGS: Final = frozenset({"area", "col", "embed", "hr", "img", "input", "link", "meta", "wbr"})
# names of HTML elements, which are tags even if not closed; other names are fields: <name>
ELEMENT_NAMES: Final = """
a abbr b big blockquote body center code dd del div dl dt em font form g h1 h2 h3 h4 h5 h6 head html i ins kbd
label li mark ol p pre q s samp small span strike strong sub sup table tbody td th thead tr tt u ul var x
"""
ELEMENTS: Final = VOID_TAGS | set(ELEMENT_NAMES.split())
MAX_FORMATS: Final = 400  # further markup of a text is read as text
FILLING: Final = "\ue000"  # private-use character in the place of spans that are no markup


@dataclass(frozen=True, slots=True)
class Format:
    """Format of the characters [begin, end) of a plain text. A format without characters is a point.

    before, after: markup around the characters.
    parent: index of the enclosing format, or -1; parents come first.
    spaced: whether a point had a space on both sides; the plain text has only one of them.
    capitals: whether the characters were in capitals.
    """

    begin: int
    end: int
    before: str = ""
    after: str = ""
    parent: int = -1
    spaced: bool = False
    capitals: bool = False


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text without its markup.

    text: text that the model reads.
    formats: properly nested formats.
    removed: position in `text` and in the source after each removed stretch, in order.
    escapes: forms in which the source writes characters.
    """

    text: str
    formats: tuple[Format, ...] = ()
    removed: tuple[tuple[int, int], ...] = ()
    escapes: Escapes = NO_ESCAPES

    def position(self, source: int) -> int:
        """Return the position in the text of a position in the source that is no markup."""
        number = bisect_right(self.removed, source, key=lambda pair: pair[1]) - 1
        plain, before = self.removed[number] if number >= 0 else (0, 0)
        return plain + source - before


def read_markup(source: str, spans: Sequence[tuple[int, int]] = ()) -> Generator[None, None, PlainText]:
    """Read the markup of a text, in steps. Never raises; takes linear time.

    source: any text.
    spans: characters (begin, end) that are no markup, ordered and disjoint.
    """
    if not SIGNS.search(source):
        return PlainText(source)
    parts, position = list[str](), 0
    for begin, end in spans:
        parts += [source[position:begin], FILLING * (end - begin)]
        position = end
    tokens = list[_Token]()
    for token in _tokens(filled := "".join([*parts, source[position:]])):
        if token is None:
            yield
        elif FILLING not in filled[token.begin : token.end]:  # a span of the caller in an address stays
            tokens.append(token)
    return _without_markup(source, tokens, _partners(tokens))


@dataclass(frozen=True, slots=True)
class _Token:
    """Characters [begin, end) of a text that may be markup.

    key: equal for an opening and a closing token that may be a pair; "" for a token that is only removed.
    opens, closes: whether the token may begin or end a format.
    point: whether the token is markup without a partner too.
    character: character for which the token stands; "" for none.
    """

    begin: int
    end: int
    key: str
    opens: bool = False
    closes: bool = False
    point: bool = False
    character: str = ""


@cache
def _markup_pattern() -> re.Pattern[str]:
    """Return the pattern of all parts of a text that `_tokens` distinguishes, with a group for each kind."""
    return re.compile(
        rf"(?P<invisible>{INVISIBLE})|(?P<line>\n)|(?P<kept>{code.ELEMENT}|{borders.BLOCK_TAG}|{borders.LINE_TAG})|(?P<tag>{TAG})|(?P<link>{LINK})|(?P<escape>{ESCAPE})|(?P<glued>{GLUED})"
        rf"|(?P<word>{placeables().pattern})|(?P<accelerator>{ACCELERATOR})|(?P<bracket>\[)|(?P<emphasis>{EMPHASIS})"
    )


@cache
def _long_pattern() -> re.Pattern[str]:
    """Return the pattern of parts that may be long, such as addresses and links (`grammar.matches`)."""
    return re.compile(rf"{long_placeables().pattern}|{LINK}")


def compile_patterns() -> None:
    """Compile the patterns of markup and placeables: the first text would take 0.1 s longer."""
    _markup_pattern(), _long_pattern(), placeables()


def _tokens(text: str) -> Iterator[_Token | None]:
    """Yield all parts of a text that may be markup, and None after each step."""
    line = 0  # part of the keys, as these pairs do not cross lines
    for match in matches(_markup_pattern(), _long_pattern(), text):
        if match is None:
            yield None
            continue
        begin, end = match.span()
        if match["line"]:
            line += 1
        elif match["invisible"]:
            yield _Token(begin, end, "")
        elif match["tag"]:
            if FILLING not in match["tag"] and not borders.encloses_line(text, begin, end):
                yield _tag(match)  # other tags are phrases
        elif match["escape"]:
            character = read_escape(match[0])
            # a space between two words; another one is a thing of its own
            if character and (not character.isspace() or _is_within_text(text, begin, end)):
                yield _Token(begin, end, "", character=character)
        elif match["glued"]:
            yield _glued(text, begin, end, f"glued{line}")
        elif match["accelerator"]:
            yield _Token(begin, end, "&", point=True)
        elif match["link"]:
            yield _Token(begin, end, f"[{line}", closes=True)
        elif match["bracket"]:
            yield _Token(begin, end, f"[{line}", opens=True)
        elif match["emphasis"] in DELIMITERS:
            yield _emphasis(text, begin, end, line)


def _is_within_text(text: str, begin: int, end: int) -> bool:
    """Return whether the characters before and after a range are no white space."""
    return bool(text[max(0, begin - 1) : begin].strip() and text[end : end + 1].strip())


def _emphasis(text: str, begin: int, end: int, line: int) -> _Token:
    """Make a token of a delimiter of emphasis in a line."""
    sign, before, after = text[begin:end], text[begin - 1 : begin] or " ", text[end : end + 1] or " "
    opens = not after.isspace() and not before.isalnum()
    closes = not before.isspace() and not after.isalnum()
    # the key of a button: _File; or the mark of a footnote: Price*
    is_key = sign == "_" and opens and after.isupper()
    is_footnote = (
        sign[0] == "*" and opens != closes and text.find("*", end) < 0 and text.rfind("*", 0, begin) < 0
    ) and not (after == "." and text[end + 1 : end + 2].isalnum())  # package*.json
    return _Token(begin, end, f"{sign}{line}", opens, closes, is_key or is_footnote)


def _glued(text: str, begin: int, end: int, key: str) -> _Token:
    """Make a token of a mask, field or code that may touch a word."""
    before, after = text[begin - 1 : begin], text[end : end + 2]
    word = after[:1].isalpha() and (
        after[1:].isalpha() or (after[0].isupper() and after[1:] in (" ", "'", "’"))
    )
    opens = word and not before.isalnum()
    closes = (before.isalnum() or before in tuple(".!?…)")) and not after[:1].isalnum()
    point = (opens or before.isalpha()) and text[begin] not in ONLY_PAIRS
    return _Token(begin, end, key, opens, closes, point)


def _tag(match: re.Match[str]) -> _Token:
    """Make a token of an HTML tag or comment, or of a tag of a forum."""
    tag = match["tag"]
    name_match = TAG_NAME.match(tag)
    sign, slash, name = name_match.groups() if name_match else ("<!--", "", "")
    name = name.lower()
    void = not name or name in VOID_TAGS or tag.endswith(("/>", "/&gt;"))
    # any other name in the signs of a tag is a tag only if it has a partner or a value
    is_tag = void or bool(slash) or name[0].isdigit() or "=" in tag or name in ELEMENTS
    key = sign + name
    return _Token(
        *match.span(), key, not void and not slash, not void and bool(slash), point=is_tag and sign != "["
    )


def _partners(tokens: Sequence[_Token]) -> dict[int, int]:
    """Map the index of each token that begins a format to the index of its closing token."""
    partners: dict[int, int] = {}
    opened = list[int]()  # innermost last
    places: dict[str, list[int]] = {}  # indices in `opened`, by key
    for number, token in enumerate(tokens):
        same_key = places.setdefault(token.key, [])
        if token.closes and same_key and len(partners) < MAX_FORMATS:
            partners[opened[same_key[-1]]] = number
            for unclosed in reversed(opened[same_key[-1] :]):  # this token, and unclosed ones within
                places[tokens[unclosed].key].pop()
                opened.pop()
        elif token.opens:
            same_key.append(len(opened))
            opened.append(number)
    return partners


def _without_markup(source: str, tokens: Sequence[_Token], partners: dict[int, int]) -> PlainText:
    """Remove pairs and points of markup from a source, and return them as formats."""
    closing = {close: opening for opening, close in partners.items()}
    parts, length, position = list[str](), 0, 0
    # `around`: indices of the open formats, innermost last, after -1 for no format
    formats, removed, around = list[Format](), list[tuple[int, int]](), [-1]
    numbers: dict[int, int] = {}  # index of a format by the index of its opening token
    for number, token in enumerate(tokens):
        paired = number in partners or number in closing
        point = token.point and not paired and len(formats) < 2 * MAX_FORMATS
        if token.key and not paired and not point:
            continue
        parts.append(source[position : token.begin] + token.character)
        length, position, mark = length + len(parts[-1]), token.end, source[token.begin : token.end]
        if number in partners:
            numbers[number] = len(formats)
            formats.append(Format(length, length, mark, parent=around[-1]))
            around.append(numbers[number])
        elif number in closing:
            around.pop()
            _close(formats, numbers[closing[number]], length, mark, parent=around[-1])
        elif point:
            blank = not length or parts[-1][-1:].isspace()
            spaced = blank and source[position : position + 1] == " "
            position += spaced
            formats.append(Format(length, length, mark, parent=around[-1], spaced=spaced))
        removed.append((length, position))
    parts.append(source[position:])
    return PlainText("".join(parts), tuple(formats), tuple(removed), _escapes(source, tokens))


def _escapes(source: str, tokens: Sequence[_Token]) -> Escapes:
    """Return the forms in which a source writes the characters of its tokens."""
    return escapes_of([Escaped(source[t.begin : t.end], t.character) for t in tokens if t.character])


def _close(formats: list[Format], opened: int, end: int, mark: str, parent: int) -> None:
    """Close a format in a list; without characters it becomes adjacent points.

    formats: formats of the text up to the closing token.
    opened: index of the format.
    end: position of the closing token in the plain text.
    mark: closing token.
    parent: index of the enclosing format, or -1.
    """
    if end > formats[opened].begin:
        formats[opened] = replace(formats[opened], end=end, after=mark)
    else:
        inner = (replace(f, parent=parent) for f in formats[opened:])
        formats[opened:] = [*inner, Format(end, end, mark, parent=parent)]
