"""Resources of programs in XML: Android's `strings.xml`, `.resx` of .NET, `.ts` of Qt, `.stringsdict` of
Apple.

lxml checks the file; only the characters of its strings are changed: comments and the form of tags stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lxml import etree

from documents.archive import parse_xml
from documents.document import Document, unreadable
from documents.formats.plain import decode
from documents.formats.strings.messages import Message, Value, messages_document

ANDROID, RESX, QT, PLIST = "resources", "root", "TS", "plist"  # names of root elements
KIND_NAMES: Final = {
    ANDROID: "Android's strings in XML",
    RESX: "resources of .NET",
    QT: "translations of Qt",
    PLIST: "plurals of Apple",
}
# keys of .stringsdict with texts: the forms of a plural, and the sentence around it
PLURAL_KEYS: Final = frozenset({"zero", "one", "two", "few", "many", "other", "NSStringLocalizedFormatKey"})
# markup of a well-formed file: comments and the like, or a tag: closing, name, attributes, empty
MARKUP: Final = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<!DOCTYPE[^\[>]*+(?:\[.*?\]\s*+)?>"
    r"|<(/?)([^\s/>\"'=!?]++)((?:[^>\"'/]++|\"[^\"]*+\"|'[^']*+'|/(?!>))*+)(/?)>",
    re.DOTALL,
)
KEPT: Final = re.compile(r"\stranslatable\s*=\s*[\"']false")
NO_TEXT: Final = re.compile(r"\s(?:type|mimetype)\s*=")  # attributes of files and objects in .resx
REFERENCE: Final = re.compile(r"\s*[@?][\w.:+-]*/?[\w.]+\s*")  # the name of another resource
DONE: Final = re.compile(r"\stype\s*=\s*[\"'](?:obsolete|vanished)")
APOSTROPHE: Final = re.compile(r"(?<!\\)(?:\\\\)*+'")
AMPERSAND: Final = re.compile(r"&(?!#?\w{1,32};)")


def read_android(data: bytes) -> Document:
    """Return the strings of an Android file, without `translatable="false"`. Raises Unreadable."""
    return _read(data, ANDROID)


def read_resx(data: bytes) -> Document:
    """Return the strings of a .resx file, without files and objects. Raises Unreadable."""
    return _read(data, RESX)


def read_qt(data: bytes) -> Document:
    """Return the messages of a .ts file of Qt without a translation. Raises Unreadable."""
    return _read(data, QT)


def read_stringsdict(data: bytes) -> Document:
    """Return the plurals of a .stringsdict file of Apple. Raises Unreadable."""
    return _read(data, PLIST)


def _read(data: bytes, root_name: str) -> Document:
    """Return the strings of a file with a root element of this name."""
    kind = KIND_NAMES[root_name]
    root = parse_xml(data, kind)
    if not isinstance(root.tag, str) or etree.QName(root).localname != root_name:
        raise unreadable(kind)
    file = decode(data, root.getroottree().docinfo.encoding or "utf-8")
    strings = {ANDROID: _android, RESX: _resx, QT: _qt, PLIST: _stringsdict}[root_name]
    values = list(strings(file.text))
    return messages_document(file.text, values, lambda text: file.encode(text, "xmlcharrefreplace"))


def _elements(text: str) -> Iterator[tuple[list[str], str, int, int]]:
    """Yield path, attributes, begin and end of the content of each element of a well-formed file, when the
    element ends."""
    path, opened = list[str](), list[tuple[str, int]]()
    for match in MARKUP.finditer(text):
        closing, name, attributes, empty = match.groups()
        if name is None:
            continue
        if not closing:
            path.append(name)
            opened.append((attributes, match.end()))
        if closing or empty:
            attributes, begin = opened.pop()
            yield path, attributes, begin, match.start() if closing else match.end()
            path.pop()


def _android(text: str) -> Iterator[Value]:
    """Yield the strings, plurals and items of arrays of an Android file."""
    values = list[Value]()
    for path, attributes, begin, end in _elements(text):
        is_string = path[1:] == ["string"] or path[1:] in (["plurals", "item"], ["string-array", "item"])
        raw = text[begin:end]
        if len(path) == 2 and KEPT.search(attributes):
            while values and values[-1].begin >= begin:
                values.pop()
        elif is_string and "<![CDATA[" not in raw and not REFERENCE.fullmatch(raw):
            values.append(Value(begin, end, Message(raw), _android_text))
    yield from values


def _resx(text: str) -> Iterator[Value]:
    """Yield the values of a .resx file that are texts."""
    value: tuple[int, int] | None = None
    for path, attributes, begin, end in _elements(text):
        if path[1:] == ["data", "value"]:
            value = begin, end
        elif path[1:] == ["data"]:
            if value and not NO_TEXT.search(attributes):
                yield Value(*value, Message(text[slice(*value)]), _escaped)
            value = None


def _qt(text: str) -> Iterator[Value]:
    """Yield the empty translations of a .ts file, which get the translation of their source; each form of a
    plural gets the same."""
    source, forms = "", list[Value]()
    for path, attributes, begin, end in _elements(text):
        if path[-2:] == ["message", "source"]:
            source = text[begin:end]
        elif path[-2:] == ["message", "translation"] and not DONE.search(attributes):
            yield from forms
            if not forms and _is_empty(text, begin, end):
                yield Value(begin, end, Message(source), _escaped)
        elif path[-2:] == ["translation", "numerusform"] and _is_empty(text, begin, end):
            forms.append(Value(begin, end, Message(source), _escaped))
        if path[-1] == "translation":
            forms = []


def _is_empty(text: str, begin: int, end: int) -> bool:
    """Return whether an element with an opening and a closing tag has blank content [begin, end)."""
    return not text[begin:end].strip() and not text.startswith("/>", begin - 2)


def _stringsdict(text: str) -> Iterator[Value]:
    """Yield the texts of a .stringsdict file."""
    key = ""
    for path, _, begin, end in _elements(text):
        if path[-1] == "string" and key in PLURAL_KEYS:
            yield Value(begin, end, Message(text[begin:end]), _escaped)
        key = text[begin:end].strip() if path[-1] == "key" else ""


def _escaped(text: str) -> str:
    """Return a text with entities in which tags stay."""
    return AMPERSAND.sub("&amp;", text)


def _android_text(text: str) -> str:
    """Return a string of Android: apostrophes are escaped, except in a quoted string."""
    escaped = _escaped(text)
    if escaped.startswith('"') and escaped.endswith('"'):
        return escaped
    return APOSTROPHE.sub(lambda match: match[0][:-1] + "\\'", escaped)
