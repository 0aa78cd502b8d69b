"""Strings of Android, .NET, Qt, Java, Apple and Flutter: only prose changes."""

from __future__ import annotations

import json

import pytest

from documents import read_document
from tests.documents.samples import odt, shouted, texts, untouched

ANDROID = """<?xml version="1.0" encoding="utf-8"?>
<!-- <string name="no">nein</string> -->
<resources xmlns:xliff="urn:x">
    <string name="hello">Hallo <b>Welt</b>, %1$s!</string>
    <string name="brand" translatable="false">Convoy</string>
    <string name="same">@string/hello</string>
    <string-array name="days"><item>Montag</item><item>@string/x</item></string-array>
    <string-array name="kept" translatable="false"><item>eins</item><item>zwei</item></string-array>
    <plurals name="n"><item quantity="one">%d Datei</item><item quantity="other">%d Dateien</item></plurals>
    <color name="c">rot</color>
    <string name="empty"/>
</resources>
"""

RESX = """<?xml version="1.0" encoding="utf-8"?>
<root>
  <resheader name="version"><value>zwei</value></resheader>
  <data name="Save" xml:space="preserve">
    <value>Speichern &amp; {0}</value>
    <comment>Knopf</comment>
  </data>
  <data name="Icon" type="System.Resources.ResXFileRef"><value>bild.png</value></data>
</root>
"""

QT = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en">
<context><name>Main</name>
    <message><source>Datei %1 öffnen</source><translation type="unfinished"></translation></message>
    <message><source>fertig</source><translation>done</translation></message>
    <message><source>alt</source><translation type="obsolete"></translation></message>
</context>
</TS>
"""

PROPERTIES = """# Kommentar = nein
! auch nicht
title = Guten Morgen
long : Guten \\
    Tag
empty =
code\\ key=Wert mit \\u00fc und {0}\\n
"""

STRINGS = """/* "nein" = "nein"; */
"hello %@" = "Hallo \\"Welt\\" %@";
// "auch" = "nicht";
key.two = "zwei";
"""


@pytest.mark.parametrize(
    ("name", "file", "prose"),
    [
        ("strings.xml", ANDROID, ["Hallo Welt, %1$s!", "Montag", "%d Datei", "%d Dateien"]),
        ("a.resx", RESX, ["Speichern &amp; {0}"]),
        ("a.ts", QT, ["Datei %1 öffnen"]),
        ("a.properties", PROPERTIES, ["Guten Morgen", "Guten Tag", "Wert mit ü und {0}\n"]),
        ("a.strings", STRINGS, ['Hallo \\"Welt\\" %@', "zwei"]),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_prose_of_resources_is_found_and_everything_else_stays(name, file, prose, newline):
    data = file.replace("\n", newline).encode()
    assert [text.strip() for text in texts(name, data)] == [text.strip() for text in prose]
    assert untouched(name, data) == data


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ('"  zwei Wörter"', '"  ZWEI WÖRTER"'),
        ("<![CDATA[Lies <a href='x'>mehr</a> & Don]]>", "<![CDATA[LIES <a href='x'>MEHR</a> & DON]]>"),
        ('"Ja" und "nein"', '"JA" UND "NEIN"'),
    ],
)
def test_quoted_strings_and_pages_of_android_keep_their_marks(raw, wanted):
    file = "<resources><string name='a'>{}</string></resources>"
    assert shouted("strings.xml", file.format(raw).encode()).decode() == file.format(wanted)


def test_quoted_strings_and_pages_of_android_are_escaped_in_their_own_way():
    for raw, wanted in (
        ('"alt"', '"don\'t \\"x\\" &amp; y"'),
        ("<![CDATA[alt]]>", '<![CDATA[don\\\'t "x" & y]]>'),
    ):
        document = read_document(
            "strings.xml", f"<resources><string name='a'>{raw}</string></resources>".encode()
        )
        (segment,) = document.segments
        written = document.write([type(segment)('don\'t "x" & y')]).decode()
        assert written == f"<resources><string name='a'>{wanted}</string></resources>"


def test_keys_of_buttons_are_read_as_in_plain_text():
    message = "<message><source>{}</source><translation type='unfinished'>{}</translation></message>"
    file = "<TS><context>" + message + "</context></TS>"
    source = "&amp;Datei a&amp;b &amp;lt; &amp; c"
    assert texts("a.ts", file.format(source, "").encode()) == ["&Datei a&b &amp;lt; &amp; c"]
    assert shouted("a.ts", file.format("&amp;Datei", "").encode()).decode() == file.format(
        "&amp;Datei", "&amp;DATEI"
    )


def test_messages_of_flutter_name_their_new_language():
    file = '{"@@locale" : "en", "a": "eins", "b": "@@locale"}'
    document = read_document("a.arb", file.encode())
    assert document.write_in(document.segments, "pt-BR").decode() == file.replace('"en"', '"pt_BR"')
    assert document.write_in is not None


def test_android_strings_escape_apostrophes_and_ampersands():
    document = read_document("strings.xml", b"<resources><string name='a'>Nein</string></resources>")
    (segment,) = document.segments
    written = document.write([type(segment)("Don't & don\\'t &amp; %d")])
    assert written == b"<resources><string name='a'>Don\\'t &amp; don\\'t &amp; %d</string></resources>"
    wanted = ANDROID.replace("Hallo <b>Welt</b>", "HALLO <b>WELT</b>").replace("Montag", "MONTAG")
    wanted = (
        wanted.replace("%d Datei<", "%d DATEI<").replace("%d Dateien", "%d DATEIEN").replace("%1$s", "%1$s")
    )
    assert (
        shouted("strings.xml", ANDROID.encode()).decode().replace("%D", "%d").replace("%1$S", "%1$s")
        == wanted
    )


def test_qt_gets_translations_of_sources_and_java_keeps_escapes():
    found = shouted("a.ts", QT.encode()).decode()
    assert '<source>Datei %1 öffnen</source><translation type="unfinished">DATEI %1 ÖFFNEN<' in found
    properties = shouted("a.properties", PROPERTIES.encode()).decode()
    assert "title = GUTEN MORGEN\n" in properties
    assert "long : GUTEN TAG\n" in properties
    assert "WERT MIT \\u00dc UND" in properties
    latin = "a = Grüße\n".encode("latin-1")
    assert shouted("a.properties", latin) == "a = GRÜSSE\n".encode("latin-1")
    document = read_document("a.properties", latin)
    assert document.write([type(document.segments[0])("żółć ü")]) == b"a = \\u017c\xf3\\u0142\\u0107 \xfc\n"


def test_apple_strings_escape_quotation_marks_and_may_be_utf_16():
    data = STRINGS.encode("utf-16")
    assert texts("a.strings", data)[1] == "zwei"
    document = read_document("a.strings", STRINGS.encode())
    new = [type(segment)('a "b" \\"c\\"') for segment in document.segments]
    assert b'key.two = "a \\"b\\" \\"c\\"";' in document.write(new)


@pytest.mark.parametrize("name", ["a.odp", "a.ods"])
def test_slides_and_sheets_of_opendocument_are_read_like_texts(name):
    data = odt("<text:p>Das ist <text:span>gut</text:span>.</text:p>")
    assert texts(name, data) == ["Das ist gut."]
    assert texts(name, shouted(name, data)) == ["DAS IST GUT."]


def test_metadata_of_flutter_stays():
    data = json.dumps(
        {"@@locale": "de", "hello": "Hallo {name}", "@hello": {"description": "Gruß", "type": "text"}}
    ).encode()
    assert texts("a.arb", data) == ["Hallo {name}"]


def test_names_for_programs_and_formats_of_dates_are_not_translated():
    data = b'{"icon": "logout", "a": {"css": "btn btn-primary", "date": "YYYY-MM-DD", "t": "HH:mm"},'
    data += b'"lang": "en", "title": "logout", "type": "Ein Satz", "am": "am"}'
    assert texts("a.json", data) == ["logout", "Ein Satz", "am"]
    assert untouched("a.json", data) == data


def test_empty_sentences_of_a_new_target_are_no_translation():
    unit = (
        '<xliff version="1.2"><file><body><trans-unit id="1"><source>Guten Morgen!</source><seg-source><mrk'
        ' mtype="seg" mid="1">Guten Morgen!</mrk></seg-source><target><mrk mtype="seg" mid="1"/>{}</target>'
        "</trans-unit></body></file></xliff>"
    )
    assert texts("a.xliff", unit.format("").encode()) == ["Guten Morgen!"]
    assert 'mid="1">GUTEN MORGEN!</mrk></target>' in shouted("a.xliff", unit.format("").encode()).decode()
    for content in ("x", '<x id="1"/>'):
        assert texts("a.xliff", unit.format(content).encode()) == []
