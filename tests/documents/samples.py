"""Documents for tests, made in memory."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import docx
import pptx
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from ebooklib import epub
from fpdf import FPDF
from pptx.util import Inches

from documents import read_document

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)


def slides():
    file, found = pptx.Presentation(), io.BytesIO()
    slide = file.slides.add_slide(file.slide_layouts[5])
    slide.shapes.title.text = "Ein Titel"
    frame = slide.shapes.add_textbox(Inches(1), Inches(1), Inches(4), Inches(1)).text_frame
    paragraph = frame.paragraphs[0]
    for text, bold in (("Das ist ", False), ("wichtig", True), (", ja.", False)):
        run = paragraph.add_run()
        run.text, run.font.bold = text, bold or None
    paragraph.add_line_break()
    link = paragraph.add_run()
    link.text, link.hyperlink.address = "hier", "http://x.org"
    table = slide.shapes.add_table(1, 2, Inches(1), Inches(3), Inches(4), Inches(1)).table
    table.cell(0, 0).text, table.cell(0, 1).text = "links", "rechts"
    slide.shapes.add_picture(io.BytesIO(PIXEL), 0, 0)
    slide.notes_slide.notes_text_frame.text = "eine Notiz"
    for number in range(9):
        file.slides.add_slide(file.slide_layouts[5]).shapes.title.text = f"Folie {number}"
    file.save(found)
    return found.getvalue()


def book():
    file, found = epub.EpubBook(), io.BytesIO()
    file.set_identifier("x")
    file.set_title("Ein Buch")
    file.set_language("de")
    file.add_author("Eine Autorin")
    chapter = epub.EpubHtml(title="Erstes Kapitel", file_name="text/eins.xhtml", lang="de")
    chapter.content = (
        '<h1>Erstes Kapitel</h1><p>Das ist <em class="a">sehr</em> gut.<br/>Ja.</p><pre>x = 1</pre>'
    )
    file.add_item(chapter)
    file.add_item(epub.EpubImage(uid="i", file_name="a.png", media_type="image/png", content=PIXEL))
    file.toc, file.spine = [chapter], ["nav", chapter]
    file.add_item(epub.EpubNcx())
    file.add_item(epub.EpubNav())
    epub.write_epub(found, file)
    return found.getvalue()


def repacked(data, **changes):
    """Return an archive with changed entries; None removes an entry."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as new:
        for name in {*old.namelist(), *changes}:
            content = changes.get(name, old.read(name) if name in old.namelist() else None)
            if content is not None:
                new.writestr(name, content)
    return found.getvalue()


def printed(*paragraphs):
    file = FPDF()
    file.set_font("Helvetica", size=12)
    file.add_page()
    for paragraph in paragraphs:
        file.multi_cell(0, 6, paragraph, align="L", new_x="LMARGIN", new_y="NEXT")
        file.ln(6)
    return bytes(file.output())


CONTENT = """<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"
 ><office:body><office:text>{}</office:text></office:body></office:document-content>"""


def shouted(name, data):
    """Return the file with every segment in capitals; lengths do not change, so that spans stay valid."""
    document = read_document(name, data)
    return document.write([replace(s, text=s.text.upper()) for s in document.segments])


def texts(name, data):
    return [segment.text for segment in read_document(name, data).segments]


def word():
    """Return a Word document with formats, a link, a table, a header, an image, a field and a break."""
    file = docx.Document()
    paragraph = file.add_paragraph(style="List Bullet")
    for text in ("Das ist ", "ein "):  # Word splits runs of one format
        paragraph.add_run(text)
    paragraph.add_run("roter").bold = True
    paragraph.add_run().add_picture(io.BytesIO(PIXEL))
    paragraph.add_run(" Satz.")
    link = OxmlElement("w:hyperlink")
    link.set(qn("w:anchor"), "there")
    run = file.add_paragraph("Siehe ").add_run("dort")
    run.italic = True
    link.append(run._r)
    file.paragraphs[1]._p.append(link)
    file.paragraphs[1].add_run(" nach")
    breaks = file.add_paragraph("eins")
    breaks.add_run().add_break()
    breaks.add_run("zwei\tdrei")
    file.add_table(1, 1).cell(0, 0).text = "Zelle"
    file.sections[0].header.paragraphs[0].text = "Kopf"
    field = file.add_paragraph("Seite ")
    for kind in ("begin", "separate", "end"):
        mark = OxmlElement("w:fldChar")
        mark.set(qn("w:fldCharType"), kind)
        field.add_run()._r.append(mark)
        if kind == "separate":
            field.add_run("sieben")
    file.add_paragraph()
    found = io.BytesIO()
    file.save(found)
    return found.getvalue()


def odt(content):
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text", zipfile.ZIP_STORED)
        archive.writestr("content.xml", CONTENT.format(content))
        archive.writestr("Pictures/a.png", PIXEL)
    return found.getvalue()


def untouched(name, data):
    """Return the file written with its unchanged segments."""
    document = read_document(name, data)
    return document.write(document.segments)


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


XLIFF_2 = """<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de" trgLang="en">
 <file id="f"><unit id="u1">
  <segment id="s1"><source>Das <pc id="1">ist <ph id="2"/>gut</pc>.</source></segment>
  <ignorable><source> </source></ignorable>
  <segment id="s2" state="final"><source>fertig</source><target>done</target></segment>
 </unit><unit id="u2" translate="no"><segment><source>bleibt</source></segment></unit></file>
</xliff>
"""
