"""The clients that our users have, unchanged, against a running server.

Clients of npm are installed into a cache folder if Node and a registry are available; otherwise their tests
are skipped with the reason.
"""

import io
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import deepl
import numpy as np
import pytest
import tritonclient.http as triton
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI
from tritonclient.utils import InferenceServerException

from tests.support.deepl_clients import make_impatient
from tests.support.served import server

GERMAN = "Wo ist denn hier der Bahnhof?"
PACKAGES = {"translate": "3.1.0", "deepl-node": "1.28.0", "openai": "7.57.0", "ollama": "0.6.4"}


@pytest.fixture(scope="module")
def client():
    with server() as (found, _, _):
        yield found


@pytest.fixture(scope="module")
def url(client):
    return str(client.base_url).rstrip("/")


@pytest.fixture(scope="module")
def english(client):
    answer = client.post("/translate", json={"q": GERMAN, "source": "de", "target": "en"})
    return answer.json()["translatedText"]


@pytest.fixture(scope="module")
def plain(client):
    """Return the translation with the capitals and final marks of the model, like in other contracts."""
    answer = client.post(
        "/translate", json={"q": GERMAN, "source": "de", "target": "en", "follow_form": False}
    )
    return answer.json()["translatedText"]


# LibreTranslate's


def test_libretranslatepy(url, english):
    api = LibreTranslateAPI(url)
    assert api.translate(GERMAN, "de", "en") == english
    assert api.detect(GERMAN)[0]["language"] == "de"
    assert {language["code"] for language in api.languages()} == {"de", "en"}  # a GET with a body


def test_deep_translator(url, english):
    """It sends everything in the query string of a POST without a body."""
    api = LibreTranslator(source="de", target="en", use_free_api=False, custom_url=f"{url}/", api_key="any")
    assert api.translate(GERMAN) == english
    assert api.translate_batch([GERMAN, GERMAN]) == [english, english]


# DeepL's


@pytest.fixture(scope="module")
def translator(url):
    with pytest.MonkeyPatch.context() as patch:
        make_impatient(patch)
        yield deepl.Translator("any", server_url=url)


def test_deepl_translates(translator, plain):
    one = translator.translate_text(GERMAN, target_lang="EN-GB")
    assert (one.text, one.detected_source_lang, one.billed_characters) == (plain, "DE", len(GERMAN))
    both = translator.translate_text([GERMAN, "Gut."], source_lang="DE", target_lang="EN-US")
    assert both[0].text == plain
    html = translator.translate_text(
        "<p>Wo ist <b>der</b> Bahnhof?</p>",
        target_lang="EN-GB",
        tag_handling="html",
        ignore_tags=["x"],
        split_sentences="nonewlines",
        preserve_formatting=True,
        formality="prefer_more",
        context="Reise",
        model_type="prefer_quality_optimized",
    )
    assert html.text.startswith("<p>")
    assert html.model_type_used == "quality_optimized"


def test_deepl_client_reads_languages_and_usage(translator):
    assert [language.code for language in translator.get_source_languages()] == ["DE", "EN"]
    targets = translator.get_target_languages()  # a GET with a form in its body
    assert [language.code for language in targets] == ["DE", "EN-GB", "EN-US"]
    before = translator.get_usage().character.count
    translator.translate_text("Hallo!", target_lang="EN-GB")
    usage = translator.get_usage()
    assert usage.character.count == before + len("Hallo!")
    assert not usage.any_limit_reached


def test_deepl_translates_documents(translator, plain):
    found = io.BytesIO()
    status = translator.translate_document(GERMAN.encode(), found, target_lang="EN-GB", filename="brief.txt")
    assert found.getvalue().decode() == plain
    assert (status.done, status.billed_characters) == (True, len(GERMAN))


def test_deepl_understands_our_errors(translator):
    with pytest.raises(deepl.DeepLException, match="Value for 'target_lang' not supported"):
        translator.translate_text("a", target_lang="FR")
    with pytest.raises(deepl.DeepLException, match="file format not supported"):
        translator.translate_document_upload(io.BytesIO(b"x"), target_lang="DE", filename="a.exe")


def test_the_command_of_deepl(url, plain):
    command = [sys.executable, "-W", "ignore", "-m", "deepl", "--server-url", url, "--auth-key", "any"]
    done = subprocess.run(
        [*command, "text", "--to", "EN-GB", GERMAN], capture_output=True, text=True, timeout=600
    )
    assert done.stdout.strip() == plain, done.stderr


# Triton's


@pytest.fixture
def inference(url):
    with triton.InferenceServerClient(url.removeprefix("http://")) as found:
        yield found


def tensor(texts, *, binary=True):
    found = triton.InferInput("text_input", [len(texts)], "BYTES")
    found.set_data_from_numpy(np.array([t.encode() for t in texts], object), binary_data=binary)
    return found


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("answer", [True, False])
def test_tritonclient_infers(inference, plain, binary, answer):
    outputs = [triton.InferRequestedOutput(name, binary_data=answer) for name in ("text_output", "score")]
    found = inference.infer(
        "toy-de-en", [tensor([GERMAN, "😀"], binary=binary)], outputs=outputs, request_id="7"
    )
    texts = [t.decode() if isinstance(t, bytes) else t for t in found.as_numpy("text_output")]
    assert texts == [plain, "😀"]
    assert found.as_numpy("score").dtype == np.float32
    assert found.get_response()["id"] == "7"


def test_tritonclient_gets_all_outputs_in_binary_by_default(inference, plain):
    found = inference.infer("toy-de-en", [tensor([GERMAN])], parameters={"beam_size": 4}, model_version="1")
    assert found.as_numpy("text_output")[0].decode() == plain
    assert not found.as_numpy("truncated")[0]


def test_tritonclient_reads_the_health_of_the_server(inference):
    assert inference.is_server_live()
    assert inference.is_server_ready()
    assert inference.is_model_ready("toy-de-en")
    assert not inference.is_model_ready("nobody")
    assert inference.get_server_metadata()["name"] == "convoy"
    assert inference.get_model_metadata("toy-de-en")["platform"] == "convoy"
    assert inference.get_model_config("toy-de-en")["name"] == "toy-de-en"
    assert len(inference.get_model_repository_index()) == 3
    assert inference.get_inference_statistics("toy-de-en")["model_stats"][0]["version"] == "1"
    assert len(inference.get_inference_statistics()["model_stats"]) == 3


def test_tritonclient_understands_our_errors(inference):
    with pytest.raises(InferenceServerException, match="unknown model: 'nobody'"):
        inference.infer("nobody", [tensor(["a"])])
    with pytest.raises(InferenceServerException, match="beam_size"):
        inference.infer("toy-de-en", [tensor(["a"])], parameters={"beam_size": 99})


# npm's


@cache
def modules() -> Path:
    """A folder with the packages, kept between runs; skips when they can't be had."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("there is no Node on this machine")
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache_home / "convoy-tests" / "npm"
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    stamp = folder / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            str(folder),
            *wanted,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            pytest.skip(f"npm can't install {wanted}: {done.stderr[-200:]}")
        stamp.write_text(json.dumps(wanted))
    return folder


def node(script, *arguments):
    folder = modules()
    command = ["node", "--input-type=module", "-", *arguments]
    done = subprocess.run(command, input=script, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_npm_translate(url, english):
    script = """
    import translate from "translate";
    const [url, text] = process.argv.slice(2);
    translate.engine = "libre"; translate.url = url + "/translate"; translate.key = "any";
    console.log(JSON.stringify(await translate(text, {from: "de", to: "en"})));
    """
    assert node(script, url, GERMAN) == english


def test_npm_deepl_node(url, plain):
    script = """
    import * as deepl from "deepl-node";
    const [url, text] = process.argv.slice(2);
    const translator = new deepl.Translator("any", {serverUrl: url, maxRetries: 0});
    const one = await translator.translateText(text, null, "en-GB");
    const two = await translator.translateText([text, "<b>Gut</b>."], "de", "en-US", {tagHandling: "html"});
    const targets = await translator.getTargetLanguages();
    const usage = await translator.getUsage();
    let error = "";
    try { await translator.translateText(text, null, "fr"); } catch (found) { error = found.message; }
    console.log(JSON.stringify({
      text: one.text, source: one.detectedSourceLang, count: one.billedCharacters, two: two[0].text,
      targets: targets.map(t => t.code), limited: usage.anyLimitReached(), error,
    }));
    """
    found = node(script, url, GERMAN)
    assert (found["text"], found["source"], found["count"]) == (plain, "de", len(GERMAN))
    assert found["two"] == plain
    assert found["targets"] == ["de", "en-GB", "en-US"]
    assert found["limited"] is False
    assert "target_lang" in found["error"]
