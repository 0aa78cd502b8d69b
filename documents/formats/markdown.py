"""Markdown, by markdown-it-py: CommonMark with tables, strikethrough, footnotes, task boxes, formulas,
definition lists and the markup of other dialects (`dialects`). Only inline content is rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin

from documents.document import Document
from documents.formats.dialects import add_dialects
from documents.formats.plain import NEWLINE, decode
from documents.formats.tags import HTML, pieces
from documents.spans import MAX_SPANS, Builder, Segment, weave

FRONT_MATTER: Final = re.compile(
    r"\A(---|\+\+\+)(?:\r\n?|\n)(?:.*?(?:\r\n?|\n))??(?:\1|\.\.\.)(?:\r\n?|\n)", re.DOTALL
)
SPECIAL: Final = re.compile(r"[\\`*\[\]<]|\$(?=[^\s\d$][^$]*\$)|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|~(?=~)")
BLOCK_MARK: Final = re.compile(r"(?:([-+>#=:~])|(\d{1,9})([.)]))(?=\s|$)|(>)")  # text that begins a block
TASK_BOX: Final = re.compile(r"\[[ xX]\]\s+")
CLOSED: Final = {"mark_close", "link_close", "em_close", "strong_close", "s_close"}
MAX_BREAKS: Final = 200  # line breaks of a block; in a longer one they become spaces
MATH: Final = {"math_inline", "math_inline_double"}


@dataclass(frozen=True, slots=True)
class _Line:
    """Inline content up to a hard break.

    segment: text with spans.
    marks: Markdown or HTML before and after each span.
    """

    segment: Segment
    marks: list[list[str]]

    def write(self, segment: Segment, *, cell: bool, escaped: bool) -> str:
        """Return the line in Markdown with a new segment.

        segment: text with the same spans.
        cell: the line is in a table.
        escaped: all characters that may be markup are escaped.
        """
        parts, kept, begins = list[str](), False, True  # `begins`: the next text begins a line
        breaks = set[int]()  # indices of line breaks in `parts`
        for kind, value in weave(segment):
            if isinstance(value, int):
                mark = self.marks[value][kind == "end"]  # False, True: index 0, 1
                kept = kind == "begin" and segment.spans[value].kept
                begins = begins and not mark
                if segment.spans[value].line and kind == "begin":
                    breaks.add(len(parts))
                    begins = True
                parts.append(mark if segment.spans[value].line else " ".join(mark.split("\n")))
            elif not kept:
                text = SPECIAL.sub(r"\\\g<0>", value) if escaped else value
                if begins and BLOCK_MARK.match(text):
                    text = BLOCK_MARK.sub(_escape_match, text, count=1)
                parts.append(" ".join(text.split("\n")))
                begins = False
        line = "".join(_without_blank_lines(parts, breaks))
        return line.replace("|", "\\|") if cell else line


@dataclass(frozen=True, slots=True)
class _Block:
    """The inline content of a block.

    begin, end: range of characters in the file.
    after: markup of a hard break, with the prefix of the next line.
    cell: the block is a cell of a table.
    lines: inline content, split at the hard breaks.
    environment: markdown-it's state of the file, with the links that it defines.
    """

    begin: int
    end: int
    after: str
    cell: bool
    lines: list[_Line]
    environment: MutableMapping[str, Any]

    def write(self, segments: Sequence[Segment]) -> str:
        """Return the block with new segments; characters such as "[" are escaped if they would be markup."""
        escaped, plain = (self._write(segments, escaped=escaped) for escaped in (True, False))
        if plain == escaped or _contents(plain, self.environment) == _contents(escaped, self.environment):
            return plain
        return escaped

    def _write(self, segments: Sequence[Segment], *, escaped: bool) -> str:
        lines = zip(self.lines, segments, strict=True)
        return self.after.join(
            line.write(segment, cell=self.cell, escaped=escaped) for line, segment in lines
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
            parts += [text[position : block.begin], block.write(new_segments)]
            position = block.end
        return file.encode("".join([*parts, text[position:]]))

    lines = (line.segment for block in blocks for line in block.lines)
    return Document([segment for segment in lines if segment.text.strip()], write)


def _without_blank_lines(parts: Sequence[str], breaks: Set[int]) -> list[str]:
    """Return the parts of a line without the line breaks that would begin, end or double a line.

    parts: texts and marks.
    breaks: indices of line breaks in `parts`.
    """
    done = list(parts)
    last = max((at for at, part in enumerate(parts) if part.strip() and at not in breaks), default=-1)
    blank = True  # nothing was written since the last line break
    for at, part in enumerate(parts):
        if at not in breaks:
            blank = blank and not part.strip()
        elif blank or at > last:
            done[at] = " "
        else:
            done[at - 1], blank = done[at - 1].rstrip(" "), True
    return done


def _contents(markdown: str, environment: MutableMapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return type, content and attributes of the tokens of a text, as a browser shows it.

    environment: markdown-it's state of the file.
    """
    tokens = _parser().parse(markdown, environment)
    inner = (child for token in tokens for child in token.children or [token])
    return [(token.type, token.content, str(token.attrs)) for token in inner]


@cache
def _parser() -> MarkdownIt:
    """Return a CommonMark parser with tables, strikethrough, footnotes, definition lists, formulas and the
    markup of other dialects."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.use(footnote_plugin).use(deflist_plugin)
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    add_dialects(parser)
    parser.core.ruler.disable("footnote_tail")  # notes stay at their positions
    return parser


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the blocks of prose; front matter, code and other markup are between them."""
    front = FRONT_MATTER.match(text)
    skipped = front.end() if front else 0
    starts = [skipped, *(match.end() for match in NEWLINE.finditer(text, skipped)), len(text) + 1]
    environment: dict[str, Any] = {}
    previous_end, before = skipped, ("", "")
    for token in _parser().parse(NEWLINE.sub("\n", text[skipped:]), environment):
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
    begins: list[int] = []
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
        begins.append(starts[number])
    children = list(token.children or [])
    begin = places[0][0]
    task = TASK_BOX.match(token.content) if before == ("list_item_open", "paragraph_open") else None
    if task and children and children[0].type == "text" and children[0].content.startswith(task[0]):
        children[0].content = children[0].content[task.end() :]
        begin += task.end()
    after = "\n"
    if len(places) > 1:  # a break repeats the line end and the prefix of the block's second line
        newline = NEWLINE.findall(text, starts[token.map[0]], begins[1])[-1:] or ["\n"]
        after = newline[0] + text[begins[1] : places[1][0]]
    lines = list(_lines(children, after if len(places) <= MAX_BREAKS else "", environment))
    if any(len(line.marks) > MAX_SPANS for line in lines):
        return None
    cell = before[1] in ("td_open", "th_open")
    return _Block(begin, places[-1][1], "\\" + after, cell, lines, environment)


def _lines(children: Sequence[Token], newline: str, environment: MutableMapping[str, Any]) -> Iterator[_Line]:
    """Yield the lines of a block, split at its hard breaks outside of spans.

    children: tokens of the block.
    newline: line end and prefix of a line; "": line breaks become spaces.
    environment: markdown-it's state of the file.
    """
    line = _Inline(newline, environment)
    for position, token in enumerate(children):
        if token.type == "hardbreak" and not line.builder.open:
            yield line.line()
            line = _Inline(newline, environment)
        elif token.type == "link_open" and token.markup == "autolink":
            address = children[position + 1].content
            line.keep(address, f"<{address}>")
            line.auto = True
        else:
            line.take(token)
    yield line.line()


class _Inline:
    """A line that is being built.

    A span is referred to by its number in the builder.

    builder: collects the text and its spans.
    marks: Markdown or HTML before and after each span.
    opened: open spans of Markdown, the innermost last.
    tags: open spans of HTML by name of the tag.
    parts: index in `builder.parts` where the content of an untranslated tag (<kbd>) begins, by span.
    newline: line end and prefix of a line, or "".
    auto: the next tokens belong to an autolink, whose address is already in the line.
    environment: markdown-it's state of the file, with the footnotes.
    """

    def __init__(self, newline: str, environment: Mapping[str, Any]) -> None:
        self.builder, self.marks = Builder(), list[list[str]]()
        self.opened, self.tags = list[int](), dict[str, list[int]]()
        self.parts: dict[int, int] = {}
        self.auto, self.newline, self.environment = False, newline, environment

    def line(self) -> _Line:
        return _Line(self.builder.segment(), self.marks)

    def keep(self, text: str, mark: str) -> None:
        """Add an untranslated text as a kept span, or as a point if it is blank.

        text: characters that the model reads.
        mark: Markdown of the whole span.
        """
        self.builder.keep(text) if text.strip() else self.builder.point()
        self.marks.append([mark, ""])

    def take(self, token: Token) -> None:
        """Add a token to the line as text, as a span or as a point."""
        if token.type == "link_close" and self.auto:
            self.auto = False
        elif token.type in ("softbreak", "hardbreak"):
            self._break()
        elif token.type == "dialect":
            self.keep(token.content, token.content)
        elif token.type == "text":
            self.builder.text("" if self.auto else token.content)
        elif token.type == "code_inline":
            self.keep(token.content, _code(token))
        elif token.type in MATH:
            self.keep(token.content, f"{token.markup}{token.content}{token.markup}")
        elif token.type in CLOSED:
            self.builder.end(self.opened.pop())
        elif token.type == "html_inline":
            self._tag(token.content)
        elif token.nesting == 1:
            self.opened.append(self.builder.begin(link=token.type == "link_open"))
            mark = token.markup.replace("_", "*")  # inside a word, "_" is no markup
            self.marks.append(["[", _address(token, "href")] if token.type == "link_open" else [mark, mark])
        else:
            self.builder.point()
            self.marks.append([self._mark(token), ""])

    def _break(self) -> None:
        """Add a line break within a sentence, which the model reads as a space."""
        if self.newline:
            self.builder.line()
            self.marks.append([self.newline, ""])
        else:
            self.builder.text(" ")

    def _tag(self, markup: str) -> None:
        """Add an HTML tag: the begin or the end of a span, or a point."""
        tag = next(iter(pieces(markup, HTML)), None)
        name = tag.name if tag and tag.name else ""
        numbers = self.tags.setdefault(name, [])
        last = self.opened[-1] if self.opened else -1
        if tag and tag.closing and (number := self._innermost_tag(numbers, last)) is not None:
            self.builder.end(number)
            self.marks[number][1] = markup
            if number in self.parts and number == len(self.marks) - 1:  # no other span is inside
                self._keep_content(number)
        elif tag and name and not tag.closing and (not tag.void or tag.kept):
            numbers.append(self.builder.begin())
            self.marks.append([markup, ""])
            if tag.kept:
                self.parts[numbers[-1]] = len(self.builder.parts)
        else:
            self.builder.point()
            self.marks.append([markup, ""])

    def _keep_content(self, number: int) -> None:
        """Make the span `number`, of a tag such as <kbd>, a kept span; its markup includes its text."""
        text = "".join(self.builder.parts[self.parts[number] :])
        self.marks[number] = [
            "".join((self.marks[number][0], SPECIAL.sub(r"\\\g<0>", text), self.marks[number][1])),
            "",
        ]
        self.builder.spans[number] = replace(self.builder.spans[number], kept=bool(text))

    def _innermost_tag(self, numbers: list[int], last: int) -> int | None:
        """Return the innermost open span of `numbers`; None if it began before `last`, the innermost open
        span of Markdown: HTML and Markdown must not cross."""
        number = self.builder.innermost(numbers)
        return number if number is not None and number > last else None

    def _mark(self, token: Token) -> str:
        """Return the Markdown of an image, a reference to a footnote, or other markup without text."""
        if token.type == "image":
            return f"![{token.content}{_address(token, 'src')}"
        if token.type == "footnote_ref":
            label = token.meta.get("label")
            notes = self.environment.get("footnotes", {}).get("list", {})
            inner = notes.get(token.meta.get("id"), {}).get("content", "")
            return f"[^{label}]" if label else f"^[{inner}]"
        return token.content


def _code(token: Token) -> str:
    # a space separates the marks from backticks at the edge of the content
    edge = " " if token.content.startswith("`") or token.content.endswith("`") else ""
    return f"{token.markup}{edge}{token.content}{edge}{token.markup}"


def _address(token: Token, name: str) -> str:
    """Return the end of a link or image, from "]"; the attribute `name` has its address."""
    address, title = str(token.attrs.get(name, "")), str(token.attrs.get("title", ""))
    address = f"<{address}>" if re.search(r"[()\s]", address) or not address else address
    quoted = ' "' + title.replace("\\", "\\\\").replace('"', '\\"') + '"' if title else ""
    return f"]({address}{quoted})"


def _escape_match(match: re.Match[str]) -> str:
    # "1." becomes "1\.", and "-" becomes "\-"
    return f"{match[2]}\\{match[3]}" if match[2] else f"\\{match[0]}"
