"""Commands with --url: answers of a server equal the answers of a local model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from html import unescape

import pytest

from engine.api import Service
from tests.cli.commands import ROOT, done, failure, run
from tests.documents.samples import book, odt, slides, word
from tests.support.served import bundles, server, settings_of

TOKEN = "a-key-that-an-operator-chose"


@pytest.fixture(scope="module")
def place():
    """A server of the toy models that wants a key."""
    with server(api_keys=TOKEN) as (client, house, _):
        yield str(client.base_url), house


@pytest.fixture
def url(place, monkeypatch):
    monkeypatch.setenv("CONVOY_API_KEY", TOKEN)
    return place[0]


@pytest.fixture(scope="module")
def german(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "german.txt"
    lines = ["Das ist gut.", "", "Wer bist du? Wo ist der Bahnhof?", "...", "  ", "\u2028Guten\u2028Tag"]
    path.write_text("\n".join(lines * 8) + "\n", "utf-8")
    return path


def test_local_and_remote_translations_protect_equally(tmp_path, capsys):
    """Uses the shipped model, which has placeholders."""
    model, path = ROOT / "models" / "tatoeba-de-en", tmp_path / "in.txt"
    path.write_text("Das kostet 19,99 Euro.\nSchreib an {name}: info@b.de!\n1. Ruf 0800 330 1000 an.\n")
    settings = settings_of(verify=False, lanes=((5, 8),))
    with server(opened=lambda observe: Service.open([model], settings, observe)) as (client, *_):
        phrases = ["--glossary", "Ruf=Phone", "--ignore", "Schreib"]
        for flags in ([], ["--no-protect"], ["--local-numbers"], ["--no-follow-form"], phrases):
            done("translate", path, "--model", model, "--threads", 1, *flags)
            here = capsys.readouterr().out
            done("translate", path, "--url", client.base_url, "--target", "en", "--source", "de", *flags)
            assert capsys.readouterr().out == here
            if "--no-protect" not in flags:
                assert ("19.99" if "--local-numbers" in flags else "19,99") in here
                assert all(thing in here for thing in ("{name}", "info@b.de", "0800 330 1000"))
            assert ("Phone" in here and "Schreib" in here) == (flags is phrases)


@pytest.mark.parametrize(
    "flags",
    [
        ["translate"],
        ["translate", "--json", "--alignment"],
        ["translate", "--n-best", 3, "--json"],
        ["translate", "--n-best", 2, "--beam-size", 3, "--unk-penalty", "inf"],
        ["translate", "--scores", "--no-split", "--truncate", "--prefix", "Well", "--length-penalty", 0.5],
        ["translate", "--sampling", "--seed", 7, "--source", "de", "--target", "en"],
        ["summarize", "--json", "--max-length", 5, "--truncate"],
    ],
)
def test_remote_answers_equal_local_answers(url, german, capsys, flags):
    name = {"translate": "toy-de-en", "summarize": "toy-title"}[flags[0]]
    done(*flags, "--model", bundles() / name, "--input", german, "--threads", 1)
    here = capsys.readouterr().out
    done(*flags, "--model", name, "--url", url, german, "--concurrency", 3)
    assert capsys.readouterr().out == here
    assert len(here.splitlines()) >= 48


@pytest.mark.parametrize("flags", [[], ["--json"], ["--total"]])
def test_remote_scores_equal_local_scores(url, german, tmp_path, capsys, flags):
    english = tmp_path / "english.txt"
    lines = len(german.read_text("utf-8").split("\n")) - 1
    english.write_text("".join(f"It is {number} o'clock.\n\n" for number in range(lines // 2)), "utf-8")
    given = (english, "--source", german, *flags)
    done("score", bundles() / "toy-de-en", *given, "--threads", 1)
    here = capsys.readouterr().out
    done("score", "toy-de-en", *given, "--url", url, "--concurrency", 3)
    assert capsys.readouterr().out == here


def test_remote_score_error_is_one_line(url, german, tmp_path, capsys):
    server = ("--url", url, "-o", tmp_path / "out")
    cases = [
        (("toy-nobody", german, "--source", german), "line 1: no model 'toy-nobody'"),
        (("toy-de-en", german), "line 1: .*source"),
        (("toy-de-en", german, "--source", os.devnull), "ends before line 1"),
        (("toy-de-en", german, "--source", german, "--threads", 1), "--threads"),
    ]
    for arguments, wanted in cases:
        code, message = failure(capsys, "score", *arguments, *server)
        assert code == 2
        assert re.search(wanted, message), message
    assert list(tmp_path.iterdir()) == []


def test_pipe_gets_each_answer_before_its_next_line(url):
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "translate",
        "--url",
        url,
        "--source",
        "de",
        "--target",
        "en",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        for line in (b"...\n", b"Das ist gut.\n", b"\n"):
            child.stdin.write(line)
            child.stdin.flush()
            assert child.stdout.readline().endswith(b"\n")  # would wait for ever
        child.stdin.close()
        assert child.stdout.read() == b""
    assert child.returncode == 0


def test_error_without_a_key_names_the_flag(place, german, capsys):
    arguments = ("translate", "--url", place[0], "--input", german, "--source", "de", "--target", "en")
    code, message = failure(capsys, *arguments)
    assert code == 2
    assert "line 1: Please contact the server operator to get an API key" in message
    assert "--api-key" in message
    code, message = failure(capsys, *arguments, "--api-key", "wrong")
    assert code == 1
    assert "Invalid API key" in message
    done(*arguments, "--api-key", TOKEN)


@pytest.mark.parametrize(
    ("flags", "code", "wanted"),
    [
        (["--target", "zz"], 2, "line 1: zz is not supported"),
        ([], 2, "give --target: the server translates to de, en"),
        (["--model", "toy-nothing"], 2, "toy-de-en (translate de to en)"),
        (["--model", "toy-title"], 2, "toy-de-en (translate de to en)"),
        (["--model", "toy-en-de", "--target", "en"], 2, "no such model for these languages"),
        (["--model", "toy-de-en", "--beam-size", 0], 2, "beam_size"),
        (["--target", "en", "--device", "cuda"], 2, "--device"),
        (["--target", "en", "--url", "http://127.0.0.1:1"], 1, "no connection to http://127.0.0.1:1: "),
        (
            ["--target", "en", "--url", "127.0.0.1:1"],
            2,
            "--url 127.0.0.1:1: an address must begin with http://",
        ),
        (["--target", "en", "--input", "other"], 2, "once"),
    ],
)
def test_remote_error_is_one_line(url, german, tmp_path, capsys, flags, code, wanted):
    out = tmp_path / "out.txt"
    found = failure(capsys, "translate", german, "--url", url, "-o", out, *flags)
    assert found[0] == code
    assert wanted in found[1]
    assert list(tmp_path.iterdir()) == []


def test_remote_line_that_is_not_utf_8_is_named_and_no_output_is_left(url, tmp_path, capsys):
    (tmp_path / "wrong.txt").write_bytes(b"Gut.\n" * 50 + b"f\xfcr\n")
    code, message = failure(
        capsys, "translate", tmp_path / "wrong.txt", "--url", url, "--target", "en", "-o", tmp_path / "out"
    )
    assert code == 2
    assert "line 51: not UTF-8" in message
    assert [p.name for p in tmp_path.iterdir()] == ["wrong.txt"]


def test_remote_document_keeps_its_format(url, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text('<p class="a">Das ist <b>gut</b>.</p>', "utf-8")
    flags = ("--url", url, "--model", "toy-de-en")
    done("translate", page, "-o", tmp_path / "out.html", *flags)
    assert (tmp_path / "out.html").read_text("utf-8").startswith('<p class="a">')
    assert "--output" in failure(capsys, "translate", page, *flags)[1]
    here = ("--model", bundles() / "toy-de-en", "--threads", 1)
    assert (
        "is a .html: give it this ending"
        in failure(capsys, "translate", page, "-o", tmp_path / "x.odt", *here)[1]
    )
    assert "--json" in failure(capsys, "translate", page, "-o", tmp_path / "x.html", "--json", *here)[1]
    message = failure(capsys, "translate", page, "-o", tmp_path / "x.html", "--beam-size", 1, *flags)[1]
    assert "its own options" in message
    (tmp_path / "broken.docx").write_bytes(b"no zip")
    for place in (flags, here):
        code, message = failure(
            capsys, "translate", tmp_path / "broken.docx", "-o", tmp_path / "x.docx", *place
        )
        assert code == 2
        assert "broken.docx: " in message
        assert "Word document" in message
    assert not (tmp_path / "x.docx").exists()


DOCUMENTS = {
    "a.docx": word(),
    "a.odt": odt('<text:p>Das <text:span text:style-name="T1">ist gut</text:span>.</text:p>'),
    "a.html": b"<p>Wo ist <b>denn</b> der <code>Bahnhof</code>?</p><p>Das ist gut.</p>",
    "a.md": b"# Das ist **gut**\n\nWer bist `du`?\n",
    "a.pptx": slides(),
    "a.epub": book(),
    "a.json": b'{"das.ist": "Das ist <b>gut</b>, {name}."}',
    "a.srt": b"1\n00:00:01,000 --> 00:00:02,500\nDas ist <i>ein\nSatz</i>.\n",
}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_remote_document_equals_local_document(url, tmp_path, name):
    file = tmp_path / name
    file.write_bytes(DOCUMENTS[name])
    here, there = (file.with_stem(stem) for stem in ("here", "there"))
    done("translate", file, "-o", here, "--model", bundles() / "toy-de-en", "--threads", 1)
    done("translate", file, "-o", there, "--model", "toy-de-en", "--url", url)
    assert contents(here) == contents(there) != contents(file)


def test_server_chooses_columns_and_writes_the_source_too(url, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("a;b\nDas ist gut.;Das ist gut.\n", "utf-8")
    out = tmp_path / "out.html"
    done(
        *("translate", table, "-o", out, "--model", "toy-de-en", "--url", url),
        *("--columns", "b", "--bilingual", "side"),
    )
    assert out.read_text("utf-8").count('<td lang="de">Das ist gut.</td>') == 1


def contents(path):
    """Return the bytes of a file, or the bytes of the entries of an archive, without their times."""
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_local_document_is_decoded_with_the_flags(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p>Wo ist denn hier der Bahnhof?</p>", "utf-8")
    flags = ("--model", bundles() / "toy-de-en", "--threads", 1, "--max-length", 2)
    done("translate", page, "-o", tmp_path / "short.html", *flags)
    (tmp_path / "line.txt").write_text("Wo ist denn hier der Bahnhof?\n", "utf-8")
    done("translate", tmp_path / "line.txt", "-o", tmp_path / "short.txt", *flags)
    line = (tmp_path / "short.txt").read_text("utf-8").strip()
    assert unescape((tmp_path / "short.html").read_text("utf-8")) == f"<p>{line}</p>"


def test_languages_without_a_model_are_refused(german, capsys):
    arguments = ("translate", german, "--model", bundles() / "toy-de-en")
    assert "can't translate from any language to fr" in failure(capsys, *arguments, "--target", "fr")[1]
    assert "can't translate from en" in failure(capsys, *arguments, "--source", "en")[1]


def test_error_without_a_model_names_model_and_url(german, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, message = failure(capsys, "translate", german)
    assert code == 2
    assert "--model" in message
    assert "--url" in message


def completed(*words, **env):
    """Return the completions of bash for the last word."""
    variables = {"_CONVOY_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["convoy", *map(str, words)])}
    ended = run(env=variables | {"COMP_CWORD": str(len(words))} | env)
    return ended.stdout.decode().split()


def test_shell_completes_commands_models_and_languages(url):
    assert completed("tra") == ["translate", "train"]
    assert completed("translate", "--url", url, "--model", "toy-d") == ["toy-de-en"]
    assert completed("translate", "--url", url, "--target", "") == ["de", "en"]
    assert completed("translate", "--model", f"{bundles()}/toy-t") == [f"{bundles()}/toy-title/"]
    assert completed("translate", "--model", bundles() / "toy-de-en", "--source", "") == ["de"]
    assert completed("translate", "--url", "http://127.0.0.1:1", "--target", "") == []
    assert "--beam-size" in completed("translate", "--beam")
