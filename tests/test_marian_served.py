"""From a folder of Hugging Face to an answer over HTTP, by the commands that a user types."""

from __future__ import annotations

import asyncio
import io
from contextlib import contextmanager

import pytest
import torch

from cli.main import app
from engine.api import Service, ServiceSettings, TextOptions, UnknownModel
from tests.marian_models import make, sentences
from tests.served import server

LANES = ((1, 4), (4, 4))


def short(count, seed):
    """Lines that the toys' 64 positions hold."""
    return [" ".join(line.split()[:3]) for line in sentences(count, seed)]


def convert(*words):
    with pytest.raises(SystemExit) as ended:
        app(["convert", "marian", *map(str, words)])
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Hugging Face folders by name, each converted with all its graphs into one folder of bundles."""
    root = tmp_path_factory.mktemp("served")
    made = {
        "eng-nld": make(root / "hf" / "plain", "trained"),
        "mul": make(root / "hf" / "mul", "several languages", seed=6),
    }
    convert(made["eng-nld"].path, root / "bundles" / "eng-nld")
    convert(made["mul"].path, root / "bundles" / "mul", "--source", "nld,spa", "--target", "deu")
    return made, root / "bundles"


@contextmanager
def started(paths, **settings):
    service = Service.open(paths, ServiceSettings(lanes=LANES, **settings))
    service.start()
    try:
        yield service
    finally:
        service.stop(drain=False, timeout=30)


@pytest.fixture(scope="module")
def service(folders):
    with started([folders[1]]) as made:
        yield made


@pytest.fixture(scope="module")
def client(folders):
    def opened(observe):
        return Service.open([folders[1]], ServiceSettings(lanes=LANES), observe)

    with server(opened=opened) as (made, *_):
        yield made


def expected(folder, text):
    """What `transformers` answers, with the model's own settings."""
    ids = torch.tensor([folder.tokenizer(text).input_ids])
    return folder.tokenizer.decode(folder.model.generate(ids)[0], skip_special_tokens=True)


def test_answers_over_http_are_those_of_transformers(folders, client):
    lines = short(12, 21)
    reply = client.post("/translate", json={"q": lines, "source": "eng", "target": "nld"})
    assert reply.status_code == 200, reply.text
    found = reply.json()["translatedText"]
    assert found == [expected(folders[0]["eng-nld"], line) for line in lines]
    assert len(set(found)) > 3


@pytest.mark.parametrize("target", ["deu", "fra", "nld"])
def test_the_target_code_becomes_the_prefix_token(folders, client, target):
    lines = short(4, 22)
    reply = client.post("/translate", json={"q": lines, "source": "spa", "target": target})
    assert reply.status_code == 200, reply.text
    wanted = [expected(folders[0]["mul"], f">>{target}<< {line}") for line in lines]
    assert reply.json()["translatedText"] == wanted


def test_languages_lists_every_direction(client):
    found = {entry["code"]: set(entry["targets"]) for entry in client.get("/languages").json()}
    assert found["spa"] >= {"deu", "fra", "nld"}
    assert found["nld"] >= {"deu", "fra"}
    assert found["eng"] >= {"nld", "deu", "fra"}  # the last two by way of nld


def test_a_pivot_goes_through_a_direction_of_a_model_of_several_languages(folders, service):
    name = service.pick("translate", "eng", "fra")
    assert name == "eng-nld+mul@nld:fra"
    (line,) = short(1, 23)
    (result,) = asyncio.run(service.run(name, [line], TextOptions()))
    between = expected(folders[0]["eng-nld"], line)
    assert result.text == expected(folders[0]["mul"], f">>fra<< {between}")


def test_coverage_counts_the_words_of_the_text_only(service):
    name = service.pick("translate", "spa", "fra")
    (result,) = asyncio.run(service.run(name, ["baba kolu"], TextOptions(coverage=True)))
    assert [coverage.words for coverage in result.coverage] == [["baba", "kolu"]]


def test_directions_that_a_model_does_not_have_are_refused(service):
    assert service.pick("translate", "spa", "deu") == "mul@spa:deu"
    assert service.pick("translate", "nld", "deu") == "mul"
    assert service.pick("translate", "spa", "fra", "mul") == "mul@spa:fra"
    with pytest.raises(UnknownModel):
        service.pick("translate", "nld", "nld", "mul")
    for name in ("mul@spa:eng", "mul@xyz:deu", "mul@deu", "mul@", "eng-nld@spa:deu"):
        with pytest.raises(UnknownModel):
            asyncio.run(service.run(name, ["baba"]))


def test_only_the_languages_that_are_wanted_are_offered(folders):
    with started([folders[1]], languages=("spa", "fra")) as service:
        assert [info.name for info in service.models()] == ["mul"]
        assert [(entry.code, entry.targets) for entry in service.languages()] == [
            ("spa", ("fra",)),
            ("fra", ()),
        ]
        line = short(1, 24)[0]
        (result,) = asyncio.run(service.run(service.pick("translate"), [line]))
        assert result.text == expected(folders[0]["mul"], f">>fra<< {line}")


def test_the_command_line_translates_into_the_language_that_is_asked_for(folders, capsys, monkeypatch):
    made, bundles = folders
    lines = short(3, 25)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    with pytest.raises(SystemExit) as ended:
        app(["translate", "--model", str(bundles / "mul"), "--source", "spa", "--target", "fra"])
    assert ended.value.code == 0
    wanted = [expected(made["mul"], f">>fra<< {line}") for line in lines]
    assert capsys.readouterr().out.splitlines() == wanted


def test_flags_of_fairseq_models_are_refused_for_marian(folders, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        app(["convert", "marian", str(folders[0]["mul"].path), str(tmp_path / "out"), "--lowercase"])
    assert ended.value.code == 2
    assert "--lowercase" in capsys.readouterr().err
