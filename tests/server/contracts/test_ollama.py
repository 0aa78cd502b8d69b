"""Ollama's interface by requests of its clients, and by its own client of npm."""

import json
import shutil

import pytest

from tests.server.contracts.test_clients import node
from tests.support.served import server

GERMAN = "Wo ist denn hier der Bahnhof?"
TWO = f"{GERMAN} Das ist gut."
FROM_GERMAN = {"role": "system", "content": "Translate from German to English"}


@pytest.fixture(scope="module")
def client():
    with server(plugins="ollama") as (found, *_):
        yield found


def translated(client, text):
    values = {"q": text, "source": "de", "target": "en"}
    return client.post("/translate", json=values).json()["translatedText"]


def lines_of(reply):
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in reply.text.splitlines()]


def user(text=GERMAN):
    return {"role": "user", "content": text}


@pytest.mark.parametrize(
    ("model", "messages"),
    [
        ("toy-de-en", [user(TWO)]),
        ("toy-de-en:latest", [user(TWO)]),
        ("convoy:latest", [FROM_GERMAN, user(TWO)]),
        ("convoy", [user(f"Translate from German to English:\n{TWO}")]),
    ],
)
def test_a_chat_is_translated_as_a_whole_and_as_lines(client, model, messages):
    english, body = translated(client, TWO), {"model": model, "messages": messages}
    whole = client.post("/api/chat", json=body | {"stream": False}).json()
    assert whole["message"] == {"role": "assistant", "content": english}
    assert (whole["model"], whole["done"], whole["done_reason"] in ("stop", "length")) == (model, True, True)
    lines = lines_of(client.post("/api/chat", json=body))  # a stream is the default
    assert "".join(line["message"]["content"] for line in lines) == english
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert {"created_at", "total_duration", "prompt_eval_count", "eval_count", "eval_duration"} <= set(
        lines[-1]
    )


def test_generate_reads_the_prompt_and_the_system_message(client):
    body = {"model": "convoy", "prompt": GERMAN, "system": FROM_GERMAN["content"], "stream": False}
    assert client.post("/api/generate", json=body).json()["response"] == translated(client, GERMAN)
    lines = lines_of(client.post("/api/generate", json={"model": "toy-de-en", "prompt": GERMAN}))
    assert "".join(line["response"] for line in lines) == translated(client, GERMAN)


def test_options_limit_and_end_an_answer(client):
    english = translated(client, GERMAN)
    body = {"model": "toy-de-en", "prompt": GERMAN, "stream": False}
    stop = english[4:6]
    answer = client.post("/api/generate", json=body | {"options": {"stop": [stop], "num_predict": -1}}).json()
    assert answer["response"] == english[: english.index(stop)]
    short = client.post("/api/generate", json=body | {"options": {"num_predict": 2, "temperature": 0}}).json()
    assert short["eval_count"] <= 2


def test_a_request_without_a_text_only_looks_the_model_up(client):
    answer = client.post("/api/generate", json={"model": "toy-de-en", "keep_alive": 0}).json()
    assert (answer["response"], answer["done"], answer["done_reason"]) == ("", True, "load")
    assert client.post("/api/chat", json={"model": "toy-de-en", "messages": []}).json()["done"] is True


def test_models_are_listed_and_described(client):
    models = client.get("/api/tags").json()["models"]
    assert [model["name"] for model in models] == [
        f"{name}:latest" for name in ("convoy", "toy-de-en", "toy-en-de", "toy-title")
    ]
    assert {"model", "modified_at", "size", "digest", "details"} <= set(models[0])
    assert len(client.get("/api/ps").json()["models"]) == 3
    assert client.get("/api/version").json()["version"].count(".") == 2
    shown = client.post("/api/show", json={"model": "toy-de-en:latest"}).json()
    assert shown["capabilities"] == ["completion"]


@pytest.mark.parametrize(
    ("path", "values", "status"),
    [
        ("/api/chat", {"model": "llama3", "messages": [user()]}, 404),
        ("/api/show", {"model": "llama3"}, 404),
        ("/api/chat", {"messages": [user()]}, 400),
        ("/api/chat", {"model": "convoy", "messages": [user()]}, 400),
        ("/api/chat", {"model": "toy-de-en", "messages": "x"}, 400),
        ("/api/chat", {"model": "toy-de-en", "messages": [user()], "tools": [{}]}, 400),
        ("/api/generate", {"model": "toy-de-en", "prompt": "x" * 200_000}, 400),
        ("/api/generate", {"model": "toy-de-en", "prompt": GERMAN, "options": {"stop": ["."] * 17}}, 400),
        ("/api/generate", {"model": "toy-de-en", "prompt": GERMAN, "format": "json"}, 400),
        ("/api/pull", {"model": "toy-de-en"}, 404),
    ],
)
def test_refusals_have_ollamas_shape(client, path, values, status):
    answer = client.post(path, json=values)
    assert (answer.status_code, set(answer.json())) == (status, {"error"})


def test_ollama_is_off_by_default():
    with server() as (client, *_):
        assert client.post("/api/chat", json={}).status_code == 404


def test_npm_ollama(client):
    if shutil.which("node") is None:
        pytest.skip("there is no Node on this machine")
    script = """
    import { Ollama } from "ollama";
    const [host, text] = process.argv.slice(2);
    const ollama = new Ollama({host});
    const model = "convoy", messages = [
      {role: "system", content: "Translate from German to English"}, {role: "user", content: text},
    ];
    const plain = await ollama.chat({model, messages});
    let streamed = "";
    const stream = await ollama.chat({model, messages, stream: true});
    for await (const part of stream) streamed += part.message.content;
    const one = await ollama.generate({model: "toy-de-en", prompt: text});
    const {models} = await ollama.list();
    const {version} = await ollama.version();
    const shown = await ollama.show({model});
    let error = "";
    try { await ollama.chat({model: "llama3", messages}); } catch (found) { error = found.message; }
    console.log(JSON.stringify({
      plain: plain.message.content, streamed, one: one.response, models: models.length, version, error,
      capabilities: shown.capabilities,
    }));
    """
    found = node(script, str(client.base_url).rstrip("/"), GERMAN)
    english = translated(client, GERMAN)
    assert (found["plain"], found["streamed"], found["one"]) == (english, english, english)
    assert found["models"] == 4
    assert "llama3" in found["error"]
    assert found["capabilities"] == ["completion"]
