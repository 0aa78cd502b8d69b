"""Agents' tools by the official SDK's own client, against a running server."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest

mcp = pytest.importorskip("mcp", reason="pip install 'convoy-server[mcp]'")
httpx2 = pytest.importorskip("httpx2")

from mcp.client.streamable_http import streamable_http_client  # noqa: E402

from tests.support.served import LINES, busy, server, until  # noqa: E402

GERMAN = "Wo ist denn hier der Bahnhof?"
KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def place():
    with server(plugins="mcp", api_keys=KEY, char_limit=2_000) as (client, house, _):
        client.headers["Authorization"] = f"Bearer {KEY}"
        yield client, house


@asynccontextmanager
async def tools_of(client):
    async with httpx2.AsyncClient(headers=dict(client.headers), timeout=600) as web:
        transport = streamable_http_client(f"{client.base_url}/mcp", http_client=web)
        async with mcp.Client(transport) as found:
            yield found


async def call(tools, name, **arguments):
    result = await tools.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def test_an_agent_finds_the_tools_with_their_schemas(place):
    async with tools_of(place[0]) as tools:
        found = {tool.name: tool for tool in (await tools.list_tools()).tools}
    assert set(found) == {"translate_text", "detect_language", "list_languages", "summarize"}
    schema = found["translate_text"].input_schema
    assert schema["required"] == ["text", "target"]
    assert set(schema["properties"]) == {"text", "target", "source"}
    assert all(tool.description and tool.output_schema for tool in found.values())


async def test_tools_answer_like_the_routes(place):
    client, _ = place
    async with tools_of(client) as tools:
        values = {"q": GERMAN, "source": "de", "target": "en"}
        english = client.post("/translate", json=values).json()["translatedText"]
        one = await call(tools, "translate_text", text=GERMAN, target="en")
        assert one == {"translations": [{"text": english, "source": "de"}]}
        several = await call(tools, "translate_text", text=[GERMAN, GERMAN], source="de", target="en")
        assert several == {"translations": one["translations"] * 2}
        assert (await call(tools, "detect_language", text=GERMAN))["languages"][0]["language"] == "de"
        codes = [language["code"] for language in (await call(tools, "list_languages"))["languages"]]
        assert codes == ["de", "en"]
        text = "A model of one kind reads a text of another and says what it is about."
        summary = client.post("/summarize", json={"q": text}).json()["summaryText"]
        assert (await call(tools, "summarize", text=text))["summary"] == summary


async def test_failures_reach_the_agent_and_are_refunded(place):
    client, _ = place
    async with tools_of(client) as tools:
        before = client.get("/v2/usage").json()["character_count"]
        for arguments, words in (
            ({"text": GERMAN, "target": "xx"}, "xx is not supported"),
            ({"text": "x" * 3_000, "target": "en"}, "exceeds text limit"),
            ({"text": "Il fait beau aujourd'hui à Paris, n'est-ce pas ?", "target": "en"}, "French"),
            ({"text": "", "target": "en"}, "missing q"),
            ({"target": "en"}, "text"),
        ):
            result = await tools.call_tool("translate_text", arguments)
            assert result.is_error
            assert words in result.content[0].text
        assert client.get("/v2/usage").json()["character_count"] == before
        await call(tools, "translate_text", text=GERMAN, target="en")
        assert client.get("/v2/usage").json()["character_count"] == before + len(GERMAN)


async def test_a_deadline_holds_and_figures_name_the_model(place):
    client, _ = place
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body["params"] = {"name": "translate_text", "arguments": {"text": GERMAN, "target": "en"}}
    headers = {"Accept": "application/json, text/event-stream", "X-Request-Timeout": "0.000001"}
    late = client.post("/mcp", json=body, headers=headers).json()["result"]
    assert late["isError"]
    assert "deadline" in late["content"][0]["text"]
    assert not client.post("/mcp", json=body, headers=headers | {"X-Request-Timeout": "60"}).json()["result"][
        "isError"
    ]
    assert 'model="toy-de-en",outcome="ok",route="/mcp"' in client.get("/metrics").text


async def test_call_is_cancelled_when_its_client_disconnects(place):
    client, house = place
    arguments = {"text": [" ".join(LINES[i::30][:50]) for i in range(30)], "target": "en", "source": "de"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body["params"] = {"name": "translate_text", "arguments": arguments}
    headers = dict(client.headers) | {"Accept": "application/json, text/event-stream"}

    async def ask():
        async with httpx.AsyncClient(timeout=600) as web:
            await web.post(f"{client.base_url}/mcp", json=body, headers=headers)

    task = asyncio.create_task(ask())
    while sum(busy(house.service)) == 0:
        await asyncio.sleep(0.01)
        assert not task.done(), task.result()
    task.cancel()
    await asyncio.to_thread(until, lambda: busy(house.service) == (0, 0))


def test_without_a_key_and_with_damaged_messages(place):
    client, _ = place
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    answer = httpx.post(f"{client.base_url}/mcp", json={}, headers=headers)
    assert answer.status_code == 401
    assert "API key" in answer.json()["error"]["message"]
    for body in (
        b"",
        b"{",
        b"[]",
        b'{"jsonrpc":"2.0"}',
        b"[" * 50_000,
        b'{"jsonrpc":"2.0","id":1,"method":"x"}',
    ):
        assert client.post("/mcp", content=body, headers=headers).status_code < 500
    for kind in ({}, {"Content-Type": "text/plain"}):
        answer = client.post("/mcp", content=b"{}", headers={"Accept": headers["Accept"]} | kind)
        assert (answer.status_code, "Content-Type" in answer.json()["error"]["message"]) == (400, True)
    assert client.post("/mcp", json={}, headers={"Accept": "text/html"}).status_code == 406
    assert client.post("/mcp", content=b" " * 2_000_000, headers=headers).status_code == 413
    assert client.get("/mcp").status_code == 405


def test_a_long_message_is_refused_in_a_few_words_and_none_of_it_is_logged(place, caplog):
    client, _ = place
    headers = {"Accept": "application/json, text/event-stream"}
    caplog.set_level("INFO")
    word = "secret" * 1_000
    for name, arguments in (
        ("translate_text", {"text": [7] * 100_000, "target": word}),
        (word, {}),
        ("detect_language", {word: word}),
    ):
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        call["params"] = {"name": name, "arguments": arguments}
        answer = client.post("/mcp", json=call, headers=headers)
        assert answer.json()["result"]["isError"]
        assert len(answer.text) < 20_000
    assert "secret" not in caplog.text
    numbers = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"a": [1] * 250_000}}}
    assert "send several requests" in client.post("/mcp", json=numbers, headers=headers).text


def test_mcp_is_off_by_default():
    with server() as (client, _, _):
        assert client.post("/mcp", json={}).status_code == 404
