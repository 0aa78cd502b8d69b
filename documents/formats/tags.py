"""HTML and XML as pieces: tags, comments, prose, and whole elements that are not translated.

The parser of the standard library can't be used: in 3.11 it raises on "<![<" and takes quadratic time for
unclosed tags. This one takes linear time and follows the HTML standard (13.2.5, tokenization) to separate
text from markup: unclosed markup extends to the end of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import Final

# elements with content that is not translated
VERBATIM_ELEMENTS: Final = frozenset({"code", "pre", "svg", "math", "kbd", "samp", "var"})
# elements with content that is not translated and has no tags
RAW_ELEMENTS: Final = frozenset({"script", "style", "textarea"})
EMPTY_ELEMENTS: Final = frozenset({"svg", "math", *RAW_ELEMENTS})  # the model reads nothing for them
VOID_ELEMENTS: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
# all other tags, known or not, are inline: a sentence continues across them
# fmt: off
BLOCK_ELEMENTS: Final = frozenset(
    {
        "address", "article", "aside", "base", "blockquote", "body", "br", "button", "caption", "center",
        "col", "colgroup", "dd", "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption",
        "figure", "footer", "form", "frame", "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "head",
        "header", "hgroup", "hr", "html", "iframe", "legend", "li", "link", "main", "menu", "meta", "nav",
        "noscript", "ol", "optgroup", "option", "p", "pre", "search", "section", "select", "summary",
        "table", "tbody", "td", "textarea", "tfoot", "th", "thead", "title", "tr", "ul",
    }
)
# fmt: on
OPENING: Final = re.compile(r"<(?:!--|[!?]|/?[a-zA-Z])")
NAME: Final = re.compile(r"</?([a-zA-Z][^\s/>]*)")
TAG_END: Final = re.compile(r">|=\s*([\"'])")  # the end of a tag, or the beginning of a quoted value
NOT_TRANSLATED: Final = re.compile(
    r"\stranslate\s*=\s*[\"']?no\b|\sclass\s*=\s*(?:[\"'][^\"']*|)\bnotranslate\b", re.IGNORECASE
)
NOTE_REFERENCE: Final = re.compile(r"\s?[\[(]?(?:\d{1,3}|[*†‡§])[\])]?\s?")  # text of a reference to a note
NOTE_LINK: Final = re.compile(r"noteref|footnote-ref", re.IGNORECASE)
LONGEST_NOTE_REFERENCE: Final = 500  # characters, with tags


@dataclass(frozen=True, slots=True)
class MarkupRules:
    """The meaning of tags: which end a sentence, and which have content that is not translated.

    xml: names are case-sensitive, and have no meaning from HTML.
    blocks: names of elements that end a sentence.
    keep: names of elements whose content is not translated.
    inline: names of elements that never end a sentence.
    marks: names of elements that replace a word of the text if they are empty.
    fold: white space becomes single spaces, as in HTML.
    """

    xml: bool = False
    blocks: frozenset[str] = BLOCK_ELEMENTS
    keep: frozenset[str] = VERBATIM_ELEMENTS
    inline: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    fold: bool = True


HTML: Final = MarkupRules()


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of prose, or of markup.

    raw: characters of the page.
    name: name of the element; "": a comment, declaration or the like; None: prose.
    closing: the piece is a closing tag.
    void: no closing tag follows: an empty element, a comment or a whole element.
    kept: the piece is a whole element whose content is not translated; the model reads its text.
    stands_in: if the element is empty and touches no word, the model reads a word such as X1 for it.
    is_note: the piece is the number of a note, which must not be read as part of the word before it.
    """

    raw: str
    name: str | None = None
    closing: bool = False
    void: bool = False
    kept: bool = False
    stands_in: bool = False
    is_note: bool = False

    @property
    def is_empty(self) -> bool:
        """Return whether the model reads nothing for the element."""
        return self.is_note or (self.name in EMPTY_ELEMENTS and not self.stands_in)


def pieces(source: str, rules: MarkupRules) -> Iterator[Piece]:
    """Yield the pieces of prose and markup; an untranslated element is one piece."""
    position = 0
    while opening := OPENING.search(source, position):
        begin = opening.start()
        if begin > position:
            yield Piece(source[position:begin])
        piece = _read_markup(source, begin, rules)
        yield piece
        position = begin + len(piece.raw)
    if position < len(source):
        yield Piece(source[position:])


def _read_markup(source: str, begin: int, rules: MarkupRules) -> Piece:
    """Return the comment, tag, or whole element that is not translated, that begins at `begin`."""
    end = _markup_end(source, begin)
    markup = source[begin:end]
    name, closing = _tag_name(markup, rules), markup.startswith("</")
    void = not name or markup.endswith("/>") or (not rules.xml and name in VOID_ELEMENTS)
    if closing or void:
        stands_in = not closing and name in rules.marks and _touches_no_word(source, begin, end)
        return Piece(markup, name, closing, void, kept=stands_in, stands_in=stands_in)
    if not rules.xml and name in RAW_ELEMENTS:
        end = _raw_end(source, end, name)
    elif name in rules.keep or NOT_TRANSLATED.search(markup):
        end = _element_end(source, end, name, rules)
    elif not rules.xml and (last := _note_end(source, end, name, markup)):
        return Piece(source[begin:last], name, void=True, kept=True, is_note=True)
    else:
        return Piece(markup, name)
    stands_in = name in rules.marks and _touches_no_word(source, begin, end)
    return Piece(source[begin:end], name, void=True, kept=True, stands_in=stands_in)


def _note_end(source: str, begin: int, name: str, markup: str) -> int | None:
    """Return the end of a reference to a note; its opening tag ends at `begin`; None: it is no
    reference."""
    if name != "sup" and not (name == "a" and NOTE_LINK.search(markup)):
        return None
    end = source.find(f"</{name}>", begin, begin + LONGEST_NOTE_REFERENCE)
    is_note = end >= 0 and NOTE_REFERENCE.fullmatch(text_of(source[begin:end]))
    return end + len(name) + 3 if is_note else None


def _touches_no_word(source: str, begin: int, end: int) -> bool:
    return not (source[max(0, begin - 1) : begin].isalnum() or source[end : end + 1].isalnum())


def text_of(element: str) -> str:
    """Return the text of an element, without tags."""
    parts, position = list[str](), 0
    while opening := OPENING.search(element, position):
        parts.append(unescape(element[position : opening.start()]))
        position = _markup_end(element, opening.start())
    return "".join([*parts, unescape(element[position:])])


def _raw_end(source: str, position: int, name: str) -> int:
    """Return the end of an element such as a script; its content begins at `position`."""
    match = re.compile(f"</{name}", re.IGNORECASE).search(source, position)
    return _markup_end(source, match.start()) if match else len(source)


def _element_end(source: str, position: int, name: str, rules: MarkupRules) -> int:
    """Return the end of the element with its opening tag before `position`."""
    depth = 1
    while opening := OPENING.search(source, position):
        position = _markup_end(source, opening.start())
        markup = source[opening.start() : position]
        tag, closing = _tag_name(markup, rules), markup.startswith("</")
        if not rules.xml and tag in RAW_ELEMENTS and not closing and not markup.endswith("/>"):
            position = _raw_end(source, position, tag)
        elif tag == name and not markup.endswith("/>"):
            depth += -1 if closing else 1
            if not depth:
                return position
    return len(source)


def _tag_name(markup: str, rules: MarkupRules) -> str:
    match = NAME.match(markup)
    return "" if match is None else match[1] if rules.xml else match[1].lower()


def _markup_end(source: str, begin: int) -> int:
    """Return the end of the markup that begins at `begin`."""
    if source.startswith("<!--", begin):
        return _position_after(source, "-->", begin + 2)  # "<!-->" is a complete comment
    if source[begin + 1] in "!?":
        return _position_after(source, "]]>" if source.startswith("<![CDATA[", begin) else ">", begin)
    position = begin
    while stop := TAG_END.search(source, position):
        if stop[1] is None:
            return stop.end()
        position = _position_after(source, stop[1], stop.end())
    return len(source)


def _position_after(source: str, mark: str, begin: int) -> int:
    position = source.find(mark, begin)
    return len(source) if position < 0 else position + len(mark)
