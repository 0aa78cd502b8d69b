"""Books (EPUB 2 and 3): the pages in the manifest of the book, and its tables of contents."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from documents.archive import Archive, open_archive
from documents.document import Document, unreadable
from documents.errors import Unreadable
from documents.formats.plain import read_page
from documents.formats.tags import HTML, MarkupRules
from documents.spans import Segment

# the language of a book, in its package
LANGUAGE: Final = re.compile(rb"(<dc:language\b[^<>]*>)[^<>]*(</dc:language>)")
KIND_NAME: Final = "an EPUB book"
CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
# in a table of contents of EPUB 2 the labels are prose, the authors are not
CONTENTS: Final = MarkupRules(xml=True, blocks=frozenset({"text"}), keep=frozenset({"docAuthor", "head"}))
RULES: Final = {"application/xhtml+xml": HTML, "text/html": HTML, "application/x-dtbncx+xml": CONTENTS}


def read_epub(data: bytes) -> Document:
    """Return the prose of a book; nothing else is changed.

    Raises OversizedDocument, and Unreadable also for an encrypted book.
    """
    archive = open_archive(data, KIND_NAME)
    files = archive.files
    if CONTAINER not in files:
        raise unreadable(KIND_NAME)
    packages = list(_addresses(archive, CONTAINER, "rootfile", "full-path"))
    rules = {name: rule for name, rule in _pages(archive) if name in files}
    if set(_addresses(archive, ENCRYPTION, "CipherReference", "URI")) & set(rules):
        raise Unreadable("the book is encrypted: send one without protection against copying")
    pages = {name: read_page(files[name], rules=rule) for name, rule in rules.items()}

    def write(segments: Sequence[Segment], language: str = "") -> bytes:
        rest, changed = iter(segments), dict[str, bytes]()
        for name, page in pages.items():
            assert page.write_in
            changed[name] = page.write_in(list(islice(rest, len(page.segments))), language)
        if language:
            label = rb"\g<1>" + language.encode() + rb"\g<2>"
            changed |= {name: LANGUAGE.sub(label, files[name], count=1) for name in packages if name in files}
        return archive.write(changed)

    return Document([segment for page in pages.values() for segment in page.segments], write, write_in=write)


def _pages(archive: Archive) -> Iterator[tuple[str, MarkupRules]]:
    """Yield name and rules of each page; a book may have several editions with a manifest each."""
    for package in _addresses(archive, CONTAINER, "rootfile", "full-path"):
        for item in _elements(archive, package, "item"):
            if (media := item.get("media-type")) in RULES and (address := item.get("href")):
                yield (
                    posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(address))),
                    RULES[media],
                )


def _addresses(archive: Archive, name: str, element: str, attribute: str) -> Iterator[str]:
    """Yield the attribute's value of each such element of a file, percent-decoded."""
    for found in _elements(archive, name, element):
        if address := found.get(attribute):
            yield unquote(address)


def _elements(archive: Archive, name: str, element: str) -> Iterator[Any]:
    for root in archive.trees([name]).values():
        yield from root.iter(f"{{*}}{element}")
