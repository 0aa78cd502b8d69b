"""YAML of messages, by PyYAML's events: a string's characters change, and nothing beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import yaml

from documents.document import Document, unreadable
from documents.formats.messages import Message, Value, messages_document
from documents.formats.plain import decode

KIND_NAME: Final = "messages in YAML"
STRING: Final = "tag:yaml.org,2002:str"
MAX_DEPTH: Final = 100  # lists and mappings in one another
UNQUOTED: Final = re.compile(r"\w[^\n:#]*+")  # a text that may stand without quotes
FLOW_SIGN: Final = re.compile(r"[,\[\]{}]")
LINE: Final = re.compile(r"( *)([^\n]*)\n?")
PROPERTIES: Final = re.compile(r"(?:[&!]\S*+\s++)*+")  # a node's anchor and tag
Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(data: bytes) -> Document:
    """Read the strings of a YAML file but its keys; comments, anchors and quotes stay.

    Raises Unreadable on a file that is none.
    """
    file = decode(data)
    try:
        values = list(_values(file.text, Loader(file.text)))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise unreadable(KIND_NAME) from None
    return messages_document(file.text, values, file.encode)


def _values(text: str, loader: Any) -> Iterator[Value]:
    """The strings that are no keys, by the parser's events."""
    around: list[list[Any]] = []  # lists and mappings: whether its nodes come in pairs, how many, in brackets
    while loader.check_event():
        event = loader.get_event()
        if isinstance(event, yaml.CollectionEndEvent):
            around.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        key = bool(around) and around[-1][0] and around[-1][1] % 2 == 0
        if around:
            around[-1][1] += 1
        if isinstance(event, yaml.CollectionStartEvent):
            around.append([isinstance(event, yaml.MappingStartEvent), 0, event.flow_style])
            if len(around) > MAX_DEPTH:
                raise unreadable(KIND_NAME)
        elif isinstance(event, yaml.ScalarEvent) and not key and _is_text(event, loader):
            yield from _strings(text, event, partial(_is_plain, loader, bool(around) and around[-1][2]))


def _is_text(event: Any, loader: Any) -> bool:
    return (event.tag or loader.resolve(yaml.ScalarNode, event.value, event.implicit)) in (STRING, "!")


def _strings(text: str, event: Any, plain: Callable[[str], bool]) -> Iterator[Value]:
    """The messages of a scalar: the whole; of a block, its paragraphs or lines."""
    begin, end = PROPERTIES.match(text, event.start_mark.index).end(), event.end_mark.index  # type: ignore[union-attr]
    if event.style in ("|", ">"):
        yield from _block(text, begin, end, event.style)
    elif not event.style:
        yield Value(begin, end, Message(event.value), lambda new: new if plain(new) else _quoted(new))
    else:
        quote = _single_quoted if event.style == "'" else _quoted
        yield Value(begin, end, Message(event.value), quote)


def _block(text: str, begin: int, end: int, style: str) -> Iterator[Value]:
    """The lines of a literal block; of a folded one, lines of the same indentation are a paragraph."""
    position = text.index("\n", begin) + 1 if "\n" in text[begin:end] else end
    indent: int | None = None
    run: list[tuple[int, int]] = []  # lines of a paragraph
    while position < end and (line := LINE.match(text, position)):
        depth, words = len(line[1]), line[2].rstrip()
        indent = depth if indent is None and words else indent
        if words and indent is not None and depth < indent:
            break
        if run and (style == "|" or not words or depth != indent):
            yield _paragraph(text, run)
            run = []
        if words:
            run.append((line.start(2), line.start(2) + len(words)))
        if run and depth != indent:
            yield _paragraph(text, run)
            run = []
        position = line.end()
    if run:
        yield _paragraph(text, run)


def _paragraph(text: str, run: list[tuple[int, int]]) -> Value:
    words = " ".join(text[begin:end] for begin, end in run)
    return Value(run[0][0], run[-1][1], Message(words), lambda new: " ".join(new.split("\n")).strip())


def _is_plain(loader: Any, in_brackets: bool, text: str) -> bool:
    """Whether a text means itself without quotes."""
    return (
        UNQUOTED.fullmatch(text) is not None
        and text.isprintable()
        and not text.endswith(" ")
        and not (in_brackets and FLOW_SIGN.search(text))
        and loader.resolve(yaml.ScalarNode, text, (True, False)) == STRING
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.replace("\n", "").isprintable())


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else _quoted(text)
