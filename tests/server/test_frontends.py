"""Front ends and engine processes answer what one process answers, in every contract, bit for bit."""

import json
import re

import httpx
import pytest

from tests.support.processes import processes
from tests.support.served import bundles, lending

TEXTS = ["Das ist gut.", "Das ist schlecht. Es war einmal ein König.", "", "Guten Morgen, <b>Welt</b>!"]
GERMAN = {"q": TEXTS[1], "source": "de", "target": "en"}
WISHES = {"scores": True, "alternatives": 3, "alignment": True, "coverage": True, "repetition": True}
TRANSLATIONS = (
    GERMAN,
    GERMAN | {"source": "auto"},
    GERMAN | {"q": TEXTS} | WISHES,
    GERMAN | {"q": TEXTS[3], "format": "html"},
    GERMAN | {"ignore": ["König"], "glossary": {"gut": "fine"}, "protect": True, "forced": True},
    GERMAN | {"model": "toy-de-en+toy-en-de", "target": "de"} | WISHES,
    GERMAN | {"prefix": "The"},
    GERMAN | {"sampling": True, "seed": 7, "temperature": 1.5, "beam_size": 3, "scores": True},
    GERMAN | {"diverse_groups": 2, "beam_size": 4, "n_best": 2, "scores": True},
    GERMAN | {"beam_size": 5},  # wider than any lane
    GERMAN | {"q": "wort " * 70, "split": False},  # longer than the model reads
    GERMAN | {"model": "nobody"},
)
TENSOR = {"name": "text_input", "shape": [2], "datatype": "BYTES", "data": TEXTS[:2]}
CHAT = {
    "model": "toy-de-en",
    "messages": [{"role": "system", "content": "Translate from German to English."}]
    + [{"role": "user", "content": TEXTS[1]}],
}
OTHERS = (
    ("POST", "/summarize", {"q": "It was a good day. " * 20, "strategy": "refine", "scores": True}),
    ("POST", "/score", {"q": ["That is good.", "Good"], "source_text": TEXTS[:2], "source": "de"}),
    ("POST", "/detect", {"q": TEXTS[1]}),
    ("POST", "/v2/translate", {"text": TEXTS, "source_lang": "DE", "target_lang": "EN"}),
    ("POST", "/v2/models/toy-de-en/infer", {"inputs": [TENSOR]}),
    ("POST", "/v2/models/toy-de-en/generate", {"text_input": TEXTS[1]}),
    ("GET", "/v2/models/toy-de-en", None),
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/completions", {"model": "toy-de-en", "prompt": TEXTS[:2]}),
    ("GET", "/v1/models", None),
    ("GET", "/languages", None),
    ("GET", "/v2/languages?type=target", None),
    ("GET", "/models", None),
    ("GET", "/openapi.json", None),
)
STREAMS = (
    ("/translate", GERMAN | {"stream": True}),
    ("/translate", GERMAN | {"q": TEXTS, "stream": True} | WISHES),
    ("/v1/chat/completions", CHAT | {"stream": True}),
    ("/v2/models/toy-de-en/generate_stream", {"text_input": TEXTS[1]}),
)
# of the moment, of chance, or of the process
PASSING = frozenset({"id", "created", "load_seconds", "system_fingerprint"})


def lasting(value):
    """Without what differs between two answers of one server."""
    if isinstance(value, dict):
        return {key: lasting(inner) for key, inner in value.items() if key not in PASSING}
    return [lasting(inner) for inner in value] if isinstance(value, list) else value


def whole(client, method, path, body):
    answer = client.request(method, path, json=body)
    return answer.status_code, lasting(answer.json())


def streamed(client, path, body):
    """Return the last event of a stream, and the joined text of its deltas."""
    answer = client.post(path, json=body)
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    events = [json.loads(event) for event in events]
    deltas = [choice["delta"].get("content", "") for e in events for choice in e.get("choices", ())]
    deltas += [e.pop("text_output", "") for e in events]
    return answer.status_code, "".join(deltas), lasting(events[-1])


def document(client):
    form = {"source": "de", "target": "en"}
    files = {"file": ("a.html", b"<p>Das ist <i>gut</i>.</p><p>Es war einmal.</p>")}
    return client.get(client.post("/translate_file", files=files, data=form).json()["translatedFileUrl"]).text


def glossary(client):
    """A glossary of DeepL's, made by one connection and used by another."""
    entries = {"entries": "König\tking", "entries_format": "tsv"}
    names = {"name": "g", "source_lang": "de", "target_lang": "en"}
    made = client.post("/v2/glossaries", json=names | entries)
    with httpx.Client(base_url=client.base_url, timeout=600) as other:
        body = {"text": TEXTS[:2], "source_lang": "DE", "target_lang": "EN"}
        return other.post("/v2/translate", json=body | {"glossary_id": made.json()["glossary_id"]}).json()


def answers(client):
    """Return the answers of a server to all requests."""
    found = [whole(client, "POST", "/translate", body) for body in TRANSLATIONS]
    found += [whole(client, *request) for request in OTHERS]
    found += [streamed(client, *request) for request in STREAMS]
    return [*found, document(client), glossary(client)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    models = tmp_path_factory.mktemp("frontends")
    for path in sorted(bundles().iterdir()):
        lending(path, models)
    with processes(0, 1, MODELS=str(models), THREADS="1") as (client, _):
        yield models, answers(client)


def assert_times_of_all_processes(client):
    """Triton's statistics have the times of every front end and engine process, whichever one answers."""
    found = client.get("/v2/models/toy-de-en/stats").json()["model_stats"][0]["inference_stats"]
    text = client.get("/metrics").text
    for part, kind in (("queue", "queue"), ("compute_input", "encode"), ("compute_infer", "decode")):
        (line,) = re.findall(rf'^convoy_{kind}_duration_seconds_sum{{model="toy-de-en"}} (\S+)$', text, re.M)
        assert found[part]["ns"] == round(float(line) * 1e9) > 0, part


@pytest.mark.parametrize("frontends, engines", [(1, 1), (2, 2)])
def test_several_processes_answer_like_one(expected, frontends, engines):
    models, one = expected
    assert [answer[0] for answer in one[:9]] == [200] * 9, one
    assert [answer[0] for answer in one[9:12]] == [400, 413, 404], one
    assert [answer[0] for answer in one[12:-2]] == [200] * (len(one) - 14), one
    with processes(frontends, engines, MODELS=str(models), THREADS="1") as (client, _):
        for expectation, answer in zip(one, answers(client), strict=True):
            assert answer == expectation
        assert_times_of_all_processes(client)
