"""Catalogues of gettext and XLIFF."""

from __future__ import annotations

import codecs
from dataclasses import replace
from types import SimpleNamespace

import polib
import pytest
from translate.storage import po, xliff, xliff2

from documents import Unreadable, read_document
from tests.documents.samples import XLIFF_1, XLIFF_2, shouted, texts, untouched

CATALOGUE = """# Ein Kommentar
msgid ""
msgstr ""
"Language: en\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=n;\\n"

#. für Leser
#: a.c:12
#, c-format
msgctxt "menu"
msgid "Datei %s öffnen\\n"
msgstr ""

msgid "eine Datei"
msgid_plural "%d Dateien"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid "fertig"
msgstr "done"

#, fuzzy
msgid "vielleicht"
msgstr "perhaps"

#~ msgid "früher"
#~ msgstr ""
"""


def test_gettext_catalogue_gets_missing_translations():
    data = CATALOGUE.encode()
    assert texts("a.po", data) == ["Datei %s öffnen", "eine Datei", "%d Dateien"]
    found = shouted("a.po", data)
    ours = polib.pofile(found.decode())
    assert ours.metadata["Plural-Forms"] == "nplurals=3; plural=n;"
    (first, plural, *_) = ours
    assert (first.msgctxt, first.msgstr, first.flags) == ("menu", "DATEI %s ÖFFNEN\n", ["c-format"])
    assert plural.msgstr_plural == {0: "EINE DATEI", 1: "%d DATEIEN", 2: "%d DATEIEN"}
    theirs = po.pofile.parsestring(found)
    units = {str(unit.source): unit for unit in theirs.units}
    assert str(units["fertig"].target) == "done"
    assert (str(units["vielleicht"].target), units["vielleicht"].isfuzzy()) == ("perhaps", True)
    assert units["früher"].isobsolete()
    assert units["eine Datei"].target.strings == ["EINE DATEI", "%d DATEIEN", "%d DATEIEN"]


def test_catalogue_that_is_the_name_of_a_file_opens_no_file(tmp_path, monkeypatch):
    secret, opened = tmp_path / "secret.po", []
    secret.write_text('msgid "geheim"\nmsgstr ""\n', "utf-8")
    monkeypatch.setattr(polib, "io", SimpleNamespace(open=lambda *given, **_: opened.append(given)))
    with pytest.raises(Unreadable):
        read_document("a.po", str(secret).encode())
    assert not opened


def test_xliff_1_gets_missing_targets():
    data = XLIFF_1.encode()
    assert texts("a.xlf", data) == ["Das ist ein Satz.", "leer", "Eins.", "Zwei.", "Von Convoy & mehr"]
    found = shouted("a.xliff", data)
    for line in (
        '<target state="needs-review-translation">DAS IST <g id="1">EIN <x id="2"/>SATZ</g>.</target><note>',
        '<target state="final">done</target>',
        "<source>bleibt</source></trans-unit>",
        '<target xml:lang="en" state="needs-review-translation">LEER</target>',
        '<mrk mtype="seg" mid="0">EINS.</mrk> <mrk mtype="seg" mid="1">ZWEI.</mrk></target>',
        'VON <mrk mtype="protected">Convoy</mrk> &amp; MEHR</target>',
    ):
        assert line in found.decode(), line
    units = {unit.getid().rpartition("\x04")[2]: unit for unit in xliff.xlifffile.parsestring(found).units}
    assert {number: str(unit.target) for number, unit in units.items() if unit.target} == {
        "1": "DAS IST EIN SATZ.",
        "2": "done",
        "4": "LEER",
        "5": "EINS. ZWEI.",
        "6": "VON Convoy & MEHR",
    }


def test_xliff_2_gets_missing_targets():
    data = XLIFF_2.encode()
    assert texts("a.xlf", data) == ["Das ist gut."]
    found = shouted("a.xlf", data)
    assert '<target>DAS <pc id="1">IST <ph id="2"/>GUT</pc>.</target></segment>' in found.decode()
    assert '<segment id="s1" state="translated">' in found.decode()
    found_units = xliff2.Xliff2File.parsestring(found).units
    assert [str(unit.target or "") for unit in found_units][:1] == ["DAS IST GUT."]
    with pytest.raises(Unreadable):
        read_document("a.xlf", data.replace(b"document:2.0", b"document:9.9"))


GETTEXT = """# Kopf   mit  Leerraum
msgid ""
msgstr "Content-Type: text/plain; charset=ENCODING\\n"

#. von der Quelle, länger als eine Zeile, die gettext umbrechen würde: "%d" bleibt, wie es ist
msgctxt "Menü"
msgid ""
"eine lange Zeile, die niemand umbricht, weil sie schon dasteht, wie sie soll: ä\\n"
"\\"zwei\\""
msgstr {}

msgid "schon da"
msgstr "über alles"

#, c-format, no-wrap
msgid   "%d Datei"
msgid_plural "%d Dateien"
msgstr[0] {}
msgstr[1] {}
msgstr[2] {}

#~| msgid "früher"
#~ msgid "veraltet"
#~ msgstr ""
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-2"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_gettext_catalogue_changes_in_nothing_else(encoding, newline):
    text = GETTEXT.replace("ENCODING", encoding.removesuffix("-sig"))
    wrapped = (
        '""\n"EINE LANGE ZEILE, DIE NIEMAND UMBRICHT, WEIL SIE SCHON DASTEHT, WIE SIE "\n'
        '"SOLL: Ä\\n"\n"\\"ZWEI\\""'
    )
    after = [wrapped, '"%d DATEI"', '"%d DATEIEN"', '"%d DATEIEN"']
    data, wanted = (
        text.format(*strings).replace("\n", newline).encode(encoding) for strings in (['""'] * 4, after)
    )
    assert untouched("a.po", data) == data
    assert shouted("a.po", data) == wanted


def test_catalogue_becomes_utf_8_for_letters_outside_its_encoding():
    data = GETTEXT.replace("ENCODING", "ISO-8859-2").format(*['""'] * 4).encode("iso-8859-2")
    document = read_document("a.po", data)
    found = document.write([replace(segment, text="Файл") for segment in document.segments])
    assert polib.pofile(found.decode())[0].msgstr == "Файл"
    assert b"charset=UTF-8" in found


UNUSUAL_XLIFF = """<?xml version='1.0' encoding="ENCODING" ?>
<!-- <trans-unit> -->
<l:xliff  version='1.2' xmlns:l="urn:oasis:names:tc:xliff:document:1.2" xmlns:o='urn:o'>
<l:file><l:body><l:trans-unit id='a>b'>
    <l:source><![CDATA[<source>Größe</source>]]></l:source>{}<l:note/>
    <l:alt-trans><l:source>alt</l:source><l:target>old</l:target></l:alt-trans>
  </l:trans-unit><l:trans-unit id="2"><l:source o:x="1">zwei</l:source  >{}</l:trans-unit>
<l:trans-unit id="3"><l:source>drei</l:source>{}</l:trans-unit>
</l:body></l:file></l:xliff>

"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "iso-8859-1"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_xliff_changes_in_nothing_else(encoding, newline):
    mark, state = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b"", 'state="needs-review-translation"'
    before = ["", "", "<l:target o:y='2' state=\"new\"></l:target>"]
    after = [
        f"\n    <l:target {state}>&lt;SOURCE&gt;GRÖSSE&lt;/SOURCE&gt;</l:target>",
        f"<l:target {state}>ZWEI</l:target>",
        f'<l:target o:y="2" {state}>DREI</l:target>',
    ]
    text = UNUSUAL_XLIFF.replace("ENCODING", encoding.replace("-be", "").replace("-sig", ""))
    data, wanted = (
        mark + text.format(*targets).replace("\n", newline).encode(encoding) for targets in (before, after)
    )
    assert shouted("a.xlf", data) == wanted
