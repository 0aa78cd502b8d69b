"""Bad input of every kind, at every route that reads a body: each gets its documented answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.served import server

MODEL = "/v2/models/toy-de-en"
# path: the key of its errors
ROUTES = {
    "/translate": "error",
    "/detect": "error",
    "/summarize": "error",
    "/translate_file": "error",
    "/v2/translate": "message",
    "/v2/document": "message",
    f"{MODEL}/infer": "error",
    f"{MODEL}/generate": "error",
}
ARABIC = "أين محطة القطار؟ \u202eabc\u202c שלום"


@pytest.fixture(scope="module")
def client():
    with server(service_settings={"queue_tokens": 200_000}) as (found, _, _):
        yield found


def body(path, text):
    if path.endswith("infer"):
        return {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [text]}]}
    if path.endswith("generate"):
        return {"text_input": text}
    if path.startswith("/v2"):
        return {"text": [text], "source_lang": "DE", "target_lang": "EN-GB"}
    return {"q": text, "source": "en" if path == "/summarize" else "de", "target": "en", "truncate": True}


def answered(path, answer):
    found = answer.json()
    if path.startswith(MODEL):
        return found["text_output"] if "text_output" in found else found["outputs"][0]["data"][0]
    if path.startswith("/v2"):
        return found["translations"][0]["text"]
    return found.get("translatedText", found.get("summaryText"))


READERS = [path for path in ROUTES if path not in ("/translate_file", "/v2/document")]
WRITERS = [path for path in READERS if path != "/detect"]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b'{"q": "\xff"}', 400),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400),
        (b'{"q": NaN, "text": NaN, "inputs": NaN}', 400),
        (b"[]", 400),
        (b"null", 400),
        (b'"' + b"a" * 10_600_000 + b'"', 413),
    ],
    ids=["empty", "no UTF-8", "deep", "NaN", "array", "null", "10 MB"],
)
def test_a_body_that_is_wrong_is_a_client_error(client, path, content, status):
    answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert set(answer.json()) == {ROUTES[path]}
    assert len(answer.content) < 1000


@pytest.mark.parametrize("path", WRITERS)
@pytest.mark.parametrize("text", ["😀 🎉", "...", " \t "])
def test_text_without_letters_comes_back_as_it_is(client, path, text):
    assert answered(path, client.post(path, json=body(path, text))) == text


@pytest.mark.parametrize("path", READERS)
@pytest.mark.parametrize(
    "text", [ARABIC, "日本語。", "e\u0301\u200d\ufeff", "a\0b", "\ue000<ph0>", "x" * 999]
)
def test_any_unicode_is_answered(client, path, text):
    assert client.post(path, json=body(path, text)).status_code == 200


@pytest.mark.parametrize("path", WRITERS)
@pytest.mark.parametrize("options", [{"beam_size": 0}, {"temperature": "nan"}, {"length_penalty": 1e999}])
def test_wrong_options_are_client_errors(client, path, options):
    wanted = body(path, "Gut.")
    wanted = wanted | ({"parameters": options} if path.startswith(MODEL) else options)
    raw = json.dumps(wanted).replace("Infinity", "1e999")
    answer = client.post(path, content=raw, headers={"content-type": "application/json"})
    # DeepL has no such options: unknown ones are ignored, as it does
    assert answer.status_code == (200 if path == "/v2/translate" else 400)


def test_a_hundred_thousand_characters_on_a_line_are_translated(client):
    text = "Haus und Hof " * 7_600
    values = {"q": text, "source": "de", "target": "en", "beam_size": 1, "max_length": 1}
    answer = client.post("/translate", json=values)
    assert answer.status_code == 200
    assert len(answer.json()["translatedText"]) > 1_000
    one = client.post("/translate", json=values | {"q": "x" * 100_000})
    assert one.status_code == 200  # a word without end is cut anywhere
    whole = client.post("/translate", json=values | {"split": False})
    assert whole.status_code == 413
    assert client.post("/detect", json={"q": text}).status_code == 200


@pytest.mark.parametrize("count", [10_000, 10**400, "10000"])
def test_too_many_alternatives_are_refused(client, count):
    answer = client.post("/translate", json=body("/translate", "Gut.") | {"alternatives": count})
    assert answer.json() == {"error": "Invalid request: alternatives parameter must be <= 3"}


def test_a_number_without_a_fraction_is_an_integer_in_json(client):
    wish = body("/translate", "Gut.")
    assert len(client.post("/translate", json=wish | {"alternatives": 2.0}).json()["alternatives"]) == 2
    assert client.post("/translate", json=wish | {"alternatives": 1.5}).status_code == 400


@pytest.mark.parametrize("code", ["xx", "d" * 5000, "de\0", "../de", "😀", "de-XX-YY"])
def test_unknown_languages_are_refused_where_they_are_named(client, code):
    for field in ("source", "target"):
        answer = client.post("/translate", json=body("/translate", "Gut.") | {field: code})
        assert (answer.status_code, answer.json()) == (400, {"error": f"{code[:200]} is not supported"})
    for field in ("source_lang", "target_lang"):
        answer = client.post("/v2/translate", json=body("/v2/translate", "Gut.") | {field: code})
        assert answer.status_code == 400


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [
    "text",
    "target_lang",
    "source_lang",
    "split_sentences",
    "preserve_formatting",
    "formality",
    "tag_handling",
    "ignore_tags",
    "outline_detection",
    "splitting_tags",
    "inputs",
    "outputs",
    "parameters",
    "id",
    "text_input",
    "q",
    "source",
    "target",
    "format",
]


@given(
    path=st.sampled_from(sorted(ROUTES)),
    fields=st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=4),
)
def test_no_json_object_is_a_server_error(client, path, fields):
    content = json.dumps(body(path, "Gut.") | fields)
    answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404, 413), answer.text
    assert answer.status_code == 200 or set(answer.json()) == {ROUTES[path]}
