"""Sentences of sources and pages, and marks of sentences that are hard to read.

A mark is crude: a marked sentence can be good, but a page with many marks is hard to read.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

MARKS: Final[Mapping[str, re.Pattern[str]]] = {
    "pronoun": re.compile(
        r"\b(?:those (?:that|who|which|of)|that of|whose|whoever|(?:no|some|any|every)body)\b"
        r"|\bwho (?:is|are|has|have|wants?|asks?|waits?|lacks?|comes?|goes|can|may|must|does)\b"
        r"|(?<!^)\bwhat (?:is|was|are|it|they|he|has|have|had|can|must|may|stands|comes|goes|lies|others"
        r"|nobody|somebody|else|does|did|makes?|needs?)\b"
    ),
    "inverted": re.compile(
        r"^(?:Of|What|Where|With|Else|Than|Who|Whoever|But for|Such|Likewise|As|By|From|Beside|Behind|Nor)\b"
    ),
    "rare word": re.compile(
        r"\b(?:but for|hardly|likewise|so many|as of|beside|anew|yet to|lest|save for|thereby|wherein"
        r"|whereof)\b"
    ),
    "people's verb": re.compile(
        r"\b(?:told|tells?|says?|said|hears?|heard|speaks?|spoken|lies?|stands?|lends?|lent|owes?"
        r"|wish(?:es)?|goes on|gone on|lives?|knows?|looks? (?:at|for)|asks? (?:of|for)|sees?|seen)\b"
    ),
}
# first words of a parameter line that does not name the parameter
NO_NOUN: Final = re.compile(
    r"(?:of|that|what|which|whose|whom|who|how|its|their|as|where|when|with|by|for|in|to|from|likewise"
    r"|also|those|such|than|else|so)\b",
    re.IGNORECASE,
)
PARAMETER: Final = re.compile(r"^ *[a-z_*][\w\[\], /*]*: (.+)$")
QUOTED: Final = re.compile(r"`[^`]*`|\"[^\"]*\"")
SENTENCE_END: Final = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`\"(\[])")
CODE_BLOCK: Final = re.compile(r"```.*?```", re.DOTALL)
# shorter sentences and comments carry no grammar
MIN_SENTENCE_WORDS: Final = 3
MIN_COMMENT_WORDS: Final = 4


class Sentence(NamedTuple):
    """One sentence of prose.

    kind: parameter, docstring, comment, test name, page or help.
    place: file and line, or the command.
    """

    kind: str
    place: str
    text: str

    @cache  # noqa: B019
    def marks(self) -> list[str]:
        """Return the names of the marks that this sentence has."""
        if self.kind == "parameter":
            return ["no noun first"] if NO_NOUN.match(self.text) else []
        plain = QUOTED.sub("X", self.text).strip()
        return [name for name, pattern in MARKS.items() if pattern.search(plain)]


def split_prose(text: str) -> list[str]:
    """Return the sentences of paragraphs; headings and fragments of one or two words are left out."""
    flat = [" ".join(map(str.strip, block.splitlines())) for block in re.split(r"\n\s*\n", text)]
    found = [sentence for block in flat for sentence in SENTENCE_END.split(block)]
    return [sentence for sentence in found if len(sentence.split()) >= MIN_SENTENCE_WORDS]


def docstring_sentences(text: str, place: str) -> Iterator[Sentence]:
    """Yield the parameter lines of a docstring, then its sentences."""
    others = []
    for line in text.splitlines():
        match = PARAMETER.match(line)
        if match and not line.strip().startswith(("http", ">>>")):
            yield Sentence("parameter", place, match[1])
        else:
            others.append(line)
    for sentence in split_prose("\n".join(others)):
        yield Sentence("docstring", place, sentence)


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def docstrings(path: Path) -> Iterator[tuple[int, str, ast.AST]]:
    """Yield line, docstring (maybe empty) and node of the module, of each class and of each function."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or "", node


@cache
def comments(path: Path) -> tuple[tuple[int, str], ...]:
    """Return line and text of each comment of a Python file."""
    readline = io.StringIO(path.read_text(encoding="utf-8")).readline
    tokens = tokenize.generate_tokens(readline)
    return tuple((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


def source_sentences(path: Path, place: str) -> Iterator[Sentence]:
    """Yield the sentences of docstrings and comments and the names of tests of a Python file.

    place: name of the file in messages.
    """
    for line, docstring, node in docstrings(path):
        yield from docstring_sentences(docstring, f"{place}:{line}")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            name = node.name.removeprefix("test_").replace("_", " ").capitalize()
            yield Sentence("test name", f"{place}:{line}", name)
    for line, comment in comments(path):
        if len(comment.split()) >= MIN_COMMENT_WORDS:
            yield Sentence("comment", f"{place}:{line}", comment.lstrip("# "))


def page_sentences(path: Path, place: str) -> Iterator[Sentence]:
    """Yield the sentences of a page of Markdown: no code, headings, tables or pictures."""
    text = CODE_BLOCK.sub("", path.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!["))]
    prose = "\n".join(re.sub(r"^\s*[-*0-9.]+ ", "\n", line) for line in lines)
    for sentence in split_prose(prose):
        yield Sentence("page", place, sentence)
