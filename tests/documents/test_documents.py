"""Files: read, translated and written in their formats, checked by other readers; uploads and downloads."""

import io
import re
import zipfile
from contextlib import suppress
from dataclasses import replace

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from lxml import etree
from markdown_it import MarkdownIt

from documents import FORMATS, UNKNOWN_FORMAT, OversizedDocument, Unreadable, read_document
from documents.formats.attributes import read_with_attributes
from documents.formats.subtitles import wrap
from engine.api import Overloaded, TooLarge
from server.files.store import Store, safe, translated_name
from tests.documents.samples import PIXEL, printed
from tests.support.served import server, until

CONTENT = """<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"
 ><office:body><office:text>{}</office:text></office:body></office:document-content>"""


def shouted(name, data):
    """The file with every segment in capitals: as long as before, so that spans stay where they are."""
    document = read_document(name, data)
    return document.write([replace(s, text=s.text.upper()) for s in document.segments])


def texts(name, data):
    return [segment.text for segment in read_document(name, data).segments]


# text, HTML, subtitles


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"])
def test_lines_of_text_keep_their_ends_and_the_encoding(encoding):
    mark = "\ufeff" if "16" in encoding else ""
    data = f"{mark}eins\r\n\r\n  zwei  \nüber".encode(encoding)
    assert shouted("a.TXT", data) == f"{mark}EINS\r\n\r\n  ZWEI  \nÜBER".encode(encoding)


def test_text_in_utf_32_is_refused_and_not_read_as_utf_16():
    with pytest.raises(Unreadable, match="'utf-32le'.*save it as UTF-8"):
        read_document("a.txt", "Guten Morgen!".encode("utf-32"))


@pytest.mark.parametrize(
    "note",
    [
        "<sup>2</sup>",
        '<sup class="reference"><a href="#n"><span>[</span>12<span>]</span></a></sup>',
        '<a class="footnote-ref" href="#n">†</a>',
    ],
)
def test_the_number_of_a_note_is_no_part_of_the_word_before_it(note):
    page = f"<p>Ein Satz{note} mit Note.</p><p>{note} Die Note.</p><p>Das 1<sup>er</sup>.</p>"
    assert texts("a.html", page.encode()) == ["Ein Satz mit Note.", "Die Note.", "Das 1er."]
    wanted = f"<p>EIN SATZ{note} MIT NOTE.</p><p>{note} DIE NOTE.</p><p>DAS 1<sup>ER</sup>.</p>"
    assert shouted("a.html", page.encode()).decode() == wanted


def test_a_page_keeps_its_markup_and_its_charset():
    page = '<html><head><meta charset="iso-8859-1"><title>ö</title></head><p class=x>a <b>b</b></p></html>'
    wanted = page.replace(">ö<", ">Ö<").replace(">a <b>b<", ">A <b>B<")
    assert shouted("a.html", page.encode("latin-1")) == wanted.encode("latin-1")


def test_what_a_pages_charset_lacks_is_written_as_a_reference():
    page = '<html><head><meta charset="iso-8859-1"></head><p>a</p></html>'.encode("latin-1")
    document = read_document("a.html", page)
    written = document.write([replace(document.segments[0], text="5 € für Jörg")])
    assert b"<p>5 &#8364; f\xfcr J\xf6rg</p>" in written


SUBTITLES = """1
00:00:01,000 --> 00:00:02,500
Das ist <i>ein
Satz</i>.

7
00:00:03,000 --> 00:00:04,000
- Ja?
- {\\an8}Nein!

8
00:00:05,000 --> 00:00:06,000
a < b & c
"""


def test_subtitles_keep_numbers_times_tags_and_lines():
    assert texts("a.srt", SUBTITLES.encode()) == ["Das ist ein Satz.", "- Ja?", "- Nein!", "a < b & c"]
    wanted = SUBTITLES.replace("Das ist <i>ein\nSatz</i>.", "DAS IST\n<i>EIN SATZ</i>.").replace("Ja?", "JA?")
    wanted = wanted.replace("Nein!", "NEIN!").replace("a < b & c", "A < B & C")
    for newline in ("\n", "\r\n", "\r"):
        data = SUBTITLES.replace("\n", newline).encode()
        assert shouted("a.srt", data).decode() == wanted.replace("\n", newline)


def test_odd_subtitles_are_read_as_players_read_them():
    """Without numbers, with settings after the times, blank lines in a cue, and none after the last."""
    odd = "\ufeff\n0:0:1.5 --> 0:0:2 X1:40\neins\n\n3\n00:00:03,000 -> 00:00:04,000\n\nzwei\n\ndrei"
    assert texts("a.srt", odd.encode()) == ["eins", "zwei  drei"]
    assert shouted("a.srt", odd.encode()).decode() == odd.replace("eins", "EINS").replace(
        "zwei\n\ndrei", "ZWEI\n\nDREI"
    )


def test_lines_are_about_equal():
    assert wrap("one two three four", 2) == "one two\nthree four"
    assert wrap("one", 3) == "one"


# Markdown


MARKDOWN = """---
title: x
---
# Title *one* #

A paragraph with **bold _and_ more**, `code()`, [a link](http://x.org/a_(b) "Ti"), ![alt](p.png)
that goes on, <https://x.org>, snake_case and 2 \\* 3 &lt; <b>x</b>.
> quoted
> text\\
> after a break

- item one
  more
- [ref][r]
  1. inner

| a | b |
|---|---|
| c *d* | e |

```
code stays
```

Setext
===

[r]: http://ref.org
"""


def tags(markdown):
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    return re.findall("<[^>]*>", html.upper().replace("\n", "")), re.sub("<[^>]*>|\\s+", "", html.upper())


def test_markdown_keeps_its_structure():
    found = shouted("a.md", MARKDOWN.encode()).decode()
    body, old = found.partition("---\n#")[2], MARKDOWN.partition("---\n#")[2]
    assert found.startswith("---\ntitle: x\n---\n# TITLE *ONE* #\n")
    assert tags("#" + body) == tags("#" + old)
    assert "`code()`" in found
    assert "code stays" in found
    assert '[A LINK](<http://x.org/a_(b)> "Ti")' in found
    assert "> QUOTED TEXT\\\n> AFTER A BREAK" in found
    assert "| C *D* | E |" in found


NOTES = """Satz[^1] mit $a_1*b$ und <kbd>Strg</kbd>, a<br>b^[drin] und 5 $.

[^1]: Die *Notiz*.

Wort
: Seine Erklärung

$$
x
$$

- [ ] offen **x**
- [x] fertig <b>fett</b>
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_markdown_keeps_notes_formulas_boxes_definitions_and_tags(newline):
    data = NOTES.replace("\n", newline).encode()
    assert texts("a.md", data) == [
        "Satz mit a_1*b und Strg, ab und 5 $.",
        "Die Notiz.",
        "Wort",
        "Seine Erklärung",
        "offen x",
        "fertig fett",
    ]
    wanted = NOTES.upper()
    for kept in ("a_1*b", "<kbd>Strg</kbd>", "<br>", "[drin]", "x\n$$", "[x]", "<b>", "</b>"):
        wanted = wanted.replace(kept.upper(), kept)
    assert shouted("a.md", data).decode() == wanted.replace("\n", newline)
    document = read_document("a.md", data)
    assert document.write(document.segments) == data


def test_words_of_code_stay_in_office_documents():
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


def test_descriptions_in_attributes_are_prose_when_asked():
    html = (
        '<meta name="description" content="Eine Seite"><meta name=robots content="index">'
        "<p title='Ein &quot;Titel&quot;'>Text <img alt=\"Ein Bild\" src=a data-x=' alt=\"nein\"'> mehr</p>"
        '<input placeholder="Suche"><p translate="no" title="Nein">x</p>'
    )
    page = read_with_attributes(html)
    assert [segment.text for segment in page.segments] == [
        "Text mehr",
        "Eine Seite",
        'Ein "Titel"',
        "Ein Bild",
        "Suche",
    ]
    assert page.join(page.segments) == html
    done = page.join([replace(segment, text=segment.text.upper()) for segment in page.segments])
    for part in ('content="EINE SEITE"', "title='EIN &quot;TITEL&quot;'", 'alt="EIN BILD"', '"SUCHE"'):
        assert part in done
    for part in ("index", 'alt="nein"', 'title="Nein"'):
        assert part in done
    assert len(texts("a.html", html.encode())) == 1


def test_what_would_begin_a_block_is_escaped():
    document = read_document("a.md", b"eins")
    for text in ("- x", "1. x", "# x", "> x", "+ x"):
        html = MarkdownIt().render(document.write([replace(document.segments[0], text=text)]).decode())
        assert html.replace("&gt;", ">") == f"<p>{text}</p>\n"
        document = read_document("a.md", b"eins")


# office


def word():
    """A document by python-docx: formats, a link, a table, a header, an image, a field, a break."""
    file = docx.Document()
    paragraph = file.add_paragraph(style="List Bullet")
    for text in ("Das ist ", "ein "):  # as Word splits what has one format
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


def test_a_word_document_keeps_formats_links_images_tables_and_headers():
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


def test_a_document_that_is_not_changed_keeps_every_paragraph():
    data = word()
    document = read_document("a.docx", data)
    written = document.write(document.segments)

    def body(raw):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            return etree.tostring(etree.fromstring(archive.read("word/document.xml")), method="c14n")

    assert body(written) == body(data)


def odt(content):
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text", zipfile.ZIP_STORED)
        archive.writestr("content.xml", CONTENT.format(content))
        archive.writestr("Pictures/a.png", PIXEL)
    return found.getvalue()


def test_an_opendocument_keeps_spans_links_notes_and_spaces():
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


# files that are wrong


def bomb(name):
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as entry:
        for _ in range(300):
            entry.write(bytes(1_000_000))
    return found.getvalue()


def laughs():
    entities = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
    xml = f'<!DOCTYPE x [<!ENTITY a0 "ha">{entities}]>' + CONTENT.format("<text:p>&a9;</text:p>")
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("content.xml", xml)
    return found.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.docx", b""),
        ("a.docx", b"PK no zip"),
        ("a.docx", word()[:2000]),
        ("a.docx", odt("")),
        ("a.odt", b"\0" * 99),
        ("a.odt", odt("<text:p>")),
        ("a.odt", word()),
        ("a.odt", odt('<text:p>a<text:s text:c="x"/></text:p>')),
        ("a.txt", b"\xff\xfea"),
        ("a.txt", b"\x80"),
        ("a.html", b'<meta charset="nonsense">'),
        ("a.srt", b"nothing of the kind"),
        ("a.exe", b"MZ"),
        ("a", b""),
    ],
)
def test_files_that_cannot_be_read_are_refused(name, data):
    with pytest.raises(Unreadable):
        read_document(name, data)


@pytest.mark.parametrize("name", ["a.docx", "a.odt"])
def test_archives_that_swell_are_refused(name):
    with pytest.raises(OversizedDocument, match="unpacked"):
        read_document(name, bomb("content.xml"))


def test_entities_are_not_expanded():
    with suppress(Unreadable):  # libxml2 may refuse them outright
        assert sum(map(len, texts("a.odt", laughs()))) < 100


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_an_empty_file_is_no_server_error(kind):
    try:
        assert read_document(f"a{kind}", b"").segments == []
    except Unreadable:
        assert kind not in (".txt", ".md", ".html", ".htm", ".srt", ".yaml", ".po")


# keeping files


def test_names_are_safe():
    assert safe("../../etc/passwd") == "passwd"
    assert safe("C:\\x\\bericht 1.docx") == "bericht_1.docx"
    assert safe("..") == "file"
    assert safe("\0\n") == "file"
    assert safe(f"{'a' * 300}.docx") == f"{'a' * 95}.docx"
    assert len(safe(f"a.{'b' * 300}")) <= 100
    assert len(safe("a" * 500 + ".docx")) == 100
    assert translated_name("x/Größe.docx", "en") == "Größe_en.docx"


def test_files_expire_and_their_total_is_limited(tmp_path):
    now = [0.0]
    store = Store(10.0, 10_000, lambda: now[0])
    one = store.put("a.txt", b"1" * 6_000)
    assert store.get(one).path.read_bytes() == b"1" * 6_000
    with pytest.raises(Overloaded):
        store.put("b.txt", b"2" * 60)  # counts as a block of the disk
    with pytest.raises(TooLarge):
        store.put("b.txt", b"2" * 10_001)
    path = store.get(one).path
    now[0] = 10.0
    assert store.get(one) is None
    assert not path.exists()
    store.put("b.txt", b"2" * 60)
    folder = path.parent
    store.close()
    assert not folder.exists()


# over HTTP


@pytest.fixture(scope="module")
def place():
    with server(file_limit=100_000) as found:
        yield found


def send(client, name="brief.txt", data=b"Das ist gut.\n", **fields):
    values = {"source": "de", "target": "en"} | fields
    return client.post("/translate_file", files={"file": (name, data)}, data=values)


def test_a_file_is_translated_and_downloaded(place):
    client = place[0]
    answer = send(client, source="auto")
    url = answer.json()["translatedFileUrl"]
    assert re.fullmatch(rf"{client.base_url}/download_file/[0-9a-f-]{{36}}\.brief_en\.txt", url)
    file = client.get(url)
    line = client.post("/translate", json={"q": "Das ist gut.", "source": "de", "target": "en"}).json()
    assert file.text == line["translatedText"] + "\n"
    assert file.headers["content-disposition"] == 'attachment; filename="brief_en.txt"'
    assert client.head(url).status_code == 200


def test_a_pdf_is_translated_into_a_text(place):
    url = send(place[0], "a.pdf", printed("Das ist gut.")).json()["translatedFileUrl"]
    assert url.endswith(".a_en.txt")
    file = place[0].get(url)
    line = place[0].post("/translate", json={"q": "Das ist gut.", "source": "de", "target": "en"}).json()
    assert (file.headers["content-type"], file.text) == (
        "text/plain; charset=utf-8",
        line["translatedText"] + "\n\n",
    )


def test_a_word_document_is_translated_over_http(place):
    url = send(place[0], "a.docx", word()).json()["translatedFileUrl"]
    file = docx.Document(io.BytesIO(place[0].get(url).content))
    assert len(file.paragraphs) == 5
    assert len(file.inline_shapes) == 1
    assert file.paragraphs[0].text != "Das ist ein roter Satz."


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"source": ""}, 400, "Invalid request: missing source parameter"),
        ({"target": ""}, 400, "Invalid request: missing target parameter"),
        ({"name": "a.exe"}, 400, f"Invalid request: {UNKNOWN_FORMAT}"),
        ({"source": "zz"}, 400, "zz is not supported"),
        ({"target": "auto"}, 400, "auto is not supported"),
        (
            {"name": "a.docx"},
            400,
            "Invalid request: the file can't be read as a Word document; is it complete?",
        ),
        ({"data": b"a" * 100_001}, 413, "the file is longer than this server's limit of 100000 bytes"),
    ],
)
def test_wrong_uploads_get_libretranslates_words(place, fields, status, text):
    answer = send(place[0], **fields)
    assert (answer.status_code, answer.json()) == (status, {"error": text})


def test_an_upload_needs_a_file(place):
    for body in ({"data": {"source": "de"}}, {"json": {"file": "x"}}, {}):
        answer = place[0].post("/translate_file", **body)
        assert answer.json() == {"error": "Invalid request: missing file parameter"}
    assert place[0].post("/translate_file", content=b"a" * 300_000).status_code == 413


@pytest.mark.parametrize(
    "name", ["x", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/x", "a%00b", "....//x", "é"]
)
def test_nothing_else_can_be_downloaded(place, name):
    answer = place[0].get(f"/download_file/{name}")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_files_can_be_off_and_go_when_the_server_does():
    with server(files=False) as (client, house, _):
        off = {"error": "Files translation are disabled on this server."}
        answer = send(client)
        assert (answer.status_code, answer.json()) == (403, off)
        assert client.get("/frontend/settings").json()["supportedFilesFormat"] == []
        deepl = client.post("/v2/document", files={"file": ("a.txt", b"x")}, data={"target_lang": "EN"})
        assert (deepl.status_code, deepl.json()) == (403, {"message": off["error"]})
    with server() as (client, _, instance):
        send(client)
        folder = instance.config.app.state.files.store.folder
        assert list(folder.iterdir())
    assert not folder.exists()


def test_files_of_deepl_are_translated_while_the_client_waits(place):
    client = place[0]
    form = {"target_lang": "EN-GB", "source_lang": "DE"}
    handle = client.post("/v2/document", files={"file": ("brief.txt", b"Das ist gut.")}, data=form).json()
    path, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    until(lambda: client.post(path, json=key).json()["status"] == "done")
    assert client.post(path, data=key).json()["billed_characters"] == 12
    file = client.post(f"{path}/result", json=key)
    assert file.headers["content-disposition"] == 'attachment; filename="brief_en.txt"'
    plain = client.post("/v2/translate", json={"text": "Das ist gut.", "target_lang": "EN"}).json()
    assert file.text == plain["translations"][0]["text"]
    for wrong in ({"document_key": "x"}, {"document_key": 1}, {"document_key": "é"}, {}):
        for where in (path, f"{path}/result"):
            answer = client.post(where, json=wrong)
            assert (answer.status_code, answer.json()) == (404, {"message": "Document not found."})
    missing = client.post("/v2/document", data=form)
    assert missing.json() == {"message": "Parameter 'file' not specified."}


def test_a_document_that_fails_says_so_and_503_means_not_yet():
    with server(service_settings={"queue_tokens": 20}) as (client, _, _):
        handle = client.post(
            "/v2/document",
            files={"file": ("a.txt", b"Haus und Hof und noch viel mehr davon. " * 3)},
            data={"target_lang": "EN", "source_lang": "DE"},
        ).json()
        path, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
        until(lambda: client.post(path, json=key).json()["status"] == "error")
        assert "tokens" in client.post(path, json=key).json()["error_message"]
        assert client.post(f"{path}/result", json=key).status_code == 400
