"""HTTP: LibreTranslate's contract over a real socket, our own fields, and what clients must never break."""

import asyncio
import json
import math
import re
from html import unescape

import httpx
import pytest
from deep_translator import LibreTranslator
from hypothesis import given
from hypothesis import strategies as st
from libretranslatepy import LibreTranslateAPI

from engine.api import (
    BundleError,
    Cancelled,
    ConvoyError,
    DecodeOptions,
    Overloaded,
    Placement,
    Service,
    ServiceSettings,
    TextOptions,
)
from server.app import create_app
from server.contracts import contract_of
from server.errors import STATUSES, error_response
from server.http.schemas import ELSEWHERE
from server.languages import inward, outward
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.support.served import LANES, LINES, MODELS, bundles, open_service, server, until

GERMAN = "Wo ist denn hier der Bahnhof?"


@pytest.fixture(scope="module")
def place():
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def client(place):
    return place[0]


def post(client, path="/translate", **fields):
    values = {"q": GERMAN, "source": "de", "target": "en"} | fields
    return client.post(path, json={k: v for k, v in values.items() if v is not None})


def direct(place, text, model="toy-de-en"):
    """What the service itself answers, in the form of the source as LibreTranslate's contract has it."""
    return asyncio.run(place[1].service.run(model, [text], TextOptions(follow_form=True, protect=True)))[0]


# LibreTranslate's contract


def test_a_string_is_answered_with_a_string_and_nothing_else(place):
    answer = post(place[0])
    assert answer.status_code == 200
    assert answer.json() == {"translatedText": direct(place, GERMAN).text}


def test_an_array_is_answered_with_an_array(place):
    texts = [GERMAN, "", "Das ist gut."]
    assert post(place[0], q=texts).json() == {"translatedText": [direct(place, t).text for t in texts]}


@pytest.mark.parametrize("way", ["form", "query", "multipart", "mixed"])
def test_forms_and_query_strings_are_understood(place, way):
    client, values = place[0], {"q": GERMAN, "source": "DE", "target": "en", "api_key": ""}
    ways = {
        "form": {"data": values},
        "query": {"params": values},
        "multipart": {"files": {name: (None, value) for name, value in values.items()}},
        "mixed": {"params": {"q": GERMAN, "target": "en"}, "data": {"q": "other", "source": "de"}},
    }
    answer = client.post("/translate", **ways[way])
    assert answer.json() == {"translatedText": direct(place, GERMAN).text}


def test_line_ends_of_forms_become_line_feeds_and_those_of_json_stay(client):
    text = "Das ist gut.\r\nWer bist du?"
    form = client.post("/translate", data={"q": text, "source": "de", "target": "en"})
    assert "\r" not in form.json()["translatedText"]
    assert "\n" in form.json()["translatedText"]
    assert "\r\n" in post(client, q=text).json()["translatedText"]


def test_the_detected_language_is_named_only_when_it_was_asked_for(client):
    answer = post(client, source="auto").json()
    assert answer["detectedLanguage"]["language"] == "de"
    assert isinstance(answer["detectedLanguage"]["confidence"], float)
    batch = post(client, q=[GERMAN, "Guten Abend!"], source="Auto").json()
    assert [d["language"] for d in batch["detectedLanguage"]] == ["de", "de"]


def test_text_already_in_the_target_language_is_echoed(client):
    text = "Where can I find the railway station?"
    assert post(client, q=text, source="auto").json()["translatedText"] == text
    assert post(client, q=text, source="en").json() == {"translatedText": text}


def test_emoji_are_echoed_with_no_confidence(client):
    answer = post(client, q="😀 🎉", source="auto").json()
    assert answer == {"translatedText": "😀 🎉", "detectedLanguage": {"confidence": 0.0, "language": "en"}}
    assert '"confidence":0.0' in post(client, q="😀", source="auto").text


def test_alternatives_are_distinct_and_answered_only_when_asked_for(client):
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
def test_errors_have_the_words_of_libretranslate(client, fields, text):
    answer = post(client, **fields)
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_a_missing_pair_is_named_by_its_languages():
    def only(observe):
        return Service.open([bundles() / "toy-de-en"], ServiceSettings(Placement(lanes=LANES)), observe)

    with server(opened=only) as (client, *_):
        answer = post(client, source="en", target="de")
    text = "German (de) is not available as a target language from English (en)"
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_limits_are_enforced_in_the_words_of_libretranslate():
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


def test_long_aliases_stand_for_libretranslates_own_codes():
    assert [inward(c) for c in ("zh-Hans", "ZH-HANT", "pt-br", "pb", "De")] == ["zh", "zt", "pb", "pb", "de"]
    assert [outward(c) for c in ("zh", "zt", "pb", "de")] == ["zh-Hans", "zh-Hant", "pt-BR", "de"]


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


def test_health_and_frontend_settings_are_libretranslates(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.head("/health").status_code == 200
    found = client.get("/frontend/settings").json()
    assert found["charLimit"] == 100_000
    assert found["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert found["language"]["target"] == {"code": "en", "name": "English"}


@pytest.mark.parametrize("path", ["/health", "/nothing"])
def test_every_answer_carries_the_cors_headers(client, path):
    headers = client.get(path).headers
    assert headers["access-control-allow-origin"] == "*"
    allowed = headers["access-control-allow-headers"].split(", ")
    assert {"Authorization", "Content-Type", "X-API-Key"} <= set(allowed)
    assert headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE"
    assert headers["access-control-max-age"] == "1728000"
    assert client.options(path).headers["access-control-allow-origin"] == "*"


def test_the_real_libretranslatepy_is_served(place):
    api = LibreTranslateAPI(str(place[0].base_url))
    assert api.translate(GERMAN, "de", "en") == direct(place, GERMAN).text
    assert api.detect(GERMAN)[0]["language"] == "de"
    assert {language["code"] for language in api.languages()} == {"de", "en"}


def test_the_real_deep_translator_is_served(place):
    url = str(place[0].base_url) + "/"
    api = LibreTranslator(source="de", target="en", use_free_api=False, custom_url=url, api_key="any")
    assert api.translate(GERMAN) == direct(place, GERMAN).text


# HTML


def test_tags_stay_and_texts_between_them_are_translated(place):
    html = '<p class="a">Das ist gut.</p><br/>\n<P>Wer bist &lt;du&gt;?</p><code>x = 1</code>'
    answer = post(place[0], q=html, format="html", alternatives=1).json()
    one, two = (direct(place, t).text for t in ("Das ist gut.", "Wer bist <du>?"))
    two = two.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    one = one.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert answer["translatedText"] == f'<p class="a">{one}</p><br/>\n<P>{two}</p><code>x = 1</code>'
    assert answer["alternatives"] == []


def test_descriptions_in_attributes_are_translated_when_asked(place):
    html = '<p title="Das ist gut.">Guten Abend! <img alt="Wo ist der Bahnhof?"></p>'
    plain = post(place[0], q=html, format="html").json()["translatedText"]
    assert 'title="Das ist gut."' in plain
    answer = post(place[0], q=html, format="html", attributes=True).json()["translatedText"]
    for text in ("Das ist gut.", "Wo ist der Bahnhof?"):
        assert f'="{direct(place, text).text}"' in answer
        assert text not in answer


def test_an_array_of_html_with_detection(client):
    answer = post(client, q=["<b>Wo ist der Bahnhof?</b>", "<hr>"], source="auto", format="html").json()
    assert answer["translatedText"][0].startswith("<b>")
    assert answer["translatedText"][1] == "<hr>"
    assert answer["detectedLanguage"][0]["language"] == "de"


def test_sentences_are_translated_across_inline_tags(place):
    html = "<p>Wo ist <b>denn</b> hier<img src=x> der <a href=y>Bahnhof</a>?</p>"
    answer = post(place[0], q=html, format="html").json()["translatedText"]
    plain = re.sub("<[^>]*>", "", answer)
    assert unescape(plain) == direct(place, GERMAN).text
    assert sorted(re.findall("<[^>]*>", answer)) == sorted(re.findall("<[^>]*>", html))


def test_an_array_with_detection_is_answered_item_by_item(place):
    texts = [GERMAN, "Where can I find the railway station?", "😀", "Guten Abend!"]
    answer = post(place[0], q=texts, source="auto").json()
    assert [d["language"] for d in answer["detectedLanguage"]] == ["de", "en", "en", "de"]
    assert answer["detectedLanguage"][2]["confidence"] == 0
    wanted = [direct(place, GERMAN).text, texts[1], "😀", direct(place, "Guten Abend!").text]
    assert answer["translatedText"] == wanted


def test_html_that_is_not_translated_stays_to_the_letter(client):
    html = "<p>The  <b>railway</b>\n station &copy; is where?</P>"
    assert post(client, q=html, source="auto", target="en", format="html").json()["translatedText"] == html


def test_mastodon_is_served(place):
    """Its client's body (app/lib/translation_service/libre_translate.rb)."""
    body = {"q": ["<p>Wo ist der Bahnhof?</p>", "Gut"], "source": "auto", "target": "en", "format": "html"}
    answer = place[0].post("/translate", json=body).json()
    assert [d["language"] for d in answer["detectedLanguage"]] == ["de", "de"]
    assert answer["translatedText"][0].startswith("<p>")


def test_scores_of_html_are_refused(client):
    answer = post(client, format="html", scores=True)
    assert answer.status_code == 400
    assert "use format text" in answer.json()["error"]


# our own fields


def test_scores_alignment_and_timings_are_answered_when_asked_for(place):
    answer = post(place[0], scores=True, alignment=True, timings=True, alternatives=1).json()
    wanted = direct(place, GERMAN)
    scores = answer["scores"]
    assert scores["score"] == pytest.approx(wanted.score)
    assert scores["tokens"] == wanted.tokens
    assert scores["tokenScores"] == pytest.approx(wanted.token_scores)
    assert scores["finish"] == wanted.finish
    (sentence,) = answer["alignment"]
    assert sentence["target"] == wanted.tokens
    assert all(math.isclose(sum(row), 1, abs_tol=1e-3) for row in sentence["matrix"])
    assert answer["timings"]["steps"] >= 1
    batch = post(place[0], q=["😀", GERMAN], scores=True).json()["scores"]
    assert [s["targetTokens"] for s in batch] == [0, wanted.target_tokens]


@pytest.mark.parametrize("name", sorted(DecodeOptions.__dataclass_fields__))
def test_every_decoding_option_has_a_documented_field(client, name):
    schema = client.get("/openapi.json").json()["paths"]["/translate"]["post"]["requestBody"]
    known = schema["content"]["application/json"]["schema"]["properties"]
    assert name in ELSEWHERE or name in known


def test_decoding_options_reach_the_model(place):
    client = place[0]
    two = post(client, min_length=2, max_length=2, scores=True).json()["scores"]
    assert (two["targetTokens"], two["finish"]) == (2, "length")
    assert post(client, prefix="The house").json()["translatedText"].startswith("The house")
    form = {"q": GERMAN, "source": "de", "target": "en", "beam_size": "1", "sampling": "true", "seed": "7"}
    one, same = (client.post("/translate", data=form).json() for _ in range(2))
    assert one == same
    other = [client.post("/translate", data=form | {"seed": str(s)}).json() for s in range(8)]
    assert any(answer != one for answer in other)


def test_a_model_may_be_named(client):
    assert post(client, model="toy-de-en").status_code == 200
    assert post(client, model="toy-en-de").status_code == 404
    unknown = post(client, model="nobody")
    assert unknown.status_code == 404
    assert "no model 'nobody'; there are:" in unknown.json()["error"]


def test_unsplit_text_stays_whole_or_is_refused(client):
    assert post(client, split=False).status_code == 200
    answer = post(client, q="Haus und Hof " * 60, split=False)
    assert answer.status_code == 413
    assert "at most 64" in answer.json()["error"]


def test_summaries_mirror_translations(place):
    client = place[0]

    def summarize(**fields):
        return post(client, "/summarize", **({"source": None, "target": None} | fields))

    text = "We prove a theorem. It is new."
    wanted = direct(place, text, "toy-title").text
    assert summarize(q=text).json() == {"summaryText": wanted, "truncated": False}
    batch = summarize(q=[text, text * 20], truncate=True, alternatives=1, source="en").json()
    assert batch["truncated"] == [False, True]
    assert batch["summaryText"][0] == wanted
    assert len(batch["alternatives"]) == 2
    long = summarize(q=text * 20)
    assert long.status_code == 413
    assert "choose a strategy" in long.json()["error"]
    assert summarize(q=text, source="auto", model="toy-title", max_length=2).status_code == 200
    assert summarize(q=text, source="fr").status_code == 404


def test_models_are_described(client):
    found = {m["name"]: m for m in client.get("/models").json()}
    assert set(found) == set(MODELS)
    toy = found["toy-de-en"]
    assert (toy["task"], toy["limits"]["beams"], toy["options"]["beam_size"]) == (
        "translate",
        LANES[-1][0],
        4,
    )
    assert client.get("/version").json()["name"] == "convoy"
    assert client.get("/docs").status_code == 200


def test_the_page_of_the_documentation_needs_no_other_host(client):
    page = client.get("/docs").text
    assert "http://" not in page
    assert "https://" not in page
    for name in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert name in page
        assert len(client.get(f"/static-offline-docs/{name}").content) > 10_000


def test_metrics_count_what_happened(client):
    def read():
        lines = client.get("/metrics").text.splitlines()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def settled():
        """Figures are noted just after the answer is sent."""
        until(lambda: read()[steps] == read()[seconds])
        return read()

    latency = "convoy_request_duration_seconds_count"
    steps, seconds = (
        'convoy_steps_total{model="toy-de-en"}',
        'convoy_step_duration_seconds_count{model="toy-de-en"}',
    )
    post(client)
    before = settled()
    post(client, q=list(LINES[:3]))
    post(client, target="zz")
    client.request("BREW", "/a/very/odd/path")
    until(lambda: f'{latency}{{model="none",outcome="invalid",route="other"}}' in read())
    after = settled()

    def grown(name):
        return after[name] - before.get(name, 0.0)

    assert grown('convoy_sentences_answered_total{model="toy-de-en"}') == 3
    assert grown('convoy_rejected_total{reason="invalid_request"}') == 1
    assert grown('convoy_queue_duration_seconds_count{model="toy-de-en"}') == 1
    assert grown(f'{latency}{{model="toy-de-en",outcome="ok",route="/translate"}}') == 1
    assert grown(f'{latency}{{model="none",outcome="invalid",route="other"}}') == 1
    assert after['convoy_slots{lane="1",model="toy-de-en"}'] == LANES[1][1]
    assert grown(steps) >= 1
    assert grown('convoy_tokens_total{kind="source",model="toy-de-en"}') > 3


# bad input


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[1]", 400),
        (b'"x"', 400),
        (b"\xff\xfe{}", 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400),
        (b'{"q": NaN}', 400),
        (b'{"q": ' + b"9" * 5000 + b"}", 400),
        (b'{"q": "\\ud800", "source": "de", "target": "en"}', 400),
        (b'{"q": "a", "source": "\\ud800", "target": "en"}', 400),
        (b'{"q": "' + b"a" * 70_000 + b'"}', 400),
        (b'{"q":"a","source":"de","target":"en","temperature":1e999}', 400),
        (b'{"q":"a","source":"de","target":"en","seed":1e300}', 400),
        (b'{"q":"a","source":"de","target":"en","alternatives":1e999}', 400),
        (b'{"q":"a\\u0000b","source":"de","target":"en"}', 200),
        (b'{"q":"a","source":"de","target":"en","unk_penalty":1e999,"scores":true}', 200),
    ],
)
def test_json_that_is_wrong_is_a_client_error(client, content, status):
    answer = client.post(
        "/translate", content=content, headers={"content-type": "application/json; charset=x"}
    )
    assert answer.status_code == status
    assert (set(answer.json()) == {"error"}) == (status != 200)
    assert len(answer.content) < 2000


@pytest.mark.parametrize(
    "fields",
    [
        {"q": 1},
        {"q": {"a": 1}},
        {"q": [1]},
        {"q": [None]},
        {"q": [["a"]]},
        {"source": 1},
        {"target": ["en"]},
        {"format": 7},
        {"format": "x" * 10_000},
        {"source": "x" * 10_000},
        {"beam_size": "many"},
        {"beam_size": 0},
        {"beam_size": 10**12},
        {"beam_size": 1.5},
        {"temperature": "nan"},
        {"length_penalty": "inf"},
        {"max_length": -1},
        {"prefix": ["a"]},
        {"model": 3},
        {"top_p": 0},
        {"diverse_groups": 0},
        {"scores": "perhaps"},
        {"length_penalty": 10**400},
        {"min_length_a": 1e308, "max_length_a": -1},
    ],
)
def test_wrong_types_and_values_are_client_errors(client, fields):
    answer = post(client, **fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]
    assert len(answer.content) < 1000


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"q=%ff%fe&source=de&target=en", "application/x-www-form-urlencoded"),
        (b"\xff\xfe=\xff&&&=", "application/x-www-form-urlencoded"),
        (b"q=a&source=de", "application/x-www-form-urlencoded; charset=nonsense"),
        (b"--x\r\nbroken", "multipart/form-data; boundary=x"),
        (b"broken", "multipart/form-data"),
        (b"q=1", "image/png"),
    ],
)
def test_broken_forms_are_no_server_error(client, content, kind):
    answer = client.post("/translate", content=content, headers={"content-type": kind})
    assert answer.status_code in (200, 400), answer.text
    assert (answer.status_code == 200) == ("translatedText" in answer.json())


def test_a_body_above_the_limit_is_refused_whether_or_not_it_says_its_length():
    def parts():
        for _ in range(100):
            yield b"a" * 1000

    with server(body_limit=2000) as (client, _, _):
        for content in (b"a" * 2001, parts()):
            answer = client.post("/translate", content=content)
            assert answer.status_code == 413
            assert "limit of 2000 bytes" in answer.json()["error"]
        assert post(client).status_code == 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "q",
        "source",
        "target",
        "format",
        "alternatives",
        "prefix",
        "model",
        *DecodeOptions.__dataclass_fields__,
    ]
)


@given(fields=st.dictionaries(FIELDS, VALUES, max_size=4), path=st.sampled_from(["/translate", "/summarize"]))
def test_no_json_object_is_a_server_error(client, fields, path):
    values = {"q": "Gut.", "source": "de", "target": "en", "max_length": 4} | fields
    answer = client.post(path, content=json.dumps(values), headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404, 413), answer.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/translate", 405), ("POST", "/health", 405), ("GET", "/detect", 405), ("GET", "/x", 404)],
)
def test_wrong_paths_and_methods_are_json_errors(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert path in answer.json()["error"]


def test_a_wrong_method_is_told_the_right_one(client):
    message = client.get("/translate").json()["error"]
    assert message == "Method Not Allowed: GET /translate, which takes POST; /docs shows what is answered"


@pytest.mark.parametrize("value", ["x", "0", "-1", "nan", "inf"])
def test_a_senseless_timeout_is_refused(client, value):
    answer = client.post("/translate", json={"q": "a"}, headers={"X-Request-Timeout": value})
    assert answer.status_code == 400
    assert "X-Request-Timeout" in answer.json()["error"]


def test_every_option_out_of_its_range_is_named_together(client):
    answer = post(client, beam_size=0, temperature=-1, top_p=2)
    assert answer.status_code == 400
    for fault in ("beam_size must be between 1 and 4", "temperature must be a", "top_p must be above 0"):
        assert fault in answer.json()["error"]


def test_every_error_of_the_engine_has_a_status():
    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    kinds = {kind for kind in below(ConvoyError) if kind.__module__ == "engine.errors"}
    contract = contract_of("/translate")
    assert {kind.code for kind in kinds} <= set(STATUSES)
    assert error_response(BundleError("x"), contract).status_code == 500
    assert error_response(Cancelled("x"), contract).status_code == 499
    full = error_response(Overloaded("x", 2.2), contract)
    assert (full.status_code, full.headers["retry-after"]) == (429, "3")


# without a socket: the application by itself


async def test_a_fault_of_our_own_is_a_json_500_and_is_logged(caplog):
    metrics = Metrics()
    app = create_app(open_service(), ServerSettings(), metrics)

    @app.get("/fault")
    async def fault() -> None:
        raise RuntimeError("by design")

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/fault")
        assert (answer.status_code, answer.json()) == (500, {"error": "internal error: see the server's log"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "by design" in caplog.text
        assert (await client.get("/health/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        answer = await client.post("/translate", json={"q": "Gut.", "source": "de", "target": "de"})
        assert answer.json() == {"translatedText": "Gut."}
    assert 'outcome="failed",route="/fault"' in metrics.text().decode()


def test_settings_come_from_the_environment(monkeypatch, tmp_path):
    for name, value in {"MODELS": f"{tmp_path}:b", "LANES": "1x2, 5x3", "PORT": "9", "THREADS": "3"}.items():
        monkeypatch.setenv(f"CONVOY_{name}", value)
    found = ServerSettings()
    assert [str(m) for m in found.models] == [str(tmp_path), "b"]
    assert (found.lanes, found.port, found.threads) == (((1, 2), (5, 3)), 9, 3)
    assert found.service().placement.lanes == ((1, 2), (5, 3))
    assert ServerSettings(models=bundles()).models == (bundles(),)


@pytest.mark.parametrize("lanes", ["5", "1x2x3", "ax1", "0x4", "", "1x-2"])
def test_lanes_that_are_no_pairs_are_refused(lanes):
    with pytest.raises(ValueError, match="lanes are pairs"):
        ServerSettings(lanes=lanes)


def test_the_variables_of_libretranslate_are_understood(monkeypatch):
    given = {
        "LT_HOST": "0.0.0.0",
        "LT_PORT": "5000",
        "LT_CHAR_LIMIT": "500",
        "LT_BATCH_LIMIT": "10",
        "LT_ALTERNATIVES_LIMIT": "2",
        "LT_THREADS": "4",
        "LT_LOAD_ONLY": "de, EN,pt-BR",
        "LT_URL_PREFIX": "lt/",
        "LT_FRONTEND_TIMEOUT": "9",
        "LT_FRONTEND_LANGUAGE_SOURCE": "de",
        "LT_FRONTEND_LANGUAGE_TARGET": "en",
        "LT_DISABLE_FILES_TRANSLATION": "true",
        "LT_DEBUG": "1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CONVOY_PORT", "6000")
    found = ServerSettings(threads=3)
    assert (found.host, found.port, found.threads) == ("0.0.0.0", 6000, 3)  # ours wins, a flag most of all
    assert (found.char_limit, found.batch_limit, found.alternatives_limit) == (500, 10, 2)
    assert (found.load_only, found.url_prefix) == (("de", "en", "pb"), "/lt")
    assert (found.frontend_timeout, found.frontend_source, found.frontend_target) == (9, "de", "en")
    assert (found.files, found.log_level) == (False, "debug")
    for name in given:
        monkeypatch.setenv(name, "")
    assert ServerSettings().port == 6000
    assert ServerSettings().host == "127.0.0.1"


def test_only_models_of_the_named_languages_are_loaded():
    assert [i.name for i in open_service(languages=("de", "en")).models()] == sorted(MODELS)
    assert [i.name for i in open_service(languages=("en",)).models()] == ["toy-title"]
    with pytest.raises(BundleError, match="no model is for the languages"):
        open_service(languages=("fr",))


def test_the_server_may_be_mounted_under_a_prefix():
    with server(url_prefix="lt") as (client, _, _):
        for path in ("/lt/languages", "/languages", "/lt/v2/health/live"):
            assert client.get(path).status_code == 200
        assert set(client.get("/lt/v2/usage/x").json()) == {"message"}
        files = {"file": ("a.txt", b"Gut.")}
        answer = client.post("/lt/translate_file", files=files, data={"source": "de", "target": "en"})
        url = answer.json()["translatedFileUrl"]
        assert url.startswith(f"{str(client.base_url).rstrip('/')}/lt/download_file/")
        assert client.get(url).status_code == 200


def test_suggestions_are_off(client):
    answer = client.post("/suggest", data={"q": "a", "s": "b", "source": "de", "target": "en"})
    assert (answer.status_code, answer.json()) == (
        403,
        {"error": "Suggestions are disabled on this server: --suggestions FILE enables them."},
    )


def test_a_source_tree_that_is_not_installed_has_a_version_that_says_so(monkeypatch):
    from importlib import metadata

    from engine.backends import UNINSTALLED_VERSION, program_version

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert program_version() == metadata.version("convoy-server")
    monkeypatch.setattr(metadata, "version", absent)
    assert program_version() == UNINSTALLED_VERSION
