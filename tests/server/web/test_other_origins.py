"""Pages of other origins use the interfaces, in a real browser with the headers of real clients."""

import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from json import dumps

import pytest

from tests.server.contracts.test_clients import modules
from tests.support.served import server

GERMAN = "Wo ist denn hier der Bahnhof?"
SYSTEM = {"role": "system", "content": "Translate from German to English"}
# what OpenAI's SDK, tracing, and OpenRouter's and LM Studio's clients add
STAINLESS = {
    f"X-Stainless-{name}": "1" for name in ("Arch", "Lang", "OS", "Package-Version", "Retry-Count", "Runtime")
}
TRACING = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "baggage": "a=b"}
MCP = {"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-06-18"}
TENSORS = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [GERMAN]}]}
CALLS = {
    "openai": (
        "/v1/chat/completions",
        {"model": "toy-de-en", "messages": [{"role": "user", "content": GERMAN}]},
        {"Authorization": "Bearer any", "HTTP-Referer": "https://a.example", "X-Title": "A"} | STAINLESS,
    ),
    "deepl": (
        "/v2/translate",
        {"text": [GERMAN], "target_lang": "EN"},
        {"Authorization": "DeepL-Auth-Key any"} | TRACING,
    ),
    "mcp": (
        "/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
        MCP | {"Last-Event-ID": "1", "Mcp-Session-Id": "a"},
    ),
    "triton": (
        "/v2/models/toy-de-en/infer",
        TENSORS,
        {"Inference-Header-Content-Length": str(len(dumps(TENSORS, separators=(",", ":"))))},
    ),
    "libretranslate": (
        "/translate",
        {"q": GERMAN, "source": "de", "target": "en"},
        {"X-Requested-With": "XMLHttpRequest"} | TRACING,
    ),
}
ASK = """
async ([address, body, headers]) => {
  const answer = await fetch(address, {
    method: "POST", body: JSON.stringify(body), headers: {"Content-Type": "application/json", ...headers},
  });
  return {status: answer.status, text: await answer.text()};
}
"""


@pytest.fixture(scope="module")
def address():
    with server(plugins="mcp") as (client, *_):
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def page(browser, tmp_path):
    """An empty page of another origin."""
    with pages_of(tmp_path) as origin:
        yield from visit(browser, origin)


def visit(browser, origin):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{origin}/")
    yield page
    context.close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def pages_of(folder):
    """Serve a folder at an address of its own."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        httpd.server_close()


@pytest.mark.parametrize("name", CALLS)
def test_a_page_of_another_origin_may_send_the_headers_of_its_client(page, address, name):
    path, body, headers = CALLS[name]
    answer = page.evaluate(ASK, [address + path, body, headers])
    assert answer["status"] == 200, answer["text"]


def test_openais_own_client_works_in_a_browser(browser, address):
    with pages_of(modules() / "node_modules" / "openai") as origin:
        for page in visit(browser, origin):
            answer = page.evaluate(
                """async ([address, system, text]) => {
                  const {default: OpenAI} = await import("/index.mjs");
                  const client = new OpenAI({
                    baseURL: address + "/v1", apiKey: "any", maxRetries: 0, dangerouslyAllowBrowser: true,
                  });
                  const messages = [system, {role: "user", content: text}];
                  const plain = await client.chat.completions.create({model: "convoy", messages});
                  let streamed = "";
                  const asked = {model: "convoy", messages, stream: true};
                  const stream = await client.chat.completions.create(asked);
                  for await (const chunk of stream) streamed += chunk.choices[0]?.delta?.content ?? "";
                  return [plain.choices[0].message.content, streamed];
                }""",
                [address, SYSTEM, GERMAN],
            )
    assert answer[0] == answer[1] != ""
