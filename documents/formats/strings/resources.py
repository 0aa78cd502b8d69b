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
QUOTATION_MARK: Final = re.compile(r'(?<!\\)(?:\\\\)*+"')
APOSTROPHE: Final = re.compile(r"(?<!\\)(?:\\\\)*+'")
ACCELERATOR: Final = re.compile(r"&amp;(?=[^\W\d_])(?!\w{1,32};)")  # the sign before a button's key
CDATA: Final = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)
QUOTED: Final = re.compile(r'\s*"((?:[^"\\]|\\.)*+)"\s*', re.DOTALL)
TAG_OR_APOSTROPHE: Final = re.compile(r"<[^<>]*>|\\.|'")
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
        elif is_string and not REFERENCE.fullmatch(raw):
            values += _android_values(raw, begin)
    yield from values


def _android_values(raw: str, begin: int) -> Iterator[Value]:
    """Yield the text of a string of Android, without the marks around it.

    raw: content of the element.
    begin: first character in the file.
    """
    if raw.count("<![CDATA[") == 1 and (match := CDATA.fullmatch(raw)):
        yield Value(begin + match.start(1), begin + match.end(1), Message(match[1]), _android_page)
    elif "<![CDATA[" not in raw and (match := QUOTED.fullmatch(raw)):
        yield Value(begin + match.start(1), begin + match.end(1), Message(match[1]), _quoted)
    elif "<![CDATA[" not in raw:
        yield Value(begin, begin + len(raw), Message(raw), _android_text)


def _resx(text: str) -> Iterator[Value]:
    """Yield the values of a .resx file that are texts."""
    value: tuple[int, int] | None = None
    for path, attributes, begin, end in _elements(text):
        if path[1:] == ["data", "value"]:
            value = begin, end
        elif path[1:] == ["data"]:
            if value and not NO_TEXT.search(attributes):
                yield Value(*value, _with_keys(text[slice(*value)]), _escaped)
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
                yield Value(begin, end, _with_keys(source), _escaped)
        elif path[-2:] == ["translation", "numerusform"] and _is_empty(text, begin, end):
            forms.append(Value(begin, end, _with_keys(source), _escaped))
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


def _with_keys(text: str) -> Message:
    """Return a text of a program with the sign before a button's key as one character, as in plain text."""
    return Message(ACCELERATOR.sub("&", text))


def _android_text(text: str) -> str:
    """Return a string of Android, with escaped apostrophes."""
    return APOSTROPHE.sub(lambda match: match[0][:-1] + "\\'", _escaped(text))


def _quoted(text: str) -> str:
    """Return the text of a quoted string of Android, with escaped quotation marks."""
    return QUOTATION_MARK.sub(lambda match: match[0][:-1] + '\\"', _escaped(text))


def _android_page(text: str) -> str:
    """Return HTML in CDATA of Android, with escaped apostrophes outside of tags."""
    escaped = TAG_OR_APOSTROPHE.sub(lambda match: "\\'" if match[0] == "'" else match[0], text)
    return escaped.replace("]]>", "]]]]><![CDATA[>")
