"""LibreTranslate's contract over a real socket: plain texts, detection and languages."""

import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from engine.api import (
    Placement,
    Service,
    ServiceSettings,
)
from server.http import cors
from server.languages import inward, outward, resolve_code
from tests.server.http.conftest import GERMAN, direct, post
from tests.support.served import LANES, bundles, server


def test_text_is_answered_with_a_text_only(place):
    answer = post(place[0])
    assert answer.status_code == 200
    assert answer.json() == {"translatedText": direct(place, GERMAN).text}


def test_array_is_answered_with_an_array(place):
    texts = [GERMAN, "", "Das ist gut."]
    assert post(place[0], q=texts).json() == {"translatedText": [direct(place, t).text for t in texts]}


@pytest.mark.parametrize("way", ["form", "query", "multipart", "mixed"])
def test_forms_and_query_strings_are_accepted(place, way):
    client, values = place[0], {"q": GERMAN, "source": "DE", "target": "en", "api_key": ""}
    ways = {
        "form": {"data": values},
        "query": {"params": values},
        "multipart": {"files": {name: (None, value) for name, value in values.items()}},
        "mixed": {"params": {"q": GERMAN, "target": "en"}, "data": {"q": "other", "source": "de"}},
    }
    answer = client.post("/translate", **ways[way])
    assert answer.json() == {"translatedText": direct(place, GERMAN).text}


def test_line_ends_are_normalized_in_forms_but_not_in_json(client):
    text = "Das ist gut.\r\nWer bist du?"
    form = client.post("/translate", data={"q": text, "source": "de", "target": "en"})
    assert "\r" not in form.json()["translatedText"]
    assert "\n" in form.json()["translatedText"]
    assert "\r\n" in post(client, q=text).json()["translatedText"]


def test_detected_language_is_answered_only_for_auto(client):
    answer = post(client, source="auto").json()
    assert answer["detectedLanguage"]["language"] == "de"
    assert isinstance(answer["detectedLanguage"]["confidence"], float)
    batch = post(client, q=[GERMAN, "Guten Abend!"], source="Auto").json()
    assert [d["language"] for d in batch["detectedLanguage"]] == ["de", "de"]


def test_text_in_the_target_language_stays_unchanged(client):
    text = "Where can I find the railway station?"
    assert post(client, q=text, source="auto").json()["translatedText"] == text
    assert post(client, q=text, source="en").json() == {"translatedText": text}


def test_emoji_stay_unchanged_without_confidence(client):
    answer = post(client, q="😀 🎉", source="auto").json()
    assert answer == {"translatedText": "😀 🎉", "detectedLanguage": {"confidence": 0.0, "language": "en"}}
    assert '"confidence":0.0' in post(client, q="😀", source="auto").text


def test_alternatives_are_distinct_and_optional(client):
    answer = post(client, alternatives=3).json()
    found = [answer["translatedText"], *answer["alternatives"]]
    assert 2 <= len(found) == len(set(found)) <= 4
    batch = post(client, q=[GERMAN, "😀"], alternatives="2").json()["alternatives"]
    assert 1 <= len(batch[0]) <= 2
    assert batch[1] == []
    assert "alternatives" not in post(client, alternatives=-3).json()
    assert "alternatives" not in post(client, alternatives=0).json()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": ""}, "Invalid request: missing target parameter"),
        ({"alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 99}, "Invalid request: alternatives parameter must be <= 3"),
        ({"alternatives": 10**30}, "Invalid request: alternatives parameter must be <= 3"),
        ({"alternatives": [1]}, "Invalid request: alternatives parameter is not a number"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "zz"}, "zz is not supported"),
        ({"target": "auto"}, "auto is not supported"),
        ({"source": "auto", "target": "auto"}, "auto is not supported"),
        ({"format": "xml"}, "xml format is not supported"),
    ],
)
def test_errors_have_libretranslates_messages(client, fields, text):
    answer = post(client, **fields)
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_error_of_a_missing_pair_names_the_languages():
    def only(observe):
        return Service.open([bundles() / "toy-de-en"], ServiceSettings(Placement(lanes=LANES)), observe)

    with server(opened=only) as (client, *_):
        answer = post(client, source="en", target="de")
    text = "German (de) is not available as a target language from English (en)"
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_limits_have_libretranslates_messages():
    with server(char_limit=5, batch_limit=2, alternatives_limit=1) as (client, _, _):
        assert client.get("/frontend/settings").json()["charLimit"] == 5
        for path in ("/translate", "/summarize", "/detect"):
            for q, size, limit in (("123456", 6, 5), (["a"] * 3, 3, 2), (["a", "1234567"], 7, 5)):
                answer = post(client, path, q=q)
                text = f"Invalid request: request ({size}) exceeds text limit ({limit})"
                assert (answer.status_code, answer.json()) == (400, {"error": text})
        assert post(client, q="12345").status_code == 200
        answer = post(client, q="123", alternatives=2)
        assert answer.json() == {"error": "Invalid request: alternatives parameter must be <= 1"}


def test_long_aliases_of_codes_are_accepted():
    assert [inward(c) for c in ("zh-Hans", "ZH-HANT", "pt-br", "pb", "De")] == ["zh", "zt", "pb", "pb", "de"]
    assert [outward(c) for c in ("zh", "zt", "pb", "de")] == ["zh-Hans", "zh-Hant", "pt-BR", "de"]


@pytest.mark.parametrize(
    ("code", "known"),
    [("en-US", "en"), ("en_419", "en"), ("EN-gb", "en"), ("zh-TW", "zt"), ("deu-AT", "de")]
    + [(code, code) for code in ("en-anything", "en-u", "en-1", "en-", "fr-fr")],
)
def test_only_regions_are_left_out_of_codes(code, known):
    assert resolve_code(code, {"en", "de", "zt"}) == known


def test_detection_ranks_languages(client):
    found = client.post("/detect", json={"q": GERMAN}).json()
    assert found[0]["language"] == "de"
    assert 50 < found[0]["confidence"] <= 100
    assert client.post("/detect", data={"q": "the railway station"}).json()[0]["language"] == "en"
    assert client.post("/detect", json={"q": [GERMAN, GERMAN]}).json()[0]["language"] == "de"
    assert client.post("/detect", json={"q": "😀"}).json() == [{"confidence": 0.0, "language": "en"}]
    assert client.post("/detect", json={}).json() == {"error": "Invalid request: missing q parameter"}


def test_languages_have_names_and_targets(client):
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["de", "en"]},
        {"code": "en", "name": "English", "targets": ["de", "en"]},
    ]


def test_health_and_frontend_settings_are_like_libretranslates(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.head("/health").status_code == 200
    found = client.get("/frontend/settings").json()
    assert found["charLimit"] == 100_000
    assert found["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert found["language"]["target"] == {"code": "en", "name": "English"}


@pytest.mark.parametrize("path", ["/health", "/nothing"])
def test_every_answer_has_cors_headers(client, path):
    headers = client.get(path).headers
    assert headers["access-control-allow-origin"] == "*"
    allowed = headers["access-control-allow-headers"].split(", ")
    assert {"Authorization", "Content-Type", "X-API-Key"} <= set(allowed)
    assert headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE"
    assert headers["access-control-max-age"] == "1728000"
    assert client.options(path).headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ("authorization,content-type,x-stainless-os", "authorization,content-type,x-stainless-os"),
        ("mcp-protocol-version, last-event-id", "mcp-protocol-version, last-event-id"),
        ("a" * 65, "Authorization, "),
        (",".join("abc" for _ in range(65)), "Authorization, "),
        ("a b", "Authorization, "),
        ("a;b", "Authorization, "),
        ("", "Authorization, "),
    ],
)
def test_a_preflight_allows_the_headers_that_it_asks_for(client, asked, allowed):
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    answer = client.options("/translate", headers=preflight | {"Access-Control-Request-Headers": asked})
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-headers"].startswith(allowed)
    assert answer.headers["access-control-allow-headers"] in (asked, cors.USUAL_NAMES.decode())
    assert answer.headers["vary"] == "Access-Control-Request-Headers"


def test_libretranslatepy_works(place):
    api = LibreTranslateAPI(str(place[0].base_url))
    assert api.translate(GERMAN, "de", "en") == direct(place, GERMAN).text
    assert api.detect(GERMAN)[0]["language"] == "de"
    assert {language["code"] for language in api.languages()} == {"de", "en"}


def test_deep_translator_works(place):
    url = str(place[0].base_url) + "/"
    api = LibreTranslator(source="de", target="en", use_free_api=False, custom_url=url, api_key="any")
    assert api.translate(GERMAN) == direct(place, GERMAN).text
