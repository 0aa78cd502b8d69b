"""Requests of translators' tools, made like in their own code: Weblate 5.14, OmegaT, Argos."""

import re
from contextlib import ExitStack
from html import escape
from pathlib import Path

import pytest

from tests.support.served import server

MODELS = Path(__file__).parents[3] / "models"
# strings of a project, with what Weblate's checks highlight in them
STRINGS = {
    "Fehler: %s": ["%s"],
    "%d Dateien gelöscht": ["%d"],
    "Hallo %(name)s, willkommen!": ["%(name)s"],
    "Speichern unter {0} ...": ["{0}"],
    "Klicken Sie <a>hier</a>.": ["<a>", "</a>"],
    "Die Datei %1$s ist größer als %2$s.": ["%1$s", "%2$s"],
    "Das Passwort ist falsch & zu kurz.": [],
    "Abmelden": [],
    "Siehe https://example.org": ["https://example.org"],
    "Möchten Sie „%s“ löschen?": ["%s"],
    "{{ count }} neue Nachrichten": ["{{ count }}"],
}


@pytest.fixture(scope="module")
def client():
    if not (MODELS / "tatoeba-de-en").is_dir():
        pytest.skip("the shipped models are not there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.bundles", lambda: MODELS)
        opened = ExitStack()
        client, _, _ = opened.enter_context(
            server(service_settings={"lanes": ((1, 4), (5, 8)), "verify": False})
        )
    with opened:
        yield client


def cleaned(text, highlights, mask, escaped):
    """A string as Weblate sends it: highlights as masks that are named by their places; and the masks."""
    masks, parts, position = {}, [], 0
    for highlight in highlights:
        begin = text.index(highlight, position)
        masks[mask.format(begin)] = escaped(highlight)
        parts += [escaped(text[position:begin]), mask.format(begin)]
        position = begin + len(highlight)
    return "".join([*parts, escaped(text[position:])]), masks


def whole(answer, masks, pattern):
    """Return whether Weblate's pattern finds each mask once."""
    return all(len(re.findall(pattern(mask), answer)) == 1 for mask in masks)


def test_weblate_gets_every_string_whole_by_libretranslate(client):
    sent = [cleaned(text, highlights, "[X{}X]", str) for text, highlights in STRINGS.items()]
    codes = {entry["code"] for entry in client.get("/languages").json()}
    assert {"de", "en"} <= codes
    body = {"api_key": "", "q": [text for text, _ in sent], "source": "de", "target": "en"}
    answers = client.post("/translate", json=body).json()["translatedText"]
    for (_, masks), answer in zip(sent, answers, strict=True):
        assert whole(answer, masks, lambda mask: re.escape(mask[:-1]) + " *" + re.escape(mask[-1:])), answer


def test_weblate_gets_every_string_whole_by_deepl(client):
    sent = [cleaned(text, highlights, '<x id="{}"></x>', escape) for text, highlights in STRINGS.items()]
    languages = [client.get("/v2/languages", params={"type": kind}).json() for kind in ("source", "target")]
    assert "DE" in {entry["language"] for entry in languages[0]}
    assert {entry["language"].partition("-")[0] for entry in languages[1]} >= {"EN", "DE"}
    body = {
        "text": [text for text, _ in sent],
        "source_lang": "DE",
        "target_lang": "EN",
        "formality": "default",
    }
    answer = client.post("/v2/translate", json=body | {"tag_handling": "xml", "ignore_tags": ["x"]}).json()
    answers = [translation["text"] for translation in answer["translations"]]
    touching = re.compile(r"\w<x|</x>\w")
    for (source, masks), text in zip(sent, answers, strict=True):
        assert whole(text, masks, re.escape), text
        assert touching.search(source) or not touching.search(text), text
    by_source = dict(zip(STRINGS, answers, strict=True))
    assert re.fullmatch(r'<x id="0"></x> \w.*', by_source["%d Dateien gelöscht"])
    assert re.fullmatch(r"Click <x [^>]*></x>here<x [^>]*></x>\.", by_source["Klicken Sie <a>hier</a>."])
    assert by_source["Möchten Sie „%s“ löschen?"] == 'Do you want to delete "<x id="13"></x>"?'


def test_requests_to_deepls_first_version_work(client):
    query = {
        "text": "Guten Morgen!",
        "source_lang": "DE",
        "target_lang": "EN",
        "tag_handling": "xml",
        "auth_key": "x",
    }
    answer = client.get("/v1/translate", params=query | {"preserve_formatting": "1", "split_sentences": "0"})
    assert answer.json()["translations"][0]["text"] == "Good morning!"
    refused = client.get("/v1/translate", params={"text": "Guten Morgen!"})
    assert (refused.status_code, list(refused.json())) == (400, ["message"])


def test_languages_can_be_requested_by_post_like_argos(client):
    assert client.post("/languages", data={"api_key": ""}).json() == client.get("/languages").json()


def test_raw_sends_unchanged_text_and_forced_counts_restored_phrases(client):
    asked = {"q": "Das [alte (rote) Haus] ist {groß}.", "source": "de", "target": "en", "forced": True}
    answer = client.post("/translate", json=asked).json()
    assert answer["forced"] == 2
    assert [answer["translatedText"].count(mark) for mark in "[()]"] == [1, 1, 1, 1]
    bare = client.post("/translate", json=asked | {"raw": True}).json()
    assert bare["forced"] == 0
    assert bare["translatedText"] != answer["translatedText"]
    several = client.post("/translate", json=asked | {"q": [asked["q"], "Guten Morgen!"]}).json()
    assert several["forced"] == [2, 0]
    counted = re.search(
        r'convoy_phrases_forced_total\{model="tatoeba-de-en"\} (.*)', client.get("/metrics").text
    )
    assert float(counted[1]) >= 4
    refused = client.post("/translate", json=asked | {"format": "html"})
    assert refused.status_code == 400
    assert "forced" in refused.json()["error"]


@pytest.mark.parametrize(
    ("text", "name"),
    [("Hola", "Spanish (es)"), ("Привет", "Russian (ru)")]
    + [("Até logo", "Portuguese (pt)"), ("Saluton", "Esperanto (eo)"), ("Come va?", "Italian (it)")]
    + [("Carrinho", "Portuguese (pt)")],  # a word that is in no list of common words
)
def test_a_first_word_of_a_language_that_no_model_reads_is_refused_by_name(client, text, name):
    answer = client.post("/translate", json={"q": text, "source": "auto", "target": "en"})
    assert answer.status_code == 400
    assert name in answer.json()["error"]
    assert name in client.post("/v2/translate", json={"text": [text], "target_lang": "EN"}).json()["message"]


@pytest.mark.parametrize("path", ["/translate", "/v2/translate"])
def test_a_doubtful_guess_that_is_the_target_gives_way_to_the_next_language(client, path):
    """\"Coffee\" is detected as German with about 50 %, although a translation into German is requested."""
    (first, second, *_) = client.post("/detect", data={"q": "Coffee"}).json()
    assert (first["language"], second["language"]) == ("de", "en")
    assert first["confidence"] < 50
    if path == "/translate":
        answer = client.post(path, json={"q": "Coffee", "source": "auto", "target": "de"}).json()
        assert answer == {"translatedText": "Kaffee", "detectedLanguage": second}
        other = client.post(path, json={"q": "Coffee", "source": "auto", "target": "fr"}).json()
        assert other["detectedLanguage"] == first
    else:
        (answer,) = client.post(path, json={"text": ["Coffee"], "target_lang": "DE"}).json()["translations"]
        assert (answer["text"], answer["detected_source_language"]) == ("Kaffee", "EN")


def test_a_guess_without_a_rival_is_given_back_where_it_is_the_target(client):
    for text in ("Hotel", "Das ist gut."):
        answer = client.post("/translate", json={"q": text, "source": "auto", "target": "de"}).json()
        assert (answer["translatedText"], answer["detectedLanguage"]["language"]) == (text, "de")
