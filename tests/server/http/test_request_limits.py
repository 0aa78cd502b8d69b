"""Limits of a request, checked before it is parsed or queued."""

import json
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    InvalidRequest,
    TooLarge,
    at_once,
)
from server.errors import InvalidParameter
from server.http.forms import read_fields
from server.http.parameters import parse_json
from server.http.schemas import (
    MAX_ALIGNMENT_CELLS,
    TranslateRequest,
    check_cells,
    check_phrases,
    check_tags,
    phrases_of,
    validate,
)
from tests.server.test_server_process import GERMAN

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


JSON_OBJECT = st.dictionaries(st.text(), JSON, max_size=5)


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"q": ["a"] * 1_001}, "(1000)"),
        ({"q": "a" * 100_001}, "(100000)"),
        ({"ignore": ["a"] * 1_001}, "takes 1000"),
        ({"ignore": ["a"] * 501, "glossary": {str(i): "b" for i in range(500)}}, "1001 phrases"),
        ({"q": "<b>" * 10_001, "format": "html"}, "takes 10000"),
        ({"prefix": "a" * 16_385}, "prefix: String should have at most 16384 characters"),
    ],
)
def test_more_than_a_default_limit_is_refused_naming_the_limit(client, values, limit):
    answer = client.post("/translate", json=GERMAN | values)
    assert answer.status_code == 400
    assert limit in answer.json()["error"]


def test_limits_of_minus_one_are_off():
    check_phrases(10**6, -1)
    check_tags(["<" * 10**5], -1)
    for check, value in ((check_phrases, 3), (check_tags, ["<<<"])):
        check(value, 3)
        with pytest.raises(InvalidRequest):
            check(value, 2)


def test_phrases_are_counted_before_parsing():
    assert phrases_of({"ignore": ["a", "b"], "glossary": {"c": "d"}}) == 3
    assert phrases_of({"ignore": "a\nb", "glossary": '{"c": "d"}'}) == 3
    assert phrases_of({"ignore": 7, "glossary": None}) == 0


def test_phrases_of_a_form_are_parsed_as_counted():
    """`str.splitlines` splits at more line ends than are counted."""
    form = "a\x0bb\x1cc\u2028d\r\n\ne"
    request = validate(TranslateRequest, {"ignore": form})
    assert request.ignore == ["a\x0bb\x1cc\u2028d", "e"]
    assert len(request.ignore) <= phrases_of({"ignore": form})


@pytest.mark.parametrize(
    "text", ["[" * 300_000, "{" * 40_000, '{"a":' * 900, "{" + '"a":1,' * 300_000 + "}", "1" * 9_000]
)
def test_glossary_in_a_form_has_the_limits_of_a_json_body(text):
    with pytest.raises(InvalidParameter, match="glossary"):
        validate(TranslateRequest, {"glossary": text})


def test_huge_alignment_is_refused():
    check_cells(MAX_ALIGNMENT_CELLS)
    with pytest.raises(TooLarge, match="1000001 numbers"):
        check_cells(MAX_ALIGNMENT_CELLS + 1)


@pytest.mark.parametrize("body", [b"[" * 50_001, b'{"q":[' + b"1," * 200_001 + b"1]}"])
def test_json_with_too_many_values_is_refused_before_parsing(body):
    with pytest.raises(InvalidRequest, match="50000 arrays and objects or 200000 values"):
        parse_json(body)


@given(JSON_OBJECT)
def test_written_json_is_read_back(value):
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a": 1',
        b"[]",
        b'{"a":' * 5_000,
        b'{"a":' + b"1" * 5_000 + b"}",
        b'{"a": "\xff"}',
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_invalid_json_is_refused_at_any_length(raw):
    with pytest.raises(InvalidRequest, match="Invalid JSON"):
        parse_json(raw)


@given(st.lists(st.tuples(st.text(min_size=1), st.text())), st.integers(3, 9))
def test_written_forms_are_read_back_in_any_pieces(fields, piece):
    fields = [(name, value) for name, value in fields if not any(map(_is_half, name + value))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.http.forms.PIECE_BYTES", piece)
        wanted = {name: [value for key, value in fields if key == name] for name, _ in fields}
        assert at_once(read_fields(urlencode(fields).encode())) == wanted


def _is_half(character):
    return "\ud800" <= character <= "\udfff"


def test_form_with_too_many_fields_is_refused():
    assert len(at_once(read_fields(b"a=b&" * 1_999 + b"a=b"))["a"]) == 2_000
    with pytest.raises(InvalidRequest, match="2000 fields"):
        at_once(read_fields(b"a=b&" * 2_000 + b"a=b"))


def test_too_many_sentences_are_refused_before_queueing(client):
    answer = client.post("/translate", json=GERMAN | {"q": ["Ja. " * 1_400] * 3})
    assert answer.status_code == 413
    assert "4096 sentences" in answer.json()["error"]


@pytest.mark.parametrize("method", ["GET", "PATCH", "POST", "OPTIONS"])
def test_long_path_is_refused_before_routing(client, method):
    for path, status in (("/" + "a" * 5_000, 414), ("/" + "%61" * 5_000, 414), ("/" + "a" * 4_000, 404)):
        answer = client.request(method, path)
        assert answer.status_code in ((204,) if method == "OPTIONS" else (status, 405)), path[:20]


def test_query_with_too_many_fields_is_refused(client):
    answer = client.get("/health?" + "a&" * 2_000)
    assert answer.status_code == 400
    assert "2000 fields" in answer.json()["error"]
