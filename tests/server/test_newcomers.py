"""Errors of typical first requests: one line that names the remedy."""

import json

import pytest

from tests.support.served import server

GERMAN = {"q": "Das ist gut.", "source": "de", "target": "en"}
TENSOR = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["Das ist gut."]}
CHAT = {"model": "toy-de-en", "messages": [{"role": "user", "content": "Das ist gut."}]}
FLAG = {"beam_size": True}
NUMBER = "beam_size: a number is needed"


@pytest.fixture(scope="module")
def client():
    with server() as (client, _, _):
        yield client


def told(answer):
    """Return the message of an error in the shape of any contract."""
    assert 400 <= answer.status_code < 500
    body = answer.json()
    message = body.get("message") or body["error"]
    return message["message"] if isinstance(message, dict) else message


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/translate", GERMAN | FLAG, NUMBER),
        ("/translate", GERMAN | {"glossary": "{"}, "glossary: Invalid JSON format"),
        ("/summarize", {"q": "It is good."} | FLAG, NUMBER),
        ("/v2/translate", {"text": ["a"], "target_lang": "EN", "ignore_tags": "a," * 1_001}, "at most 1000"),
        ("/v2/models/toy-de-en/infer", {"inputs": [TENSOR], "parameters": FLAG}, NUMBER),
        ("/v2/models/toy-de-en/generate", {"text_input": "Ja.", "parameters": FLAG}, NUMBER),
        ("/v2/models/toy-de-en/generate_stream", {"text_input": "Ja.", "parameters": FLAG}, NUMBER),
        ("/v1/chat/completions", CHAT | {"n": True}, "n: a number is needed"),
        ("/v1/completions", {"model": "toy-de-en", "prompt": "Ja.", "n": True}, "n: a number is needed"),
    ],
)
def test_invalid_value_has_our_own_message(client, path, body, reason):
    message = told(client.post(path, json=body))
    assert reason in message
    assert "Value error" not in message


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "there is no text"),
        (b"{'q': 1}", "Expecting property name enclosed in double quotes at line 1, column 2"),
        (b'{"q": "a"\n', "Expecting ',' delimiter at line 2, column 1"),
        (b'{"q": "\xff"}', "it is not in UTF-8"),
        (b'{"q": "\\ud800"}', "half of a surrogate pair is no character"),
        (b'{"q": NaN}', "NaN is no JSON"),
        (b'{"q": ' + b"1" * 5_000 + b"}", "Exceeds the limit (4300 digits)"),
        (b"[]", "it must be an object, in braces"),
        (b"null", "it must be an object, in braces"),
    ],
)
def test_error_of_invalid_json_names_the_position(client, body, reason):
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    message = told(answer)
    assert message.startswith(f"Invalid JSON format: {reason}")
    assert len(message) < 150
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
@pytest.mark.parametrize(("path", "body"), [("/translate", GERMAN), ("/v2/translate", {"text": ["a"]})])
def test_error_of_json_with_another_type_names_the_content_type(client, kind, path, body):
    answer = client.post(path, content=b" \n" + json.dumps(body).encode(), headers={"Content-Type": kind})
    assert told(answer) == "the body looks like JSON: send it with Content-Type: application/json"


@pytest.mark.parametrize(
    ("asked", "others"),
    [("GET /translate", ", which takes POST"), ("GET /nothing", ""), ("PUT /v2/x", "")],
)
def test_error_of_an_unknown_path_or_method_names_the_docs(client, asked, others):
    message = told(client.request(*asked.split()))
    assert message.endswith(f": {asked}{others}; /docs shows what is answered")


def test_error_of_an_unknown_file_format_lists_the_formats(client):
    answer = client.post("/translate_file", data=GERMAN, files={"file": ("a.xyz", b"x")})
    assert told(answer).startswith("Invalid request: file format not supported; there are .txt, .md, ")
