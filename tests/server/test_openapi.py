"""What /openapi.json promises is what clients get."""

import json
import re
import subprocess
import sys

import pytest

from engine.api import OPTION_BOUNDS, DecodeOptions, InvalidRequest
from engine.types import Limits
from tests.served import server

PLUGINS = "deeplx,immersive,mtran,google,mcp"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "ignored_auth,missing_required_header,negative_data_rejection,positive_data_acceptance"
)
# 413 refuses too: the schema has no limit of a body
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 413, 429, "5xx"]
"""


@pytest.fixture(scope="module")
def client():
    with server() as (found, _, _):
        yield found


@pytest.fixture(scope="module")
def operations(client):
    paths = client.get("/openapi.json").json()["paths"]
    return [(path, method, operation) for path, ways in paths.items() for method, operation in ways.items()]


def test_spec_is_the_same_description(client):
    assert client.get("/spec").json() == client.get("/openapi.json").json()


def test_every_route_says_what_it_answers(operations):
    for path, method, operation in operations:
        for status, answer in operation["responses"].items():
            for kind, content in answer.get("content", {}).items():
                assert content.get("schema") or kind != "application/json", (path, method, status)
            assert "422" not in operation["responses"] or "parameters" in operation, path


def test_every_reference_leads_to_a_description(client):
    schema = client.get("/openapi.json").json()
    for reference in re.findall(r'"\$ref": ?"(#[^"]*)"', json.dumps(schema)):
        found = schema
        for name in reference.removeprefix("#/").split("/"):
            assert name in found, reference
            found = found[name]


def test_every_example_is_answered_with_200(client, operations):
    seen = 0
    for path, method, operation in operations:
        address = path.replace("{model}", "toy-de-en").replace("{version}", "1")
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            if "example" not in content:
                continue
            example, seen = dict(content["example"]), seen + 1
            if kind == "multipart/form-data":
                file = {"file": ("a.txt", example.pop("file").encode())}
                answer = client.request(method, address, files=file, data=example)
            elif kind == "application/json":
                answer = client.request(method, address, json=example)
            else:
                answer = client.request(method, address, data=example)
            assert answer.status_code == 200, (path, kind, answer.text)
    assert seen > 10


# why requests are refused that the schema allows: by several fields together, by what a text says or a file
# is named, by the first of hcfy's languages alone, by what the model can, which here keeps no phrases
ALLOWED_AND_REFUSED = re.compile(
    "the text seems to be in it|file format not supported|no placeholder symbols|Unsupported glossary|"
    "can't be used together|must be specified when a glossary|alternatives parameter must be|at most 5|"
    "beam_size|n_best|min_length|max_length|sampling|lm_weight|needs a system message|no message of the role|"
    "source_text must be|texts, but|are of plain text|do not go with partial|prefix |data of |shape|"
    "POST /hcfy: .* is not supported|names no language|only models with dictionaries"
)


def refusals(output):
    """What schemathesis has found: (operation, code, what is violated, the answer's message)."""
    for part in re.split(r"\n(?=_{4,} )", output):
        operation = re.match(r"_+ (.*?) _+\n", part)
        for case in re.split(r"\n(?=\d+\. Test Case)", part)[1:]:
            answer = re.search(r"\n    `(.*)`", case)
            for code in re.findall(r"^- (ST\d+)", case, re.MULTILINE):
                violated = re.search(r"Invalid component: (.*)", case)
                yield operation and operation[1], code, violated and violated[1], answer and answer[1]


def test_schemathesis_finds_no_contradiction(tmp_path):
    """A short run, always the same; for five minutes: the command below with --max-time 300 and no --seed."""
    command = [sys.executable, "-W", "ignore", "-m", "schemathesis.cli", "--config-file", "few.toml", "run"]
    (tmp_path / "few.toml").write_text(CONFIG, "utf-8")
    short = ["--max-examples", "2", "--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color"]
    accept = ["--header", "Accept: application/json, text/event-stream"]  # both, as agents do
    # few texts, so that a deadline of a second, which schemathesis tries, is met
    limits = {"body_limit": 200_000, "file_limit": 100_000, "batch_limit": 20}
    with server(plugins=PLUGINS, admin_token="operator-operator", **limits) as (client, _, _):
        url = f"{str(client.base_url).rstrip('/')}/openapi.json"
        done = subprocess.run(
            [*command, "--checks", CHECKS, *short, *accept, "--continue-on-failure", url],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert "Test cases:" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]
    found = list(refusals(done.stdout))
    assert done.returncode == bool(found), done.stdout[:6000]
    # an address of more than 64 KiB is refused by the HTTP library, before any contract is asked
    found = [each for each in found if each[3] != "Invalid HTTP request received."]
    faults = [
        each
        for each in found
        if each[1] != "ST202" or not ALLOWED_AND_REFUSED.search(f"{each[0]}: {each[3]}")
    ]
    assert not faults, faults


def test_the_bounds_that_are_told_of_options_are_those_that_are_kept():
    limits = Limits(beams=8, source=64, target=64, vocab=1_000, language_model=True)

    def is_fine(name, value):
        try:
            DecodeOptions(**{name: value}).check(limits)
        except InvalidRequest as error:
            assert name in str(error)
            return False
        return True

    for name, bounds in OPTION_BOUNDS.items():
        assert all(is_fine(name, value) for value in bounds.get("enum", ()))
        assert not ("enum" in bounds and is_fine(name, "other"))
        for side, beyond in (("minimum", -1), ("maximum", 1)):
            if side in bounds:
                assert is_fine(name, bounds[side])
                assert not is_fine(name, bounds[side] + beyond)
        if "exclusiveMinimum" in bounds:
            assert not is_fine(name, bounds["exclusiveMinimum"])


def test_numbers_are_no_booleans_and_nothing_is_guessed_of_other_values(client):
    german = {"q": "Das ist gut.", "source": "de", "target": "en"}
    for wrong in ({"top_k": True}, {"diverse_discount": False}, {"alternatives": 0.5}, {"format": []}):
        assert client.post("/translate", json=german | wrong).status_code == 400, wrong
    for right in (
        {"alternatives": "1"},
        {"alternatives": ""},
        {"alternatives": None},
        {"scores": 1},
        {"format": ""},
    ):
        assert client.post("/translate", json=german | right).status_code == 200, right
    assert client.post("/translate", data=german | {"scores": "1", "alternatives": ""}).status_code == 200


def test_languages_that_a_field_may_name_are_those_that_are_served(client, operations):
    bodies = {
        path: operation["requestBody"]["content"]
        for path, _, operation in operations
        if "requestBody" in operation
    }
    fields = bodies["/translate"]["application/json"]["schema"]["properties"]
    for code in ("de", "DE", "de-AT", "en_US", "auto", "fr", "xx", ""):
        allowed = re.search(fields["source"]["pattern"], code) is not None
        answer = client.post("/translate", json={"q": "Das ist gut.", "source": code, "target": "en"})
        assert (answer.status_code == 200) == allowed, code
    assert "x-served" not in json.dumps(client.get("/openapi.json").json())


def test_operations_have_short_names_of_their_own(operations):
    names = [operation["operationId"] for _, _, operation in operations]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 40
    assert {"translate", "deepl_translate", "kserve_infer", "kserve_infer_version"} <= set(names)


def test_every_option_has_a_sentence_of_its_own_and_every_limit_is_told(client):
    schema = client.get("/openapi.json").json()["paths"]["/translate"]["post"]["requestBody"]
    fields = schema["content"]["application/json"]["schema"]["properties"]
    assert fields["q"]["anyOf"][0]["maxLength"] == 100_000
    assert fields["q"]["anyOf"][1]["maxItems"] == 1_000
    assert fields["ignore"]["maxItems"] == fields["glossary"]["maxProperties"] == 1_000
    assert all(field["description"] for field in fields.values())
    assert "10000 tags" in fields["format"]["description"]
    assert "1048576 bytes" in schema["description"]
    file = client.get("/openapi.json").json()["paths"]["/translate_file"]["post"]["requestBody"]
    assert "10485760 bytes" in file["description"]


def test_who_may_ask_what_is_told(operations):
    schemes = {(path, method): operation["security"] for path, method, operation in operations}
    assert schemes["/health", "get"] == []
    assert {"ApiKey": []} in schemes["/translate", "post"]
    assert {"DeepLKey": []} in schemes["/v2/translate", "post"]
    assert schemes["/models/{name}/reload", "post"] == [{"OperatorToken": []}]
    assert schemes["/metrics", "get"] == [], "it has no token here"


def test_in_a_form_nothing_is_null_and_booleans_are_0_and_1_too(client, operations):
    bodies = {
        path: operation["requestBody"]["content"]
        for path, _, operation in operations
        if "requestBody" in operation
    }
    for content in bodies.values():
        form = content.get("application/x-www-form-urlencoded", {}).get("schema", {})
        assert '"null"' not in json.dumps(form.get("properties", {}))
        assert "#/$defs" not in json.dumps(content)
    fields = bodies["/translate"]["application/x-www-form-urlencoded"]["schema"]["properties"]
    assert {"type": "integer", "enum": [0, 1]} in fields["scores"]["anyOf"]
    values = {"q": "Das ist gut.", "source": "de", "target": "en", "scores": "1", "timings": "0"}
    answer = client.post("/translate", data=values).json()
    assert "scores" in answer
    assert "timings" not in answer


GENERATED = """
import sys
from generated import Client
from generated.api.libre_translate import languages, translate
from generated.models import TranslateJsonBody
client = Client(base_url=sys.argv[1])
print([language.code for language in languages.sync(client=client)])
body = TranslateJsonBody.from_dict({"q": "Das ist gut.", "source": "de", "target": "en"})
print(translate.sync(client=client, body=body).translated_text)
"""


def test_a_generated_client_runs(client, tmp_path):
    pytest.importorskip("openapi_python_client", reason="pip install openapi-python-client")
    (tmp_path / "spec.json").write_text(client.get("/openapi.json").text, "utf-8")
    generate = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "spec.json"]
    options = ["--output-path", "generated", "--meta", "none"]
    subprocess.run([*generate, *options], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    command = [sys.executable, "-c", GENERATED, str(client.base_url).rstrip("/")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[:6000] + done.stdout[-3000:] + done.stderr[-2000:]
    codes, text = done.stdout.splitlines()
    assert "de" in codes
    values = {"q": "Das ist gut.", "source": "de", "target": "en"}
    assert text == client.post("/translate", json=values).json()["translatedText"]
