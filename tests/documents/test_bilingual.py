"""Files with the source and its translation, tables of both, and translation memories."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import docx
import pytest
from docx.oxml.ns import qn
from lxml import etree
from translate.storage.tmx import tmxfile

from documents import FORMATS, Unreadable, read_document
from documents.bilingual import IN_PLACE, check_bilingual, write_bilingual
from tests.documents.samples import book, word

CUE = "1\n00:00:01,000 --> 00:00:02,500\n"


def bilingual(name, data, how):
    document = read_document(name, data)
    capitals = [replace(segment, text=segment.text.upper()) for segment in document.segments]
    return write_bilingual(document, capitals, how, ("de", "en")).decode()


@pytest.mark.parametrize(
    ("name", "source", "above"),
    [
        ("a.txt", "eins\r\nzwei\r\n\r\n5\r\n", "eins\r\nzwei\r\nEINS\r\nZWEI\r\n\r\n5\r\n"),
        ("a.srt", f"{CUE}Das <i>ist\ngut</i>\n", f"{CUE}Das <i>ist\ngut</i>\nDAS <i>IST\nGUT</i>\n"),
        ("a.vtt", f"WEBVTT\n\n{CUE}a".replace(",", "."), f"WEBVTT\n\n{CUE}a\nA".replace(",", ".")),
        (
            "a.html",
            '<p>Das <b id="x">ist</b><img src="y"> gut.</p>',
            '<p>Das <b>ist</b> gut.<br/>DAS <b id="x">IST</b><img src="y"> GUT.</p>',
        ),
    ],
)
def test_source_is_above_or_below_its_translation(name, source, above):
    assert bilingual(name, source.encode(), "above") == above
    below = bilingual(name, source.encode(), "below")
    assert below != above
    assert len(below) == len(above)
    assert bilingual(name, source.encode(), "") == source.upper() or name != "a.txt"


def test_both_cues_of_a_sentence_have_their_source():
    second = "\n2\n00:00:03,000 --> 00:00:04,500\n"
    found = bilingual("a.srt", f"{CUE}Wenn du morgen\n{second}kommst, ja\n".encode(), "above")
    assert found == f"{CUE}Wenn du morgen\nWENN DU MORGEN\n{second}kommst, ja\nKOMMST, JA\n"


def test_substation_has_both_texts_on_one_line():
    head = "[Events]\nFormat: Start, End, Text\n"
    found = bilingual("a.ass", f"{head}Dialogue: 1,2,ja".encode(), "below")
    assert found == f"{head}Dialogue: 1,2,JA\\Nja"


def test_book_with_both_texts_is_well_formed():
    document = read_document("a.epub", book())
    capitals = [replace(segment, text=segment.text.upper()) for segment in document.segments]
    written = write_bilingual(document, capitals, "above", ("de", "en"))
    with zipfile.ZipFile(io.BytesIO(written)) as archive:
        page = archive.read("EPUB/text/eins.xhtml")
    assert etree.fromstring(page) is not None
    assert b"<h1>Erstes Kapitel<br/>ERSTES KAPITEL</h1>" in page


def test_pairs_of_any_file_are_written_as_a_memory_that_other_tools_read():
    memory = bilingual("a.docx", word(), "tmx")
    units = [(unit.source, unit.target) for unit in tmxfile.parsestring(memory.encode(), "de", "en").units]
    assert ("Das ist ein roter Satz.", "DAS IST EIN ROTER SATZ.") in units
    document = read_document("a.txt", b"a <b> & \x01c\n")
    assert b"<seg>a &lt;b&gt; &amp; c</seg>" in write_bilingual(
        document, document.segments, "tmx", ("x'\"", "y")
    )


def test_pairs_of_any_file_are_written_as_a_table():
    table = bilingual("a.md", b"# Eins & **zwei**\n", "side")
    assert '<tr><td lang="de">Eins &amp; zwei</td><td lang="en">EINS &amp; ZWEI</td></tr>' in table


def test_files_that_can_not_hold_both_texts_are_refused_with_the_remedy():
    for name in FORMATS:
        for how in ("", "side", "tmx"):
            check_bilingual(f"a{name}", how)
        if name in IN_PLACE:
            check_bilingual(f"a{name}", "above")
        else:
            with pytest.raises(Unreadable, match="side or tmx"):
                check_bilingual(f"a{name}", "below")


def test_paragraphs_of_markdown_and_Word_have_both_texts():
    page = "# Titel {#t}\n\n> Das ist\n> *gut*.\n\n| eins |\n|---|\n| zwei |\n"
    assert bilingual("a.md", page.encode(), "above") == (
        "# Titel<br>TITEL {#t}\n\n> Das ist\n> *gut*.<br>DAS IST\n> *GUT*.\n\n"
        "| eins<br>EINS |\n|---|\n| zwei<br>ZWEI |\n"
    )
    assert bilingual("a.md", b"Ein *Wort*", "below") == "EIN *WORT*<br>Ein *Wort*"
    document = read_document("a.docx", word())
    capitals = [replace(segment, text=segment.text.upper()) for segment in document.segments]
    for how, wanted in (("above", "{0}\n{1}"), ("below", "{1}\n{0}")):
        document = read_document("a.docx", word())
        file = docx.Document(io.BytesIO(write_bilingual(document, capitals, how, ("de", "en"))))
        assert file.tables[0].cell(0, 0).text == wanted.format("Zelle", "ZELLE")
        assert file.paragraphs[0].text == wanted.format("Das ist ein roter Satz.", "DAS IST EIN ROTER SATZ.")
        assert [run.text for run in file.paragraphs[0].runs if run.bold] in (
            ["roter", "ROTER"],
            ["ROTER", "roter"],
        )
        assert len(list(file.element.body.iter(qn("w:drawing")))) == 1


@pytest.mark.parametrize(
    ("page", "root"),
    [
        ('<!DOCTYPE html>\n<!-- <html lang="x"> -->\n<html class=a lang=de xml:lang="de"><p lang="de">Ja', 2),
        ("<HTML LANG='de-AT'><p>Ja", 1),
        ('<html><p lang="de">Ja', 0),
        ('<p>Ja <html lang="de">', 0),
    ],
)
def test_page_names_the_language_of_the_translation(page, root):
    document = read_document("a.html", page.encode())
    written = write_bilingual(document, document.segments, "", ("de", "en")).decode()
    assert written.count('"en"') == root
    assert 'class=a lang="en" xml:lang="en"><p lang="de">' in written or root < 2
    assert write_bilingual(document, document.segments, "", ("", "")) == page.encode()


def test_book_names_the_language_of_the_translation():
    document = read_document("a.epub", book())
    written = write_bilingual(document, document.segments, "", ("de", "en"))
    with zipfile.ZipFile(io.BytesIO(written)) as archive:
        assert b"<dc:language>en</dc:language>" in archive.read("EPUB/content.opf")
        assert b'lang="en"' in archive.read("EPUB/text/eins.xhtml")
        assert b'lang="de"' not in archive.read("EPUB/text/eins.xhtml")
