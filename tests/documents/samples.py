"""Slides, a book and a PDF, made by libraries that Convoy does not use."""

import io
import zipfile

import pptx
from ebooklib import epub
from fpdf import FPDF
from pptx.util import Inches

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
    """An archive with other entries; None leaves one out."""
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
