"""Slides, books, captions and strings of programs: what comes back is read by each format's own reader."""

import codecs
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import ebooklib
import polib
import pptx
import pypdf
import pytest
import webvtt
import yaml
from ebooklib import epub
from translate.storage import po, xliff, xliff2

from documents import FORMATS, OversizedDocument, Unreadable, read_document, written_ending
from documents.archive import MAX_NODES
from documents.formats.messages import Message
from server.files.store import translated_name
from tests.documents.samples import PIXEL, book, printed, repacked, slides
from tests.documents.test_documents import shouted, texts


def untouched(name, data):
    """The file, written with the very segments that were read."""
    document = read_document(name, data)
    return document.write(document.segments)


# subtitles

CAPTIONS = """WEBVTT - Ein Film

STYLE
::cue(b) { color: red }

NOTE nicht übersetzen
auch das nicht

Titel
00:01.000 --> 00:02.500 align:start
<v Roger Bingham>Salz &amp; <b.loud>Pfeffer
sind</b> hier.

00:00:03.000 --> 00:00:04.000
- Ja?
- <00:00:03.500>Nein!
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_captions_of_the_web_keep_names_notes_styles_settings_and_tags(newline):
    data = CAPTIONS.replace("\n", newline).encode()
    assert texts("a.vtt", data) == ["Salz & Pfeffer sind hier.", "- Ja?", "- Nein!"]
    assert untouched("a.vtt", data) == data
    found = shouted("a.vtt", data)
    assert "::cue(b) { color: red }" in found.decode()
    assert "NOTE nicht übersetzen" in found.decode()
    assert "<v Roger Bingham>SALZ &amp;" in found.decode()
    before, after = (webvtt.from_buffer(io.BytesIO(raw)) for raw in (data, found))
    assert [(c.start, c.end, c.identifier, unescape(c.text).upper().split()) for c in before] == [
        (c.start, c.end, c.identifier, unescape(c.text).split()) for c in after
    ]
    assert [c.raw_text.count("<") for c in before] == [c.raw_text.count("<") for c in after]


# strings of programs

MESSAGES = """{
  "title": "Willkommen, <b>{name}</b>!",
  "unit": "%1$s von %(total)d Dateien (100 %)",
  "files": "Du hast {count, plural, =0 {keine Datei} one {# Datei} other {# Dateien von {who}}} hier.",
  "nested": {"link": "Siehe $t(common.here), {{ user }} &nbsp; ${x}", "n": 3, "none": null},
  "list": ["eins", "{only}", "", "\\u00fcber \\"alles\\""],
  "title.tooltip": "zwei\\nZeilen"
}
"""


def test_messages_keep_their_keys_placeholders_and_plurals():
    data = MESSAGES.encode()
    assert texts("a.json", data)[:6] == [
        "Willkommen, {name}!",
        "%1$s von %(total)d Dateien (100 %)",
        "Du hast",
        "keine Datei",
        "# Datei",
        "# Dateien von {who}",
    ]
    assert untouched("a.json", data) == data
    found = json.loads(shouted("a.json", data))
    assert found == {
        "title": "WILLKOMMEN, <b>{name}</b>!",
        "unit": "%1$s VON %(total)d DATEIEN (100 %)",
        "files": "DU HAST {count, plural, =0 {KEINE DATEI} one {# DATEI} other {# DATEIEN VON {who}}} HIER.",
        "nested": {"link": "SIEHE $t(common.here), {{ user }} &nbsp; ${x}", "n": 3, "none": None},
        "list": ["EINS", "{only}", "", 'ÜBER "ALLES"'],
        "title.tooltip": "ZWEI\nZEILEN",
    }
    assert b"\\u00dcBER" in shouted("a.json", data), "what was escaped is escaped again"


def test_placeholders_are_kept_spans_that_no_model_touches():
    for source in (
        "{a}",
        "{{ b }}",
        "%s",
        "%-5.2f",
        "%(c)s",
        "%@",
        "%1$d",
        "$t(d.e)",
        "%{f}",
        "&nbsp;",
        "@:g.h",
    ):
        (segment,) = Message(f"vor {source} nach").segments
        assert [segment.text[s.begin : s.end] for s in segment.spans if s.kept] == [source]
    for prose in ("50% der Leute", "a @ b", "{nie geschlossen", "Müller & Sohn"):
        (segment,) = Message(prose).segments
        assert segment.spans == ()


@pytest.mark.parametrize(
    "broken", ["{n, plural, one {a} other {b}", "{n, plural, one a}", "x} {n, select, a {b}}"]
)
def test_a_choice_that_is_not_whole_is_left_alone(broken):
    assert Message(broken).segments == []


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


def test_a_catalogue_of_gettext_gets_the_translations_that_it_lacks():
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


def test_a_catalogue_that_is_the_name_of_a_file_opens_none(tmp_path, monkeypatch):
    secret, opened = tmp_path / "secret.po", []
    secret.write_text('msgid "geheim"\nmsgstr ""\n', "utf-8")
    monkeypatch.setattr(polib, "io", SimpleNamespace(open=lambda *given, **_: opened.append(given)))
    with pytest.raises(Unreadable):
        read_document("a.po", str(secret).encode())
    assert not opened


SETTINGS = """# Kommentar
de: &de
  hello: Hallo Welt  # dahinter
  quoted: 'It''s gut: {n}'
  escaped: "zwei\\nZeilen \\u00fc"
  yes: yes
  number: 12
  date: 2020-01-01
  flow: [eins, "zwei", {a: drei vier}]
  literal: |
    Zeile eins
      eingerückt

    Zeile drei
  folded: >-
    gefaltet über
    zwei Zeilen

    Absatz zwei
  several: eins zwei
    drei vier
  colon: "a: b"
  again: *de
  tagged: !!str Wort
  binary: !!binary R0lGODlh
"""


def capitals(value, key=""):
    if isinstance(value, dict):
        return {name: capitals(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [capitals(inner) for inner in value]
    return value.upper().replace("{N}", "{n}") if isinstance(value, str) else value


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_yaml_keeps_keys_comments_anchors_quotes_and_what_is_no_text(newline):
    data = SETTINGS.replace("\n", newline).encode()
    assert untouched("a.yaml", data) == data
    found = shouted("a.yml", data)
    before, after = yaml.safe_load(data)["de"], yaml.safe_load(found)["de"]
    before.pop("again"), after.pop("again")
    assert after == capitals(before)
    assert [line.split(b":")[0] for line in found.splitlines()[:10]] == [
        line.split(b":")[0] for line in data.splitlines()[:10]
    ]
    anchored = b"a: &x Wort\nb: !!str &y 'Wort'\nc: *x\n"
    assert shouted("a.yaml", anchored) == anchored.replace(b"Wort", b"WORT")
    for kept in (b"# Kommentar", b"# dahinter", b"&de", b"*de", b"hello: HALLO WELT ", b"[EINS, "):
        assert kept in found


@pytest.mark.parametrize(
    "text", ["yes", "a: b", "- a", "#x", "a #b", "12", "null", " a", "a\nb", "{x", "\u2028", "'", "a,b]"]
)
def test_yaml_quotes_a_translation_that_would_mean_something_else(text):
    for before in ("x: Wort\n", "x: [Wort]\n", "x: 'Wort'\n", 'x: "Wort"\n', "x: {y: Wort}\n"):
        document = read_document("a.yaml", before.encode())
        found = yaml.safe_load(document.write([replace(document.segments[0], text=text)]))["x"]
        assert found in (text, [text], {"y": text})


XLIFF_1 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
 <file original="a.txt" source-language="de" target-language="en" datatype="plaintext"><body>
  <trans-unit id="1"><source>Das ist <g id="1">ein <x id="2"/>Satz</g>.</source><note>so</note></trans-unit>
  <trans-unit id="2"><source>fertig</source><target state="final">done</target></trans-unit>
  <trans-unit id="3" translate="no"><source>bleibt</source></trans-unit>
  <trans-unit id="4"><source>leer</source><target state="new" xml:lang="en"/></trans-unit>
  <trans-unit id="5"><source>Eins. Zwei.</source><seg-source><mrk mtype="seg" mid="0">Eins.</mrk> <mrk
   mtype="seg" mid="1">Zwei.</mrk></seg-source></trans-unit>
  <trans-unit id="6"><source>Von <mrk mtype="protected">Convoy</mrk> &amp; mehr</source></trans-unit>
 </body></file>
</xliff>
"""


def test_xliff_1_gets_the_targets_that_it_lacks():
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


XLIFF_2 = """<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de" trgLang="en">
 <file id="f"><unit id="u1">
  <segment id="s1"><source>Das <pc id="1">ist <ph id="2"/>gut</pc>.</source></segment>
  <ignorable><source> </source></ignorable>
  <segment id="s2" state="final"><source>fertig</source><target>done</target></segment>
 </unit><unit id="u2" translate="no"><segment><source>bleibt</source></segment></unit></file>
</xliff>
"""


def test_xliff_2_gets_the_targets_that_it_lacks():
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
def test_a_catalogue_gets_its_translations_and_changes_in_nothing_else(encoding, newline):
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


def test_a_catalogue_whose_encoding_lacks_a_letter_of_the_translation_becomes_utf_8():
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
def test_xliff_gets_targets_and_changes_in_nothing_else(encoding, newline):
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


# slides and books


def test_slides_keep_runs_links_tables_notes_and_pictures():
    data = slides()
    assert texts("a.pptx", data)[:6] == [
        "Ein Titel",
        "Das ist wichtig, ja.",
        "hier",
        "links",
        "rechts",
        "eine Notiz",
    ]
    assert texts("a.pptx", data)[-1] == "Folie 8", "in the order of the slides' numbers"
    file = pptx.Presentation(io.BytesIO(shouted("a.pptx", data)))
    slide = file.slides[0]
    title, box, table, picture = slide.shapes
    (paragraph,) = box.text_frame.paragraphs
    assert title.text_frame.text == "EIN TITEL"
    assert [(run.text, bool(run.font.bold), run.hyperlink.address) for run in paragraph.runs] == [
        ("DAS IST ", False, None),
        ("WICHTIG", True, None),
        (", JA.", False, None),
        ("HIER", False, "http://x.org"),
    ]
    assert paragraph.text == "DAS IST WICHTIG, JA.\vHIER"
    assert [cell.text for cell in table.table.iter_cells()] == ["LINKS", "RECHTS"]
    assert picture.image.blob == PIXEL
    assert slide.notes_slide.notes_text_frame.text == "EINE NOTIZ"


def test_runs_of_slides_that_differ_in_language_only_are_one_and_say_no_language_after():
    file, out = pptx.Presentation(io.BytesIO(slides())), io.BytesIO()
    paragraph = file.slides[0].shapes[1].text_frame.paragraphs[0]
    for run, language in zip(paragraph.runs, ("de-DE", "de-AT", "fr-FR", "de-DE"), strict=True):
        run.font._rPr.set("lang", language)
        run.font._rPr.set("altLang", "en-US")
        run.font._rPr.attrib.pop("b", None)
    file.save(out)
    segments = read_document("a.pptx", out.getvalue()).segments
    assert [s for s in segments if s.text == "Das ist wichtig, ja."][0].spans == ()
    written = pptx.Presentation(io.BytesIO(shouted("a.pptx", out.getvalue())))
    runs = written.slides[0].shapes[1].text_frame.paragraphs[0].runs
    assert [run.text for run in runs] == ["DAS IST WICHTIG, JA.", "HIER"]
    assert not [run for run in runs if {"lang", "altLang"}.intersection(run.font._rPr.keys())]


def test_a_book_keeps_its_pages_pictures_and_lists():
    data = book()
    found = shouted("a.epub", data)
    with zipfile.ZipFile(io.BytesIO(found)) as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
    file = epub.read_epub(io.BytesIO(found))
    (chapter,) = (item for item in file.get_items_of_type(ebooklib.ITEM_DOCUMENT) if "eins" in item.file_name)
    content = chapter.get_content().decode()
    assert '<p>DAS IST <em class="a">SEHR</em> GUT.<br/>JA.</p>' in content
    assert "<pre>x = 1</pre>" in content
    assert file.toc[0].title == "ERSTES KAPITEL"
    assert file.get_metadata("DC", "title")[0][0] == "Ein Buch"
    (picture,) = file.get_items_of_type(ebooklib.ITEM_IMAGE)
    assert picture.get_content() == PIXEL


def test_a_book_that_is_protected_against_copying_is_refused():
    reference = '<e><CipherReference xmlns="http://www.w3.org/2001/04/xmlenc#" URI="EPUB/{}"/></e>'
    for page, refused in (("text/eins.xhtml", True), ("fonts/a.otf", False)):
        data = repacked(book(), **{"META-INF/encryption.xml": reference.format(page)})
        if refused:
            with pytest.raises(Unreadable, match="encrypted"):
                read_document("a.epub", data)
        else:
            assert texts("a.epub", data)


def test_the_list_of_a_book_names_no_file_outside_of_it():
    package = '<p><item media-type="application/xhtml+xml" href="../../../../etc/passwd"/><item/></p>'
    assert texts("a.epub", repacked(book(), **{"EPUB/content.opf": package})) == []


# PDF

LONG = "Dies ist ein langer Absatz, der über mehrere Zeilen geht und in dem ein Wort getrennt wird. " * 4


def test_a_pdf_is_read_as_paragraphs_and_written_as_text():
    data = printed("Eine Überschrift", LONG, "Ein zweiter Absatz.")
    assert texts("a.pdf", data) == ["Eine Überschrift", LONG.strip(), "Ein zweiter Absatz."]
    found = shouted("a.pdf", data).decode()
    assert found == f"EINE ÜBERSCHRIFT\n\n{LONG.strip().upper()}\n\nEIN ZWEITER ABSATZ.\n\n"
    assert translated_name("bericht.pdf", "en") == "bericht_en.txt"
    assert {name: written_ending(f"a{name}") for name in FORMATS if name != ".pdf"} == {
        name: name for name in FORMATS if name != ".pdf"
    }


def test_words_that_lines_cut_are_whole_again():
    data = printed("Die Donau-\ndampfschifffahrt ist ein langes Wort und steht hier\nmit E-\nMail.")
    assert texts("a.pdf", data) == [
        "Die Donaudampfschifffahrt ist ein langes Wort und steht hier mit E-Mail."
    ]


def test_a_pdf_without_text_or_with_a_password_is_refused():
    with pytest.raises(Unreadable, match="pictures"):
        read_document("a.pdf", printed())
    locked, found = pypdf.PdfWriter(clone_from=io.BytesIO(printed("a"))), io.BytesIO()
    locked.encrypt("geheim", algorithm="RC4-128")
    locked.write(found)
    with pytest.raises(Unreadable, match="password"):
        read_document("a.pdf", found.getvalue())


# files that are wrong

LAUGHS = '<!DOCTYPE x [<!ENTITY a0 "ha">{}]>'.format(
    "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))
)


def with_laughs(xml):
    return xml.replace("?>", f"?>{LAUGHS}", 1).replace("Das", "&a9;").encode()


@pytest.mark.parametrize("xml", [XLIFF_1, XLIFF_2])
def test_entities_of_xliff_are_not_expanded(xml):
    with suppress(Unreadable):  # libxml2 may refuse them outright
        assert len(shouted("a.xlf", with_laughs(xml))) < 10_000


def test_aliases_of_yaml_are_not_expanded():
    lines = ["a0: &a0 [ha, ha]"] + [f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]" for n in range(9)]
    assert texts("a.yaml", "\n".join(lines).encode()) == ["ha", "ha"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.vtt", b"00:01.000 --> 00:02.000\na"),
        ("a.vtt", b"WEBVTTX\n\n"),
        ("a.json", b'{"a": '),
        ("a.json", b"[" * 200_000),
        ("a.json", b"1" * 100_000),
        ("a.yaml", b"a: [b"),
        ("a.yaml", b"[" * 50_000),
        ("a.yaml", b"\0"),
        ("a.po", b"Nichts davon"),
        ("a.xlf", b"<xliff/>"),
        ("a.xlf", b"<a>" * 100_000),
        ("a.xlf", XLIFF_1.encode()[:400]),
        ("a.pptx", b"PK"),
        ("a.pptx", book()),
        ("a.epub", slides()),
        ("a.epub", repacked(book(), **{"EPUB/text/eins.xhtml": b"<p>\xff\xfe\x80</p>"})),
        ("a.epub", repacked(book(), **{"META-INF/container.xml": "<a"})),
        ("a.pptx", repacked(slides(), **{"ppt/slides/slide1.xml": "<a"})),
        ("a.pdf", b"%PDF-1.7\n"),
        ("a.pdf", b"MZ"),
        ("a.pdf", printed("a")[:300]),
    ],
)
def test_files_that_cannot_be_read_are_refused(name, data):
    with pytest.raises(Unreadable):
        read_document(name, data)


def test_more_elements_than_anybody_writes_are_refused():
    with pytest.raises(OversizedDocument, match="elements"):
        read_document("a.xlf", XLIFF_1.replace("<note>", "<note>" + "<a/>" * MAX_NODES).encode())
    for name, part, data in (
        ("a.pptx", "ppt/slides/slide1.xml", slides()),
        ("a.epub", "EPUB/text/eins.xhtml", book()),
    ):
        with pytest.raises(OversizedDocument):
            read_document(name, repacked(data, **{part: "<a>" + "<b c='d'/>" * MAX_NODES + "</a>"}))
