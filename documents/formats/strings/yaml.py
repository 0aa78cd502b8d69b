"""Messages in YAML, by the events of PyYAML: only the characters of strings are changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import yaml

from documents.document import Document, unreadable
from documents.formats.plain import decode
from documents.formats.strings.messages import Message, Value, messages_document

KIND_NAME: Final = "messages in YAML"
STRING: Final = "tag:yaml.org,2002:str"
MAX_DEPTH: Final = 100  # nested lists and mappings
UNQUOTED: Final = re.compile(r"\w[^\n:#]*+")  # a text that may need no quotes
FLOW_SIGN: Final = re.compile(r"[,\[\]{}]")
LINE: Final = re.compile(r"( *)([^\n]*)\n?")
PROPERTIES: Final = re.compile(r"(?:[&!]\S*+\s++)*+")  # a node's anchor and tag
Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(data: bytes) -> Document:
    """Return the strings of a YAML file, except its keys; comments, anchors and quotes stay.

    Raises Unreadable.
    """
    file = decode(data)
    try:
        values = list(_values(file.text, Loader(file.text)))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise unreadable(KIND_NAME) from None
    return messages_document(file.text, values, file.encode)


def _values(text: str, loader: Any) -> Iterator[Value]:
    """Yield the strings of a file that are no keys.

    text: the whole file.
    loader: YAML parser of `text`; returns events and resolves the types of values.
    """
    collections: list[list[Any]] = []  # of each open one: is a mapping, number of nodes, is in brackets
    while loader.check_event():
        event = loader.get_event()
        if isinstance(event, yaml.CollectionEndEvent):
            collections.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        # the nodes of a mapping are keys and values in turn
        is_key = bool(collections) and collections[-1][0] and collections[-1][1] % 2 == 0
        if collections:
            collections[-1][1] += 1
        if isinstance(event, yaml.CollectionStartEvent):
            collections.append([isinstance(event, yaml.MappingStartEvent), 0, event.flow_style])
            if len(collections) > MAX_DEPTH:
                raise unreadable(KIND_NAME)
        elif isinstance(event, yaml.ScalarEvent) and not is_key and _is_text(event, loader):
            in_brackets = bool(collections) and collections[-1][2]
            yield from _strings(text, event, partial(_is_plain, loader, in_brackets))


def _is_text(event: Any, loader: Any) -> bool:
    return (event.tag or loader.resolve(yaml.ScalarNode, event.value, event.implicit)) in (STRING, "!")


def _strings(text: str, event: Any, plain: Callable[[str], bool]) -> Iterator[Value]:
    """Yield the messages of a scalar: its text, or the paragraphs or lines of a block.

    text: the whole file.
    event: scalar event of the parser, with its style and positions in `text`.
    plain: function that returns whether a text needs no quotes here.
    """
    begin, end = PROPERTIES.match(text, event.start_mark.index).end(), event.end_mark.index  # type: ignore[union-attr]
    if event.style in ("|", ">"):
        yield from _block(text, begin, end, event.style)
    elif not event.style:
        yield Value(begin, end, Message(event.value), lambda new: new if plain(new) else _quoted(new))
    else:
        quote = _single_quoted if event.style == "'" else _quoted
        yield Value(begin, end, Message(event.value), quote)


def _block(text: str, begin: int, end: int, style: str) -> Iterator[Value]:
    """Yield the lines of a literal block, or the paragraphs of a folded block: lines of equal indentation.

    text: the whole file.
    begin, end: characters [begin, end) of the block.
    style: "|" for a literal block, ">" for a folded one.
    """
    position = text.index("\n", begin) + 1 if "\n" in text[begin:end] else end
    indent: int | None = None
    run: list[tuple[int, int]] = []  # ranges of the lines of a paragraph
    while position < end and (line := LINE.match(text, position)):
        depth, words = len(line[1]), line[2].rstrip()
        indent = depth if indent is None and words else indent
        if words and indent is not None and depth < indent:
            break  # a smaller indentation ends the block
        if run and (style == "|" or not words or depth != indent):
            yield _paragraph(text, run)
            run = []
        if words:
            run.append((line.start(2), line.start(2) + len(words)))
        if run and depth != indent:  # YAML does not fold lines with a larger indentation
            yield _paragraph(text, run)
            run = []
        position = line.end()
    if run:
        yield _paragraph(text, run)


def _paragraph(text: str, run: list[tuple[int, int]]) -> Value:
    """Return the message of the lines of a paragraph."""
    words = " ".join(text[begin:end] for begin, end in run)
    return Value(run[0][0], run[-1][1], Message(words), lambda new: " ".join(new.split("\n")).strip())


def _is_plain(loader: Any, in_brackets: bool, text: str) -> bool:
    """Return whether a text without quotes is read as the same text."""
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
