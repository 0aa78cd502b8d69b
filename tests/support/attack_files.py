"""Files that are as expensive to read as a client can make them, by name."""

from tests.support.attacks import file

FILES = {
    "aliases in YAML": file(
        "a.yaml", b"a: &a {x: y}\n" + b"".join(b"b%d: {<<: *a}\n" % n for n in range(40_000))
    ),
    "anchors in YAML": file("a.yaml", b"a: " + b"&a " * 200_000 + b"x"),
    "lines of a message in PO": file("a.po", b'msgid ""\n' + b'"a"\n' * 400_000 + b'msgstr ""\n'),
    "escapes in PO": file("a.po", b'msgid "' + rb"\\" * 3_000_000 + b'"\nmsgstr ""\n'),
    "groups in groups of XLIFF": file("a.xliff", b'<xliff version="1.2"><file><body>' + b"<group>" * 200_000),
    "keys in JSON": file("a.json", b"{" + b",".join(b'"%d":"x y"' % n for n in range(90_000)) + b"}"),
    "cues": file("a.vtt", b"WEBVTT\n\n" + b"00:00.000 --> 00:01.000\nx y\n\n" * 90_000),
    "cells of a notebook": file(
        "a.ipynb", b'{"cells": [' + b'{"cell_type":"markdown","source":["a b"]},' * 200_000 + b"1]}"
    ),
    "arrays in a notebook": file("a.ipynb", b"[" * 5_000_000),
    "braces of Fluent": file("a.ftl", b"a = " + b"{ " * 4_000_000),
    "styles of subtitles": file("a.ass", b"[Events]\nFormat: Text\nDialogue: " + b"{\\i1}a" * 1_000_000),
    "cues of YouTube": file("a.sbv", b"0:00:01.000,0:00:02.000\na b\n\n" * 90_000),
    "marks in marks of XLIFF": file(
        "a.sdlxliff",
        b"<xliff version='1.2'><file><body><trans-unit><source>" + b"<g id='1'>" * 900_000,
    ),
    "codes of memoQ": file(
        "a.mqxliff",
        b"<xliff version='1.2'><file><body>"
        + b"<trans-unit id='1'><source>a<bpt id='1'>{}</bpt></source></trans-unit>" * 90_000
        + b"</body></file></xliff>",
    ),
    "variants in a unit": file(
        "a.tmx",
        b"<tmx><body><tu>" + b"<tuv xml:lang='de'><seg>a b</seg></tuv>" * 130_000 + b"</tu></body></tmx>",
    ),
    "entities of XML": file(
        "a.resx",
        b'<!DOCTYPE a [<!ENTITY a0 "aa">'
        + b"".join(b'<!ENTITY a%d "&a%d;&a%d;">' % (n, n - 1, n - 1) for n in range(1, 40))
        + b"]><root><data><value>&a39;</value></data></root>",
    ),
    "contexts of Qt": file("a.ts", b"<TS>" + b"<context>" * 300_000),
    "choices in choices": file("a.arb", b'{"a":"' + b"{a, plural, one {" * 500_000 + b'"}'),
    "escapes of Apple": file("a.strings", b'"\\"' * 3_000_000),
    "continued properties": file("a.properties", b"a=b c\\\n" * 1_200_000),
    "fields of a table": file("a.csv", b'a,"b ""c"",' * 800_000),
    "brackets of a small file": file("a.md", b"![" * 32_000),
    "a page with its source": file("a.html", b"<p>a <b>b</b> c</p>" * 50_000, bilingual="above"),
    "lines to be joined": file("a.txt", (b"a" * 60 + b"\n") * 90_000, newlines="auto"),
    "objects of a PDF": file("a.pdf", b"%PDF-1.4\n" + b"1 0 obj\n<<" * 300_000),
}
