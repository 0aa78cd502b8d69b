"""Invalid requests: each is a client error with a clear message."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    BundleError,
    Cancelled,
    ConvoyError,
    DecodeOptions,
    Overloaded,
)
from server.contracts import contract_of
from server.errors import STATUSES, error_response
from tests.server.http.conftest import post
from tests.support.served import server


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
def test_invalid_json_is_a_client_error(client, content, status):
    answer = client.post(
        "/translate", content=content, headers={"content-type": "application/json; charset=utf-8"}
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
        {"target": ["en", 1]},
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
def test_broken_forms_are_client_errors(client, content, kind):
    answer = client.post("/translate", content=content, headers={"content-type": kind})
    assert answer.status_code in (200, 400), answer.text
    assert (answer.status_code == 200) == ("translatedText" in answer.json())


def test_too_long_body_is_refused_with_and_without_a_declared_length():
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
def test_random_json_objects_cause_no_server_error(client, fields, path):
    values = {"q": "Gut.", "source": "de", "target": "en", "max_length": 4} | fields
    answer = client.post(path, content=json.dumps(values), headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404, 413), answer.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/translate", 405), ("POST", "/health", 405), ("GET", "/detect", 405), ("GET", "/x", 404)],
)
def test_unknown_paths_and_methods_are_json_errors(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert path in answer.json()["error"]


def test_error_of_a_wrong_method_names_the_allowed_ones(client):
    message = client.get("/translate").json()["error"]
    assert message == "Method Not Allowed: GET /translate, which takes POST; /docs shows what is answered"


@pytest.mark.parametrize("value", ["x", "0", "-1", "nan", "inf"])
def test_invalid_timeout_is_refused(client, value):
    answer = client.post("/translate", json={"q": "a"}, headers={"X-Request-Timeout": value})
    assert answer.status_code == 400
    assert "X-Request-Timeout" in answer.json()["error"]


def test_all_options_out_of_range_are_named_in_one_error(client):
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
