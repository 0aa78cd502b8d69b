"""Tables, workbooks, notebooks, Fluent, plurals and codes of XLIFF: only the prose is changed."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace

import pytest
import xlsxwriter
from translate.storage.tmx import tmxfile

from documents import Unreadable, read_document
from documents.bilingual import write_bilingual
from documents.formats.strings.tables import read_csv
from documents.spans import Segment
from tests.documents.samples import repacked, shouted, texts, untouched

FLUENT = """# Kommentar
hello = Hallo, { $userName }!
multi =
    Zeile eins

    Zeile zwei
    .title = Titel
-brand = Firefox
emails = { $n ->
    [one] Eine Mail
   *[other] { $n } Mails
 } im Korb
"""

PLURALS = """<?xml version="1.0"?>
<plist version="1.0"><dict><key>n</key><dict>
<key>NSStringLocalizedFormatKey</key><string>%#@files@ in %2$@ gefunden</string>
<key>files</key><dict><key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>
<key>one</key><string>%d Datei</string><key>other</key><string>%d Dateien</string></dict>
</dict></dict></plist>
"""

QT_PLURALS = """<TS><context>
<message numerus="yes"><source>%n Datei(en)</source><translation type="unfinished"><numerusform></numerusform>
<numerusform></numerusform></translation></message>
<message numerus="yes"><source>%n alt</source><translation type="obsolete"><numerusform></numerusform>
</translation></message></context></TS>
"""

MEMORY = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header srclang="de"/><body>
<tu><tuv xml:lang="de"><seg>fertig</seg></tuv><tuv xml:lang="en"><seg>done</seg></tuv></tu>
<tu tuid="2"><prop type="x">y</prop>
 <tuv xml:lang="de"><seg>Das <bpt i="1">&lt;b></bpt>ist<ept i="1">&lt;/b></ept> gut.</seg></tuv>
</tu>
<tu><tuv xml:lang="de"><seg>leer</seg></tuv><tuv xml:lang="en-US"><seg/></tuv></tu>
</body></tmx>
"""


def notebook(indent):
    cells = [
        {
            "cell_type": "markdown",
            "metadata": {"source": "Nein"},
            "source": ["# Titel\n", "\n", "Das ist **gut**."],
        },
        {"cell_type": "code", "metadata": {}, "source": ["x = 'Haus'"], "outputs": []},
        {"cell_type": "markdown", "metadata": {}, "source": "Ein Satz über `x`."},
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=indent)


def workbook():
    found = io.BytesIO()
    book = xlsxwriter.Workbook(found, {"in_memory": True})
    sheet, bold = book.add_worksheet("Blatt"), book.add_format({"bold": True})
    sheet.write("A1", "Guten Morgen!")
    sheet.write("A2", 5.5)
    sheet.write_formula("A3", '=IF(A2>5,"ja","nein")', None, "ja")
    sheet.write_rich_string("A4", "Das ist ", bold, "wichtig", ", ja.")
    sheet.write("A5", "4711")
    sheet.add_table("C1:C2", {"columns": [{"header": "Name"}], "data": [["Haus"]]})
    sheet.write_comment("A1", "Eine Notiz")
    sheet.insert_textbox("F1", "Ein Kasten")
    book.close()
    return found.getvalue()


@pytest.mark.parametrize(
    ("name", "file", "prose"),
    [
        ("a.csv", 'id,title\n7,"Red ""chair"", %s"\n8,=B2\n9,Blue\n', ['Red "chair", %s', "Blue"]),
        ("a.csv", '\ufeffDatum;Text\n02.01.2025;"Miete, Januar"\n;\n', ["Datum", "Text", "Miete, Januar"]),
        ("a.tsv", "Name\tWert\nTür\t5,0", ["Name", "Wert", "Tür"]),
        (
            "a.ftl",
            FLUENT,
            ["Hallo, { $userName }!", "Zeile eins\n\nZeile zwei", "Titel", "Eine Mail"]
            + ["{ $n } Mails", "im Korb"],
        ),
        ("a.stringsdict", PLURALS, ["%#@files@ in %2$@ gefunden", "%d Datei", "%d Dateien"]),
        ("a.tmx", MEMORY, ["Das ist gut.", "leer"]),
        ("a.ts", QT_PLURALS, ["%n Datei(en)", "%n Datei(en)"]),
        ("a.ipynb", notebook(None), ["Titel", "Das ist gut.", "Ein Satz über x."]),
        ("a.ipynb", notebook(1), ["Titel", "Das ist gut.", "Ein Satz über x."]),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_prose_is_found_and_everything_else_stays(name, file, prose, newline):
    data = file.replace("\n", newline).encode()
    assert texts(name, data) == prose
    assert untouched(name, data) == data


def test_fields_of_a_table_get_quotation_marks_when_they_need_them():
    document = read_document("a.csv", b'a_b,c\nEins,"Zwei"\n')
    assert document.write([Segment('x, "y"'), Segment('"z"')]) == b'a_b,c\n"x, ""y""","""z"""\n'


def test_chosen_columns_of_a_table_are_translated_and_its_head_stays():
    data = b"Titel;Preis;Text\nStuhl;teuer;rot\n"
    assert [s.text for s in read_csv(data, columns=["Text", "1"]).segments] == ["Stuhl", "rot"]
    with pytest.raises(Unreadable, match="no column 'Farbe'.*Titel"):
        read_csv(data, columns=["Farbe"])


def test_fluent_escapes_signs_that_would_begin_an_attribute_or_a_variant():
    document = read_document("a.ftl", b"a =\n  Eins\n  Zwei\n")
    assert document.write([Segment("One\n[two]")]) == b'a =\n  One\n  { "[" }two]\n'


def test_cells_of_a_notebook_stay_lists_of_lines():
    book = json.loads(shouted("a.ipynb", notebook(1).encode()))
    assert [cell["source"] for cell in book["cells"]] == [
        ["# TITEL\n", "\n", "DAS IST **GUT**."],
        ["x = 'Haus'"],
        "EIN SATZ ÜBER `x`.",
    ]
    assert book["cells"][0]["metadata"] == {"source": "Nein"}


def test_units_of_a_memory_without_a_translation_get_one():
    document = read_document("a.tmx", MEMORY.encode())
    capitals = [replace(segment, text=segment.text.upper()) for segment in document.segments]
    written = write_bilingual(document, capitals, "", ("de", "en")).decode()
    assert (
        'gut.</seg></tuv><tuv xml:lang="en"><seg>DAS <bpt i="1">&lt;b&gt;</bpt>IST<ept i="1">&lt;/b&gt;</ept>'
        " GUT.</seg></tuv>\n</tu>"
    ) in written
    assert '<seg>leer</seg></tuv><tuv xml:lang="en-US"><seg>LEER</seg></tuv></tu>' in written
    units = tmxfile.parsestring(written.encode()).units
    assert [str(unit.target) for unit in units][::2] == ["done", "LEER"]
    assert texts("a.tmx", written.encode()) == []


def test_each_form_of_a_plural_of_qt_is_translated():
    assert shouted("a.ts", QT_PLURALS.encode()).count(b"<numerusform>%n DATEI(EN)</numerusform>") == 2


def test_texts_of_a_workbook_are_translated_but_no_formula_number_or_heading_of_a_table():
    data = workbook()
    prose = ["Eine Notiz", "Guten Morgen!", "Das ist wichtig, ja.", "Haus", "Ein Kasten"]
    assert texts("a.xlsx", data) == prose
    with (
        zipfile.ZipFile(io.BytesIO(shouted("a.xlsx", data))) as new,
        zipfile.ZipFile(io.BytesIO(data)) as old,
    ):
        assert new.read("xl/worksheets/sheet1.xml").count(b'<f>IF(A2&gt;5,"ja","nein")</f><v>ja</v>') == 1
        assert new.read("xl/workbook.xml") == old.read("xl/workbook.xml")
        shared = new.read("xl/sharedStrings.xml").decode()
    assert '<si><t xml:space="preserve">GUTEN MORGEN!</t></si>' in shared
    assert "<b/>" in shared[: shared.index(">WICHTIG</t>")]
    assert "<t>Name</t>" in shared


def test_workbook_is_opened_by_openpyxl():
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(io.BytesIO(shouted("a.xlsx", workbook())), rich_text=True)
    sheet = book["Blatt"]
    column = [str(row[0]) for row in sheet.iter_rows(values_only=True)]
    assert column == ["GUTEN MORGEN!", "5.5", '=IF(A2>5,"ja","nein")', "DAS IST WICHTIG, JA.", "4711"]
    assert sheet["A1"].comment.text == "EINE NOTIZ"
    assert sheet.tables["Table1"].column_names == ["Name"]


def test_hostile_workbooks_are_refused():
    with pytest.raises(Unreadable):
        read_document("a.xlsx", repacked(workbook(), **{"xl/sharedStrings.xml": "<sst><si>"}))
    with pytest.raises(Unreadable):
        read_document("a.xlsx", repacked(workbook(), **{"xl/workbook.xml": None}))


@pytest.mark.parametrize(
    "source",
    [
        '<bpt id="1">[b]</bpt>{}<ept id="1">[/b]</ept>',
        '<bpt id="1" rid="7"/>{}<ept id="2" rid="7"/>',
        '<ph id="1">&lt;b class="x"&gt;</ph>{}<ph id="2">&lt;/b&gt;</ph>',
    ],
)
@pytest.mark.parametrize("name", ["a.xliff", "a.sdlxliff", "a.mqxliff"])
def test_codes_of_xliff_that_begin_and_end_a_format_enclose_its_words(name, source):
    unit = (
        '<xliff version="1.2"><file><body><trans-unit id="1"><source>Das {} <x id="9"/></source></trans-unit>'
    )
    data = (unit.format(source.format("ist")) + "</body></file></xliff>").encode()
    (segment,) = read_document(name, data).segments
    assert [(span.begin, span.end) for span in segment.spans][:1] == [(4, 7)]
    target = shouted(name, data).decode().partition('translation">')[2]
    assert target.startswith("DAS " + source.format("IST") + ' <x id="9"/>')


def test_text_in_another_encoding_keeps_it_and_gets_a_notice():
    for encoding, text in (
        ("cp1252", "Grüße aus Köln"),
        ("cp1251", "Привет, как дела? Это проверка кодировки."),
    ):
        document = read_document("a.txt", text.encode(encoding))
        assert [segment.text for segment in document.segments] == [text]
        assert encoding in document.notices[0]
        assert document.write([Segment(text.upper())]) == text.upper().encode(encoding)
    document = read_document("a.txt", "Grüße".encode("cp1252"))
    assert document.write([Segment("żółć")]) == "żółć".encode("utf-8-sig")
    assert read_document("a.txt", "Grüße".encode()).notices == ()
    with pytest.raises(Unreadable):
        read_document("a.txt", b"\xff\0\0\x01\x80")
