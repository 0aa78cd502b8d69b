"""Marian models of Hugging Face, from a user's `convoy convert` to an answer over HTTP."""

from __future__ import annotations

import asyncio

import pytest
import torch

from cli.main import app
from engine.api import Placement, Service, ServiceSettings, TextOptions, UnknownModel
from tests.support.marian_models import make, sentences
from tests.support.served import running, server

LANES = ((1, 4), (4, 4))


def short(count, seed):
    """Return lines that fit the toy models' 64 positions."""
    return [" ".join(line.split()[:3]) for line in sentences(count, seed)]


def convert(*words):
    with pytest.raises(SystemExit) as ended:
        app(["convert", "marian", *map(str, words)])
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return Hugging Face folders by name, and one folder with their bundles and graphs."""
    root = tmp_path_factory.mktemp("served")
    made = {
        "eng-nld": make(root / "hf" / "plain", "trained"),
        "mul": make(root / "hf" / "mul", "several languages", seed=6),
    }
    convert(made["eng-nld"].path, root / "bundles" / "eng-nld")
    convert(made["mul"].path, root / "bundles" / "mul", "--source", "nld,spa", "--target", "deu")
    return made, root / "bundles"


@pytest.fixture(scope="module")
def service(folders):
    with running(paths=[folders[1]], lanes=LANES) as made:
        yield made


@pytest.fixture(scope="module")
def client(folders):
    def opened(observe):
        return Service.open([folders[1]], ServiceSettings(Placement(lanes=LANES)), observe)

    with server(opened=opened) as (made, *_):
        yield made


def expected(folder, text):
    """Return the answers of `transformers` with the model's settings."""
    ids = torch.tensor([folder.tokenizer(text).input_ids])
    return folder.tokenizer.decode(folder.model.generate(ids)[0], skip_special_tokens=True)


def test_answers_over_http_agree_with_transformers(folders, client):
    lines = short(12, 21)
    reply = client.post(
        "/translate", json={"q": lines, "source": "eng", "target": "nld", "follow_form": False}
    )
    assert reply.status_code == 200, reply.text
    found = reply.json()["translatedText"]
    assert found == [expected(folders[0]["eng-nld"], line) for line in lines]
    assert len(set(found)) > 3


@pytest.mark.parametrize(("target", "own"), [("deu", "deu"), ("de", "deu"), ("fr", "fra"), ("nld", "nld")])
def test_target_code_of_two_or_three_letters_selects_the_prefix_token(folders, client, target, own):
    lines = short(4, 22)
    wanted = [expected(folders[0]["mul"], f">>{own}<< {line}") for line in lines]
    for source in ("spa", "es"):
        reply = client.post(
            "/translate", json={"q": lines, "source": source, "target": target, "follow_form": False}
        )
        assert reply.status_code == 200, reply.text
        assert reply.json()["translatedText"] == wanted


def test_languages_lists_every_direction(client):
    found = {entry["code"]: set(entry["targets"]) for entry in client.get("/languages").json()}
    assert found["es"] >= {"de", "fr", "nl"}
    assert found["nl"] >= {"de", "fr"}
    assert found["en"] >= {"nl", "de", "fr"}  # the last two through nl
    assert all(len(code) == 2 for code in found)


def test_pivot_uses_a_direction_of_a_multilingual_model(folders, service):
    name = service.pick("translate", "eng", "fra").name
    assert name == service.pick("translate", "en", "fr").name == "eng-nld+mul@nl:fr"
    (line,) = short(1, 23)
    (result,) = asyncio.run(service.run(name, [line], TextOptions()))
    between = expected(folders[0]["eng-nld"], line)
    assert result.text == expected(folders[0]["mul"], f">>fra<< {between}")


def test_coverage_counts_only_the_words_of_the_text(service):
    name = service.pick("translate", "spa", "fra").name
    (result,) = asyncio.run(service.run(name, ["baba kolu"], TextOptions(coverage=True)))
    assert [coverage.words for coverage in result.coverage] == [["baba", "kolu"]]


def test_unsupported_directions_are_refused(service):
    assert service.pick("translate", "spa", "deu").name == "mul@es:de"
    assert service.pick("translate", "nld", "deu").name == "mul"
    assert service.pick("translate", "spa", "fra", "mul").name == "mul@es:fr"
    with pytest.raises(UnknownModel):
        service.pick("translate", "nld", "nld", "mul")
    for name in ("mul@spa:eng", "mul@xyz:deu", "mul@deu", "mul@", "eng-nld@spa:deu"):
        with pytest.raises(UnknownModel):
            asyncio.run(service.run(name, ["baba"]))


def test_only_selected_languages_are_offered(folders):
    with running(paths=[folders[1]], lanes=LANES, languages=("spa", "fra")) as service:
        assert [info.name for info in service.models()] == ["mul"]
        assert [(entry.code, entry.targets) for entry in service.languages()] == [
            ("es", ("fr",)),
            ("fr", ()),
        ]
        line = short(1, 24)[0]
        (result,) = asyncio.run(service.run(service.pick("translate"), [line]))
        assert result.text == expected(folders[0]["mul"], f">>fra<< {line}")


def test_command_line_translates_into_the_requested_language(folders, capsys, tmp_path):
    made, bundles = folders
    lines = short(3, 25)
    source = tmp_path / "source.txt"
    source.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        app(["translate", str(source), "--model", str(bundles / "mul"), "--source", "spa", "--target", "fra"])
    assert ended.value.code == 0
    wanted = [expected(made["mul"], f">>fra<< {line}") for line in lines]
    assert capsys.readouterr().out.splitlines() == wanted


def test_flags_of_fairseq_models_are_refused_for_marian(folders, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        app(["convert", "marian", str(folders[0]["mul"].path), str(tmp_path / "out"), "--lowercase"])
    assert ended.value.code == 2
    assert "--lowercase" in capsys.readouterr().err


def test_request_for_a_direction_loads_its_model(folders):
    cost = max(
        kept.cost
        for kept in Service.open([folders[1]], ServiceSettings(Placement(lanes=LANES)))
        .repository_entries()
        .values()
    )
    (line,) = short(1, 26)
    with running(paths=[folders[1]], lanes=LANES, budget=cost) as service:
        for name, own in (("mul@es:fr", "fra"), ("mul@spa:deu", "deu"), ("mul@es:de", "deu")):
            (result,) = asyncio.run(service.run(name, [line]))
            assert result.text == expected(folders[0]["mul"], f">>{own}<< {line}")
        assert {name: str(kept.state) for name, kept in service.repository_entries().items()} == {
            "eng-nld": "unloaded",
            "mul": "loaded",
        }
        assert service.pick("translate", "en", "fr").name == "eng-nld+mul@nl:fr"
    with running(paths=[folders[1]], lanes=LANES, budget=2 * cost) as service:
        name = service.pick("translate", "en", "fr").name
        (result,) = asyncio.run(service.run(name, [line]))
        between = expected(folders[0]["eng-nld"], line)
        assert result.text == expected(folders[0]["mul"], f">>fra<< {between}")


def test_folder_is_converted_for_a_target_code_of_two_letters(folders, tmp_path):
    convert(folders[0]["mul"].path, tmp_path / "mul", "--source", "nl", "--target", "de")
    assert Service.open([tmp_path], ServiceSettings(Placement(lanes=LANES))).models()[0].targets[0] == "de"
