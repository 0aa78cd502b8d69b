"""Fields and controls of office documents: prose is translated, computed values stay."""

import io
import re
from xml.sax.saxutils import quoteattr

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn

from documents import read_document
from tests.documents.samples import odt, shouted, texts

W14 = 'xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml"'


def run(text, look=""):
    return f'<w:r><w:rPr>{look}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def field(instruction, result, *, end=True):
    """Return the runs of a field in the syntax of Word."""
    mark = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'.format
    code = f'<w:r><w:instrText xml:space="preserve"> {instruction} </w:instrText></w:r>'
    return mark("begin") + code + mark("separate") + result + (mark("end") if end else "")


def simple(instruction, result):
    return f"<w:fldSimple w:instr={quoteattr(instruction)}>{result}</w:fldSimple>"


def control(result, properties=""):
    return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent>{result}</w:sdtContent></w:sdt>"


def word(*contents):
    """Return a document with a paragraph for each content."""
    file, found = docx.Document(), io.BytesIO()
    for content in contents:
        paragraph = file.add_paragraph()._p
        for element in parse_xml(f"<w:p {nsdecls('w')} {W14}>{content}</w:p>"):
            paragraph.append(element)
    file.save(found)
    return found.getvalue()


def written(data):
    """Return the paragraphs of the document in capitals, with their elements without formats."""
    paragraphs = docx.Document(io.BytesIO(shouted("a.docx", data))).paragraphs
    return ["".join(p._p.itertext(qn("w:t"))) for p in paragraphs], [p._p for p in paragraphs]


LINK = 'HYPERLINK "http://x.org/a?b=c" \\o "Ein Tipp"'
PROSE = {
    "a simple link": simple(LINK, run("hier")),
    "a link": field(LINK, run("hi") + run("er")),
    "a link in lower case": field(LINK.replace("HYPERLINK", "hyperlink"), run("hier")),
    "a reference": field("REF _Ref1 \\h", run("hier")),
    "a repeated heading": simple("STYLEREF Title", run("hier")),
    "a control": control(run("hier")),
    "a control of plain text": control(run("hier"), '<w:alias w:val="Ort"/><w:text/>'),
    "a control with a hint": control(run("hier"), "<w:showingPlcHdr/>"),
    "a control in a control": control(control(run("hier"))),
    "a link in a control": control(field(LINK, run("hier"))),
}


@pytest.mark.parametrize("kind", PROSE)
def test_prose_of_fields_and_controls_is_part_of_its_sentence(kind):
    data = word(run("Siehe ") + PROSE[kind] + run(" nach."))
    assert texts("a.docx", data) == ["Siehe hier nach."]
    (text,), (paragraph,) = written(data)
    assert text == "SIEHE HIER NACH."
    (before,) = (p._p for p in docx.Document(io.BytesIO(data)).paragraphs)
    names = "fldChar|fldSimple|instrText|sdt|sdtPr|sdtContent|alias|text|showingPlcHdr"
    shape = re.compile(rf"<w:(?:{names})\b[^>]*")
    assert shape.findall(paragraph.xml) == shape.findall(before.xml)


def test_parts_of_a_link_keep_formats_and_positions():
    link = field(LINK, run("ganz ") + run("wichtig", "<w:b/>"))
    (text,), (paragraph,) = written(word(run("Das ist ") + link + run(", ja.")))
    assert text == "DAS IST GANZ WICHTIG, JA."
    marks = [
        child.get(qn("w:fldCharType")) or child.text
        for child in paragraph.iter(qn("w:fldChar"), qn("w:instrText"), qn("w:t"))
    ]
    assert marks == ["DAS IST ", "begin", f" {LINK} ", "separate", "GANZ ", "WICHTIG", "end", ", JA."]
    bold = [
        one.text for one in paragraph.iter(qn("w:t")) if one.getparent().find(f".//{qn('w:b')}") is not None
    ]
    assert bold == ["WICHTIG"]


def test_table_of_contents_keeps_page_numbers():
    entry = run("Erstes Kapitel") + "<w:r><w:tab/></w:r>" + field("PAGEREF _Toc1 \\h", run("17 ff"))
    (text,), (paragraph,) = written(word(field('HYPERLINK \\l "_Toc1"', entry)))
    assert text == "ERSTES KAPITEL17 ff"
    assert len(paragraph.findall(f".//{qn('w:tab')}")) == 1
    kinds = [one.get(qn("w:fldCharType")) for one in paragraph.iter(qn("w:fldChar"))]
    assert kinds == ["begin", "separate", "begin", "separate", "end", "end"]


KEPT = {
    "the number of a page": field("PAGE", run("sieben")),
    "a simple number": simple("NUMPAGES", run("sieben")),
    "a date": field('DATE \\@ "MMMM"', run("mai")),
    "a number that is referred to": field("REF _Ref1 \\r \\h", run("3.1")),
    "an author": simple("AUTHOR", run("anna")),
    "a field within an instruction": field("IF ", run("sieben")),
    "a chosen date": control(run("mai"), '<w:date w:fullDate="2026-05-01T00:00:00Z"/>'),
    "a choice of a list": control(run("ja"), '<w:dropDownList><w:listItem w:value="ja"/></w:dropDownList>'),
    "what is bound to data": control(run("ja"), '<w:dataBinding w:xpath="/x" w:storeItemID="{1}"/>'),
    "a box": control(run("x"), "<w14:checkbox/>"),
}


@pytest.mark.parametrize("kind", KEPT)
def test_computed_fields_are_not_changed(kind):
    (text,), (paragraph,) = written(word(run("vorher ") + KEPT[kind] + run(" nachher")))
    (before,) = (p._p for p in docx.Document(io.BytesIO(word(KEPT[kind]))).paragraphs)
    assert text == f"VORHER {''.join(before.itertext(qn('w:t')))} NACHHER"
    for name in ("w:fldChar", "w:fldSimple", "w:sdtPr"):
        assert len(paragraph.findall(f".//{qn(name)}")) == len(before.findall(f".//{qn(name)}"))


def test_nested_fields_take_linear_time():
    data = word("".join(field(LINK, "", end=False) for _ in range(3_000)) + run("tief"))
    assert texts("a.docx", data) == ["tief"]
    nested = run("tief")
    for _ in range(200):
        nested = field(LINK, nested)
    assert written(word(nested))[0] == ["tief"]  # a field in the result of one stays
    assert read_document("a.docx", word(nested)).segments[0].text.strip() == "tief"


def test_typed_and_repeated_texts_of_opendocument_are_prose():
    reference = (
        '<text:bookmark-ref text:reference-format="{}" text:ref-name="a">{}</text:bookmark-ref>'.format
    )
    content = (
        f"<text:p>Siehe {reference('text', 'das Kapitel')} auf {reference('page', 'seite 3')}, "
        f"<text:text-input>bitte</text:text-input>, <text:page-number>sieben</text:page-number>.</text:p>"
    )
    data = odt(content)
    assert texts("a.odt", data) == ["Siehe das Kapitel auf seite 3, bitte, sieben."]
    document = read_document("a.odt", shouted("a.odt", data))
    assert [segment.text for segment in document.segments] == [
        "SIEHE DAS KAPITEL AUF seite 3, BITTE, sieben."
    ]
