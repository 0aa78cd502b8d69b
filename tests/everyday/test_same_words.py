"""The same words by every contract, for files, streams, corpora and on the command line.

Capitals and final marks may differ: `follow_form` is a setting of each contract.
"""

import asyncio
import importlib
import io
import json
import re
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import deepl
import numpy as np
import pytest

from engine.api import USUAL_OPTIONS
from server.contracts.reading.shapes import SHAPES
from tests.cli.commands import done
from tests.corpus.jobs import job_of, run_job
from tests.support.deepl_clients import make_impatient
from tests.support.served import server
from tests.support.upstreams import Model, serving, settings_file

MODELS = Path(__file__).parents[2] / "models"
MODEL = "tatoeba-en-de"
LINES = (
    "Please do NOT open the door!",
    "PLEASE DO NOT OPEN THE DOOR!",
    "I have NO money.",
    "This is VERY important.",
    "NO SMOKING IN THIS BUILDING",
    "You must NOT drink this water.",
    "The door is open – come in!",
    "It was late – but nobody wanted to go home.",
    "She was tired … but happy.",
    "Open the window (it is hot here).",
    "“Come here!” he shouted.",
    "Tom is ill – he can't come today.",
    "I NEVER said that.",
    "Close ALL windows, please.",
    "WHERE IS THE STATION?",
    "That is my book, NOT yours.",
    "We are open from 9:00 to 17:30.",
    "Good morning!",
    "He paid $20 for it (too much).",
    "ATTENTION: the road is closed!",
)
GERMAN = re.findall(r"\w+", "das Haus steht nicht weit von unserer alten Schule und wir gehen heute dorthin")
TASK = "Translate from English to German."
PLUGINS = "mcp,ollama,deeplx,immersive,mtran,google,apertium,nllb,xunity"


@pytest.fixture(scope="module")
def place():
    if not (MODELS / MODEL).is_dir():
        pytest.skip("the shipped models are not there")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.bundles", lambda: MODELS)
        lanes = {"lanes": ((5, 16),), "verify": False}
        yield stack.enter_context(server(service_settings=lanes, plugins=PLUGINS, grpc_port=0))


class GermanWords(Model):
    """A language model that writes a German word for each English word."""

    def text_of(self, request):
        text = request["messages"][-1]["content"].rpartition("\n\n")[2]
        return re.sub(r"(?<![<\w])[^\W\d_]+", lambda m: GERMAN[crc32(m[0].encode()) % len(GERMAN)], text)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """A server whose model of this name is a language model behind OpenAI's protocol."""
    folder, local = tmp_path_factory.mktemp("upstream"), tmp_path_factory.mktemp("local")
    (local / "tatoeba-fr-en").symlink_to(MODELS / "tatoeba-fr-en")
    with serving(GermanWords()) as model, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.bundles", lambda: local)
        path = settings_file(folder, model.address, MODEL, prefers=["en-de"])
        settings = {"upstreams": path, "lanes": ((5, 16),), "verify": False}
        with server(service_settings=settings, plugins=PLUGINS, grpc_port=0) as found:
            yield found
            assert model.asked


@pytest.fixture(scope="module")
def expected(place):
    return words(libretranslate(place))


def words(answers):
    """Return the words of each answer in small letters."""
    assert len(answers) == len(LINES)
    return [re.findall(r"\w+", answer.casefold()) for answer in answers]


def post(place, path, **values):
    answer = place[0].post(path, **values)
    assert answer.status_code == 200, answer.text
    return answer


def libretranslate(place):
    fields = {"q": list(LINES), "source": "en", "target": "de"}
    return post(place, "/translate", json=fields).json()["translatedText"]


def libretranslate_without_form(place):
    fields = {"q": list(LINES), "source": "en", "target": "de", "follow_form": False}
    return post(place, "/translate", json=fields).json()["translatedText"]


def one_text(place):
    fields = {"q": "\n".join(LINES), "source": "en", "target": "de"}
    return post(place, "/translate", json=fields).json()["translatedText"].split("\n")


def stream(place):
    answers = []
    for line in LINES:
        fields = {"q": line, "source": "en", "target": "de", "stream": True}
        events = [e for e in post(place, "/translate", json=fields).text.split("\n\n") if e.strip()]
        last = re.search(r"^data: (.*)$", events[-1], re.MULTILINE)
        answers.append(json.loads(last[1])["translatedText"])
        # what was sent before is a beginning of the answer
        for data in re.findall(r"^data: (.*)$", "\n".join(events[:-1]), re.MULTILINE):
            assert answers[-1].startswith(json.loads(data)["text"])
    return answers


def deepl_client(place, **options):
    client = deepl.Translator("any", server_url=str(place[0].base_url).rstrip("/"))
    results = client.translate_text(list(LINES), source_lang="EN", target_lang="DE", **options)
    return [result.text for result in results]


def deepl_default(place):
    return deepl_client(place)


def deepl_with_preserved_formatting(place):
    return deepl_client(place, preserve_formatting=True)


def deepl_tags(place):
    return deepl_client(place, tag_handling="html")


def deepl_document(place):
    client = deepl.Translator("any", server_url=str(place[0].base_url).rstrip("/"))
    found = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        make_impatient(patch)
        client.translate_document(
            "\n".join(LINES).encode(), found, source_lang="EN", target_lang="DE", filename="lines.txt"
        )
    return found.getvalue().decode().split("\n")


def file(place):
    files = {"file": ("lines.txt", "\n".join(LINES).encode())}
    answer = post(place, "/translate_file", files=files, data={"source": "en", "target": "de"})
    return place[0].get(answer.json()["translatedFileUrl"]).text.split("\n")


def chat(place):
    def answer(line):
        messages = [{"role": "system", "content": TASK}, {"role": "user", "content": line}]
        body = {"model": "convoy", "messages": messages}
        return post(place, "/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]

    return list(map(answer, LINES))


def completions(place):
    body = {"model": MODEL, "prompt": list(LINES)}
    choices = post(place, "/v1/completions", json=body).json()["choices"]
    return [choice["text"] for choice in choices]


def responses(place):
    def answer(line):
        body = {"model": MODEL, "instructions": TASK, "input": line}
        (message,) = post(place, "/v1/responses", json=body).json()["output"]
        return message["content"][0]["text"]

    return list(map(answer, LINES))


def ollama_chat(place):
    def answer(line):
        messages = [{"role": "system", "content": TASK}, {"role": "user", "content": line}]
        body = {"model": MODEL, "messages": messages, "stream": False}
        return post(place, "/api/chat", json=body).json()["message"]["content"]

    return list(map(answer, LINES))


def ollama_generate(place):
    def answer(line):
        body = {"model": MODEL, "prompt": line, "stream": False}
        return post(place, "/api/generate", json=body).json()["response"]

    return list(map(answer, LINES))


def kserve(place):
    tensor = {"name": "text_input", "shape": [len(LINES)], "datatype": "BYTES", "data": list(LINES)}
    body = {"inputs": [tensor]}
    outputs = post(place, f"/v2/models/{MODEL}/infer", json=body).json()["outputs"]
    return next(output["data"] for output in outputs if output["name"] == "text_output")


def kserve_generate(place):
    path = f"/v2/models/{MODEL}/generate"
    return [post(place, path, json={"text_input": line}).json()["text_output"] for line in LINES]


def grpc(place):
    triton = pytest.importorskip("tritonclient.grpc")
    port = place[2].config.app.state.grpc_port
    tensor = triton.InferInput("text_input", [len(LINES)], "BYTES")
    tensor.set_data_from_numpy(np.array([line.encode() for line in LINES], dtype=object))
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        result = client.infer(MODEL, [tensor])
    return [text.decode() for text in result.as_numpy("text_output")]


def agent(place):
    mcp = pytest.importorskip("mcp")
    streamable_http_client = importlib.import_module("mcp.client.streamable_http").streamable_http_client

    async def call():
        transport = streamable_http_client(f"{place[0].base_url}/mcp")
        async with mcp.Client(transport) as tools:
            fields = {"text": list(LINES), "source": "en", "target": "de"}
            return (await tools.call_tool("translate_text", fields)).structured_content

    return [item["text"] for item in asyncio.run(call())["translations"]]


def command_line(place, folder):
    (folder / "lines").write_text("\n".join(LINES), "utf-8")
    done("translate", folder / "lines", "--model", MODELS / MODEL, "--output", folder / "out")
    return (folder / "out").read_text("utf-8").splitlines()


def corpus(place, folder):
    (folder / "in.txt").write_text("\n".join(LINES), "utf-8")
    options = USUAL_OPTIONS["translate"]
    run_job(
        place[1].service,
        job_of(place[1].service, MODEL, options=options),
        [folder / "in.txt"],
        folder / "out",
    )
    return (folder / "out" / "in.txt").read_text("utf-8").splitlines()


def each_by(path, read, **fields):
    """Return a function that sends the lines one by one, with the fields of a reading tool."""

    def door(place):
        bodies = (
            {name: line if value is LINES else value for name, value in fields.items()} for line in LINES
        )
        return [read(post(place, path, json=body).json()) for body in bodies]

    return door


def all_by(path, read, **fields):
    """Return a function that sends all lines at once, with the fields of a reading tool."""
    body = {name: list(LINES) if value is LINES else value for name, value in fields.items()}
    return lambda place: read(post(place, path, json=body).json())


def apertium(place):
    def answer(line):
        fields = {"q": line, "langpair": "en|de", "deformat": "txt"}
        return post(place, "/apertium/translate", data=fields).json()["responseData"]["translatedText"]

    return list(map(answer, LINES))


def google_free(place):
    def answer(line):
        fields = {"q": line, "sl": "en", "tl": "de", "dj": "1"}
        return post(place, "/translate_a/single", data=fields).json()["sentences"]

    return ["".join(part["trans"] for part in answer(line)) for line in LINES]


def each_by_query(path, read, names):
    """Return a function that sends the lines one by one in query strings; names: source, target and text."""

    def door(place):
        client = place[0]
        texts = (dict(zip(names, ("en", "de", line), strict=True)) for line in LINES)
        return [read(client.get(path, params=query)) for query in texts]

    return door


NLLB = ("source", "target", "text")
PAIR = {"from": "en", "to": "de"}
TOOLS = {
    "deeplx": each_by("/deeplx", lambda a: a["data"], text=LINES, source_lang="EN", target_lang="DE"),
    "immersive": all_by(
        "/imme",
        lambda a: [item["text"] for item in a["translations"]],
        text_list=LINES,
        source_lang="en",
        target_lang="de",
    ),
    "kiss": all_by("/kiss", lambda a: [item["text"] for item in a["translations"]], texts=LINES, **PAIR),
    "hcfy": each_by("/hcfy", lambda a: a["result"][0], text=LINES, source="英语", destination=["德语"]),
    "mtran": each_by("/mtran/translate", lambda a: a["result"], text=LINES, **PAIR),
    "mtran_batch": all_by("/translate/batch", lambda a: a["results"], texts=LINES, **PAIR),
    "google": all_by(
        "/language/translate/v2",
        lambda a: [item["translatedText"] for item in a["data"]["translations"]],
        q=LINES,
        source="en",
        target="de",
        format="text",
    ),
    "google_free": google_free,
    "apertium": apertium,
    "nllb_serve": all_by(
        "/nllb/translate", lambda a: a["translation"], source=LINES, src_lang="eng_Latn", tgt_lang="deu_Latn"
    ),
    "nllb_api": each_by_query("/api/v4/translator", lambda a: a.json()["result"], NLLB),
    "nllb_api_stream": each_by_query(
        "/api/v4/translator/stream", lambda a: a.text.strip().removeprefix("data: "), NLLB
    ),
    "xunity": each_by_query("/xunity", lambda a: a.text, ("from", "to", "text")),
}
DOORS = (
    libretranslate_without_form,
    one_text,
    stream,
    deepl_default,
    deepl_with_preserved_formatting,
    deepl_tags,
    deepl_document,
    file,
    chat,
    completions,
    responses,
    ollama_chat,
    ollama_generate,
    kserve,
    kserve_generate,
    grpc,
    agent,
)


# doors that name a model of one direction instead of languages
WITHOUT_LANGUAGES = (completions, ollama_generate, kserve, kserve_generate, grpc)


def different(expected, found):
    return {line: (a, b) for line, a, b in zip(LINES, expected, words(found), strict=True) if a != b}


@pytest.mark.parametrize("door", DOORS)
def test_every_contract_gives_the_same_words(place, expected, door):
    assert not different(expected, door(place))


@pytest.mark.parametrize(
    "door", [door for door in DOORS if door not in WITHOUT_LANGUAGES] + [*TOOLS.values()]
)
def test_every_contract_gives_the_same_words_of_an_upstream(upstream, door):
    assert not different(words(libretranslate(upstream)), door(upstream))


@pytest.mark.parametrize("tool", TOOLS)
def test_every_reading_tool_gets_the_same_words(place, expected, tool):
    assert not different(expected, TOOLS[tool](place))


def test_every_reading_tool_of_the_table_is_compared():
    assert TOOLS.keys() == {shape.name for shape in SHAPES}


@pytest.mark.parametrize("door", [command_line, corpus])
def test_commands_give_the_same_words(place, expected, door, tmp_path):
    assert not different(expected, door(place, tmp_path))


def test_words_in_capitals_and_clauses_keep_their_sense_without_follow_form(place):
    found = dict(zip(LINES, deepl_default(place), strict=True))
    assert found["Please do NOT open the door!"] == "Bitte Tür NICHT öffnen!"
    assert found["PLEASE DO NOT OPEN THE DOOR!"].isupper()
    assert " – " in found["The door is open – come in!"]
