"""Links keep their targets: menus are translated link by link, and attention leaves no link without words."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import docx
import numpy as np
import pytest
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from hypothesis import assume, given
from hypothesis import strategies as st

from documents import read_document
from documents.formats.html import read_html
from documents.menus import divide, menu_of
from documents.placing import best_words, cut_word, in_source_order
from documents.spans import Segment, Span
from tests.documents.samples import book, odt, repacked, shouted, texts
from tests.documents.test_spans import aligned
from tests.support.finished import project

SEPARATOR = re.compile(r"[|·>]")


@pytest.mark.parametrize(
    ("page", "parts"),
    [
        ('<a href="/1">Bearbeiten</a> (<a href="/2">Löschen</a>)', ["Bearbeiten", "Löschen"]),
        ('<a href="/a">Kontakt</a> · <a href="/b">Über <b>uns</b></a>', ["Kontakt", "Über uns"]),
        ('<nav><b><a href="/1">Zurück</a></b> <a href="/2">Weiter</a></nav>', ["Zurück", "Weiter"]),
        ("<a>Start</a> > <a>Bücher</a> > <b>Romane</b>", ["Start", "Bücher", "Romane"]),
        ("<span><a>Fußball</a>, <a>Tennis</a>.</span>", ["Fußball", "Tennis"]),
        ("<a>Über</a><a>Kontakt</a>", ["Über", "Kontakt"]),
        ("<a>Wörter</a><a>buch</a>", ["Wörterbuch"]),
        ("<a>Anmelden</a> oder <a>Registrieren</a>", ["Anmelden oder Registrieren"]),
        ("<b>Das</b> <i>Haus</i>", ["Das Haus"]),
        ("<a>Kontakt</a> <span>neu</span>", ["Kontakt", "neu"]),
        ("<span>Sie stimmen den</span> <a>bedingungen</a>", ["Sie stimmen den bedingungen"]),
        ("<b>Preis:</b>\n<a>\n  Kaufen\n</a>", ["Preis:", "Kaufen"]),
        ("<a><b>Ja</b></a>", ["Ja"]),
        ("<a>Ja</a> <code>x</code> <a>Nein</a>", ["Ja", "Nein"]),
    ],
)
def test_links_without_words_between_them_are_translated_by_themselves(page, parts):
    assert texts("a.html", page.encode()) == parts
    wanted = re.sub(r"(?:^|(?<=>))[^<>]+", lambda m: m[0] if m[0] == "x" else m[0].upper(), page)
    assert shouted("a.html", page.encode()).decode().replace("&gt;", ">") == wanted
    document = read_document("a.html", page.encode())
    assert document.write(document.segments).decode() == page


SPACES = st.sampled_from([" ", "\n", "\n    ", " \n\t", ""])
INLINE = st.recursive(
    st.sampled_from(["wort", "ein text", "mehr", "<i class='x'></i>", "<img src='x'>", "<!-- x -->"]),
    lambda inner: st.tuples(
        st.sampled_from(["a", "b", "span", "em"]),
        st.lists(st.tuples(SPACES, inner).map("".join), min_size=1, max_size=3),
        SPACES,
    ).map(lambda one: f"<{one[0]}>{''.join(one[1])}{one[2]}</{one[0]}>"),
    max_leaves=6,
)


@given(st.lists(st.tuples(SPACES, INLINE).map("".join), min_size=1, max_size=4).map("".join), SPACES)
def test_inline_tags_keep_their_words_and_white_space(content, end):
    page = f"<p>{content}{end}</p>"
    places = (match.start() for match in re.finditer(r"(?<![<'\w])[a-z]+(?![^<>]*>)", page))
    numbers = {place: f"w{number}" for number, place in enumerate(places)}
    page = re.sub(r"(?<![<'\w])[a-z]+(?![^<>]*>)", lambda match: numbers[match.start()], page)
    assume(not re.search(r"w\d+(<[^>]*>)*w", page))  # a format within a word is placed by the word
    found = read_html(page)
    written = list[Segment]()
    for segment in found.segments:
        words = segment.text.split()
        written.append(project(segment, aligned(words, list(map(str.upper, words)), np.eye(len(words)))))
    translated = found.join(written)
    assert re.findall("<[^>]*>", translated) == re.findall("<[^>]*>", page)
    assert re.sub("<[^>]*>", "", translated).split() == re.sub("<[^>]*>", "", page).upper().split()
    # white space at the edge of a format alone goes out of it
    if all(map(_has_outer_space, re.split(r"w\d+", page)[1:-1])):
        folded = re.sub(r"(?<=\w)\s+(?=\w)", " ", page)
        assert translated == folded.replace("w", "W")


def _has_outer_space(gap):
    """Return whether the outermost level of the tags between two words has white space."""
    depth, depths, spaces = 0, [0], []
    for part in re.findall(r"<[^>]*>|\s+", gap):
        depth += {"<": 1, "</": -1}.get(re.match("</?|", part)[0], 0) if not re.match("<(img|!)", part) else 0
        depths.append(depth)
        spaces += [depth] * part.isspace()
    return min(depths) in spaces


def test_menu_keeps_the_places_of_all_spans_when_its_texts_grow():
    (segment,) = [prose.segment for prose in read_html("x<i></i>").prose]
    source = "(Start | Über uns) X0"
    spans = (Span(0, 18), Span(1, 6, 0, link=True), Span(9, 17, 0, link=True), Span(14, 17, 2), Span(8, 8, 0))
    segment = Segment(source, (*spans, Span(19, 21, kept=True)))
    menu = menu_of(segment)
    assert menu is not None
    assert [text.text for text in menu.texts] == ["Start", "Über uns"]
    new = menu.write([Segment("Home page"), Segment("About us", (Span(6, 8),))])
    assert new.text == "(Home page | About us) X0"
    covered = [new.text[span.begin : span.end] for span in new.spans]
    assert covered == ["(Home page | About us)", "Home page", "About us", "us", "", "X0"]
    assert new.spans[4].begin == 12
    assert menu.write(menu.texts) is segment


def test_menus_of_markdown_office_files_and_books_are_divided():
    markdown = b"[Bearbeiten](/edit) ([Entfernen](/delete))\n"
    assert shouted("a.md", markdown) == b"[BEARBEITEN](/edit) ([ENTFERNEN](/delete))\n"
    assert texts("a.md", b'<a href="/k">Kontakt</a> <span>neu</span>\n') == ["Kontakt", "neu"]
    file, found = docx.Document(), io.BytesIO()
    paragraph = file.add_paragraph()
    for number, text in enumerate(("Kontakt", " | ", "Impressum")):
        run = paragraph.add_run(text)._r
        if number != 1:
            link = OxmlElement("w:hyperlink")
            link.set(qn("w:anchor"), text)
            link.append(run)
            paragraph._p.append(link)
    file.save(found)
    assert texts("a.docx", found.getvalue()) == ["Kontakt", "Impressum"]
    links = [
        (link.get(qn("w:anchor")), "".join(text.text for text in link.iter(qn("w:t"))))
        for link in _links(shouted("a.docx", found.getvalue()))
    ]
    assert links == [("Kontakt", "KONTAKT"), ("Impressum", "IMPRESSUM")]
    assert texts("a.odt", odt("<text:p><text:a>eins</text:a> | <text:a>zwei</text:a></text:p>")) == [
        "eins",
        "zwei",
    ]
    page = b"<html><body><a href='a'>eins</a> | <a href='b'>zwei</a></body></html>"
    assert texts("a.epub", repacked(book(), **{"EPUB/text/eins.xhtml": page}))[:2] == ["eins", "zwei"]


def _links(data):
    return docx.Document(io.BytesIO(data)).element.body.iter(qn("w:hyperlink"))


PARTS = st.sampled_from(["|", "·", ">", ",", "(", "und", "oder"])


@st.composite
def pages(draw):
    """Return a page of words, links and emphases with marks between them, and its translation."""
    pieces = list[str]()
    for number in range(draw(st.integers(1, 5))):
        words = " ".join(f"s{number}{i}x" for i in range(draw(st.integers(1, 3))))
        tag = draw(st.sampled_from(["a", "b", "button"]))
        pieces += [f"<{tag}>{words}</{tag}>" if draw(st.booleans()) else words, draw(PARTS)]
    target = [f"t{i}y" for i in range(draw(st.integers(1, 12)))]
    for at in draw(st.lists(st.integers(0, len(target)), max_size=4)):
        target.insert(at, draw(st.sampled_from(["|", "·", ",", "("])))
    return "<p>" + " ".join(pieces) + "</p>", target, draw(st.integers(0, 2**32 - 1))


@given(pages())
def test_no_span_with_words_is_empty_or_a_mark_or_across_a_separator_for_any_attention(case):
    page, target, seed = case
    generator = np.random.default_rng(seed)
    for prose in read_html(page).prose:
        segment = prose.segment
        source = segment.text.split()
        matrix = generator.dirichlet(np.full(len(source), 0.3), len(target))
        new = project(segment, aligned(source, target, matrix))
        done = [new.text[span.begin : span.end] for span in new.spans]
        longest = max((len(re.findall(r"\w+", text)) for text in done), default=0)
        for text, old in zip(done, segment.spans, strict=True):
            if SEPARATOR.search(segment.text[old.begin : old.end]):
                continue
            assert not SEPARATOR.search(text)
            # only a translation with fewer words than spans leaves a span empty
            assert re.search(r"\w", text) or longest <= 1 or len(re.findall(r"\w+", new.text)) < 2 * len(done)


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_links_keep_their_order_when_attention_is_uncertain(count, seed):
    words = [f"s{i}x" for i in range(count)]
    (prose,) = read_html(" und ".join(f"<a>{word}</a>" for word in words)).prose
    source, target = prose.segment.text.split(), [f"t{i}y" for i in range(2 * count)]
    matrix = np.random.default_rng(seed).uniform(0.4, 0.6, (len(target), len(source)))
    new = project(prose.segment, aligned(source, target, matrix / matrix.sum(1, keepdims=True)))
    begins = [span.begin for span in new.spans]
    assert begins == sorted(begins)


def test_links_change_their_order_when_attention_is_certain():
    (prose,) = read_html("<a>rotes</a> und <a>Haus</a>").prose
    result = aligned(["rotes", "und", "Haus"], ["maison", "et", "rouge"], np.eye(3)[::-1])
    new = project(prose.segment, result)
    assert [new.text[span.begin : span.end] for span in new.spans] == ["rouge", "maison"]
    blurred = aligned(["rotes", "und", "Haus"], ["maison", "et", "rouge"], np.eye(3)[::-1] * 0.2 + 0.8 / 3)
    new = project(prose.segment, blurred)
    assert [new.text[span.begin : span.end] for span in new.spans] == ["maison", "rouge"]


def test_only_the_stretch_of_uncertain_links_is_put_in_order():
    ranges = [(1, 2), (0, 1), (4, 5), (3, 4), (6, 8)]
    assert in_source_order(ranges, lambda number: False) == sorted(ranges)
    assert in_source_order(ranges, lambda number: number < 2) == [(1, 2), (0, 1), (3, 4), (4, 5), (6, 8)]


def test_span_takes_a_word_and_not_a_mark():
    marks = np.array([True, False, True])
    assert best_words(np.array([0.5, -0.4, 0.1]), marks) == (1, 2)
    assert best_words(np.array([0.5, -1e9, 0.1]), marks) == (0, 0)
    assert cut_word((0, 4), np.array([False, True, False, True]), last=True) == 2
    assert cut_word((0, 4), np.array([False, True, False, True]), last=False) == 1
    assert cut_word((0, 2), np.array([False, True]), last=True) is None


def test_sentences_are_not_divided():
    segments = [Segment("ein Satz", (Span(4, 8, link=True),)), replace(Segment("zwei"))]
    parts, unite = divide(segments)
    assert parts == segments
    assert unite(parts) == segments
