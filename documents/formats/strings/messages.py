"""Strings of programs: placeholders, tags and the syntax of plurals are not translated.

`Message` is for every format of such strings; `read_json` reads JSON. The rest of a file is not changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from documents.document import Document, unreadable
from documents.formats.plain import decode
from documents.spans import MAX_SPANS, Segment
from documents.tagged import TaggedText, read_tagged

# tags; {name}, {{name}}, ${name}, %{name}; $t(key) of i18next; %(name)s; %1$s, %d, %@; @:key of Vue.
# Entities are read by the model where they are letters: don&#39;t
MARKS: Final = (
    r"</?[a-zA-Z0-9][^<>]*>|[$%]?\{\{[^{}]*\}\}|[$%]?\{[^{}]*\}|\$t\([^()]*\)|%\([^()]*\)[a-zA-Z]"
    r"|%(?:\d{1,2}\$)?#@\w{1,100}@|%(?:\d{1,2}\$)?[-+0#]{0,4}\d{0,3}(?:\.\d{1,3})?(?:[hlqjzt]{1,2})?[@a-zA-Z](?![a-zA-Z])|%%"
    r"|@(?:\.\w{1,32})?:[\w.]{1,200}"
)
MARK: Final = re.compile(f"({MARKS})")
BRANCH_MARK: Final = re.compile(f"({MARKS}|#)")  # with # for the number of a plural
CHOICE: Final = re.compile(r"\{\s*+\w{1,100}\s*+,\s*+(?:plural|select|selectordinal)\s*+,")
BRANCH: Final = re.compile(r"\s*(?:offset:\d{1,9}\s*)?(?:=\d{1,9}|\w{1,100})\s*\{|\s*(\})")
BRACE: Final = re.compile(r"[{}]")
MAX_DEPTH: Final = 16  # nested choices
LOCALE: Final = re.compile(rb'("@@locale"\s{0,16}:\s{0,16}")[^"]{0,64}"')
JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"(\s*:)?|[{}]')
KIND_NAME: Final = "messages in JSON"
# keys of names for programs; a value of several words is prose
PROGRAM_KEYS: Final = re.compile(
    r"align|class(?:name)?|color|css|direction|format|href|icon|id|key|kind|lang|language|layout|locale|path"
    r"|position|slug|src|style|theme|type|unit|url|variant",
    re.IGNORECASE,
)
STYLE_KEYS: Final = frozenset({"class", "classname", "css", "style"})  # and several words
DATE_FORMAT: Final = re.compile(
    r"(?=[^a-zA-Z]*(?:YYYY|yyyy|MM|DD|dd|HH|hh|mm))[YyMDdHhmsSaAzZEeTwWLlo:\-/., ']+"
)


class Message:
    """A string as ranges of prose, with syntax between them.

    source: string that may have choices, placeholders and tags.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._ranges: list[tuple[int, int, TaggedText]] = []
        for begin, end, branch in _prose_ranges(source):
            raw = source[begin:end]
            bare = raw.strip()
            tagged = read_tagged(bare, BRANCH_MARK if branch else MARK)
            if tagged.prose and len(tagged.marks) <= MAX_SPANS:
                begin += raw.index(bare)
                self._ranges.append((begin, begin + len(bare), tagged))

    @property
    def segments(self) -> list[Segment]:
        return [tagged.segment for _, _, tagged in self._ranges]

    def write(self, segments: Sequence[Segment]) -> str:
        """Return the string with a new segment for each old one; the old segments give the same string."""
        parts, position = list[str](), 0
        for (begin, end, tagged), segment in zip(self._ranges, segments, strict=True):
            if segment is not tagged.segment:
                parts += [self.source[position:begin], tagged.write(segment)]
                position = end
        return "".join([*parts, self.source[position:]])


@dataclass(frozen=True, slots=True)
class Value:
    """A string in a file.

    begin, end: range of characters in the file.
    message: the string.
    encode: returns a string in the syntax of the file.
    """

    begin: int
    end: int
    message: Message
    encode: Callable[[str], str]


def messages_document(
    text: str, values: Sequence[Value], encode: Callable[[str], bytes], notices: tuple[str, ...] = ()
) -> Document:
    """Return the document of a file with messages.

    text: the whole file.
    values: strings of the file, in order.
    encode: returns the bytes of a text.
    notices: sentences for the user.
    """

    def write(segments: Sequence[Segment]) -> bytes:
        rest = iter(segments)
        parts, position = list[str](), 0
        for value in values:
            old = value.message.segments
            new = [next(rest) for _ in old]
            # a segment that was not translated comes back as the same object
            if any(after is not before for after, before in zip(new, old, strict=True)):
                parts += [text[position : value.begin], value.encode(value.message.write(new))]
                position = value.end
        return encode("".join([*parts, text[position:]]))

    return Document([segment for value in values for segment in value.message.segments], write, notices)


def read_json(data: bytes) -> Document:
    """Return the strings of a JSON file, except its keys, formats of dates, and names for programs.

    Raises Unreadable on a file that is no JSON.
    """
    return _read_messages(data, resources=False)


def read_arb(data: bytes) -> Document:
    """Return the messages of a resource file of Flutter, without its metadata. Raises Unreadable."""
    document = _read_messages(data, resources=True)

    def write_in(segments: Sequence[Segment], language: str) -> bytes:
        code = language.replace("-", "_").encode()
        return LOCALE.sub(lambda match: match[1] + code + b'"', document.write(segments), count=1)

    return replace(document, write_in=write_in)


def _read_messages(data: bytes, *, resources: bool) -> Document:
    """Return the strings of a JSON file.

    data: bytes of the file.
    resources: only strings of the outermost object are messages, and none with a key that begins with "@".
    """
    file = decode(data)
    try:
        json.loads(file.text)
    except (ValueError, RecursionError):
        raise unreadable(KIND_NAME) from None
    escaped = file.text.isascii() and "\\u" in file.text

    def encode(text: str) -> str:
        return json.dumps(text, ensure_ascii=escaped)

    values = [
        Value(match.start(), match.end(), Message(json.loads(match[0])), encode)
        for key, match in _json_values(file.text, outermost=resources)
        if not (key.startswith("@") if resources else is_for_programs(key, json.loads(match[0])))
    ]
    return messages_document(file.text, values, file.encode)


def is_for_programs(key: str, value: str) -> bool:
    """Return whether a string is a name or format that only programs read, such as "logout" of "icon"."""
    name = key.rpartition(".")[2].lower()
    if DATE_FORMAT.fullmatch(value.strip()):
        return True
    one_word = not any(map(str.isspace, value.strip()))
    return name in STYLE_KEYS or (one_word and PROGRAM_KEYS.fullmatch(name) is not None)


def _json_values(text: str, *, outermost: bool) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each string that is no key, with the last key before it.

    text: JSON.
    outermost: only strings of the outermost object.
    """
    key, depth = "", 0
    for match in JSON_TOKEN.finditer(text):
        if match[0] in "{}":
            depth += 1 if match[0] == "{" else -1
        elif match[1] is not None:
            key = json.loads(match[0].rstrip().removesuffix(":"))
        elif not outermost or depth == 1:
            yield key, match


def _prose_ranges(source: str) -> Iterator[tuple[int, int, bool]]:
    """Yield begin, end and "is in a branch of a choice" of each range of prose in a string.

    source: message, maybe with choices of ICU's MessageFormat, such as {n, plural, one {# day} other {...}}.

    A string with an incomplete choice has no range.
    """
    if not CHOICE.search(source):
        return iter([(0, len(source), False)])
    found, begin, position = list[tuple[int, int, bool]](), 0, 0
    depth = 0  # nested branches
    inner = 0  # open placeholders
    while brace := BRACE.search(source, position):
        choice = None if inner else CHOICE.match(source, brace.start())
        if choice and depth < MAX_DEPTH:
            found.append((begin, choice.start(), depth > 0))
            position = choice.end()
        elif brace[0] == "{":
            inner, position = inner + 1, brace.end()
            continue
        elif inner:
            inner, position = inner - 1, brace.end()
            continue
        elif depth:
            found.append((begin, brace.start(), True))
            depth, position = depth - 1, brace.end()
        else:
            return iter(())
        # after the head of a choice, or the end of a branch: the next branch, or the "}" of the choice
        branch = BRANCH.match(source, position)
        if branch is None:
            return iter(())
        begin = position = branch.end()
        depth += branch[1] is None
    return iter(()) if depth or inner else iter([*found, (begin, len(source), False)])
