"""DeepL's interface over a real socket: its words, its forms, and what its clients expect."""

import asyncio
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Service, TextOptions
from server.contracts.deepl.fields import BOOLEANS, DeepLRequest
from server.contracts.deepl.languages import model_code
from server.contracts.deepl.translate import on_one_line
from tests.support.served import bundles, server, settings_of
from tests.support.timing import assert_takes_at_most

GERMAN = "Wo ist denn hier der Bahnhof?"
ENGLISH = "Where can I find the railway station?"


@pytest.fixture(scope="module")
def place():
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def client(place):
    return place[0]


def direct(place, text, model="toy-de-en"):
    options = TextOptions(protect=True)
    return asyncio.run(place[1].service.run(model, [text], options))[0].text


def post(client, **fields):
    values = {"text": [GERMAN], "target_lang": "EN-GB"} | fields
    return client.post("/v2/translate", json={k: v for k, v in values.items() if v is not None})


def test_texts_are_translated_and_billed(place):
    answer = post(place[0], source_lang="DE", show_billed_characters=True)
    assert answer.json() == {
        "translations": [
            {
                "detected_source_language": "DE",
                "text": direct(place, GERMAN),
                "billed_characters": len(GERMAN),
            }
        ]
    }
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-trace-id"])


@pytest.mark.parametrize("source", [None, "", "de", "DE"])
def test_the_source_may_be_left_out_and_codes_have_any_case(place, source):
    answer = post(place[0], source_lang=source, target_lang="en-us").json()["translations"][0]
    assert (answer["detected_source_language"], answer["text"]) == ("DE", direct(place, GERMAN))


def test_each_text_is_detected_by_itself(place):
    answer = post(place[0], text=[GERMAN, ENGLISH, "😀"]).json()["translations"]
    assert [t["detected_source_language"] for t in answer] == ["DE", "EN", "EN"]
    assert [t["text"] for t in answer] == [direct(place, GERMAN), ENGLISH, "😀"]


def test_forms_repeat_their_texts(place):
    body = "text=Guten+Abend%21&text=Das+ist+gut.&target_lang=en&show_billed_characters=1&tag_handling="
    kind = {"content-type": "application/x-www-form-urlencoded"}
    answer = place[0].post("/v2/translate", content=body, headers=kind).json()["translations"]
    assert [t["text"] for t in answer] == [direct(place, "Guten Abend!"), direct(place, "Das ist gut.")]
    query = place[0].post("/v2/translate?text=Das+ist+gut.&target_lang=en").json()["translations"]
    assert query[0]["text"] == direct(place, "Das ist gut.")


def test_html_keeps_its_tags_and_ignored_elements(client):
    html = "<p>Wo ist <b>denn</b> der <x>Bahnhof</x>?</p><p>Gut.</p>"
    answer = post(client, text=[html], tag_handling="html", ignore_tags="x,y").json()["translations"][0][
        "text"
    ]
    assert sorted(re.findall("<[^>]*>", answer)) == sorted(re.findall("<[^>]*>", html))
    assert "<x>Bahnhof</x>" in answer


def test_xml_is_split_by_structure_or_named_tags(place):
    def ask(text, **fields):
        return post(place[0], text=[text], tag_handling="xml", source_lang="DE", **fields).json()[
            "translations"
        ][0]["text"]

    xml = "<doc><a>Das ist gut.</a><b>Guten Abend!</b></doc>"
    one, two = direct(place, "Das ist gut."), direct(place, "Guten Abend!")
    assert unescape(ask(xml)) == f"<doc><a>{one}</a><b>{two}</b></doc>"
    named = ask(xml, outline_detection=False, splitting_tags=["doc", "b"])
    assert unescape(named).endswith(f"<b>{two}</b></doc>")
    whole = ask(xml, outline_detection=False)
    assert unescape(re.sub("<[^>]*>", "", whole)) == direct(place, "Das ist gut.Guten Abend!")
    assert ask("<a>1 &lt; 2</a>") != ""


def test_tags_that_never_split_leave_a_sentence_whole(place):
    def words(**values):
        xml = "<doc><a>Wo ist</a><b> der Bahnhof</b></doc>"
        answer = post(place[0], text=[xml], source_lang="DE", tag_handling="xml", **values)
        return unescape(re.sub("<[^>]*>", "", answer.json()["translations"][0]["text"]))

    one, two, whole = (direct(place, text) for text in ("Wo ist", "der Bahnhof", "Wo ist der Bahnhof"))
    apart = f"{one} {two}"
    assert words() == apart != whole
    assert words(non_splitting_tags=["a", "b"]) == whole, "whatever the outline says"
    named = {"outline_detection": False, "splitting_tags": ["a", "b"]}
    assert words(**named) == apart
    assert words(**named, non_splitting_tags=["a", "b"]) == whole, "whatever is named beside them"
    html = {"text": ["<p>Wo ist</p><p> der Bahnhof</p>"], "source_lang": "DE", "tag_handling": "html"}
    answer = post(place[0], **html, non_splitting_tags=["p"]).json()["translations"][0]["text"]
    assert unescape(re.sub("<[^>]*>", "", answer)) == whole


def test_newlines_split_sentences_on_request(place):
    text = "Wo ist\nder Bahnhof?"
    default, joined, whole = (
        post(place[0], text=[text], split_sentences=how).json()["translations"][0]["text"]
        for how in (None, "nonewlines", "0")
    )
    assert "\n" in default
    assert joined == direct(place, "Wo ist der Bahnhof?")
    assert "\n" not in whole
    long = post(place[0], text=["Haus und Hof " * 60], split_sentences="0")
    assert long.status_code == 200  # longer than the model reads: split after all


def test_preserve_formatting_reaches_the_answer(client):
    answer = post(client, text=["wo ist der bahnhof"], source_lang="DE", preserve_formatting=True).json()
    text = answer["translations"][0]["text"]
    assert not text[:1].isupper()
    assert text.rstrip()[-1:] not in ".!?"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"text": None}, "Parameter 'text' not specified."),
        ({"text": []}, "Parameter 'text' not specified."),
        ({"text": [1]}, "Value for 'text' not supported: send an array of strings."),
        ({"target_lang": None}, "Value for 'target_lang' not supported."),
        ({"target_lang": "XX"}, "Value for 'target_lang' not supported."),
        ({"target_lang": ["EN"]}, "Value for 'target_lang' not supported."),
        ({"source_lang": "XX"}, "Value for 'source_lang' not supported."),
        ({"formality": "more"}, "'formality' is not supported for given 'target_lang'."),
    ],
)
def test_errors_have_deepls_shape_and_words(client, fields, text):
    answer = post(client, **fields)
    assert (answer.status_code, answer.json()) == (400, {"message": text})


@pytest.mark.parametrize(
    "fields", [{"tag_handling": "md"}, {"split_sentences": "2"}, {"ignore_tags": [1]}, {"formality": 3}]
)
def test_wrong_options_are_named(client, fields):
    answer = post(client, **fields)
    assert answer.status_code == 400
    assert next(iter(fields)) in answer.json()["message"]


def test_an_empty_text_is_as_if_it_were_absent(client):
    names = sorted(set(DeepLRequest.model_fields) - BOOLEANS)
    expected = post(client).json()
    for fields in [dict.fromkeys(names, ""), *({name: ""} for name in names), {"source_lang": ""}]:
        assert post(client, **fields).json() == expected, fields


def test_a_context_has_no_effect_and_is_named_in_a_warning(client):
    answer = post(client, context="It is about trains.").json()
    assert answer.pop("warnings") == {"context": "has no effect: the models read a text by itself"}
    assert answer == post(client).json()


def test_the_options_that_have_no_twin_are_accepted(client):
    fields = {"context": "x", "formality": "prefer_more", "model_type": "prefer_quality_optimized", "what": 1}
    assert post(client, **fields).json()["translations"][0]["model_type_used"] == "quality_optimized"


def test_languages_have_deepls_codes(client):
    assert client.get("/v2/languages").json() == [
        {"language": "DE", "name": "German"},
        {"language": "EN", "name": "English"},
    ]
    targets = client.get("/v2/languages?type=target").json()
    assert [t["language"] for t in targets] == ["DE", "EN-GB", "EN-US"]
    assert all(t["supports_formality"] is False for t in targets)
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert client.request("GET", "/v2/languages", content="type=target", headers=form).json() == targets
    wrong = client.get("/v2/languages?type=x")
    assert (wrong.status_code, wrong.json()) == (400, {"message": "Value for 'type' not supported."})


def test_a_language_that_no_model_reads_is_a_target_only():
    def opened(observe):
        return Service.open([bundles() / "toy-de-en"], settings_of(), observe)

    with server(opened=opened) as (client, *_):
        sources = client.get("/v2/languages").json()
        targets = client.get("/v2/languages?type=target").json()
        found = [[language["language"] for language in listed] for listed in (sources, targets)]
    assert found == [["DE"], ["EN-GB", "EN-US"]]


def test_deepl_codes_resolve_to_served_models():
    known = {"en", "pt", "pb", "zh", "zt", "no"}
    cases = {"EN-US": "en", "pt-PT": "pt", "PT-BR": "pb", "ZH-HANS": "zh", "ZH-HANT": "zt", "NB": "no"}
    assert {code: model_code(code, known) for code in cases} == cases
    assert model_code("PT-BR", {"pt"}) == "pt"
    assert model_code("FR", known) is None


def test_usage_counts_characters(client):
    before = client.get("/v2/usage").json()
    post(client, text=["Gut."])
    after = client.get("/v2/usage").json()
    assert after["character_count"] == before["character_count"] + 4
    assert after["character_limit"] == 1_000_000_000_000


@pytest.mark.parametrize(
    ("method", "path", "status", "keys"),
    [
        ("GET", "/v2/document", 405, {"message"}),
        ("POST", "/v2/usage", 405, {"message"}),
        ("GET", "/v2/nothing", 404, {"message", "error"}),
        ("GET", "/v2/rephrase", 404, {"message", "error"}),
        ("GET", "/v2/glossaries/nobodys", 404, {"message"}),
        ("POST", "/v2/document/x/y/z", 404, {"message"}),
        ("GET", "/v2/models/nobody", 404, {"error"}),
        ("GET", "/v2/repository/x", 404, {"error"}),
        ("GET", "/v1/x", 404, {"error"}),
    ],
)
def test_the_shape_of_an_error_follows_the_route(client, method, path, status, keys):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == keys
    assert path in str(answer.json()) or "nobody" in str(answer.json()) or "Glossary" in str(answer.json())


def test_a_body_that_is_too_large_has_deepls_shape():
    with server(body_limit=100) as (client, _, _):
        answer = post(client, text=["a" * 200])
        assert (answer.status_code, set(answer.json())) == (413, {"message"})


@given(st.text(alphabet="a .\n\t\r\u00a0。!x", max_size=30))
def test_lines_are_joined_by_the_rule(text):
    assert on_one_line(text) == re.sub(r"\s*\n\s*", " ", text)


def test_line_ends_are_joined_outside_the_event_loop(client, monkeypatch):
    loops = []

    def join(text):
        loops.append(asyncio._get_running_loop())
        return on_one_line(text)

    monkeypatch.setattr("server.contracts.deepl.translate.on_one_line", join)
    text = "Gut." + "\n" * 20_000
    assert post(client, text=[text], source_lang="DE", split_sentences="nonewlines").status_code == 200
    assert loops == [None]
    assert_takes_at_most(0.05, lambda: on_one_line("a\n" * 50_000))
