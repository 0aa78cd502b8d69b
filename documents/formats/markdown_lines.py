"""Inline content of Markdown as segments, and segments as Markdown in the spelling of their source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, autolink, backtick, image, link
from markdown_it.token import Token
from mdit_py_plugins.footnote.index import footnote_inline

from documents.formats.tags import HTML, pieces
from documents.spans import Builder, Segment, weave

SPECIAL: Final = re.compile(r"[\\`*\[\]<]|\$(?=[^\s\d$][^$]*\$)|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|~(?=~)")
BLOCK_MARK: Final = re.compile(r"(?:([-+>#=:~])|(\d{1,9})([.)]))(?=\s|$)|(>)")  # text that begins a block
CLOSED: Final = {"mark_close", "link_close", "em_close", "strong_close", "s_close"}
KEPT: Final = {"code_inline", "dialect", "math_inline", "math_inline_double"}
Rule = Callable[[StateInline, bool], bool]


@dataclass(frozen=True, slots=True)
class InlineLine:
    """Inline content up to a hard break.

    segment: text with spans.
    marks: Markdown or HTML before and after each span; a third mark ends a link whose text has changed.
    spellings: each occurrence of the characters that the source escapes somewhere, as the source has them.
    ending: the hard break, with the prefix of the next line; "": the line is the last one.
    """

    segment: Segment
    marks: list[list[str]]
    spellings: Mapping[str, Sequence[str]]
    ending: str

    def write(self, segment: Segment, *, cell: bool, escaped: bool) -> str:
        """Return the line in Markdown with a new segment.

        segment: text with the same spans.
        cell: the line is in a table.
        escaped: all characters that may be markup are escaped.
        """
        parts, kept, begins = list[str](), False, True  # `begins`: the next text begins a line
        breaks = set[int]()  # indices of line breaks in `parts`
        write_text = self._speller(segment, escaped=escaped)
        for kind, value in weave(segment):
            if isinstance(value, int):
                mark = self._mark(segment, value, closing=kind == "end")
                kept = kind == "begin" and segment.spans[value].kept
                begins = begins and not mark
                if segment.spans[value].line and kind == "begin":
                    breaks.add(len(parts))
                    begins = True
                parts.append(mark)
            elif not kept:
                text = write_text(value)
                if begins and (begun := BLOCK_MARK.match(text)) and not self._begins_with(begun[0]):
                    text = BLOCK_MARK.sub(_escape_match, text, count=1)
                parts.append(" ".join(text.split("\n")))
                begins = False
        line = "".join(_without_blank_lines(parts, breaks))
        return line.replace("|", "\\|") if cell else line

    def _begins_with(self, mark: str) -> bool:
        """Return whether a line of the source begins with a mark of a block that has no meaning there."""
        begins = (0, *(span.begin for span in self.segment.spans if span.line))
        return mark[-1] not in self.spellings and any(self.segment.text.startswith(mark, at) for at in begins)

    def _mark(self, segment: Segment, number: int, *, closing: bool) -> str:
        """Return the markup at one end of a span."""
        span, old, marks = segment.spans[number], self.segment.spans[number], self.marks[number]
        begin, end = span.begin, span.end
        if marks[0] in ("_", "__"):  # inside a word, "_" is no markup
            within = segment.text[begin - 1 : begin].isalnum() or segment.text[end : end + 1].isalnum()
            return marks[0].replace("_", "*") if within else marks[0]
        changed = segment.text[begin:end] != self.segment.text[old.begin : old.end]
        return marks[-1 if closing and changed else closing]  # False, True: index 0, 1

    def _speller(self, segment: Segment, *, escaped: bool) -> Callable[[str], str]:
        """Return the function that writes the texts of a segment, called for each in order."""
        left = self._spellings_of(segment) if self.spellings else {}

        def write_text(text: str) -> str:
            if not left:
                return SPECIAL.sub(r"\\\g<0>", text) if escaped else text
            special = {match.start() for match in SPECIAL.finditer(text)} if escaped else ()
            parts = list[str]()
            for at, character in enumerate(text):
                written = next(left[character]) if character in left else character
                parts.append(f"\\{written}" if written == character and at in special else written)
            return "".join(parts)

        return write_text

    def _spellings_of(self, segment: Segment) -> dict[str, Iterator[str]]:
        """Return the spellings of a new segment: those of the source in order if it has as many characters or
        all are equal, otherwise none."""
        counts = Counter(segment.text)
        for span in segment.spans:
            if span.kept:
                counts.subtract(segment.text[span.begin : span.end])
        left = dict[str, Iterator[str]]()
        for character, spellings in self.spellings.items():
            known = spellings if counts[character] == len(spellings) else ()
            default = spellings[0] if len(set(spellings)) == 1 else character
            left[character] = chain(known, repeat(default))
        return left


def keep_sources(parser: MarkdownIt) -> None:
    """Store how links, images, code and notes are written in `meta` of their tokens, as `source`."""
    parser.inline.ruler.at("backticks", _with_source(backtick))
    parser.inline.ruler.at("image", _with_source(image))
    parser.inline.ruler.at("autolink", _with_source(autolink))
    parser.inline.ruler.at("footnote_inline", _with_source(footnote_inline))
    parser.inline.ruler.at("link", _link)


def _with_source(rule: Rule) -> Rule:
    """Return a rule that stores the source of what it reads in its last token."""

    def read(state: StateInline, silent: bool) -> bool:
        begin, count = state.pos, len(state.tokens)
        found = rule(state, silent)
        if found and len(state.tokens) > count:
            state.tokens[-1].meta["source"] = state.src[begin : state.pos]
        return found

    return read


def _link(state: StateInline, silent: bool) -> bool:
    """Read a link; its last token has the source from "]" on, and the text if that is the reference."""
    begin = state.pos
    if not link(state, silent):
        return False
    if not silent:
        end = state.md.helpers.parseLinkLabel(state, begin, True)
        meta = state.tokens[-1].meta
        meta["source"] = state.src[end : state.pos]
        if meta["source"] in ("]", "][]"):
            meta["label"] = " ".join(state.src[begin + 1 : end].split())
    return True


def inline_lines(children: Sequence[Token], breaks: Sequence[str], *, joined: bool) -> Iterator[InlineLine]:
    """Yield the lines of a block, split at its hard breaks outside of spans.

    children: tokens of the block.
    breaks: each line end of the block, with the white space and the prefix around it.
    joined: soft breaks become spaces.
    """
    rest = iter(breaks)
    line = _Inline(rest, joined)
    for position, token in enumerate(children):
        if token.type == "hardbreak" and not line.builder.open:
            yield line.line(line.hard_break())
            line = _Inline(rest, joined)
        elif token.type == "link_open" and token.markup == "autolink":
            line.keep(children[position + 1].content, children[position + 2].meta["source"])
            line.auto = True
        else:
            line.take(token)
    yield line.line("")


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


class _Inline:
    """A line that is being built.

    A span is referred to by its number in the builder.

    builder: collects the text and its spans.
    marks: Markdown or HTML before and after each span.
    texts: texts of the tokens and their sources.
    opened: open spans of Markdown, the innermost last.
    tags: open spans of HTML by name of the tag.
    parts: index in `texts` where the content of an untranslated tag (<kbd>) begins, by span.
    breaks: the next line ends of the block.
    joined: breaks within a sentence become spaces.
    auto: the next tokens belong to an autolink, whose address is already in the line.
    """

    def __init__(self, breaks: Iterator[str], joined: bool) -> None:
        self.builder, self.marks = Builder(), list[list[str]]()
        self.breaks, self.joined = breaks, joined
        self.texts: list[tuple[str, str]] = []
        self.opened, self.tags = list[int](), dict[str, list[int]]()
        self.parts: dict[int, int] = {}
        self.auto = False

    def line(self, ending: str) -> InlineLine:
        """Return the line.

        ending: hard break after it.
        """
        spellings: dict[str, list[str]] = {
            text: [] for text, source in self.texts if len(text) == 1 and source != text
        }
        for text, source in self.texts if spellings else ():
            for character in text:
                if character in spellings:
                    spellings[character].append(source if len(text) == 1 else character)
        return InlineLine(self.builder.segment(), self.marks, spellings, ending)

    def keep(self, text: str, mark: str) -> None:
        """Add an untranslated text as a kept span, or as a point if it is blank.

        text: characters that the model reads.
        mark: Markdown of the whole span.
        """
        self.builder.keep(text) if text.strip() else self.builder.point()
        self.marks.append([self._in_lines(mark), ""])

    def take(self, token: Token) -> None:
        """Add a token to the line as text, as a span or as a point."""
        if token.type == "link_close" and self.auto:
            self.auto = False
        elif token.type in ("softbreak", "hardbreak"):
            self._break(token)
        elif token.type in ("text", "text_special"):
            if not self.auto:
                self.builder.text(token.content)
                self.texts.append((token.content, token.markup or token.content))
        elif token.type in KEPT:
            source = token.meta.get("source") or f"{token.markup}{token.content}{token.markup}"
            self.keep(token.content, source)
        elif token.type in CLOSED:
            self._close(token)
        elif token.type == "html_inline":
            self._tag(token.content)
        elif token.nesting == 1:
            self.opened.append(self.builder.begin(link=token.type == "link_open"))
            self.marks.append(["[", "]"] if token.type == "link_open" else [token.markup, token.markup])
        else:
            self.builder.point()
            note = f"[^{token.meta.get('label')}]" if token.type == "footnote_ref" else token.content
            self.marks.append([self._in_lines(token.meta.get("source") or note), ""])

    def hard_break(self) -> str:
        """Return the next line end with the mark of a hard break."""
        line_end = next(self.breaks, "\n")
        return line_end if line_end.startswith("  ") else f"\\{line_end}"

    def _close(self, token: Token) -> None:
        """End the innermost span of Markdown."""
        number = self.opened.pop()
        self.builder.end(number)
        if token.type == "link_close":
            self.marks[number][1] = self._in_lines(token.meta["source"])
            if label := token.meta.get("label"):  # the text is the name of the link's address
                self.marks[number].append(f"][{label}]")

    def _in_lines(self, source: str) -> str:
        """Return markup with the line ends of the file."""
        first, *others = source.split("\n")
        return first + "".join(next(self.breaks, " ") + other.lstrip() for other in others)

    def _break(self, token: Token) -> None:
        """Add a line break within a sentence, which the model reads as a space."""
        line_end = self.hard_break() if token.type == "hardbreak" else next(self.breaks, "")
        if line_end and not self.joined:
            self.builder.line()
            self.marks.append([line_end, ""])
        else:
            self.builder.text(" ")

    def _tag(self, markup: str) -> None:
        """Add an HTML tag: the begin or the end of a span, or a point."""
        tag = next(iter(pieces(markup, HTML)), None)
        markup = self._in_lines(markup)
        name = tag.name if tag and tag.name else ""
        numbers = self.tags.setdefault(name, [])
        last = self.opened[-1] if self.opened else -1
        if tag and tag.closing and (number := self._innermost_tag(numbers, last)) is not None:
            self.builder.end(number)
            self.marks[number][1] = markup
            if number in self.parts and number == len(self.marks) - 1:  # no other span is inside
                self._keep_content(number)
        elif tag and name and not tag.closing and (not tag.void or tag.kept):
            numbers.append(self.builder.begin(link=name == "a"))
            self.marks.append([markup, ""])
            if tag.kept:
                self.parts[numbers[-1]] = len(self.texts)
        else:
            self.builder.point()
            self.marks.append([markup, ""])

    def _keep_content(self, number: int) -> None:
        """Make the span `number`, of a tag such as <kbd>, a kept span; its markup includes its text."""
        begin, end = self.marks[number]
        sources = [source for _, source in self.texts[self.parts[number] :]]
        del self.texts[self.parts[number] :]
        self.marks[number] = ["".join([begin, *sources, end]), ""]
        self.builder.spans[number] = replace(self.builder.spans[number], kept=bool(sources))

    def _innermost_tag(self, numbers: list[int], last: int) -> int | None:
        """Return the innermost open span of `numbers`; None if it began before `last`, the innermost open
        span of Markdown: HTML and Markdown must not cross."""
        number = self.builder.innermost(numbers)
        return number if number is not None and number > last else None


def _escape_match(match: re.Match[str]) -> str:
    # "1." becomes "1\.", and "-" becomes "\-"
    return f"{match[2]}\\{match[3]}" if match[2] else f"\\{match[0]}"
