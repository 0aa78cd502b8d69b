"""Files that can not be read, and archives that expand too much."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress

import pytest

from documents import OversizedDocument, Unreadable, read_document
from tests.documents.samples import CONTENT, odt, texts, word


def bomb(name):
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as entry:
        for _ in range(300):
            entry.write(bytes(1_000_000))
    return found.getvalue()


def laughs():
    entities = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
    xml = f'<!DOCTYPE x [<!ENTITY a0 "ha">{entities}]>' + CONTENT.format("<text:p>&a9;</text:p>")
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("content.xml", xml)
    return found.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.docx", b""),
        ("a.docx", b"PK no zip"),
        ("a.docx", word()[:2000]),
        ("a.docx", odt("")),
        ("a.odt", b"\0" * 99),
        ("a.odt", odt("<text:p>")),
        ("a.odt", word()),
        ("a.odt", odt('<text:p>a<text:s text:c="x"/></text:p>')),
        ("a.txt", b"\xff\xfea"),
        ("a.txt", b"\x80\0"),
        ("a.html", b'<meta charset="nonsense">'),
        ("a.srt", b"nothing of the kind"),
        ("a.xml", b"<html>x</html>"),
        ("a.xml", b"<resources>"),
        ("a.resx", b"<resources/>"),
        ("a.ts", b"export const a = 1"),
        ("a.strings", b'"a" = "b"'),
        ("a.strings", b"no pairs"),
        ("a.properties", b"= x\n"),
        ("a.arb", b"{"),
        ("a.exe", b"MZ"),
        ("a", b""),
    ],
)
def test_unreadable_files_are_refused(name, data):
    with pytest.raises(Unreadable):
        read_document(name, data)


@pytest.mark.parametrize("name", ["a.docx", "a.odt"])
def test_archives_that_expand_too_much_are_refused(name):
    with pytest.raises(OversizedDocument, match="unpacked"):
        read_document(name, bomb("content.xml"))


def test_entities_are_not_expanded():
    with suppress(Unreadable):  # libxml2 may refuse them outright
        assert sum(map(len, texts("a.odt", laughs()))) < 100
