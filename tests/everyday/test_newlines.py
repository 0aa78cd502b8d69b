"""Line breaks within sentences: in texts, files, on the command line and in documents."""

import asyncio
import io
from dataclasses import replace
from pathlib import Path

import docx
import pytest
from pptx import Presentation

from documents import read_document
from engine.answers.drafts import Partial
from engine.api import (
    USUAL_OPTIONS,
    MarkedText,
    Placement,
    Service,
    ServiceSettings,
)
from tests.cli.commands import done
from tests.support.finished import project

MODELS = Path(__file__).parents[2] / "models"
MAIL = """Sehr geehrter Herr Schmidt,

vielen Dank für Ihre Nachricht. Leider konnten wir Ihr Paket
nicht zustellen, weil an der angegebenen Adresse niemand zu
Hause war. Bitte holen Sie es morgen ab.

- Brot und Butter
- Milch
"""
SENTENCE = "vielen Dank für Ihre Nachricht. Leider konnten wir Ihr Paket nicht zustellen, weil an der \
angegebenen Adresse niemand zu Hause war. Bitte holen Sie es morgen ab."
XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="de" target-language="en" datatype="plaintext"><body>
<trans-unit id="1"><source{}>Ich habe heute
   keinen Hunger.
   Wo ist
   Tom?</source></trans-unit></body></file></xliff>"""
USUAL = USUAL_OPTIONS["translate"]


@pytest.fixture(scope="module")
def service():
    if not all((MODELS / name).is_dir() for name in ("tatoeba-de-en", "tatoeba-en-fr")):
        pytest.skip("the shipped models are not there")
    settings = ServiceSettings(Placement(lanes=((5, 8),)), verify=False)
    found = Service.open([MODELS / "tatoeba-de-en", MODELS / "tatoeba-en-fr"], settings)
    found.start()
    yield found
    found.stop(drain=False, timeout=10)


def answer(service, text, **options):
    (result,) = service.run_many("tatoeba-de-en", [text], replace(USUAL, **options))
    return result


def document(service, name, data):
    found = read_document(name, data)
    texts = [MarkedText(segment.text) for segment in found.segments]
    options = replace(USUAL, alignment=True)
    results = asyncio.run(service.run("tatoeba-de-en", texts, options))
    return found.write([project(s, r) for s, r in zip(found.segments, results, strict=True)])


def test_wrapped_mail_is_translated_by_sentences_and_wrapped_again(service):
    whole = answer(service, SENTENCE).text
    found = answer(service, MAIL, newlines="auto").text
    paragraph = found.split("\n\n")[1]
    assert " ".join(paragraph.split()) == whole
    assert max(map(len, paragraph.split("\n"))) <= 60
    assert found.endswith("\n\n- Bread and butter\n- Milk\n")


def test_lines_are_translated_alone_or_together_on_request(service):
    text = "Ich komme am Montag mit\ndem Zug nach Hamburg."
    assert answer(service, text, newlines="keep").text.count("\n") == 1
    assert answer(service, text, newlines="auto").text.count("\n") == 1  # the lines are short
    joined = answer(service, text.replace("\n", " ")).text
    assert answer(service, text, newlines="join").text == joined


def test_streamed_beginnings_of_a_wrapped_answer_stay(service):
    async def events():
        return [event async for event in service.stream("tatoeba-de-en", [MAIL], USUAL)]

    *partials, last = asyncio.run(events())
    assert all(isinstance(partial, Partial) for partial in partials)
    assert all(last[0].text.startswith(partial.text) for partial in partials)


def test_alignment_and_phrases_of_wrapped_text_have_the_places_of_the_source(service):
    text = MAIL.replace("Paket", "Buch")
    result = answer(service, text, alignment=True, glossary={"Nachricht": "LETTER"})
    places = [p for sentence in result.alignment for p in sentence.source_places if p]
    assert any(text[begin:end] == "Adresse" for begin, end in places)
    (kept,) = [k for k in result.kept if result.text[k.begin : k.end] == "LETTER"]
    assert kept.begin > 0


def test_two_models_read_whole_paragraphs(service):
    route = service.pick("translate", "de", "fr")
    (one,) = asyncio.run(service.run(route, [SENTENCE], USUAL))
    (wrapped,) = asyncio.run(service.run(route, [MAIL], USUAL))
    paragraph = wrapped.text.split("\n\n")[1]
    assert " ".join(paragraph.split("\n")) == one.text
    assert max(map(len, paragraph.split("\n"))) <= 60


@pytest.mark.parametrize("target", ["en", "fr"])
def test_answer_has_the_line_ends_of_its_source(service, target):
    route, text = service.pick("translate", "de", target), MAIL.replace("Paket", "Buch")
    options = replace(USUAL, glossary={"Buch": "LIVRE"})
    texts = [text, text.replace("\n", "\r\n")]
    plain, wrapped = asyncio.run(service.run(route, texts, options))
    assert wrapped.text == plain.text.replace("\n", "\r\n")
    assert [wrapped.text[k.begin : k.end] for k in wrapped.kept][-1] == "LIVRE"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_text_file_keeps_its_lines_and_line_ends(service, newline):
    new = document(service, "a.txt", MAIL.replace("\n", newline).encode()).decode()
    assert new.replace(newline, "\n") == answer(service, MAIL).text
    assert new.count(newline) == new.count("\n")


def test_command_line_joins_lines_on_request(service, tmp_path):
    (tmp_path / "mail").write_text(MAIL, "utf-8")
    for mode in ("auto", "keep"):
        out = tmp_path / mode
        arguments = ("--newlines", mode) if mode == "auto" else ()
        done("translate", tmp_path / "mail", "--model", MODELS / "tatoeba-de-en", "--output", out, *arguments)
        assert out.read_text("utf-8") == answer(service, MAIL, newlines=mode).text


@pytest.mark.parametrize(
    ("page", "new"),
    [
        ("<p>Ich habe heute<br>keinen Hunger.</p>", "<p>I'm not hungry <br>today.</p>"),
        ("<p>Ich habe Hunger.<br>Wo ist Tom?</p>", "<p>I'm hungry.<br>Where's Tom?</p>"),
        ("<p>Guten Morgen<br>Gute Nacht</p>", "<p>Good morning<br>Good night</p>"),
    ],
)
def test_line_break_of_a_page_within_a_sentence_stays_in_its_place(service, page, new):
    assert document(service, "a.html", page.encode()).decode() == new


def test_soft_line_break_of_a_letter_and_of_a_slide_stays_in_its_place(service):
    letter, data = docx.Document(), io.BytesIO()
    run = letter.add_paragraph().add_run("Ich habe heute")
    run.add_break()
    run.add_text("keinen Hunger.")
    run.add_break()
    run.add_text("Wo ist Tom?")
    letter.save(data)
    new = docx.Document(io.BytesIO(document(service, "a.docx", data.getvalue())))
    assert new.paragraphs[0].text == "I'm not hungry \ntoday.\nWhere's Tom?"
    slides, data = Presentation(), io.BytesIO()
    slide = slides.slides.add_slide(slides.slide_layouts[0])
    slide.shapes.title.text = "Ich habe heute\vkeinen Hunger."
    slides.save(data)
    new = Presentation(io.BytesIO(document(service, "a.pptx", data.getvalue())))
    assert new.slides[0].shapes.title.text == "I'm not hungry \vtoday."


def test_line_break_in_a_source_of_xliff_is_white_space(service):
    new = document(service, "a.xliff", XLIFF.format("").encode()).decode()
    assert ">I'm not hungry \n   today.\n   Where's \n   Tom?</target>" in new
    kept = document(service, "a.xliff", XLIFF.format(' xml:space="preserve"').encode()).decode()
    assert "today" in kept.partition("<target")[2].partition("\n")[0]
