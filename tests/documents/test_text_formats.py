"""Plain text, HTML, subtitles and Markdown: only the prose is changed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from documents import Unreadable, read_document
from documents.formats.attributes import read_with_attributes
from documents.formats.subtitles import wrap
from tests.documents.samples import shouted, texts


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"])
def test_text_keeps_line_ends_and_encoding(encoding):
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
def test_number_of_a_note_is_not_part_of_the_word_before_it(note):
    page = f"<p>Ein Satz{note} mit Note.</p><p>{note} Die Note.</p><p>Das 1<sup>er</sup>.</p>"
    assert texts("a.html", page.encode()) == ["Ein Satz mit Note.", "Die Note.", "Das 1er."]
    wanted = f"<p>EIN SATZ{note} MIT NOTE.</p><p>{note} DIE NOTE.</p><p>DAS 1<sup>ER</sup>.</p>"
    assert shouted("a.html", page.encode()).decode() == wanted


def test_page_keeps_markup_and_charset():
    page = '<html><head><meta charset="iso-8859-1"><title>ö</title></head><p class=x>a <b>b</b></p></html>'
    wanted = page.replace(">ö<", ">Ö<").replace(">a <b>b<", ">A <b>B<")
    assert shouted("a.html", page.encode("latin-1")) == wanted.encode("latin-1")


def test_characters_that_the_charset_lacks_become_references():
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


def test_odd_subtitles_are_read_like_players_do():
    """Reads files without numbers, with settings after times, with blank lines in a cue, without a last line
    end."""
    odd = "\ufeff\n0:0:1.5 --> 0:0:2 X1:40\neins\n\n3\n00:00:03,000 -> 00:00:04,000\n\nzwei\n\ndrei"
    assert texts("a.srt", odd.encode()) == ["eins", "zwei  drei"]
    assert shouted("a.srt", odd.encode()).decode() == odd.replace("eins", "EINS").replace(
        "zwei\n\ndrei", "ZWEI\n\nDREI"
    )


def test_wrapped_lines_are_about_equal():
    assert wrap("one two three four", 2) == "one two\nthree four"
    assert wrap("one", 3) == "one"


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
    assert '[A LINK](http://x.org/a_(b) "Ti")' in found
    assert "> QUOTED\n> TEXT\\\n> AFTER A BREAK" in found
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


def test_descriptions_in_attributes_are_prose_on_request():
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


def test_text_that_would_begin_a_block_is_escaped():
    document = read_document("a.md", b"eins")
    for text in ("- x", "1. x", "# x", "> x", "+ x"):
        html = MarkdownIt().render(document.write([replace(document.segments[0], text=text)]).decode())
        assert html.replace("&gt;", ">") == f"<p>{text}</p>\n"
        document = read_document("a.md", b"eins")
