"""HTML as its text nodes and everything between them, which is kept to the letter.

The standard library's parser is no help here: in 3.11 it raises on "<![<" and takes quadratic time for
unclosed tags. This takes linear time, by the rules of the HTML standard (13.2.5, tokenization) as far as
they tell text from markup: what is never closed reaches to the end of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from typing import Final

# their content is no prose, or must stay as it is
VERBATIM: Final = frozenset({"code", "pre", "svg", "math", "kbd", "samp", "var"})
RAW: Final = frozenset({"script", "style", "textarea"})  # and holds no tags
VOID: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
OPENING: Final = re.compile(r"<(?:!--|[!?]|/?[a-zA-Z])")
NAME: Final = re.compile(r"</?([a-zA-Z][^\s/>]*)")
STOP: Final = re.compile(r">|=\s*([\"'])")  # the end of a tag, or the beginning of a quoted value
REFUSED: Final = re.compile(r"\stranslate\s*=\s*[\"']?no\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """markup[0] texts[0] markup[1] ... markup[-1]. Texts are unescaped and hold more than white space."""

    markup: list[str] = field(default_factory=lambda: [""])
    texts: list[str] = field(default_factory=list)

    def join(self, translations: Sequence[str]) -> str:
        parts = [self.markup[0]]
        for text, markup in zip(translations, self.markup[1:], strict=True):
            parts += [escape(text, quote=False), markup]
        return "".join(parts)


def read_html(source: str) -> Page:
    """Text nodes of a page or fragment, those of code and of `translate="no"` left out. Never raises."""
    page, kept = Page(), list[str]()
    for piece, prose in _pieces(source):
        if prose and piece.strip():
            page.markup[-1] += "".join(kept)
            page.texts.append(unescape(piece))
            page.markup.append("")
            kept.clear()
        else:
            kept.append(piece)
    page.markup[-1] += "".join(kept)
    return page


def _pieces(source: str) -> Iterator[tuple[str, bool]]:
    """The source cut into pieces, each with whether it is prose; two of prose are never neighbours."""
    position, inside, depth = 0, "", 0  # inside: the outermost element whose content is kept
    while opening := OPENING.search(source, position):
        begin = opening.start()
        yield source[position:begin], not inside
        position = _end(source, begin)
        markup = source[begin:position]
        yield markup, False
        name = _name(markup)
        closing = markup.startswith("</")
        opens = bool(name) and not closing and name not in VOID and not markup.endswith("/>")
        if opens and name in RAW:
            found = re.compile(f"</{name}", re.IGNORECASE).search(source, position)
            end = found.start() if found else len(source)
            yield source[position:end], False
            position = end
        elif inside and name == inside:
            depth += 1 if opens else -1 if closing else 0
            inside = inside if depth else ""
        elif opens and not inside and (name in VERBATIM or REFUSED.search(markup)):
            inside, depth = name, 1
    yield source[position:], not inside


def _name(markup: str) -> str:
    """Of a tag, in lower case; nothing for comments and declarations."""
    found = NAME.match(markup)
    return found[1].lower() if found else ""


def _end(source: str, begin: int) -> int:
    """Where the markup that begins here ends."""
    if source.startswith("<!--", begin):
        return _after(source, "-->", begin + 2)  # "<!-->" is a whole comment
    if source[begin + 1] in "!?":
        return _after(source, "]]>" if source.startswith("<![CDATA[", begin) else ">", begin)
    position = begin
    while stop := STOP.search(source, position):
        if stop[1] is None:
            return stop.end()
        position = _after(source, stop[1], stop.end())
    return len(source)


def _after(source: str, mark: str, begin: int) -> int:
    found = source.find(mark, begin)
    return len(source) if found < 0 else found + len(mark)
