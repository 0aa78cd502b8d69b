"""Limits on time and memory: no file can block or exhaust the process."""

import io
import re
import zipfile
from contextlib import suppress
from dataclasses import replace
from random import Random

import docx
import numpy as np
import pypdf
import pytest

from documents import OversizedDocument, Unreadable, read_document
from documents.archive import MAX_NODES, MAX_UNPACKED_BYTES
from documents.document import MAX_SEGMENT_CHARACTERS, MAX_SEGMENTS
from documents.formats.attributes import read_with_attributes
from documents.formats.html import read_html
from documents.spans import MAX_SPANS
from tests.documents.samples import book, odt, printed, repacked, slides, texts, word
from tests.documents.test_more_formats import workbook
from tests.documents.test_spans import aligned
from tests.support.finished import project
from tests.support.thorough import some
from tests.support.timing import assert_linear

CUE = "1\n00:00:01,000 --> 00:00:02,500\n"
SHARED = '<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">{}</sst>'
# a text of n, which a parser could take n times n for
ATTACKS = {
    "digits": ("a.srt", lambda n: "1" * n),
    "lines of digits": ("a.srt", lambda n: "1\n" * n),
    "white space": ("a.srt", lambda n: " \n" * n + "1" * n),
    "white space in a cue": ("a.srt", lambda n: CUE + "x" + " \n" * n + "\n" * n),
    "clocks": ("a.srt", lambda n: "00:00:01,000 --> " * n),
    "long lines of a cue": ("a.srt", lambda n: CUE + "a " * n + "\nb" * (n // 10)),
    "speakers": ("a.srt", lambda n: CUE + "<i> " * n),
    "brackets": ("a.md", lambda n: "[" * n),
    "images": ("a.md", lambda n: "![" * n),
    "code": ("a.md", lambda n: "`a``" * n),
    "emphasis": ("a.md", lambda n: "*a_" * n),
    "quotes": ("a.md", lambda n: ">" * n),
    "notes": ("a.md", lambda n: "[^1]: x\n" * n),
    "formulas": ("a.md", lambda n: "$a" * n),
    "tags in Markdown": ("a.md", lambda n: "<b>" * n),
    "front matter": ("a.md", lambda n: "---\n" + "x\n" * n),
    "tags": ("a.html", lambda n: "<b>" * n),
    "voids": ("a.html", lambda n: "<br>" * n),
    "nothing but markup": ("a.html", lambda n: "<p></p><!---->" * n),
    "open tags": ("a.html", lambda n: "<a <a" * n),
    "quotes of attributes": ("a.html", lambda n: "<a =' " * n),
    "classes": ("a.html", lambda n: "<a" + " class=" * n),
    "charsets": ("a.html", lambda n: "<meta charset=" * n),
    "captions": ("a.vtt", lambda n: "WEBVTT\n\n" + "00:01.000 --> 00:02.000\n" * n),
    "voices": ("a.vtt", lambda n: "WEBVTT\n\n00:01.000 --> 00:02.000\n" + "<v a>" * n),
    "strings": ("a.json", lambda n: "[" + '"a {b}",' * n + "1]"),
    "placeholders": ("a.json", lambda n: '["a' + "{b}<i>" * n + '"]'),
    "choices": ("a.json", lambda n: '["' + "{a, plural, one {" * n + '"]'),
    "escapes": ("a.json", lambda n: '["' + "\\u00fc" * n + '"]'),
    "resources": ("a.xml", lambda n: "<resources>" + "<string name='a'>b</string>" * n + "</resources>"),
    "kept resources": (
        "a.xml",
        lambda n: (
            "<resources>"
            + "<string-array translatable='false'><item>a</item></string-array>" * n
            + "</resources>"
        ),
    ),
    "messages of Qt": ("a.ts", lambda n: "<TS>" + "<message><source>a</source></message>" * n + "</TS>"),
    "values of .NET": ("a.resx", lambda n: "<root>" + "<data><value>a</value></data>" * n + "</root>"),
    "properties": ("a.properties", lambda n: "a=" + "b\\\n" * n),
    "pairs": ("a.strings", lambda n: '"a"="b";' * n),
    "keys without pairs": ("a.strings", lambda n: "a" * n),
    "shortcodes": ("a.md", lambda n: "{{<" * n),
    "blocks of dialects": ("a.md", lambda n: ":::a b\n" * n),
    "links of a wiki": ("a.md", lambda n: "[[a" * n),
    "menus": ("a.html", lambda n: "<p>" + "<a>b</a> | " * n),
    "lists in lists": ("a.yaml", lambda n: "- " * n + "a"),
    "keys": ("a.yaml", lambda n: "".join(f"a{i}: b c\n" for i in range(n))),
    "blocks": ("a.yaml", lambda n: "a: |\n" + "  b\n\n" * n),
    "anchors": ("a.yaml", lambda n: "".join(f"- &a{i} [b, *a{max(0, i - 1)}]\n" for i in range(n))),
    "entries": ("a.po", lambda n: 'msgid "a"\nmsgstr ""\n\n' * n),
    "continued": ("a.po", lambda n: 'msgid ""\n' + '"a"\n' * n + 'msgstr ""\n'),
    "kept": ("a.html", lambda n: "<code>x</code>" * n),
    "fields": ("a.csv", lambda n: 'a,"b ""c"",' * n),
    "open quotation marks": ("a.csv", lambda n: 'a\n"' + '""' * n),
    "bars and semicolons": ("a.tsv", lambda n: "a\t|;," * n),
    "messages of Fluent": ("a.ftl", lambda n: "a = b { c }\n" * n),
    "variants of Fluent": ("a.ftl", lambda n: "a = { $b ->\n" + " [c] d\n" * n),
    "braces of Fluent": ("a.ftl", lambda n: "a = " + "{ " * n),
    "dialogue": ("a.ass", lambda n: "[Events]\nFormat: Layer, Text\n" + "Dialogue: 0,{\\i1}a\\N" * n),
    "styles": ("a.ssa", lambda n: "[Events]\nFormat: Text\n" + "Dialogue: {" * n),
    "clocks of YouTube": ("a.sbv", lambda n: "0:00:01.000,0:00:02.000\n" * n),
    "cells": ("a.ipynb", lambda n: '{"cells": [' + '{"cell_type": "markdown", "source": ["a"]},' * n + "1]}"),
    "metadata": ("a.arb", lambda n: "{" + '"@a": {},' * n + '"b": "c"}'),
    "plurals of Apple": ("a.stringsdict", lambda n: "<plist><dict>" + "<key>one</key><string>a</string>" * n),
    "units": (
        "a.tmx",
        lambda n: "<tmx>" + "<tu><tuv><seg>a<bpt i='1'/></seg></tuv></tu>" * n + "</tmx>",
    ),
    "units of CAT tools": (
        "a.sdlxliff",
        lambda n: (
            "<xliff version='1.2'>"
            + "<trans-unit><source>a<bpt id='1'/></source></trans-unit>" * n
            + "</xliff>"
        ),
    ),
    "text of slides": ("a.odp", lambda n: odt("<text:p>a<text:tab/></text:p>" * n)),
    "cells of a sheet": ("a.ods", lambda n: odt("<text:p>a</text:p>" * n)),
    "shared strings": (
        "a.xlsx",
        lambda n: repacked(workbook(), **{"xl/sharedStrings.xml": SHARED.format("<si><t>a</t></si>" * n)}),
    ),
}


def read(name, text):
    with suppress(Unreadable):
        read_document(name, text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("name", ATTACKS)
def test_reading_takes_linear_time(name):
    file, attack = ATTACKS[name]
    assert_linear(lambda n: read(file, attack(n)), 500)


@pytest.mark.parametrize("reader", [read_html, read_with_attributes])
@pytest.mark.parametrize(("markup", "size"), [("<br>", 5_000), (f'<b class="{"x" * 1_000}"></b><p>', 2_500)])
def test_markup_without_prose_takes_linear_time(reader, markup, size):
    assert_linear(lambda n: reader(markup * n), size)


def test_projecting_thousands_of_formats_takes_linear_time():
    def work(count):
        page = read_html("".join(f"<i>w{n}x</i> " for n in range(count)))
        for segment in page.segments:
            words = segment.text.split()
            project(segment, aligned(words, words[::-1], np.full((len(words), len(words)), 1 / len(words))))

    work(10)
    assert_linear(work, 500)


def test_deeply_nested_elements_are_refused():
    def nested(depth):
        return odt("<text:section>" * depth + "<text:p>a</text:p>" + "</text:section>" * depth)

    assert len(read_document("a.odt", nested(100)).segments) == 1
    with pytest.raises(Unreadable):
        read_document("a.odt", nested(300))


@pytest.mark.parametrize("data", [b"a" * (MAX_SEGMENT_CHARACTERS + 1), b"a\n\n" * (MAX_SEGMENTS + 1)])
def test_lines_without_end_and_too_many_lines_are_refused(data):
    with pytest.raises(OversizedDocument, match="100000"):
        read_document("a.txt", data)
    assert read_document("a.txt", data[2:]).segments


@pytest.mark.parametrize("kind", ["a.html", "a.docx", "a.odt"])
def test_no_segment_has_more_formats_than_the_limit(kind):
    count = 2 * MAX_SPANS + 10
    if kind == "a.html":
        data = b"<b>a</b> " * count
    elif kind == "a.odt":
        data = odt(
            "<text:p><text:a>" + "<text:span>a</text:span><text:note/> b " * count + "</text:a></text:p>"
        )
    else:
        file, found = docx.Document(), io.BytesIO()
        paragraph = file.add_paragraph()
        for number in range(count):
            paragraph.add_run(f"{number} ").bold = number % 2 == 0
        file.save(found)
        data = found.getvalue()
    document = read_document(kind, data)
    assert max(len(segment.spans) for segment in document.segments) <= MAX_SPANS + 3
    text = "".join(segment.text for segment in document.segments)
    again = document.write([replace(s, text=s.text.upper()) for s in document.segments])
    assert "".join(texts(kind, again)).split() == text.upper().split()


def packed(name, content, *others):
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
        for other, data in others:
            archive.writestr(other, data)
    return found.getvalue()


def test_small_archive_with_many_elements_is_refused_before_parsing():
    data = odt("<text:p/>" * MAX_NODES)
    assert len(data) < 20_000
    with pytest.raises(OversizedDocument, match="times as large"):
        read_document("a.odt", data)
    noise = bytes(np.random.default_rng(0).integers(0, 256, 60_000, np.uint8))
    many = packed("content.xml", "<a>" + "<b c='d'/>" * (MAX_NODES // 2 + 1) + "</a>", ("x.png", noise))
    for name in ("a.odt", "a.docx"):
        with pytest.raises(OversizedDocument, match="elements"):
            read_document(name, many)
    with pytest.raises(OversizedDocument, match="unpacked"):
        read_document("a.odt", packed("content.xml", bytes(MAX_UNPACKED_BYTES + 1)))


def test_elements_are_counted_in_any_encoding_of_xml():
    xml = "<?xml version='1.0' encoding='{}'?><a>" + "<b/>" * (MAX_NODES + 1) + "</a>"
    noise = bytes(np.random.default_rng(0).integers(0, 256, 60_000, np.uint8))
    for encoding in ("utf-16", "cp037"):
        data = packed("content.xml", xml.format(encoding).encode(encoding), ("x.png", noise))
        with pytest.raises(Unreadable):
            read_document("a.odt", data)


def test_ordinary_document_is_far_below_the_limits():
    file, found = docx.Document(io.BytesIO(word())), io.BytesIO()
    for number in range(3_000):
        file.add_paragraph(f"Absatz {number} mit einigen Worten, wie sie in Briefen stehen.")
    file.save(found)
    assert len(read_document("a.docx", found.getvalue()).segments) > 3_000


def test_spaces_that_a_document_only_counts_are_limited():
    (text,) = texts("a.odt", odt('<text:p>a<text:s text:c="5000000"/>b</text:p>'))
    assert len(text) < 2_000


def test_pdf_of_too_many_pages_is_refused(monkeypatch):
    monkeypatch.setattr("documents.formats.pdf.MAX_PAGES", 1)
    assert texts("a.pdf", printed("a b")) == ["a b"]
    two = pypdf.PdfWriter(clone_from=io.BytesIO(printed("a b")))
    two.add_blank_page()
    two.write(found := io.BytesIO())
    with pytest.raises(OversizedDocument, match="more than 1 pages: split it"):
        read_document("a.pdf", found.getvalue())


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "rot13", "zlib", "utf_7", "undefined", "unicode_escape"]
)
def test_page_can_not_choose_any_codec_of_python(charset):
    with pytest.raises(Unreadable, match="UTF-8"):
        read_document("a.html", f"<meta charset={charset}><p>a</p>".encode())


@pytest.mark.parametrize("charset", ["windows-1252", "ISO-8859-15", "koi8-r", "Shift_JIS", "gb18030"])
def test_page_may_be_in_any_encoding_of_the_web(charset):
    page = f'<html><meta http-equiv="Content-Type" content="text/html; charset={charset}"><p>a 1</p></html>'
    assert texts("a.html", page.encode(charset)) == ["a 1"]


def damaged(data, random):
    """Return a file with a few random changes: of bytes, of a part, or of a name or number of a PDF."""
    damage = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        place, other = (random.randrange(len(damage)) for _ in range(2))
        kind = random.randrange(4)
        if kind == 0:
            damage[place] = random.randrange(256)
        elif kind == 1:
            del damage[place : min(place + random.randrange(1, 20), len(damage) - 1)]
        elif kind == 2:
            damage[place:place] = damage[other : other + 40]
        elif words := list(re.finditer(rb"/[A-Za-z]+|\d+|<<|\[", bytes(damage))):
            word = random.choice(words)
            damage[word.start() : word.end()] = random.choice(PDF_WORDS)
    return bytes(damage)


PDF_WORDS = [b"/Unknown", b"-1", b"99999999999", b"null", b"<<>>", b"[", b"(", b"/LZWDecode", b"/Crypt"]


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.epub", "a.pptx"])
def test_damaged_file_is_read_or_refused_and_raises_no_other_error(name):
    data = {"a.pdf": printed("Das ist gut.", "Ja."), "a.docx": word(), "a.epub": book()}.get(name, slides())
    random, read = Random(7), 0
    for _ in range(some(2_000, 40)):
        try:
            document = read_document(name, damaged(data, random))
            document.write(document.segments)
            read += 1
        except Unreadable:
            continue
    assert read or name != "a.pdf"


def test_pdf_with_an_unknown_filter_is_refused():
    with pytest.raises(Unreadable, match="a PDF"):
        read_document("a.pdf", printed("Das ist gut.").replace(b"/FlateDecode", b"/Unknown"))


def test_archive_that_ends_within_a_part_is_refused():
    data = bytearray(book())
    entry = data.find(b"PK\x01\x02")  # the first entry, which is stored: its size packed and unpacked
    data[entry + 20 : entry + 28] = len(data).to_bytes(4, "little") * 2
    with pytest.raises(Unreadable):
        read_document("a.epub", bytes(data))
