"""Reading and subtitle tools, asked as they ask: pot and STranslate (DeepLX), Immersive Translate, Kiss
Translator, hcfy, MTranServer's own clients, Zotero (Google), OmegaT (Apertium). They are programs with
windows, so what each sends is written here as their sources have it, and what each reads of the answer."""

from urllib.parse import quote, urlencode

import pytest

from server.contracts.reading.shapes import SHAPES
from server.settings import ServerSettings
from tests.support.served import server

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
GERMAN = "Wo ist denn hier der Bahnhof?"
ALL = "deeplx,immersive,mtran,google,apertium,nllb,xunity"


@pytest.fixture(scope="module")
def client():
    with server(plugins=ALL) as (found, _, _):
        yield found


@pytest.fixture(scope="module")
def english(client):
    return client.post("/translate", json={"q": GERMAN, "source": "de", "target": "en"}).json()[
        "translatedText"
    ]


def good(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/deeplx", "/translate"])
@pytest.mark.parametrize("source", ["DE", "auto", ""])
def test_deeplx(client, english, path, source):
    answer = good(client.post(path, json={"text": GERMAN, "source_lang": source, "target_lang": "EN"}))
    assert (answer["code"], answer["data"]) == (200, english)
    assert (answer["source_lang"], answer["target_lang"], answer["method"]) == ("DE", "EN", "Free")
    assert isinstance(answer["id"], int)
    assert len(answer["alternatives"]) <= 3


def test_immersive_translate(client, english):
    body = {"source_lang": "auto", "target_lang": "en", "text_list": [GERMAN, "Das ist gut."]}
    answer = good(client.post("/imme?token=x", json=body))
    assert answer["translations"][0] == {"detected_source_lang": "de", "text": english}
    assert len(answer["translations"]) == 2


def test_kiss_translator(client, english):
    one = good(client.post("/kiss", json={"from": "auto", "to": "en", "text": GERMAN}))
    assert one == {"text": english, "src": "de"}
    several = good(client.post("/kiss", json={"from": "de", "to": "en", "texts": [GERMAN, GERMAN]}))
    assert several == {"translations": [one, one]}


def test_hcfy(client, english):
    body = {"text": GERMAN, "destination": ["英语"], "source": "德语"}
    assert good(client.post("/hcfy", json=body)) == {
        "text": GERMAN,
        "from": "德语",
        "to": "英语",
        "result": [english],
    }
    turned = {"text": GERMAN, "destination": ["德语", "英语"]}  # the text is German already
    assert good(client.post("/hcfy", json=turned))["to"] == "英语"


def test_mtranserver(client, english):
    one = {"from": "de", "to": "en", "text": GERMAN}
    assert good(client.post("/translate", json=one)) == {"result": english}
    batch = {"from": "auto", "to": "en", "texts": [GERMAN, GERMAN]}
    assert good(client.post("/translate/batch", json=batch)) == {"results": [english, english]}
    page = good(client.post("/translate", json=one | {"text": f"<p>{GERMAN}</p>", "html": True}))
    assert page["result"].startswith("<p>")
    assert good(client.post("/detect", json={"text": GERMAN})) == {"language": "de"}
    assert client.get("/__heartbeat__").text == "Ready"


def test_google(client, english):
    body = {"q": [GERMAN, GERMAN], "target": "en", "format": "text"}
    item = {"translatedText": english, "detectedSourceLanguage": "de"}
    assert good(client.post("/language/translate/v2?key=x", json=body)) == {
        "data": {"translations": [item] * 2}
    }
    form = {"q": GERMAN, "source": "de", "target": "en", "format": "text"}
    for answer in (
        client.get("/language/translate/v2", params=form),
        client.post("/language/translate/v2", data=form),
    ):
        assert good(answer) == {"data": {"translations": [{"translatedText": english}]}}
    html = good(client.post("/language/translate/v2", json={"q": f"<p>{GERMAN}</p>", "target": "en"}))
    assert html["data"]["translations"][0]["translatedText"].startswith("<p>")  # is Google's default
    detections = good(client.post("/language/translate/v2/detect", json={"q": GERMAN}))["data"]["detections"]
    assert detections[0][0]["language"] == "de"
    languages = good(client.get("/language/translate/v2/languages?target=en"))["data"]["languages"]
    assert {"language": "de", "name": "German"} in languages


def test_request_of_zotero_to_google_works(client, english):
    query = {"client": "gtx", "sl": "auto", "tl": "en", "dt": "t", "q": GERMAN}
    answer = good(client.get("/translate_a/single", params=query))
    assert "".join(part[0] for part in answer[0]) == english
    assert answer[0][0][1] == GERMAN
    assert answer[2] == "de"


def test_request_of_kiss_translator_to_google_works(client, english):
    """Its GET has a JSON content type, like pot's, and requests parts with names."""
    query = {"client": "gtx", "dt": "t", "dj": "1", "ie": "UTF-8", "sl": "auto", "tl": "en", "q": GERMAN}
    headers = {"Content-type": "application/json"}
    answer = good(client.get("/translate_a/single", params=query, headers=headers))
    assert " ".join(part["trans"] for part in answer["sentences"]) == english
    assert answer["src"] == "de"


def test_request_of_omegat_to_apertium_works(client, english):
    query = {"q": GERMAN, "markUnknown": "no", "langpair": "de|en_GB", "key": "x"}
    answer = good(client.get("/apertium/translate", params=query))
    assert answer["responseStatus"] == 200
    assert answer["responseData"] == {"translatedText": english}
    tagged = good(client.get("/apertium/translate", params=query | {"q": "<t0/>Das ist <g1>gut</g1>."}))
    assert tagged["responseData"]["translatedText"].count("<t0/>") == 1
    for pair in ("de", "|en", "de|"):
        refused = client.get("/apertium/translate", params=query | {"langpair": pair})
        assert (refused.status_code, refused.json()["status"]) == (400, "error")
        assert "langpair" in refused.json()["explanation"]


def test_libretranslates_own_requests_are_as_before(client, english):
    body = {"q": GERMAN, "source": "de", "target": "en", "text": "x", "to": "x", "target_lang": "x"}
    assert good(client.post("/translate", json=body))["translatedText"] == english
    assert good(client.post("/translate", data=body))["translatedText"] == english
    assert client.post("/translate", content=b"{", headers={"Content-Type": "application/json"}).json() == {
        "error": "Invalid JSON format: Expecting property name enclosed in double quotes at line 1, column 2"
    }
    assert good(client.post("/detect", json={"q": GERMAN}))[0]["language"] == "de"


def test_nllb_serve(client, english):
    # Subtitle Edit: each line of a cue is a text; Zotero: one text
    body = {"source": [GERMAN, "Das ist gut."], "src_lang": "deu_Latn", "tgt_lang": "eng_Latn"}
    for path in ("/translate", "/nllb/translate"):
        answer = good(client.post(path, json=body))
        assert answer["translation"][0] == english
        assert len(answer["translation"]) == len(answer["source"]) == 2
        assert (answer["src_lang"], answer["time_units"]) == ("deu_Latn", "s")
        assert answer["time_taken"] >= 0
        single = good(client.post(path, json=body | {"source": GERMAN}))
        assert single["translation"] == [english]
    curl = [("source", GERMAN), ("source", GERMAN), ("src_lang", "deu_Latn"), ("tgt_lang", "eng_Latn")]
    for asked in ({"params": curl}, {"content": urlencode(curl), "headers": FORM}):
        method = "GET" if "params" in asked else "POST"
        assert good(client.request(method, "/nllb/translate", **asked))["translation"] == [english] * 2
    assert client.post("/nllb/translate", json=body | {"source": []}).status_code == 400


def test_nllb_api(client, english):
    # Subtitle Edit posts, Zotero and the web read by GET; Zotero's stream joins what follows each `data:`
    body = {"text": GERMAN, "source": "deu_Latn", "target": "eng_Latn"}
    assert good(client.post("/api/v4/translator", json=body)) == {"result": english}
    assert good(client.get("/api/v4/translator", params=body)) == {"result": english}
    stream = client.get("/api/v4/translator/stream", params=body)
    assert stream.headers["content-type"].startswith("text/event-stream")
    lines = (line for line in stream.text.split("\n") if line)
    assert "".join(line.replace("data:", "", 1).strip() for line in lines) == english
    assert (
        "zho_Hans" in client.get("/api/v4/translator", params=body | {"target": "zho_Hans"}).json()["error"]
    )


def test_xunity_gets_plain_text(client, english):
    query = quote(GERMAN, safe="")
    for source in ("de", "auto"):
        answer = client.get(f"/xunity?from={source}&to=en&text={query}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.text == english
    assert client.get("/xunity?from=de&to=ja&text=a").status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/deeplx",
            {"text": "a", "target_lang": "xx"},
            lambda error: error["message"] and error["code"] == 400,
        ),
        ("/translate", {"text": "", "target_lang": "en"}, lambda error: error["code"] == 400),
        ("/imme", {"text_list": [1], "target_lang": "en"}, lambda error: "text_list" in error["error"]),
        ("/translate", {"text": "a", "to": "xx"}, lambda error: "xx" in error["error"]),
        ("/hcfy", {"text": "a", "destination": ["火星语"]}, lambda error: "火星语" in error["error"]),
        (
            "/language/translate/v2",
            {"q": "a", "target": "xx"},
            lambda error: error["error"]["status"] == "INVALID_ARGUMENT" and error["error"]["code"] == 400,
        ),
        ("/apertium/translate", {"q": "a", "langpair": "de|xx"}, lambda error: "xx" in error["explanation"]),
    ],
)
def test_errors_have_the_shape_that_each_tool_reads(client, path, body, message):
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert message(answer.json())


def test_reading_plugins_are_off_by_default():
    with server(plugins="google") as (client, _, _):
        for shape in SHAPES:
            on = "google" in shape.plugins
            answer = client.request(
                shape.methods[-1], shape.path, params=dict(shape.example), json=dict(shape.example)
            )
            assert (answer.status_code == 200) is on, shape.path
        answer = client.post("/translate", json={"text": GERMAN, "to": "en"})
        assert answer.json() == {"error": "Invalid request: missing q parameter"}
    assert ServerSettings().plugins == ()
    with pytest.raises(ValueError, match="plugins"):
        ServerSettings(plugins="nothing")


def test_keys_limits_and_charges_hold():
    key = "0123456789abcdef"
    with server(plugins=ALL, api_keys=key, char_quota=40, char_limit=50, url_prefix="/mt") as (client, _, _):
        client.base_url = f"{client.base_url}/mt/"
        body = {"text": GERMAN, "target_lang": "en"}
        assert "API key" in client.post("deeplx", json=body).json()["message"]
        assert client.post("deeplx", json=body, headers={"Authorization": "Bearer x"}).status_code == 403
        for name in ("token", "key"):
            long = client.post(f"deeplx?{name}={key}", json=body | {"text": "x" * 51})
            assert "exceeds text limit" in long.json()["message"]
        assert client.post(f"translate?token={key}", json=body).json()["data"]
        mtran = {"text": "x" * 51, "to": "en"}  # Zotero's client of MTranServer names no scheme
        long = client.post("translate", json=mtran, headers={"Authorization": key})
        assert "exceeds text limit" in long.json()["error"]
        poor = client.post(f"language/translate/v2?key={key}", json={"q": GERMAN, "target": "en"})
        assert poor.json()["error"]["status"] == "PERMISSION_DENIED"


def test_every_shape_is_on_the_page_and_its_example_is_answered(client):
    paths = client.get("/openapi.json").json()["paths"]
    for shape in SHAPES:
        if "POST" in shape.methods:
            assert good(client.post(shape.path, json=dict(shape.example)))
        if "GET" in shape.methods:
            assert client.get(shape.path, params=dict(shape.example)).status_code == 200
        assert set(paths[shape.path]) == {method.lower() for method in shape.methods}
