"""Word documents and OpenDocument texts."""

from __future__ import annotations

import io
import re
import zipfile

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from lxml import etree

from documents import read_document
from tests.documents.samples import PIXEL, odt, shouted, texts, word


def test_words_of_code_in_office_documents_are_kept():
    file, found = docx.Document(), io.BytesIO()
    file.styles.add_style("Source Code", WD_STYLE_TYPE.PARAGRAPH)
    file.styles.add_style("Inline Code", WD_STYLE_TYPE.CHARACTER)
    paragraph = file.add_paragraph("Rufe ")
    for part in ("print", "(x)"):
        paragraph.add_run(part, "Inline Code")
    paragraph.add_run(" auf.")
    file.add_paragraph("if x:", "Source Code")
    file.save(found)
    (segment,) = read_document("a.docx", found.getvalue()).segments
    assert (segment.text, [segment.text[s.begin : s.end] for s in segment.spans if s.kept]) == (
        "Rufe print(x) auf.",
        ["print(x)"],
    )
    after = docx.Document(io.BytesIO(shouted("a.docx", found.getvalue()))).paragraphs
    assert [p.text for p in after] == ["RUFE print(x) AUF.", "if x:"]
    content = (
        '<text:p>Rufe <text:span text:style-name="Source_20_Text">print(x)</text:span> auf, dann '
        '<text:span text:style-name="T2">next(y)</text:span>.</text:p>'
        '<text:p text:style-name="Preformatted_20_Text">if x:</text:p>'
    )
    for name, parent in (("T2", "T1"), ("T1", "Source_20_Text")):
        names = f'style:name="{name}" style:parent-style-name="{parent}"'
        content += f'<style:style xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0" {names}/>'
    (segment,) = read_document("a.odt", odt(content)).segments
    assert [segment.text[s.begin : s.end] for s in segment.spans if s.kept] == ["print(x)", "next(y)"]


def test_word_document_keeps_formats_links_images_tables_and_headers():
    data = word()
    wanted = [
        "Das ist ein roter Satz.",
        "Siehe dort nach",
        "eins",
        "zwei",
        "drei",
        "Seite sieben",
        "Zelle",
        "Kopf",
    ]
    assert sorted(texts("a.docx", data)) == sorted(wanted)
    file = docx.Document(io.BytesIO(shouted("a.docx", data)))
    one, two, three, field, last = file.paragraphs
    assert (one.text, one.style.name) == ("DAS IST EIN ROTER SATZ.", "List Bullet")
    assert [(r.text, bool(r.bold)) for r in one.runs if r.text] == [
        ("DAS IST EIN ", False),
        ("ROTER", True),
        (" SATZ.", False),
    ]
    assert len(file.inline_shapes) == 1
    (link,) = two.hyperlinks
    assert (link.text, link.fragment, link.runs[0].italic) == ("DORT", "there", True)
    assert two.text == "SIEHE DORT NACH"
    assert three.text == "EINS\nZWEI\tDREI"
    assert field.text == "SEITE sieben"
    assert last.text == ""
    assert file.tables[0].cell(0, 0).text == "ZELLE"
    assert file.sections[0].header.paragraphs[0].text == "KOPF"


def test_footnotes_are_translated():
    file, plain, found = docx.Document(), io.BytesIO(), io.BytesIO()
    file.save(plain)
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    link = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    part = f'<Override PartName="/word/footnotes.xml" ContentType="{kind}"/></Types>'
    relation = f'<Relationship Id="rId99" Type="{link}" Target="footnotes.xml"/></Relationships>'
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(found, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name.endswith((".xml", ".rels")):
                text = text.replace(b"</Types>", part.encode())
            if name == "word/_rels/document.xml.rels":
                text = text.replace(b"</Relationships>", relation.encode())
            new.writestr(name, text)
        body = "<w:footnote><w:p><w:r><w:t>unten</w:t></w:r></w:p></w:footnote>"
        note = f'<w:footnotes xmlns:w="{space}">{body}</w:footnotes>'
        new.writestr("word/footnotes.xml", note)
    with zipfile.ZipFile(io.BytesIO(shouted("a.docx", found.getvalue()))) as archive:
        assert b">UNTEN<" in archive.read("word/footnotes.xml")


def test_unchanged_document_keeps_every_paragraph():
    data = word()
    document = read_document("a.docx", data)
    written = document.write(document.segments)

    def body(raw):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            return etree.tostring(etree.fromstring(archive.read("word/document.xml")), method="c14n")

    assert body(written) == body(data)


def test_opendocument_keeps_spans_links_notes_and_spaces():
    content = (
        '<text:h text:outline-level="1">Titel</text:h>'
        '<text:p>Das <text:span text:style-name="T1">ist <text:a xlink:href="u">gut</text:a></text:span>,'
        "\n  ja<text:note><text:note-body><text:p>Fuß</text:p></text:note-body></text:note>.</text:p>"
        '<text:p>eins<text:line-break/>zwei<text:s text:c="3"/>d<text:soft-page-break/>rei</text:p><text:p/>'
    )
    data = odt(content)
    assert texts("a.odt", data) == ["Titel", "Das ist gut, ja.", "Fuß", "eins", "zwei   drei"]
    with zipfile.ZipFile(io.BytesIO(shouted("a.odt", data))) as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        assert archive.read("Pictures/a.png") == PIXEL
        found = archive.read("content.xml").decode()
    found = re.sub(r' xmlns:\w+="[^"]*"', "", found)
    assert '<text:h text:outline-level="1">TITEL</text:h>' in found
    assert (
        '<text:p>DAS <text:span text:style-name="T1">IST <text:a xlink:href="u">GUT</text:a></text:span>, JA'
        "<text:note><text:note-body><text:p>FUSS</text:p></text:note-body></text:note>.</text:p>"
    ) in found
    assert '<text:p>EINS<text:line-break/>ZWEI <text:s text:c="2"/>DREI</text:p><text:p/>' in found


RUN, TAB = "<w:r><w:t xml:space='preserve'>{}</w:t></w:r>", "<w:r><w:tab/></w:r>"
TITLE = f"{RUN.format('1.')}{TAB}{RUN.format('Ein Haus')}{TAB}{RUN.format('3')}"
ENTRY = f"<w:hyperlink w:anchor='t'>{TITLE}</w:hyperlink>"
TRACKED = f"{RUN.format('Das ist ')}<w:del w:id='1'><w:r><w:delText>nicht</w:delText></w:r></w:del>"
MOVED = f"{RUN.format('Ein ')}<w:moveFrom w:id='2'>{RUN.format('altes ')}</w:moveFrom>{RUN.format('Haus')}"


@pytest.mark.parametrize(
    ("content", "prose", "shown"),
    [
        (RUN.format("Ein Haus"), ["Ein Haus"], "EIN HAUS"),
        (ENTRY, ["1.", "Ein Haus", "3"], "1.|EIN HAUS|3"),
        (f"{RUN.format('Name:')}{TAB}{RUN.format('Tom')}", ["Name:", "Tom"], "NAME:|TOM"),
        (f"{TRACKED}{RUN.format('gut.')}", ["Das ist gut."], "DAS IST GUT."),
        (MOVED, ["Ein Haus"], "EIN altes HAUS"),
    ],
)
def test_entries_of_contents_are_read_like_headings_and_deleted_words_not_at_all(content, prose, shown):
    file, found = docx.Document(), io.BytesIO()
    file.element.body.insert(0, parse_xml(f"<w:p {nsdecls('w')}>{content}</w:p>"))
    file.save(found)
    assert texts("a.docx", found.getvalue()) == prose
    written = docx.Document(io.BytesIO(shouted("a.docx", found.getvalue()))).element.body[0]
    assert len(list(written.iter(qn("w:hyperlink")))) == content.count("<w:hyperlink")
    assert len(list(written.iter(qn("w:delText")))) == content.count("<w:delText")
    marks = (node.text or "|" for node in written.iter(qn("w:t"), qn("w:tab")))
    assert "".join(marks) == shown
