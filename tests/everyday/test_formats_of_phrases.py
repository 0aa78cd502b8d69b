"""A format on a phrase with a fixed translation stays on its translation, in every format and by pivots."""

import asyncio
import io
import re
from pathlib import Path

import docx
import pytest

from documents import read_document
from documents.formats.html import read_html
from documents.formats.tags import HTML, MarkupRules
from documents.projection import protected_ranges
from engine.api import MarkedText, Placement, Service, ServiceSettings, TextOptions
from tests.support.finished import project

MODELS = Path(__file__).parents[2] / "models"
NAMES = ("tatoeba-en-de", "tatoeba-de-en", "tatoeba-fr-en", "tatoeba-en-fr")
ALIGNED = TextOptions(protect=True, follow_form=True, alignment=True)
XML = MarkupRules(xml=True, blocks=frozenset())
CASES = (
    ("en", "de", "<b>Good evening!</b> Where is the station?", "<b>Guten Abend!</b> Wo ist der Bahnhof?"),
    ("de", "en", "<a href='x'>Hallo!</a> Ich bin Tom.", "<a href='x'>Hello!</a> I'm Tom."),
    ("fr", "en", "<b>Bonjour !</b> Où est la gare ?", "<b>Hello!</b> Where's the station?"),
    (
        "en",
        "de",
        "<p>My friend is here. <b>Good evening!</b></p>",
        "<p>Mein Freund ist hier. <b>Guten Abend!</b></p>",
    ),
    ("en", "de", "<b>Yes.</b> I know. <i>No!</i>", "<b>Ja.</b> Ich weiß. <i>Nein!</i>"),
    (
        "en",
        "de",
        "I am tired. <b>Sorry!</b> I go home.",
        "Ich bin müde. <b>Entschuldigung!</b> Ich gehe nach Hause.",
    ),
    ("de", "en", "<b>Danke!</b> Wo ist Tom?", "<b>Thanks!</b> Where's Tom?"),
    ("en", "de", "Good <i>evening</i>! Where is the station?", "Guten <i>Abend</i>! Wo ist der Bahnhof?"),
    ("en", "de", "<i>Good</i> evening! Where is the station?", "<i>Guten</i> Abend! Wo ist der Bahnhof?"),
    ("en", "de", "<b>Tom!</b> Where is the station?", "<b>Tom!</b> Wo ist der Bahnhof?"),
)
PHRASES = (
    "Yes.",
    "No!",
    "Please.",
    "Sorry!",
    "Thank you!",
    "Hello!",
    "Good morning!",
    "Good night!",
    "Goodbye!",
)


@pytest.fixture(scope="module")
def service():
    if not all((MODELS / name).is_dir() for name in NAMES):
        pytest.skip("the shipped models are not there")
    settings = ServiceSettings(Placement(lanes=((5, 8),)), verify=False)
    found = Service.open([MODELS / name for name in NAMES], settings)
    found.start()
    yield found
    found.stop(drain=False, timeout=10)


def translated(service, source, target, segments):
    texts = [MarkedText(segment.text, protected_ranges(segment)) for segment in segments]
    route = service.pick("translate", source, target)
    results = asyncio.run(service.run(route, texts, ALIGNED))
    return [project(segment, result) for segment, result in zip(segments, results, strict=True)]


def page(service, source, target, text, rules=HTML):
    found = read_html(text, rules)
    return found.join(translated(service, source, target, found.segments))


@pytest.mark.parametrize(("source", "target", "text", "answer"), CASES)
def test_format_of_a_page_stays_on_its_phrase(service, source, target, text, answer):
    assert page(service, source, target, text) == answer


@pytest.mark.parametrize(("source", "target", "text", "answer"), CASES)
def test_format_of_plain_text_and_of_xml_stays_on_its_phrase(service, source, target, text, answer):
    (result,) = asyncio.run(service.run(service.pick("translate", source, target), [text], ALIGNED))
    assert result.text == answer
    assert page(service, source, target, text, XML) == answer


@pytest.mark.parametrize("phrase", PHRASES)
def test_format_of_any_phrase_covers_its_translation(service, phrase):
    answer = page(service, "en", "de", f"<b>{phrase}</b> The car is red. <i>{phrase}</i>")
    assert re.fullmatch(r"<b>([^<]+)</b> [^<]+ <i>\1</i>", answer), answer


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [("de", "fr", "<b>Hallo!</b> Wo ist der Bahnhof?"), ("fr", "de", "<b>Bonjour !</b> Où est la gare ?")],
)
def test_format_stays_on_its_phrase_through_two_models(service, source, target, text):
    answer = page(service, source, target, text)
    assert re.fullmatch(r"<b>(Bonjour|Hallo|Guten Tag|Salut)[\u202f\u00a0 ]?!</b> [^<]+\?", answer), answer


def test_bold_run_of_a_letter_stays_on_its_phrase(service):
    letter, data = docx.Document(), io.BytesIO()
    paragraph = letter.add_paragraph()
    paragraph.add_run("Good evening!").bold = True
    paragraph.add_run(" Where is the station?")
    letter.save(data)
    document = read_document("a.docx", data.getvalue())
    new = docx.Document(io.BytesIO(document.write(translated(service, "en", "de", document.segments))))
    runs = [(run.text.strip(), bool(run.bold)) for run in new.paragraphs[0].runs if run.text.strip()]
    assert runs == [("Guten Abend!", True), ("Wo ist der Bahnhof?", False)]


def test_colour_of_a_subtitle_stays_on_its_phrase(service):
    cue = "WEBVTT\n\n00:01.000 --> 00:02.000\n<c.yellow>Good evening!</c> Where is the station?\n"
    document = read_document("a.vtt", cue.encode())
    new = document.write(translated(service, "en", "de", document.segments)).decode()
    assert "<c.yellow>Guten Abend!</c> Wo ist der Bahnhof?" in " ".join(new.split())
