"""Further clients, unchanged, from PyPI and npm. `make oracles` installs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.served import server

CLIENTS = Path(__file__).parents[2] / ".venv" / "oracles" / "clients"
CLIENTS = Path(os.environ.get("CONVOY_TEST_CLIENTS", CLIENTS))  # packages of Python, and node_modules
GERMAN = "Wo ist denn hier der Bahnhof?"
PYTHON = {
    "ollama": """
import ollama
client = ollama.Client(host=url)
messages = [{"role": "system", "content": "Translate to English"}, {"role": "user", "content": text}]
chunks = client.chat(model="convoy", messages=messages, stream=True)
result = [
    client.chat(model="convoy", messages=messages).message.content,
    "".join(chunk.message.content for chunk in chunks),
    client.generate(model="toy-de-en", prompt=text).response,
]
assert "convoy:latest" in [model.model for model in client.list().models]
assert client.show("convoy").details.family == "convoy"
""",
    "google/cloud/translate_v2": """
from google.auth.credentials import AnonymousCredentials
from google.cloud import translate_v2
options = {"api_endpoint": url}
client = translate_v2.Client(credentials=AnonymousCredentials(), client_options=options)
found = client.translate(text, target_language="en", format_="text")
assert found["detectedSourceLanguage"] == client.detect_language(text)["language"] == "de"
assert {language["language"] for language in client.get_languages()} == {"de", "en"}
both = client.translate([text, text], target_language="en", source_language="de", format_="text")
result = [found["translatedText"], *(one["translatedText"] for one in both)]
""",
    "langchain_openai": """
from langchain_openai import ChatOpenAI
client = ChatOpenAI(base_url=url + "/v1", api_key="any", model="convoy")
system = "You are a helpful assistant that translates German to English. Translate the user sentence."
messages = [("system", system), ("human", text)]
result = [client.invoke(messages).content, "".join(chunk.content for chunk in client.stream(messages))]
""",
}
NODE = {
    "@modelcontextprotocol/sdk": """
const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url + "/mcp")));
const call = { name: "translate_text", arguments: { text, target: "en", source: "de" } };
const { structuredContent } = await client.callTool(call);
await client.close();
const result = structuredContent.translations.map((one) => one.text);
""",
    "@ai-sdk/openai-compatible": """
const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
const { generateText, streamText } = await import("ai");
const provider = createOpenAICompatible({ name: "convoy", baseURL: url + "/v1", apiKey: "any" });
const call = { model: provider.chatModel("convoy"), system: "Translate to English", prompt: text };
const result = [(await generateText(call)).text, ""];
for await (const part of streamText(call).textStream) result[1] += part;
""",
}


@pytest.fixture(scope="module")
def client():
    with server(plugins="google,mcp,ollama") as (found, _, _):
        yield found


def require(package):
    if not (CLIENTS / package).is_dir():
        pytest.skip(f"there is no {package} in {CLIENTS}: make oracles")


def assert_translates(request, command, program, environment):
    """Run a program, and compare the translations that it prints with the answers of the contracts."""
    client = request.getfixturevalue("client")  # only now, so that skipped tests start no server
    body = {"q": GERMAN, "source": "de", "target": "en"}
    wanted = {
        client.post("/translate", json=body | {"follow_form": form}).json()["translatedText"]
        for form in (True, False)
    }
    url = str(client.base_url).rstrip("/")
    done = subprocess.run(
        [*command, url, GERMAN], input=program, env=environment, cwd=CLIENTS, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    texts = json.loads(done.stdout.splitlines()[-1])
    assert texts
    assert set(texts) <= wanted, texts


@pytest.mark.parametrize("package", PYTHON)
def test_python_client_works_unchanged(request, package):
    require(package)
    program = f"import json, sys\nurl, text = sys.argv[1:]\n{PYTHON[package]}\nprint(json.dumps(result))"
    environment = os.environ | {"PYTHONPATH": str(CLIENTS), "PYTHONWARNINGS": "ignore"}
    assert_translates(request, [sys.executable, "-"], program, environment)


@pytest.mark.parametrize("package", NODE)
def test_npm_client_works_unchanged(request, package):
    require(f"node_modules/{package}")
    program = (
        f"const [url, text] = process.argv.slice(2);\n{NODE[package]}\nconsole.log(JSON.stringify(result));"
    )
    assert_translates(request, ["node", "--input-type=module", "-"], program, dict(os.environ))
