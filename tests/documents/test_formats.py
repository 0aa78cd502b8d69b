"""Slides, books and PDF; hostile and unreadable files of all further formats."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress

import ebooklib
import pptx
import pypdf
import pytest
from ebooklib import epub

from documents import FORMATS, OversizedDocument, Unreadable, read_document, written_ending
from documents.archive import MAX_NODES
from server.files.store import translated_name
from tests.documents.samples import PIXEL, XLIFF_1, XLIFF_2, book, printed, repacked, shouted, slides, texts


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


def test_runs_of_slides_that_differ_in_language_only_are_joined():
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


def test_book_keeps_its_pages_pictures_and_lists():
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


def test_book_protected_against_copying_is_refused():
    reference = '<e><CipherReference xmlns="http://www.w3.org/2001/04/xmlenc#" URI="EPUB/{}"/></e>'
    for page, refused in (("text/eins.xhtml", True), ("fonts/a.otf", False)):
        data = repacked(book(), **{"META-INF/encryption.xml": reference.format(page)})
        if refused:
            with pytest.raises(Unreadable, match="encrypted"):
                read_document("a.epub", data)
        else:
            assert texts("a.epub", data)


def test_manifest_of_a_book_opens_no_file_outside_of_it():
    package = '<p><item media-type="application/xhtml+xml" href="../../../../etc/passwd"/><item/></p>'
    assert texts("a.epub", repacked(book(), **{"EPUB/content.opf": package})) == []


LONG = "Dies ist ein langer Absatz, der über mehrere Zeilen geht und in dem ein Wort getrennt wird. " * 4


def test_pdf_is_read_as_paragraphs_and_written_as_text():
    data = printed("Eine Überschrift", LONG, "Ein zweiter Absatz.")
    assert texts("a.pdf", data) == ["Eine Überschrift", LONG.strip(), "Ein zweiter Absatz."]
    found = shouted("a.pdf", data).decode()
    assert found == f"EINE ÜBERSCHRIFT\n\n{LONG.strip().upper()}\n\nEIN ZWEITER ABSATZ.\n\n"
    assert translated_name("bericht.pdf", "en") == "bericht_en.txt"
    assert {name: written_ending(f"a{name}") for name in FORMATS if name != ".pdf"} == {
        name: name for name in FORMATS if name != ".pdf"
    }


def test_hyphenated_words_are_joined():
    data = printed("Die Donau-\ndampfschifffahrt ist ein langes Wort und steht hier\nmit E-\nMail.")
    assert texts("a.pdf", data) == [
        "Die Donaudampfschifffahrt ist ein langes Wort und steht hier mit E-Mail."
    ]


def test_pdf_without_text_or_with_a_password_is_refused():
    with pytest.raises(Unreadable, match="pictures"):
        read_document("a.pdf", printed())
    locked, found = pypdf.PdfWriter(clone_from=io.BytesIO(printed("a"))), io.BytesIO()
    locked.encrypt("geheim", algorithm="RC4-128")
    locked.write(found)
    with pytest.raises(Unreadable, match="password"):
        read_document("a.pdf", found.getvalue())


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
def test_unreadable_files_are_refused(name, data):
    with pytest.raises(Unreadable):
        read_document(name, data)


def test_too_many_elements_are_refused():
    with pytest.raises(OversizedDocument, match="elements"):
        read_document("a.xlf", XLIFF_1.replace("<note>", "<note>" + "<a/>" * MAX_NODES).encode())
    for name, part, data in (
        ("a.pptx", "ppt/slides/slide1.xml", slides()),
        ("a.epub", "EPUB/text/eins.xhtml", book()),
    ):
        with pytest.raises(OversizedDocument):
            read_document(name, repacked(data, **{part: "<a>" + "<b c='d'/>" * MAX_NODES + "</a>"}))
