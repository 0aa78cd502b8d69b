"""Markdown, by markdown-it-py: CommonMark with tables, strikethrough, footnotes, task boxes, formulas,
definition lists and the markup of other dialects (`dialects`). Only inline content is rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin

from documents.document import Document
from documents.formats.dialects import add_dialects
from documents.formats.markdown_lines import InlineLine, inline_lines, keep_sources
from documents.formats.plain import NEWLINE, decode
from documents.spans import MAX_SPANS, Segment

FRONT_MATTER: Final = re.compile(
    r"\A(---|\+\+\+)(?:\r\n?|\n)(?:.*?(?:\r\n?|\n))??(?:\1|\.\.\.)(?:\r\n?|\n)", re.DOTALL
)
ATTRIBUTES: Final = re.compile(r"(?<![ \t])[ \t]*+\{[:#.][^{}\n]*\}")  # of a heading, for example its name
TASK_BOX: Final = re.compile(r"\[[ xX]\]\s+")
MAX_BREAKS: Final = 200  # line breaks of a block; in a longer one they become spaces


@dataclass(frozen=True, slots=True)
class _Block:
    """The inline content of a block.

    begin, end: range of characters in the file.
    cell: the block is a cell of a table.
    lines: inline content, split at the hard breaks.
    environment: markdown-it's state of the file, with the links that it defines.
    """

    begin: int
    end: int
    cell: bool
    lines: list[InlineLine]
    environment: MutableMapping[str, Any]

    def write(self, segments: Sequence[Segment]) -> str:
        """Return the block with new segments; characters such as "[" are escaped if they would be markup."""
        escaped, plain = (self._write(segments, escaped=escaped) for escaped in (True, False))
        if plain == escaped or _contents(plain, self.environment) == _contents(escaped, self.environment):
            return plain
        return escaped

    def _write(self, segments: Sequence[Segment], *, escaped: bool) -> str:
        lines = zip(self.lines, segments, strict=True)
        return "".join(
            line.write(segment, cell=self.cell, escaped=escaped) + line.ending for line, segment in lines
        )


def read_markdown(data: bytes) -> Document:
    """Return the prose of a file, without code, HTML blocks, formulas and front matter. A translated
    paragraph is one line. Raises Unreadable."""
    file = decode(data)
    text = file.text
    blocks = list(_blocks(text))

    def write(segments: Sequence[Segment]) -> bytes:
        rest = iter(segments)
        parts, position = list[str](), 0
        for block in blocks:
            new_segments = [next(rest) if line.segment.text.strip() else line.segment for line in block.lines]
            if all(new is line.segment for new, line in zip(new_segments, block.lines, strict=True)):
                continue
            written = block.write(new_segments)
            stacked = next((new for new in new_segments if new.original), None)
            if stacked:
                original = text[block.begin : block.end]
                first, second = (written, original) if stacked.below else (original, written)
                written = f"{ATTRIBUTES.sub('', first)}<br>{second}"
            parts += [text[position : block.begin], written]
            position = block.end
        return file.encode("".join([*parts, text[position:]]))

    lines = (line.segment for block in blocks for line in block.lines)
    return Document([segment for segment in lines if segment.text.strip()], write)


def _contents(markdown: str, environment: MutableMapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return type, content and attributes of the tokens of a text, as a browser shows it.

    environment: markdown-it's state of the file.
    """
    tokens = _parser().parse(markdown, environment)
    inner = (child for token in tokens for child in token.children or [token])
    return [(token.type, token.content, str(token.attrs)) for token in inner]


@cache
def _parser(*, sources: bool = False) -> MarkdownIt:
    """Return a CommonMark parser with tables, strikethrough, footnotes, definition lists, formulas and the
    markup of other dialects.

    sources: tokens have the spelling of the file.
    """
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.use(footnote_plugin).use(deflist_plugin)
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    add_dialects(parser)
    if sources:
        parser.core.ruler.disable("text_join")  # escaped characters stay apart
        keep_sources(parser)
    parser.core.ruler.disable("footnote_tail")  # notes stay at their positions
    return parser


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the blocks of prose; front matter, code and other markup are between them."""
    front = FRONT_MATTER.match(text)
    skipped = front.end() if front else 0
    starts = [skipped, *(match.end() for match in NEWLINE.finditer(text, skipped)), len(text) + 1]
    environment: dict[str, Any] = {}
    previous_end, before = skipped, ("", "")
    for token in _parser(sources=True).parse(NEWLINE.sub("\n", text[skipped:]), environment):
        if token.type == "inline" and token.map and token.content.strip():
            block = _block(text, starts, token, previous_end, before, environment)
            if block is not None:
                yield block
                previous_end = block.end
        before = (before[1], token.type)


def _block(
    text: str,
    starts: list[int],
    token: Token,
    previous_end: int,
    before: tuple[str, str],
    environment: MutableMapping[str, Any],
) -> _Block | None:
    """Return the block of an inline token; None: the block is not changed.

    text: the whole file.
    starts: position in `text` of each line.
    token: inline token of markdown-it, with the lines where its content is.
    previous_end: position in `text` where the previous block ends.
    before: types of the two tokens before, which show list items and cells.
    environment: markdown-it's state of the file, with the footnotes.

    A block is not changed if it has too many formats, or its content differs from the file, such as a cell
    with an escaped "|".
    """
    assert token.map
    places: list[tuple[int, int]] = []
    # find the content in the file: the token has line numbers only, and no indents or ">"
    for number, content in enumerate(token.content.split("\n"), token.map[0]):
        line = max(starts[number], previous_end)
        body = content.strip()
        if before[1] == "admonition_title_open":  # without quotes it is the name of a kind, such as "note"
            line = text.find(f'"{body}"', line, starts[number + 1])
        at = text.find(body, line + token.meta.get("column", 0), starts[number + 1]) if line >= 0 else -1
        if at < 0:
            return None
        places.append((at, at + len(body)))
    children = list(token.children or [])
    begin = places[0][0]
    task = TASK_BOX.match(token.content) if before == ("list_item_open", "paragraph_open") else None
    if task and children and children[0].type == "text" and children[0].content.startswith(task[0]):
        children[0].content = children[0].content[task.end() :]
        begin += task.end()
    breaks = [text[end:following] for (_, end), (following, _) in pairwise(places)]
    lines = list(inline_lines(children, breaks, joined=len(places) > MAX_BREAKS))
    if any(len(line.marks) > MAX_SPANS for line in lines):
        return None
    cell = before[1] in ("td_open", "th_open")
    return _Block(begin, places[-1][1], cell, lines, environment)
