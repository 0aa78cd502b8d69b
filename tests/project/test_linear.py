"""Whoever sends a text twice as long waits twice as long: every pattern and parser that sees text from
outside takes linear time. A new one without a line below fails.

Each is given the same characters over and over ("pumps"), which is what makes patterns and loops slow: at
one length, and where that takes noticeable time at four times the length, which may take a little more than
four times as long; by default only where it took more than its share beside a quarter of the length. Time is
that of this thread's processor, so that a busy machine changes little.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.thorough import THOROUGH
from tests.timing import processor_seconds, thrice

pytestmark = pytest.mark.no_cover  # what is timed is not traced
ROOT = Path(__file__).parents[2]
FOLDERS = ("server", "engine/text", "documents")
PARSER = re.compile(
    r"_?(read|parse|split|mask|decode|locate|outline|detect|present|preserve|on_one_line)(_|\b)"
)

LENGTH = 4_096
NOTICEABLE = 0.004  # seconds; a quadratic pattern takes several times as long at this length
GROWTH = 9.0  # of the time at four times the length: 4 is linear, 16 quadratic
DOUBTFUL = 5.0  # the same from a quarter of the length on: what grows ninefold later grows more than this

CHARACTERS = "a1.,;:!?-_*~`'\"<>()[]{}&%$#@/\\|=+ \t\n\r。あ\u0301\u00a0"
PAIRS = tuple(map("".join, permutations(CHARACTERS, 2))) if THOROUGH else ()
PUMPS = (
    *CHARACTERS,
    *PAIRS,
    "a ",
    " \n",
    ". ",
    "a.",
    "a@",
    "a-",
    "1.",
    ".1",
    "\r\n",
    "<a",
    "</",
    "<!--",
    "a=",
)
SUFFIXES = ("", "\x01", "!x")  # what makes a match fail at the very end


@dataclass(frozen=True)
class Line:
    """How a pattern or parser is used, and what else to pump into it.

    call: given a text. None: a pattern's own search, match and substitution.
    pumps: beside PUMPS.
    length: characters, where LENGTH would take long.
    uses: of a pattern: the ways in which the code uses it, where not all are.
    """

    call: Callable[[str], object] | None = None
    pumps: tuple[str, ...] = ()
    length: int = LENGTH
    uses: tuple[str, ...] = ("search", "match", "sub")


def page(kind: str) -> Callable[[str], object]:
    """Reads a file of a kind, and writes it again as it was."""

    def read(text: str) -> object:
        from documents import Unreadable, read_document

        try:
            document = read_document(f"x.{kind}", text.encode("utf-8", "surrogatepass"))
        except Unreadable:
            return None
        return document.write(document.segments)

    return read


def masked(text: str) -> object:
    from engine.text.protect import MarkedText, mask

    return mask(MarkedText(text), ignore=["a b", "a.", "x"], glossary={"a": "b"}, protect=True)


def amount(text: str) -> object:
    from engine.text.numerals import localise

    return localise(text, "de", "en")


def subword_tokens(text: str) -> object:
    from engine.text.subwords import split

    return split(text)


def ending(text: str) -> object:
    from engine.text.form import beginning, follow

    return follow(text, text, ("de", "en")), beginning(text, text, ("de", "en"))


def cased(text: str) -> object:
    from engine.text.form import follow

    return follow("Ab Cd Ef", text, ("de", "en"))


def sentences(text: str) -> object:
    from engine.text.split import split

    return split(text, "de", lambda part: len(part) < 200)


def entries(text: str) -> object:
    from engine.api import InvalidRequest
    from server.contracts.deepl.glossaries import read_entries

    for kind in ("tsv", "csv"):
        with suppress(InvalidRequest):
            read_entries(text, kind)


def one_line(text: str) -> object:
    from server.contracts.deepl.translate import on_one_line

    return on_one_line(text)


def kept_marks(text: str) -> object:
    from server.contracts.deepl.translate import preserve_form

    return preserve_form(text, text), preserve_form("a", text), preserve_form(text, "a")


def present_phrases(text: str) -> object:
    from engine.api import at_once
    from server.contracts.deepl.glossaries import present

    return at_once(present({"a b c": "x", "a" * 100: "y", "b": "z"}, [text]))


def body(text: str) -> object:
    from engine.api import InvalidRequest
    from server.parameters import parse_json

    try:
        return parse_json(text.encode())
    except InvalidRequest:
        return None


def form_fields(text: str) -> object:
    from engine.api import InvalidRequest, at_once
    from server.forms import read_fields

    try:
        return at_once(read_fields(text.encode("utf-8", "surrogatepass")))
    except InvalidRequest:
        return None


def html(text: str) -> object:
    from documents.html import read_html

    found = read_html(text)
    return found.join(found.segments)


def html_attributes(text: str) -> object:
    from documents.attributes import read_with_attributes

    page = read_with_attributes(f"<p><img{text}></p>")
    return page.join(page.segments)


def outlined(text: str) -> object:
    from documents.html import MarkupRules, outline

    return outline(text, MarkupRules(xml=True))


def placed(text: str) -> object:
    from engine.text.places import locate

    return locate(text, list(text[: len(text) // 2]))


def detected(text: str) -> object:
    from engine.text.detect import detect

    return detect(text[:4000], ["de", "en"])


def decoded(text: str) -> object:
    from documents.plain import decode

    return decode(text.encode("utf-8", "surrogatepass"))


BLANKS = ("&nbsp;", "&nbsp; ", "&#xa0")
MARKUP = ("<b>", "</b>", "<b></b>", "<p>", "<br>", "&amp;", "<a href='", "<!", "<b ", "<script>", "x<b>y</b>")
MARKDOWN = (
    "> ",
    "- ",
    "* ",
    "1. ",
    "[x](",
    "![",
    "**a",
    "`a",
    "| ",
    "\n- ",
    "\n> ",
    "](",
    "[a]",
    "~~",
    "***",
)
SUBTITLES = ("1\n", "1\n00:00:01,000 --> 00:00:02,000\n", " \n", "0:", "-->", "9", "00:00:")
TRUSTED = "reads a file of the operator's, not of a client"
# what is under "trusted" does not see text from outside, for the reason given
LINES: dict[str, Line | str] = {
    "server.access:__init__": "patterns of the operator's own; addresses and paths are a line at most",
    "server.context:ID": Line(),
    "server.keys:read_keys": TRUSTED,
    "server.settings:_pattern": "a pattern of the operator's own",
    "server.shared_records:ID": Line(),
    "server.store:UNSAFE": Line(),
    "server.app:who": "paths of our own",
    "server.languages:REGION": Line(uses=("fullmatch",)),
    "server.forms:read_fields": Line(form_fields, pumps=("%", "%6", "%61", "a&", "a=b&")),
    "server.parameters:_read_body": "takes a body as it comes, up to its limit",
    "server.translation:read_pages": "hands on to a reader of tags",
    "server.parameters:parse_body": "hands on to `parse_json`",
    "server.parameters:parse_json": Line(body, pumps=("[", "{", '"a",', '{"a":', "\\u0041", "1,", "[],")),
    "server.contracts.deepl.glossaries:read_entries": Line(entries, pumps=("a\tb\n", "a,b\n", '"', '""')),
    "server.contracts.deepl.glossaries:present": Line(present_phrases, pumps=("a b ", "ab")),
    "server.contracts.deepl.translate:on_one_line": Line(one_line, pumps=("\n a",)),
    "server.contracts.deepl.translate:preserve_form": Line(kept_marks, pumps=("。", "…")),
    "server.contracts.libretranslate.languages:detect": "a route",
    "server.contracts.kserve.tensors:read_tensors": "loops over lists that the JSON reader has bounded",
    "engine.text.protect:NUMBERS": Line(
        pumps=("1,1", "+1", "1 11", "0 11", "€ 1", "EUR ", "(11)"), uses=("search",)
    ),
    "engine.text.protect:TRUSTED": Line(pumps=("1,1", "A1", "A-1", "EUR "), uses=("search", "fullmatch")),
    "engine.text.protect:PICTURES": Line(pumps=("😀", "😀 ", "😀\u200d"), uses=("fullmatch",)),
    "engine.text.protect:SOLID": Line(uses=("search",)),
    "engine.text.protect:_pattern": "what `mask` looks for",
    "engine.text.phrases:__init__": "one class of characters",
    "engine.text.patterns:NUMBERED": Line(pumps=("1. ",), uses=("match",)),
    "engine.text.patterns:LEADING": Line(pumps=("- ", "a) ", "[ ] ", "😀 "), uses=("match",)),
    "engine.text.patterns:EDGE": Line(pumps=("😀", "😀 ", "♪"), uses=("search",)),
    "engine.text.patterns:COLUMNS": Line(uses=("search",)),
    "engine.text.form:INITIAL": Line(pumps=("a'",), uses=("sub",)),
    "engine.text.form:CLITIC": Line(pumps=("a'", "a'a"), uses=("sub",)),
    "engine.text.form:WORD": Line(uses=("match", "sub")),
    "engine.text.borrowed:SYMBOL": Line(),
    "engine.text.borrowed:read_borrowed": TRUSTED,
    "engine.text.protect:mask": Line(
        masked,
        pumps=(
            "http://",
            "www.",
            "a@a.",
            "{{",
            "{a}",
            "%(",
            "1.1,",
            "%1$",
            "😀",
            "DE11 ",
            "+1",
            "@a.",
            "/a",
            "a.txt.",
        ),
    ),
    "engine.text.split:split": Line(sentences, pumps=("Dr. ", "a. A", "1. ", '." ', "。")),
    "engine.text.split:CUTS": Line(),
    "engine.text.split:UNUSUAL": Line(),
    "engine.text.numerals:_amount": Line(amount, pumps=("1", ".111", "1.", " 111", ",1", "a²")),
    "engine.text.detect:detect": Line(detected, length=1_000),
    "engine.text.byte_bpe:WORDS": Line(pumps=(" '", "'l", "'re")),
    "engine.text.byte_bpe:read_merges": TRUSTED,
    "engine.text.mapped_pieces:read_ids": TRUSTED,
    "engine.text.subwords:ESCAPED": Line(pumps=("\\\\", "\\1")),
    "engine.text.subwords:read_subtokens": TRUSTED,
    "engine.text.subwords:read_subwords": TRUSTED,
    "engine.text.subwords:split": Line(subword_tokens),
    "engine.text.symbols:read_list": TRUSTED,
    "engine.text.unknown:read_table": TRUSTED,
    "engine.text.marian:BYTE": Line(uses=("fullmatch",)),
    "engine.text.marian:read_vocabulary": TRUSTED,
    "engine.text.pieces:read_processor": TRUSTED,
    "engine.text.marian:read_side": TRUSTED,
    "engine.text.fairseq:read_bpe": TRUSTED,
    "engine.text.dictionary:read_dictionary": TRUSTED,
    "documents:read_document": "hands on to the reader of a kind",
    "documents:_read_docx": "hands on to the reader of a kind",
    "documents.align:WORD": Line(),
    "engine.text.places:locate": Line(placed, pumps=("ab",), length=2_000),
    "documents.attributes:ATTRIBUTE": Line(pumps=(" a=", " a='", " a ")),
    "documents.attributes:DESCRIPTIONS": Line(pumps=("name=", "description "), uses=("fullmatch",)),
    "documents.attributes:NAME": Line(pumps=(" name=", " property =")),
    "documents.attributes:read_with_attributes": Line(
        html_attributes, pumps=(" alt=", "<img alt='"), length=1_000
    ),
    "documents.docx:CODE": Line(),
    "documents.odt:CODE": Line(),
    "documents.docx:PARTS": Line(),
    "documents.docx:read_docx": "a library reads it, in a process of its own with limits of time and memory",
    "documents.html:OPENING": Line(pumps=MARKUP),
    "documents.html:NAME": Line(pumps=MARKUP),
    "documents.html:STOP": Line(pumps=("= ", "=\t")),
    "documents.html:REFUSED": Line(pumps=(" class=", " class = '", " translate=")),
    "documents.html:SPACE": Line(),
    "documents.html:LEADING": Line(pumps=BLANKS),
    "documents.html:TRAILING": Line(pumps=BLANKS),
    "documents.html:_raw_end": Line(html, pumps=("<script>", "</scrip", "<style></"), length=1_000),
    "documents.html:read_html": Line(html, pumps=(*MARKUP, *BLANKS), length=1_000),
    "documents.html:outline": Line(outlined, pumps=MARKUP, length=1_000),
    "documents.markdown:FRONT": Line(pumps=("---\n",)),
    "documents.markdown:SPECIAL": Line(pumps=("&a", "~~")),
    "documents.markdown:BLOCK": Line(),
    "documents.markdown:TASK": Line(pumps=("[ ]", "[x] ")),
    "documents.markdown:_address": Line(lambda text: re.search(r"[()\s]", text)),
    "documents.markdown:read_markdown": Line(page("md"), pumps=MARKDOWN, length=1_000),
    "documents.odt:SPACE": Line(),
    "documents.odt:SEVERAL": Line(),
    "documents.odt:FIRST": Line(),
    "documents.odt:read_odt": "a library reads it, in a process of its own with limits of time and memory",
    "documents.odt:_parse": "a library reads it, in a process of its own with limits of time and memory",
    "documents.worker:read_message": "reads what the server itself has written",
    "documents.plain:CHARSET": Line(pumps=("<meta ", "charset=", "charset =")),
    "documents.plain:NEWLINE": Line(),
    "documents.plain:decode": Line(decoded),
    "documents.plain:read_text": Line(page("txt"), length=1_000),
    "documents.plain:read_page": Line(page("html"), pumps=(*MARKUP, "<meta ", "charset="), length=1_000),
    "documents.projection:SOLID": Line(),
    "documents.projection:MARKS": Line(),
    "documents.projection:WRITTEN": Line(),
    "documents.subtitles:TAG": Line(pumps=("{\\", "</", "<a")),
    "documents.subtitles:DIALOGUE": Line(pumps=("<a>", "<> ", " <a> "), uses=("match",)),
    "documents.subtitles:INDEX": Line(uses=("fullmatch",)),
    "documents.subtitles:TIMES": Line(pumps=SUBTITLES, uses=("match",)),
    "documents.subtitles:_parse_subtitles": "is called by the reader of subtitles",
    "documents.subtitles:read_subtitles": Line(page("srt"), pumps=SUBTITLES, length=1_000),
}
TESTED = sorted(name for name, line in LINES.items() if isinstance(line, Line))


def test_every_pattern_and_parser_has_a_line():
    missing = sorted(set(_sources()) - set(LINES))
    assert not missing, f"tests/project/test_linear.py has no line for {', '.join(missing)}"


def test_every_line_has_its_pattern_or_parser():
    assert not set(LINES) - set(_sources())


@pytest.mark.parametrize("name", TESTED)
def test_time_grows_as_the_text_does(name):
    line = LINES[name]
    assert isinstance(line, Line)
    for call in _calls(name, line):
        for pump in (*PUMPS, *line.pumps):
            for suffix in SUFFIXES:
                _check(call, pump, suffix, line.length, name)


@pytest.mark.parametrize("pattern", [r"\s*\n\s*", r"[.!?]+$", r"[\w.]+@x"])
def test_slow_patterns_are_noticed(pattern):
    slow = re.compile(pattern).search
    with pytest.raises(AssertionError, match="times as long"):
        for pump in PUMPS:
            for suffix in SUFFIXES:
                _check(slow, pump, suffix, LENGTH, pattern)


def _check(call: Callable[[Any], object], pump: str, suffix: str, length: int, name: str) -> None:
    def seconds(characters: int) -> float:
        return processor_seconds(call, pump * (characters // len(pump)) + suffix)

    once = seconds(length)
    if once < NOTICEABLE:
        return
    nothing, quarter = seconds(0), min(seconds(length // 4), seconds(length // 4))
    if not THOROUGH and once - nothing < DOUBTFUL * (quarter - nothing):
        return

    def attempt() -> str:
        first, longer = min(seconds(length), seconds(length)), seconds(4 * length)
        times = longer / first
        return f"{name}: {pump!r} takes {times:.0f} times as long four times over" if times > GROWTH else ""

    thrice(attempt)


def _calls(name: str, line: Line) -> Iterator[Callable[[Any], object]]:
    if line.call is not None:
        yield line.call
        return
    module, _, target = name.partition(":")
    found = getattr(importlib.import_module(module), target, None)
    assert found is not None, f"{name}: say in its line how it is called"
    patterns = found if isinstance(found, list | tuple) else [found]
    for pattern in patterns:
        for name in line.uses:
            use = partial(pattern.sub, _empty(pattern)) if name == "sub" else getattr(pattern, name)
            yield _encoded(use) if isinstance(pattern.pattern, bytes) else use


def _empty(pattern: re.Pattern[Any]) -> Any:
    return b"" if isinstance(pattern.pattern, bytes) else ""


def _encoded(use: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda text: use(text.encode())


def _sources() -> Iterator[str]:
    """module:name of every pattern (or the function that makes it) and every parser."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = ".".join(parts).removesuffix(".__init__")
            yield from (f"{module}:{name}" for name in _named(ast.parse(path.read_text("utf-8")), None))


def _named(node: ast.AST, owner: str | None) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        name = owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = child.name
            if isinstance(node, ast.Module) and PARSER.match(name):
                yield name
        elif isinstance(node, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign):
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            name = target.id if isinstance(target, ast.Name) else None
        elif isinstance(child, ast.Call) and _is_pattern(child.func) and owner:
            yield owner
        yield from _named(child, name)


def _is_pattern(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in ("re", "regex", "re2")
        and function.attr != "escape"
    )
