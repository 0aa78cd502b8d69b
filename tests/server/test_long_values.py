"""Long values of every field that /openapi.json names, by generation: whatever comes, others are served.

Requests go to all operations of one running server while two clients request its health and a sentence, like
in `test_attacks.py`. Fields of one name are sent once, and waits are checked for each operation; in thorough
runs, for every field of every operation and each of its long values.
"""

import json
from contextlib import suppress
from typing import Any, NamedTuple

import httpx
import pytest

from tests.server.test_attacks import Others, too_long
from tests.server.test_server_process import GERMAN, process
from tests.support.attacks import FORM
from tests.support.thorough import THOROUGH
from tests.support.timing import ATTEMPTS, MachineLag

BODY_BYTES = 1_000_000  # of a body, a little less than the default limit
HEAD_BYTES = 10_000  # length of a query string before it is escaped
VALUES = 190_000  # of JSON, a little less than the limit
NAMES = 49_000
DIGITS = 4_000  # of a number, a little less than the limit
DEPTH = 400
PATIENCE = 0.7  # seconds until the client leaves
PLUGINS = "deeplx,immersive,mtran,google,apertium,nllb,xunity"
JSON_KIND, FORM_KIND, FILE_KIND = "application/json", FORM, "multipart/form-data"
# fields of which any value is taken, to be repeated or forgotten: of the last two, unknown names
NOT_READ = {"context", "model_type", "id", "parameters", "stream_options"}
PATHS = {"{model}": "toy-de-en", "{name}": "toy-de-en", "{version}": "1"}
BASE = {  # of fields that must be there, where a schema has no example
    "text": ["Gut."],
    "q": "Gut.",
    "source": "de",
    "target": "en",
    "target_lang": "EN",
    "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["Gut."]}],
}


def kinds(schema):
    """The schema itself, or the alternatives that it names, but null."""
    some = schema.get("anyOf", [schema])
    return [one for one in some if one.get("type") != "null"]


def long_values(schema, room, *, deep):
    """Yield JSON texts of the longest values that a schema may accept, within some bytes."""
    for kind in kinds(schema):
        name = kind.get("type")
        if name == "string" and "enum" not in kind:
            size = min(room - 2, kind.get("maxLength", room))
            yield '"' + "a" * size + '"'
            if THOROUGH:
                yield from ('"' + pump * (size // len(pump)) + '"' for pump in ("a. ", "<b>", "1", " ", "ü"))
        elif name == "array":
            item = json.dumps(BASE["inputs"][0] if kind.get("items", {}).get("type") == "object" else "Ja.")
            count = min(kind.get("maxItems", VALUES), (room - 2) // (len(item) + 1))
            yield "[" + ",".join([item] * count) + "]"
            yield '["' + "a" * (room - 4) + '"]'
        elif name == "object":
            count = min(kind.get("maxProperties", NAMES), room // 14)
            yield "{" + ",".join(f'"{n:06}":"b"' for n in range(count)) + "}"
            yield '{"a":"' + "a" * (room - 8) + '"}'
        elif name in ("integer", "number"):
            yield "9" * min(DIGITS, room)
    if deep:
        yield "[" * DEPTH + "]" * DEPTH


def operations(description):
    """(path, method, kind of body, fields by name, base values) of everything that takes a field."""
    for path, ways in description["paths"].items():
        for method, operation in ways.items():
            fields = {f["name"]: f["schema"] for f in operation.get("parameters", []) if f["in"] == "query"}
            named = {f["name"]: f["schema"] for f in operation.get("parameters", []) if f["in"] == "path"}
            if fields or named:
                yield path, method, "", fields | named, {}
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                schema = content["schema"]
                while "$ref" in schema:
                    schema = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
                base = content.get("example") or {
                    name: BASE.get(name, "x") for name in schema.get("required", ())
                }
                yield path, method, kind, schema.get("properties", {}), base


def request_with(client, path, method, kind, base, texts):
    """A request with long values, which come as JSON texts by the names of their fields."""
    plain = {name: json.loads(text) if text.startswith('"') else text for name, text in texts.items()}
    address = path
    for part, usual in PATHS.items():
        address = address.replace(part, plain.get(part[1:-1], usual))
    if not kind:
        query = {name: value for name, value in plain.items() if f"{{{name}}}" not in path}
        return client.build_request(method, address, params=query)
    if kind == JSON_KIND:
        fields = {name: json.dumps(value) for name, value in base.items()} | texts
        content = "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items()) + "}"
        return client.build_request(method, address, content=content, headers={"Content-Type": kind})
    values = base | plain
    file = values.pop("file", "Gut.")
    files = {"file": ("a.txt", file)} if kind == FILE_KIND else None
    return client.build_request(method, address, data=values, files=files)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    suggestions = tmp_path_factory.mktemp("suggestions") / "suggestions.txt"
    with process(PLUGINS=PLUGINS, SUGGESTIONS=str(suggestions)) as (client, running):
        client.post("/detect", json={"q": "Das ist gut."})
        client.post("/translate", json=GERMAN)
        with Others(str(client.base_url), running.pid) as others:
            yield client, others


class Case(NamedTuple):
    """A request with a long value: of one field, or of all of an operation at once."""

    operation: str
    field: str
    arguments: tuple[Any, ...]  # of `request_with`
    large: bool  # whether most of a body is the value of one field


def cases(description):
    """Yield lists of cases: all cases of an operation, or in thorough runs each case."""
    seen = set()
    for path, method, kind, fields, base in operations(description):
        operation, some, room = f"{method} {path} {kind}", [], BODY_BYTES if kind else HEAD_BYTES
        for field, schema in fields.items():
            if (field, kind) in seen and not THOROUGH:
                continue
            seen.add((field, kind))
            for text in long_values(schema, room, deep=THOROUGH or not some):
                # the limit of a file is ten times as large, and has tests of its own
                large = kind not in ("", FILE_KIND) and len(text) > room / 2
                some.append(Case(operation, field, (path, method, kind, base, {field: text}), large))
        if some and kind:
            each = room // len(fields)
            all_of_them = {
                field: next(long_values(schema, each, deep=True)) for field, schema in fields.items()
            }
            some.append(Case(operation, "all", (path, method, kind, {}, all_of_them), large=False))
        yield from [[one] for one in some] if THOROUGH else [some] if some else []


def ask(attacker, others, some):
    """(What was too long or "", faults, fields let through), while cases are sent."""
    requests = [request_with(attacker, *case.arguments) for case in some]
    faults, let_through = [], set()
    usual = max(others.rest())
    others.faults.clear()
    with MachineLag() as lag, others.times() as times:
        for case, request in zip(some, requests, strict=True):
            with suppress(httpx.TimeoutException):
                status = attacker.send(request).status_code
                if status >= 500 and status not in (503, 504):
                    faults.append(f"{case.field}: {status}")
                if case.large and status < 300:
                    let_through.add(case.field)
    said = too_long(times, usual, lag.longest)
    return said, faults + others.faults[:1], let_through


def test_long_values_of_any_field_delay_no_other_client(place):
    client, others = place
    description = client.get("/openapi.json").json()
    assert len(list(operations(description))) > 55
    faults, let_through = [], set()
    with httpx.Client(base_url=client.base_url, timeout=PATIENCE) as attacker:
        for some in cases(description):
            where = f"{some[0].operation}: {', '.join(case.field for case in some)}"
            slow = []
            for _ in range(ATTEMPTS):  # a processor that the machine's host took away does not stay away
                said, found, fields = ask(attacker, others, some)
                faults += [f"{where}: {fault}" for fault in found]
                let_through |= fields
                slow += [said] if said else []
                if not said:
                    break
            if len(slow) == ATTEMPTS:
                faults.append(f"{where}: {'; '.join(slow)}")
    assert not faults, faults
    assert let_through <= NOT_READ, "bound these fields, or say that nothing reads them"
