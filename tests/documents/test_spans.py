"""Formats of HTML: read as spans, projected to a translation by its alignment, and written."""

import math
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents.align import WordAttention, words_of
from documents.formats.html import read_html
from documents.formats.outline import outline
from documents.formats.tags import HTML, MarkupRules
from documents.spans import Segment, Span, weave
from engine.answers.pivot import join_results
from engine.api import Placement, Service, ServiceSettings, TextOptions, TextResult
from engine.schedule.slices import at_once
from engine.text.placeables.masked_text import KeptSpan
from server.answering.pages import join_pages, parse_pages
from server.answering.translation import run_segments
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from server.state import AppState
from tests.support.finished import make_alignments, project

MODELS = Path(__file__).parents[2] / "models"
TAG = re.compile(r"<[^>]*>")


def texts_of(source, rules=HTML):
    return [segment.text for segment in read_html(source, rules).segments]


# reading


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<!DOCTYPE html><!-- c --><p>a</p>", ["a"]),
        ("<?php x ?><p>a</p><![CDATA[b]]>", ["a"]),
        ('<p translate="no">a<br>b</p>c', ["c"]),
        ("<script>if (a<b) x</script><style>p{}</style>a", ["a"]),
        ("<pre>a <b>b</b></pre>c", ["c"]),
        ("a < b", ["a < b"]),
        ("<p>a</p></div>b", ["a", "b"]),
        ("plain", ["plain"]),
        ("<![<p>a", ["a"]),
        ("a<!-- <p>b</p>", ["a"]),
        ("a<b c", ["a"]),
        ("<!-->a", ["a"]),
        ('<a title="x>y">b</a>', ["b"]),
        ("<p it's>b</p> it's", ["b", "it's"]),
        ("<SCRIPT>a</script >b", ["b"]),
        ("<script>a", []),
        ("<textarea><b></textarea>c", ["c"]),
        ("<code>a<code>b</code>c<code/></code>d", ["abcd"]),
        ("<pre>a<pre>b</pre>c</pre>d", ["d"]),
        ('<br translate="no">a', ["a"]),
        ("<SPAN TRANSLATE=no>a</SPAN>b", ["ab"]),
        ("<i class='x notranslate'>a</i>", []),
        ("  ", []),
        ("one <b>sentence\n  in</b> <i>lines</i>", ["one sentence in lines"]),
        ("one<br>two<li>three</li>", ["one", "two", "three"]),
        ("&lt;&auml;&#33;", ["<ä!"]),
        ("see <code>f(&lt;)</code>!", ["see f(<)!"]),
        ("<svg><text>a</text></svg>b", ["b"]),
    ],
)
def test_page_keeps_everything_except_its_prose(source, texts):
    page = read_html(source)
    assert [segment.text for segment in page.segments] == texts
    assert page.join(page.segments) == source


MARKUP = st.lists(
    st.sampled_from(
        ["<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "<img>", "<code>", "</code>", "<!--x-->"]
    )
    | st.sampled_from(["eins", " ", "zwei", ".", "&amp;", "\n", "drei vier", "x"]),
    max_size=14,
).map("".join)


@given(st.text(alphabet="<>/!-?&;abp =\"'[]\n", max_size=40) | MARKUP)
def test_any_text_survives_reading_and_writing_as_html(source):
    page = read_html(source)
    assert page.join(page.segments) == source
    for segment in page.segments:
        assert "".join(v for _, v in weave(segment) if isinstance(v, str)) == segment.text


@pytest.mark.parametrize("blank", ["&nbsp;", "&#160;", "&#xA0;", "&ensp;", "\u00a0", "\u3000", " "])
def test_white_space_at_both_ends_is_not_in_a_segment(blank):
    source = f"<td>{blank}</td><p>{blank}{blank}Guten Tag.{blank} </p><p><b>{blank}</b></p>Ja{blank}"
    page = read_html(source)
    assert [segment.text for segment in page.segments] == ["Guten Tag.", "Ja"]
    again = [replace(segment, text=segment.text.upper()) for segment in page.segments]
    assert page.join(again) == source.replace("Guten Tag.", "GUTEN TAG.").replace("Ja", "JA")
    assert page.join(page.segments) == source


def test_non_breaking_spaces_inside_prose_are_kept():
    page = read_html("<p>Es sind\n 100&nbsp;km.</p>")
    (segment,) = page.segments
    assert segment.text == "Es sind 100\u00a0km."
    assert page.join([replace(segment, text="It's 100\u00a0km.")]) == "<p>It's 100&nbsp;km.</p>"


def test_hundred_thousand_tags_take_linear_time():
    source = "<b>a " * 50_000 + "</i>b" * 50_000
    page = read_html(source)
    assert page.join(page.segments) == source
    assert max(len(segment.spans) for segment in page.segments) <= 1000


def test_white_space_between_tags_changes_each_span_a_few_times(monkeypatch):
    calls = []
    monkeypatch.setattr("documents.spans.replace", lambda *a, **k: calls.append(1) or replace(*a, **k))
    read_html("<b>  " * 500)
    assert len(calls) < 3_000  # for 500 spans; 125,000 if each white space changed all spans before it


def test_structural_tags_of_xml_split_and_inline_tags_do_not():
    xml = MarkupRules(xml=True, blocks=frozenset(), keep=frozenset({"x"}), fold=False)
    source = "<doc><title>A <i>big</i> day</title><par>One <x>two</x>.</par><par>Three</par></doc>"
    assert outline(source, xml) == {"doc", "title", "par"}
    split = MarkupRules(xml=True, blocks=outline(source, xml), keep=xml.keep)
    assert texts_of(source, split) == ["A big day", "One two.", "Three"]
    assert outline("Press <b>ok</b> now", xml) == set()


def test_empty_mark_of_a_client_is_a_word_unless_it_touches_one():
    rules = MarkupRules(xml=True, blocks=frozenset(), keep=frozenset({"x"}), marks=frozenset({"x"}))
    source = 'Hallo <x id="6"></x>, <x id="9"/>! <x>Tom</x> ist <x id="1"></x>hier<x/>.'
    page = read_html(source, rules)
    assert texts_of(source, rules) == ["Hallo X0, X1! Tom ist hier."]
    assert page.join(page.segments) == source
    assert [span.kept for span in page.segments[0].spans] == [True, True, True, False, False]
    plain = MarkupRules(xml=True, blocks=frozenset(), keep=frozenset({"x"}))
    assert texts_of(source, plain) == ["Hallo , ! Tom ist hier."]


# carrying over


def aligned(source, target, matrix):
    """Return a result with an alignment of words."""
    rows = np.pad(np.asarray(matrix, np.float32), ((0, 1), (0, 1)))
    rows[-1, -1] = 1
    mark = ["▁" + word for word in source], ["▁" + word for word in target]
    pieces = [*mark[0], "</s>"], [*mark[1], "</s>"]
    text = " ".join(target)
    return TextResult(
        text, alignment=make_alignments(" ".join(source), text, *([side] for side in pieces), [rows])
    )


def test_attention_on_end_of_sentence_is_ignored():
    result = aligned(["a", "b"], ["x"], [[0.15, 0.05]])
    result.alignment[0].matrix[0, -1] = 0.8
    attention = WordAttention(at_once(words_of(result.text)))
    attention.add(result.alignment[0])
    assert attention.mass(0, 1, 0, 1) == pytest.approx([0.75])


WORDS = ["ba", "ce", "di", "fo", "gu", "ha", "je", "ki"]


@given(st.permutations(range(8)), st.data())
def test_formats_follow_their_words_with_a_sharp_alignment(order, data):
    source = [word + "x" for word in WORDS]
    target = [WORDS[i] + "y" for i in order]
    bold = data.draw(st.sets(st.integers(0, 7), max_size=4))
    html = " ".join(f"<b id={i}>{word}</b>" if i in bold else word for i, word in enumerate(source))
    page = read_html(html)
    matrix = np.eye(8)[list(order)] * 0.9 + 0.1 / 8
    (segment,) = page.segments
    answer = page.join([project(segment, aligned(source, target, matrix))])
    wanted = [f"<b id={i}>{WORDS[i]}y</b>" if i in bold else f"{WORDS[i]}y" for i in order]
    assert answer == " ".join(wanted)


def test_each_segment_of_pages_keeps_its_own_formats():
    pages = at_once(parse_pages(read_html, ["<p>a <b>b</b></p><p><i>c</i> d</p>", "<p>e <u>f</u></p>"]))
    answers = [None, aligned(["c", "d"], ["x", "y"], np.eye(2)), aligned(["e", "f"], ["v", "w"], np.eye(2))]
    written = at_once(join_pages(pages, answers))
    assert written == ["<p>a <b>b</b></p><p><i>x</i> y</p>", "<p>v <u>w</u></p>"]


@st.composite
def translated(draw):
    page = read_html(draw(MARKUP))
    target = draw(st.lists(st.sampled_from(["one", "two", ".", "&", "x", "eins"]), max_size=8))
    return page, target, draw(st.integers(0, 2**32 - 1))


@given(translated())
def test_tags_occur_once_and_nest_for_any_attention(case):
    page, target, seed = case
    generator, done = np.random.default_rng(seed), []
    for segment in page.segments:
        source = segment.text.split()
        matrix = generator.dirichlet(np.ones(max(1, len(source))), len(target))
        done.append(project(segment, aligned(source, target, matrix[:, : len(source)])))
    answer = page.join(done)
    assert sorted(TAG.findall(answer)) == sorted(TAG.findall(page.join(page.segments)))
    again = read_html(answer)
    assert answer == again.join(again.segments)
    for old, new in zip(page.segments, done, strict=True):
        order = []
        for kind, value in weave(new):
            if kind == "begin":
                order.append(value)
            elif kind == "end":
                assert order.pop() == value
        kept = [old.text[s.begin : s.end] for s in old.spans if s.kept]
        assert [new.text[s.begin : s.end] for s in new.spans if s.kept] == kept


def test_kept_text_is_restored_if_the_model_changed_it():
    segment = Segment("call foo() now", (Span(5, 10, kept=True),))
    matrix = [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0, 0, 1]]
    result = aligned(["call", "foo()", "now"], ["rufe", "fuh", "jetzt"], matrix)
    assert project(segment, result).text == "rufe foo() jetzt"
    assert project(segment, TextResult("")).text == "foo()"


def test_format_excludes_added_articles_and_includes_final_marks():
    words = frozenset({"das"}), frozenset({"the"})
    segment = Segment("Das Haus! ist rot.", (Span(4, 9),))
    matrix = [[0.2, 0.8, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    result = aligned(["Das", "Haus!", "ist", "rot."], ["The", "house!", "is", "red."], matrix)
    for span, covered in ((Span(4, 9), "house!"), (Span(0, 9), "The house!")):
        done = project(replace(segment, spans=(span,)), result, small_words=words)
        (there,) = done.spans
        assert done.text[there.begin : there.end] == covered


def test_format_includes_a_whole_glossary_phrase():
    segment = Segment("unser Kunde wartet", (Span(6, 11),))
    result = aligned(["unser", "Kunde", "wartet"], ["our", "*client*", "waits"], np.eye(3))
    (span,) = project(segment, replace(result, kept=(KeptSpan(4, 12, -1),))).spans
    assert result.text[span.begin : span.end] == "*client*"


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ('haben <x id="4"></x> Dateien gelöscht', 'have <x id="4"></x> files deleted'),
        ("haben <img src=a> Dateien gelöscht", "have <img src=a> files deleted"),
        ("haben <x></x> <img> Dateien gelöscht", "have <x></x> <img> files deleted"),
        ("haben<wbr> Dateien gelöscht", "have<wbr> files deleted"),
        ("haben <i></i> <b>Dateien</b> gelöscht", "have <i></i> <b>files</b> deleted"),
    ],
)
def test_element_without_text_keeps_white_space_on_both_sides(source, answer):
    (segment,) = read_html(source).segments
    assert segment.text == "haben Dateien gelöscht"
    result = aligned(["haben", "Dateien", "gelöscht"], ["have", "files", "deleted"], np.eye(3))
    page = read_html(source)
    assert page.join([project(s, result) for s in page.segments]) == answer


def test_tags_inside_an_address_keep_their_positions():
    page = read_html("see <a href=u><i>https://</i>example.org/<wbr>a</a> twice")
    (segment,) = page.segments
    matrix = np.full((3, 3), 1 / 3)
    result = aligned(segment.text.split(), ["zweimal", "https://example.org/a", "siehe"], matrix)
    assert page.join([project(segment, result)]) == (
        "zweimal <a href=u><i>https://</i>example.org/<wbr>a</a> siehe"
    )


def test_formats_are_projected_through_a_pivot_language():
    segment = read_html("eins <b>zwei</b> drei").segments[0]
    first = aligned(["eins", "zwei", "drei"], ["two", "three", "one"], np.eye(3)[[1, 2, 0]])
    second = aligned(["two", "three", "one"], ["trois", "un", "deux"], np.eye(3)[[1, 2, 0]])
    result = join_results(first, second)
    (span,) = project(segment, result).spans
    assert result.text[span.begin : span.end] == "deux"


def test_formats_are_projected_in_every_sentence():
    words = [f"w{i}x" for i in range(40)]
    turned = [f"v{i + 3 - 2 * (i % 4)}y" for i in range(40)]  # each sentence of four from behind
    rows = np.pad(np.eye(4)[::-1], ((0, 1), (0, 1)))
    rows[-1, -1] = 1
    sides = [[[*side[i : i + 4], "</s>"] for i in range(0, 40, 4)] for side in (words, turned)]
    text, answer = " ".join(words), " ".join(turned)
    result = TextResult(answer, alignment=make_alignments(text, answer, *sides, [rows] * 10))
    for i, word in enumerate(words):
        begin = text.index(word)
        (span,) = project(Segment(text, (Span(begin, begin + len(word)),)), result).spans
        assert answer[span.begin : span.end] == f"v{i}y"


def test_phrase_of_another_length_keeps_the_white_space_after_it():
    segment = Segment("Frau Ott mag das Haus", (Span(0, 8, kept=True), Span(17, 21)))
    for phrase in ("Ms. Ott", "Mademoiselle Ott"):
        words = [*phrase.split(), "likes", "the", "house"]
        result = aligned(["Frau", "Ott", "mag", "das", "Haus"], words, np.eye(5))
        result = replace(result, kept=(KeptSpan(0, len(phrase), 0),))
        done = project(segment, result, {0: phrase})
        assert done.text == f"{phrase} likes the house"
        assert [done.text[s.begin : s.end] for s in done.spans] == [phrase, "house"]


def test_white_space_around_kept_spans_is_from_the_translation():
    segment = Segment("ich sah foo() gestern", (Span(8, 13, kept=True),))
    result = aligned(["ich", "sah", "foo()", "gestern"], ["I", "saw", "foo()."], np.eye(4)[:3])
    assert project(segment, result).text == "I saw foo()."


async def test_shipped_model_moves_formats_with_their_words():
    if not (MODELS / "tatoeba-de-en").is_dir():
        pytest.skip("models/tatoeba-de-en is not there")
    service = Service.open(
        [MODELS / "tatoeba-de-en"], ServiceSettings(Placement(lanes=((5, 4),)), verify=False)
    )
    service.start()
    try:
        page = read_html(
            "<p>Ich habe gestern das <b>rote Auto</b> meines <i>Bruders</i> gewaschen.</p>"
            "<p>Ich habe <code>f(<b>x</b>)</code> gesehen.</p>"
        )
        house = AppState(service, ServerSettings(), Metrics())
        routes = [service.route("tatoeba-de-en")] * 2
        done, results = await run_segments(house, page.segments, routes, TextOptions(), math.inf)
    finally:
        service.stop(drain=False, timeout=10)
    answer = page.join(done)
    assert unescape(TAG.sub("", answer)) == "".join(result.text for result in results)
    assert "<b>red car</b>" in answer
    assert "<i>brother" in answer
    assert answer.count("<code>f(<b>x</b>)</code>") == 1


def test_no_line_of_a_translation_begins_with_a_mark_that_ends_a_sentence():
    source = Segment("a b c", (Span(4, 4, line=True),))
    result = replace(aligned(["a", "b", "c"], ["x", "y", "."], np.eye(3)), text="x y.")
    (line,) = project(source, result).spans
    assert line.begin == 2


def test_point_before_the_last_mark_keeps_the_space_before_it():
    source = Segment("a .", (Span(2, 2),))
    result = replace(aligned(["a", "."], ["x", "."], np.eye(2)), text="x.")
    assert project(source, result) == Segment("x .", (Span(2, 2),))
