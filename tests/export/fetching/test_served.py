"""Fetched students of Chinese, Japanese and Korean answer over HTTP, under the codes that clients use."""

from __future__ import annotations

import pytest

from engine.api import Placement, Service, ServiceSettings
from export.fetching.sources import Addresses
from tests.export.fetching.conftest import Ran
from tests.support.model_servers import Server, publish, record, running
from tests.support.random_students import StudentSize, corpus, han_corpus, write_student
from tests.support.served import server as serving
from tests.support.thorough import some_of

# Mozilla's codes, and the codes of clients for each
CODES = {
    "zh-Hans": ("zh", "zh-CN", "zh-Hans"),
    "ja": ("ja", "jpn"),
    "zh-Hant": ("zt", "zh-TW", "zh-Hant"),
    "ko": ("ko", "kor_Hang"),
    "nb": ("nb",),
    "nn": ("nn",),
    "pt-BR": ("pb", "pt-BR"),
}
LATIN = ("nb", "nn", "pt-BR")
CHOSEN = some_of(list(CODES), len(CODES))
LINES = corpus(400)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Fetch a student to and from English for each code, and serve all of them."""
    out, folder = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("students")
    with running(Server()) as source, pytest.MonkeyPatch.context() as patch:
        patch.setattr("export.importers.proving.add_placeholders", lambda report, bundle: {})
        publish(source, [r for code in CHOSEN for r in records(source, folder, code)])
        ran = Ran()
        names = [name for code in CHOSEN for name in (f"en-{code}", f"{code}-en")]
        ran.job(out, Addresses(firefox=source.address)).run(names, [], ())
        ran.opened[0].close()
        assert not ran.errors

    def opened(observe):
        placement = Placement(precision="int8", lanes=((1, 4),))
        return Service.open([out], ServiceSettings(placement, awaited=True), observe)

    with serving(opened=opened) as (client, *_):
        yield client


def records(source, folder, code):
    """Serve students of both directions; those of a language without spaces have two vocabularies."""
    other = LINES if code in LATIN else han_corpus(400)
    for pair, texts in {("en", code): (LINES, other), (code, "en"): (other, LINES)}.items():
        place = folder / "-".join(pair)
        place.mkdir()
        write_student(place, StudentSize(64, 128, 2), texts[0], 1, () if code in LATIN else texts[1])
        for path in place.iterdir():
            kind = path.name.partition(".")[0]
            name = path.name.replace("deen", "".join(pair))
            yield record(source, kind, name, path.read_bytes(), pair, "3.0")


def translate(client, text, source, target):
    reply = client.post("/translate", json={"q": text, "source": source, "target": target})
    assert reply.status_code == 200, reply.text
    return reply.json()["translatedText"]


@pytest.mark.parametrize("code", CHOSEN)
def test_every_usual_code_gets_the_answer_of_the_student(client, code):
    answers = {translate(client, LINES[0], "en", alias) for alias in CODES[code]}
    back = {translate(client, "一丁七。", alias, "en") for alias in CODES[code]}
    deepl = {"text": [LINES[0]], "source_lang": "EN", "target_lang": code.upper()}
    reply = client.post("/v2/translate", json=deepl)
    assert reply.status_code == 200, reply.text
    assert {t["text"] for t in reply.json()["translations"]} == answers
    assert len(answers) == len(back) == 1
    assert all(text and "▁" not in text and "<0x" not in text for text in answers | back)


@pytest.mark.parametrize("code", [code for code in CHOSEN if code not in LATIN])
def test_sentences_are_split_and_their_answers_joined_with_the_spaces_of_the_target(client, code):
    texts = ("一丁七。", "丁一万？")
    first, second = (translate(client, text, code, "en") for text in texts)
    gap = " " if code == "ko" else ""  # Korean has spaces
    assert translate(client, gap.join(texts), code, "en") == f"{first} {second}"
    first, second = (translate(client, text, "en", code) for text in ("Kbub vb.", "Tel pn."))
    joined = first + ("" if first.endswith("。") else " ") + second
    assert translate(client, "Kbub vb. Tel pn.", "en", code) == joined


@pytest.mark.parametrize("code", CHOSEN)
def test_placeholder_between_characters_without_spaces_comes_back(client, code):
    for text in ("一丁{name}七万。", "{name}，一丁。", "一丁 %s 七"):
        part = "%s" if "%s" in text else "{name}"
        assert translate(client, text, code, "en").count(part) == 1
