"""OpenAI's contract by OpenAI's own client, unchanged, against a running server."""

import json

import httpx
import pytest

openai = pytest.importorskip("openai", reason="pip install openai")

from server.answering.chats import read_messages  # noqa: E402
from tests.support.served import LINES, server  # noqa: E402

GERMAN = "Wo ist denn hier der Bahnhof?"
FROM_GERMAN = {"role": "system", "content": "Translate from German to English"}


@pytest.fixture(scope="module")
def web():
    with server() as (client, _, _):
        yield client


def client_of(web, key="any"):
    return openai.OpenAI(base_url=f"{web.base_url}/v1", api_key=key, max_retries=0, timeout=600)


@pytest.fixture(scope="module")
def client(web):
    with client_of(web) as found:
        yield found


@pytest.fixture(scope="module")
def english(web):
    return web.post("/translate", json={"q": GERMAN, "source": "de", "target": "en"}).json()["translatedText"]


def user(text=GERMAN):
    return {"role": "user", "content": text}


@pytest.mark.parametrize(
    ("model", "messages"),
    [
        ("toy-de-en", [user()]),
        ("toy-de-en", [{"role": "system", "content": "You are a helpful assistant."}, user()]),
        ("convoy", [FROM_GERMAN, user()]),
        ("convoy", [{"role": "developer", "content": "Please translate the text into English."}, user()]),
        ("convoy", [FROM_GERMAN, user("Ja."), {"role": "assistant", "content": "Yes."}, user()]),
        ("convoy", [FROM_GERMAN, user([{"type": "text", "text": GERMAN}])]),
    ],
)
def test_a_chat_translates_the_last_user_message(client, english, model, messages):
    answer = client.chat.completions.create(model=model, messages=messages, temperature=0.3)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", english)
    assert choice.finish_reason in ("stop", "length")
    assert (answer.object, answer.model) == ("chat.completion", model)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_streamed_chat_equals_the_plain_answer(client, english):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(model="toy-de-en", messages=[user()], **options))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == english
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in ("stop", "length")
    assert chunks[-1].usage.completion_tokens > 0
    assert {c.object for c in chunks} == {"chat.completion.chunk"}


def test_a_stream_ends_as_openais_do(web):
    body = {"model": "toy-de-en", "prompt": "Gut.", "stream": True}
    answer = web.post("/v1/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert all(line.startswith("data: ") for line in answer.text.split("\n\n") if line)


def test_completions_take_a_text_or_an_array(client, english):
    assert client.completions.create(model="toy-de-en", prompt=GERMAN).choices[0].text == english
    both = client.completions.create(model="toy-de-en", prompt=["Gut.", GERMAN])
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[1].text == english
    texts = {0: "", 1: ""}
    for chunk in client.completions.create(model="toy-de-en", prompt=["Gut.", GERMAN], stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {0: both.choices[0].text, 1: english}


def test_n_gives_as_many_different_answers(web, client, english):
    answer = client.chat.completions.create(model="toy-de-en", messages=[user()], n=3)
    values = {"q": GERMAN, "source": "de", "target": "en", "alternatives": 2}
    others = web.post("/translate", json=values).json()["alternatives"]
    assert [choice.message.content for choice in answer.choices] == [english, *others]
    answer = client.chat.completions.create(model="toy-de-en", messages=[user("12")], n=2)
    assert [choice.message.content for choice in answer.choices] == ["12", "12"], "there is only one"
    both = client.completions.create(model="toy-de-en", prompt=["Gut.", "Wo ist der Bahnhof?"], n=2)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]


def test_max_tokens_ends_an_answer(client):
    answer = client.chat.completions.create(model="toy-de-en", messages=[user()], max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens <= 2


def test_summaries(web, client):
    text = "A model of one kind reads a text of another and says what it is about."
    summary = web.post("/summarize", json={"q": text}).json()["summaryText"]
    for model, messages in (
        ("toy-title", [user(text)]),
        ("convoy", [{"role": "system", "content": "Summarize the text."}, user(text)]),
    ):
        answer = client.chat.completions.create(model=model, messages=messages)
        assert answer.choices[0].message.content == summary


def test_models_are_listed(client):
    names = [model.id for model in client.models.list()]
    assert names == ["convoy", "toy-de-en", "toy-en-de", "toy-title"]
    assert client.models.retrieve("toy-de-en").owned_by == "convoy"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("values", "status", "code", "parameter"),
    [
        ({"model": "gpt-4"}, 404, "model_not_found", None),
        ({"tools": [{"type": "function"}]}, 400, "unsupported_parameter", "tools"),
        ({"stop": ["."] * 17}, 400, None, "stop"),
        ({"stop": "x" * 257}, 400, None, "stop"),
        ({"stop": [1]}, 400, None, "stop"),
        ({"max_tokens": -2}, 400, None, "max_tokens"),
        ({"n": 900}, 400, None, None),
        ({"temperature": 3}, 400, None, "temperature"),
        ({"model": "convoy"}, 400, None, "model"),
        ({"messages": []}, 400, None, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, None, "messages"),
        ({"messages": [user([{"type": "image_url", "image_url": {}}])]}, 400, None, "messages.[0].content"),
        ({"messages": [user("x" * 200_000)]}, 400, None, None),
    ],
)
def test_unsupported_parameters_are_refused_like_openais(client, values, status, code, parameter):
    body = {"model": "toy-de-en", "messages": [user()]} | values
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**body)
    error = caught.value
    assert (error.status_code, error.code, error.param) == (status, code, parameter)
    assert error.type == "invalid_request_error"
    assert error.body["message"]


def test_a_path_of_openai_that_there_is_not_is_refused_as_openai_does(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="toy-de-en", input="Gut.")
    assert caught.value.type == "invalid_request_error"
    assert "Not Found: POST /v1/embeddings" in caught.value.body["message"]


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("toy-de-en", {"input": GERMAN}),
        ("convoy", {"input": GERMAN, "instructions": "You translate from German to English."}),
        ("convoy", {"input": [FROM_GERMAN, user()]}),
        ("convoy", {"input": [FROM_GERMAN, user([{"type": "input_text", "text": GERMAN}])]}),
        ("convoy", {"input": f"Translate from German to English:\n{GERMAN}"}),
    ],
)
def test_responses_have_the_translation(client, english, model, fields):
    answer = client.responses.create(model=model, store=False, **fields)
    assert (answer.output_text, answer.status, answer.model) == (english, "completed", model)
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0


def test_a_streamed_response_equals_the_plain_one(client, english):
    events = list(client.responses.create(model="toy-de-en", input=GERMAN, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == english
    assert events[-1].response.output_text == english
    with client.responses.stream(model="toy-de-en", input=GERMAN) as stream:
        assert stream.get_final_response().output_text == english


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"input": []}, "input"),
        ({"input": [1]}, "input"),
        ({"input": [user([{"type": "input_image", "image_url": "x"}])]}, "input.[0].content"),
        ({"input": GERMAN, "tools": [{"type": "function", "name": "x"}]}, "tools"),
        ({"input": GERMAN, "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_unsupported_fields_of_responses_are_refused(client, fields, parameter):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="toy-de-en", **fields)
    assert caught.value.param == parameter


@pytest.mark.parametrize("path", ["/chat/completions", "/completions", "/responses"])
def test_a_base_address_without_its_version_names_it(web, path):
    answer = web.post(path, json={})
    assert answer.status_code == 404
    assert "the base address of this interface ends in /v1" in answer.json()["error"]["message"]


def test_keys_and_quotas_are_refused_as_openai_does():
    with server(api_keys="0123456789abcdef", char_quota=10) as (web, _, _):
        with client_of(web, "wrong") as stranger, pytest.raises(openai.AuthenticationError) as wrong:
            stranger.models.list()
        assert wrong.value.code == "invalid_api_key"
        with client_of(web, "0123456789abcdef") as client:
            assert client.chat.completions.create(model="toy-de-en", messages=[user("Gut.")])
            with pytest.raises(openai.RateLimitError) as poor:
                client.chat.completions.create(model="toy-de-en", messages=[user()])
            assert (poor.value.code, poor.value.type) == ("insufficient_quota", "insufficient_quota")


def test_a_failure_in_a_stream_reaches_the_client():
    """Its deadline passes when the stream has begun."""
    with server() as (web, _, _):
        body = {"model": "toy-de-en", "messages": [user(" ".join(LINES[:300]))], "stream": True}
        with client_of(web) as client, pytest.raises(openai.APIError) as caught:
            list(client.chat.completions.create(**body, extra_headers={"X-Request-Timeout": "0.05"}))
        assert "deadline" in str(caught.value)


def test_a_client_that_goes_leaves_nothing_behind():
    from tests.support.served import busy, until

    with server() as (web, house, _):
        body = {"model": "toy-de-en", "messages": [user(" ".join(LINES[:300]))], "stream": True}
        with httpx.stream("POST", f"{web.base_url}/v1/chat/completions", json=body, timeout=600):
            until(lambda: sum(busy(house.service)) > 0)
        until(lambda: busy(house.service) == (0, 0))


def test_contents_of_several_parts_are_one_text():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read_messages([{"role": "user", "content": parts}]) == ("", "a\nb")


def test_errors_of_unknown_paths_have_openais_shape(web):
    assert set(web.get("/v1/models/x/y").json()["error"]) == {"message", "type", "param", "code"}
    assert json.loads(web.get("/v1/chat/completions").text)["error"]["type"] == "invalid_request_error"
