"""The server keeps what /openapi.json promises."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from urllib.parse import urlencode

import pytest

from engine.api import OPTION_BOUNDS, DecodeOptions, InvalidRequest
from engine.types import Limits
from tests.support.served import server

PLUGINS = "deeplx,immersive,mtran,google,apertium,nllb,xunity,mcp,ollama"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "ignored_auth,missing_required_header,negative_data_rejection,positive_data_acceptance"
)
# 413 refuses too: the schema has no limit of a body; other methods than the documented ones have a test below
CONFIG = """
[phases.coverage]
unexpected-methods = []
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


def test_spec_has_the_title_of_libretranslate(client):
    spec, description = client.get("/spec").json(), client.get("/openapi.json").json()
    assert spec["info"].pop("title") == "LibreTranslate"
    assert description["info"].pop("title") == "Convoy"
    assert spec == description


def test_every_route_describes_its_responses(operations):
    for path, method, operation in operations:
        for status, answer in operation["responses"].items():
            for kind, content in answer.get("content", {}).items():
                assert content.get("schema") or kind != "application/json", (path, method, status)
            assert "422" not in operation["responses"] or "parameters" in operation, path


def test_error_of_a_wrong_method_lists_all_methods_of_its_path(client, operations):
    methods = defaultdict(set)
    for path, method, _ in operations:
        methods[path] |= {"GET", "HEAD"} if method == "get" else {method.upper()}
    assert max(map(len, methods.values())) > 3, "a path with several routes"
    for path, known in methods.items():
        answer = client.request("QUERY", re.sub(r"{\w+}", "x", path))
        assert answer.status_code == 405, path
        assert set(answer.headers["allow"].split(", ")) == known, path


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


# why requests are refused that the schema allows, each sentence whole: several fields together ...
TOGETHER = (
    r"n_best must be between 1 and beam_size",
    r"[123] alternatives need a beam_size of at least [234]",
    r"min_length must not exceed max_length",
    r"diverse_groups must divide beam_size",
    r"sampling and diverse_groups exclude each other",
    r"stepwise_penalty and word_reward need beam search without sampling or diverse_groups",
    r"beam_rule 'marian' needs beam search without sampling or diverse_groups",
    r"prefix must not be longer than the longest target",
    r"Parameters 'glossary_id' and 'glossary_ids' can't be used together\.",
    r"Parameter 'source_lang' must be specified when a glossary is used\.",
    r"Invalid request: source_text must be a string or an array of strings, as q is",
    r"this model scores targets of a source: give the source of each text \(source_text, --source\)",
    r"[0-9]+ texts, but [0-9]+ sources: each text needs its own",
    r"Invalid request: scores, alignment and forced are of plain text; use format text",
    r"Invalid request: coverage and repetition of HTML do not go with partial",
    r"Invalid request: stream and partial take one target; send a request for each",
    r"input 'text_input' has [0-9]+ elements; its shape is \[[0-9, ]+\]",
    r"data of 'text_input' must be strings",
)
# errors that depend on the content of a text, file name or address, or on the abilities of the model
CONTENT = (
    r".+ \([\w-]+\) is not available as a source language, and the text seems to be in it; if it is not, "
    r"name its language",
    r"Invalid request: file format not supported; there are [a-z., ]+",
    r"Unsupported glossary source and target language pair\.",
    r"the model has no placeholder symbols: leave out ignore, glossary and marked spans",
    r"only models with dictionaries of words can replace_unk: leave it out",
    r'"convoy" needs a system message such as "Translate from German to English", or "Summarize"; or name a '
    r"model of /v1/models",
    r"Invalid value for .messages.: there is no message of the role user\.",
    r'the system message names no language to translate to: "Translate to English"',
)
ALLOWED_AND_REFUSED = re.compile("|".join((*TOGETHER, *CONTENT)), re.DOTALL)


def message_of(answer):
    """Return the message of an error in the shape of any contract. Schemathesis shows its beginning."""
    found = re.search(r'"(?:error|message)":("(?:[^"\\]|\\.)*")', answer or "")
    return json.loads(found[1]) if found else ""


def is_allowed(operation, answer):
    """Return whether the server may refuse a request that the schema allows."""
    if operation == "POST /hcfy" and message_of(answer).endswith(" is not supported"):
        return True  # the schema can't express that only the first of two languages is checked
    message = message_of(answer)
    # errors of several options are joined by "; "
    return bool(ALLOWED_AND_REFUSED.fullmatch(message)) or all(
        ALLOWED_AND_REFUSED.fullmatch(fault) for fault in message.split("; ")
    )


def refusals(output):
    """Yield the findings of schemathesis: (operation, code, violated check, message of the answer)."""
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
    short = ["--max-examples", "2", "--phases", "examples,coverage", "--seed", "1", "--no-color"]
    accept = ["--header", "Accept: application/json, text/event-stream"]  # both, as agents do
    # few texts, so that a deadline of a second, which schemathesis tries, is met
    limits = {"body_limit": 200_000, "file_limit": 100_000, "batch_limit": 20}
    limits["suggestions"] = tmp_path / "suggestions.txt"
    with server(plugins=PLUGINS, admin_token="operator-operator", **limits) as (client, _, _):
        url = f"{str(client.base_url).rstrip('/')}/openapi.json"
        done = subprocess.run(
            [*command, "--checks", CHECKS, *short, *accept, "--continue-on-failure", url],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert "Test cases:" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]
    found = list(refusals(done.stdout))
    assert done.returncode == bool(found), done.stdout[:6000]
    # an address of more than 64 KiB is refused by the HTTP library, before any contract is asked
    found = [each for each in found if each[3] != "Invalid HTTP request received."]
    # schemathesis tries deadlines of a second, which a busy machine does not meet
    found = [each for each in found if not (each[3] and "the deadline passed" in each[3])]
    faults = [each for each in found if each[1] != "ST202" or not is_allowed(each[0], each[3])]
    assert not faults, faults


def test_documented_bounds_of_options_are_enforced():
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


@pytest.mark.parametrize(
    "wrong", [{"beam_size": 5}, {"max_length": 2048}, {"alternatives": 4}, {"lm_weight": 1}, {"top_p": 1.5}]
)
@pytest.mark.parametrize("text", ["Das ist gut.", "!!!", " ", ["?", ""]])
@pytest.mark.parametrize("source", ["de", "auto", "en"])
def test_options_are_checked_whether_or_not_a_model_reads_the_text(client, operations, wrong, text, source):
    (fields,) = (
        operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
        for path, _, operation in operations
        if path == "/translate"
    )
    ((name, value),) = wrong.items()
    (bounds,) = (kind for kind in fields[name]["anyOf"] if "maximum" in kind)
    for said, status in ((value, 400), (bounds["maximum"], 200)):
        body = {"q": text, "source": source, "target": "en", name: said}
        answer = client.post("/translate", json=body)
        assert answer.status_code == status, (name, said, answer.text)


def test_a_name_that_comes_twice_in_a_form_is_refused_unless_libretranslate_reads_the_first(client):
    def ask(path, *pairs, **more):
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return client.post(path, content=urlencode(pairs), headers=kind, **more)

    german = (("q", "Das ist gut."), ("source", "de"), ("target", "en"))
    once = ask("/translate", *german).json()
    assert ask("/translate", *german, ("q", "Nein."), ("source", "en"), ("target", "de")).json() == once
    twice = (("beam_size", "2"), ("beam_size", "3"))
    assert "beam_size" in ask("/translate", *german, *twice).json()["error"]
    assert ask("/translate", *german, *twice).status_code == 400
    assert ask("/translate", *german, ("ignored", "1"), ("ignored", "2")).status_code == 200
    deepl = (("text", "Das ist gut."), ("target_lang", "EN-GB"), ("source_lang", "DE"))
    assert len(ask("/v2/translate", *deepl, deepl[0]).json()["translations"]) == 2
    assert ask("/v2/translate", *deepl, ("source_lang", "EN")).status_code == 400
    assert client.get("/translate/stream", params=[*german, *twice]).status_code == 400
    for path, names in (("/translate_file", german[1:]), ("/v2/document", deepl[1:])):
        several = {name: [value] for name, value in names} | {
            "attributes": ["1", "0"],
            "filename": ["a", "b"],
        }
        answer = client.post(path, files={"file": ("a.txt", b"Das ist gut.")}, data=several)
        assert answer.status_code == 400, (path, answer.text)


def test_documented_languages_of_fields_are_served(client, operations):
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


def test_every_option_is_described_and_every_limit_documented(client):
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


def test_openapi_describes_the_security_of_every_route(operations):
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
    subprocess.run([*generate, *options], cwd=tmp_path, check=True, capture_output=True, timeout=600)
    command = [sys.executable, "-c", GENERATED, str(client.base_url).rstrip("/")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[:6000] + done.stdout[-3000:] + done.stderr[-2000:]
    codes, text = done.stdout.splitlines()
    assert "de" in codes
    values = {"q": "Das ist gut.", "source": "de", "target": "en"}
    assert text == client.post("/translate", json=values).json()["translatedText"]
