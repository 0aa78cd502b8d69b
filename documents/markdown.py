"""Markdown (CommonMark with tables and strikethrough), by markdown-it-py: blocks stay to the letter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from documents.document import Document
from documents.plain import decode
from documents.spans import Builder, Segment, weave

FRONT: Final = re.compile(r"\A---\n.*?\n(?:---|\.\.\.)\n", re.DOTALL)
SPECIAL: Final = re.compile(r"[\\`*\[\]<]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|~(?=~)")
BLOCK: Final = re.compile(r"(?:([-+>#=])|(\d{1,9})([.)]))(?=\s|$)|(>)")  # would begin a block
CLOSED: Final = {"link_close", "em_close", "strong_close", "s_close"}


@dataclass(frozen=True, slots=True)
class _Line:
    """Inline content up to a hard break; marks: the markup of each span."""

    segment: Segment
    marks: list[list[str]]

    def write(self, segment: Segment, *, cell: bool) -> str:
        parts, kept = list[str](), False
        for kind, value in weave(segment):
            if isinstance(value, int):
                parts.append(self.marks[value][kind == "end"])
                kept = kind == "begin" and segment.spans[value].kept
            elif not kept:
                text = SPECIAL.sub(r"\\\g<0>", value)
                parts.append(
                    text if parts else BLOCK.sub(_escaped, text, count=1) if BLOCK.match(text) else text
                )
        line = " ".join("".join(parts).split("\n"))
        return line.replace("|", "\\|") if cell else line


@dataclass(frozen=True, slots=True)
class _Block:
    """Characters [begin, end) of the file. after: what follows a hard break, with the next line's prefix."""

    begin: int
    end: int
    after: str
    cell: bool
    lines: list[_Line]

    def write(self, segments: Sequence[Segment]) -> str:
        return self.after.join(
            line.write(segment, cell=self.cell) for line, segment in zip(self.lines, segments, strict=True)
        )


def read_markdown(data: bytes) -> Document:
    """Code, HTML and front matter stay; a translated paragraph is one line."""
    file = decode(data)
    text = file.text.replace("\r\n", "\n")
    blocks = list(_blocks(text))

    def write(segments: Sequence[Segment]) -> bytes:
        rest = iter(segments)
        parts, position = list[str](), 0
        for block in blocks:
            own = [next(rest) for _ in block.lines]
            if all(new is line.segment for new, line in zip(own, block.lines, strict=True)):
                continue
            parts += [text[position : block.begin], block.write(own)]
            position = block.end
        whole = "".join([*parts, text[position:]])
        return file.encode(whole.replace("\n", "\r\n") if "\r\n" in file.text else whole)

    return Document([line.segment for block in blocks for line in block.lines], write)


def _blocks(text: str) -> Iterator[_Block]:
    front = FRONT.match(text)
    skipped = front.end() if front else 0
    starts = [skipped]
    for line in text[skipped:].split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    done, before = skipped, ""
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text[skipped:]):
        if token.type == "inline" and token.map and token.content.strip():
            cell = before in ("td_open", "th_open")
            block = _block(text, starts, token, done, cell=cell)
            if block is not None:
                yield block
                done = block.end
        before = token.type


def _block(text: str, starts: list[int], token: Token, done: int, *, cell: bool) -> _Block | None:
    """None when the content can't be found as it is, such as a cell with an escaped "|": it stays."""
    assert token.map
    places: list[tuple[int, int]] = []
    begins: list[int] = []
    for number, content in enumerate(token.content.split("\n"), token.map[0]):
        line = max(starts[number], done)
        body = content.strip()
        at = text.find(body, line, starts[number + 1])
        if at < 0:
            return None
        places.append((at, at + len(body)))
        begins.append(starts[number])
    after = "\\\n" + (text[begins[1] : places[1][0]] if len(places) > 1 else "")
    return _Block(places[0][0], places[-1][1], after, cell, list(_lines(token.children or [])))


def _lines(children: Sequence[Token]) -> Iterator[_Line]:
    builder, marks, auto = Builder(), list[list[str]](), False
    for position, token in enumerate(children):
        outer = not builder.open
        if token.type == "hardbreak" and outer:
            yield _Line(builder.segment(), marks)
            builder, marks = Builder(), []
        elif token.type == "link_open" and token.markup == "autolink":
            auto = True
            text = children[position + 1].content
            builder.keep(text)
            marks.append([f"<{text}>", ""])
        elif token.type == "link_close" and auto:
            auto = False
        elif token.type in ("softbreak", "hardbreak"):
            builder.text(" ")
        elif token.type == "text":
            builder.text("" if auto else token.content)
        elif token.type == "code_inline":
            builder.keep(token.content)
            marks.append([_code(token), ""])
        elif token.type in CLOSED:
            builder.end(builder.open[-1])
        elif token.nesting == 1:
            builder.begin()
            mark = token.markup.replace("_", "*")  # "_" is no markup inside a word
            marks.append(["[", _address(token, "href")] if token.type == "link_open" else [mark, mark])
        else:
            builder.point()
            image = token.type == "image"
            marks.append([f"![{token.content}{_address(token, 'src')}" if image else token.content, ""])
    yield _Line(builder.segment(), marks)


def _code(token: Token) -> str:
    edge = " " if token.content.startswith("`") or token.content.endswith("`") else ""
    return f"{token.markup}{edge}{token.content}{edge}{token.markup}"


def _address(token: Token, name: str) -> str:
    address, title = str(token.attrs.get(name, "")), str(token.attrs.get("title", ""))
    address = f"<{address}>" if re.search(r"[()\s]", address) or not address else address
    quoted = ' "' + title.replace("\\", "\\\\").replace('"', '\\"') + '"' if title else ""
    return f"]({address}{quoted})"


def _escaped(found: re.Match[str]) -> str:
    return f"{found[2]}\\{found[3]}" if found[2] else f"\\{found[0]}"
