"""A corpus by an upstream: who answered each line, and what a failure or an interruption costs."""

import json
from pathlib import Path

import pytest

from cli.main import app
from tests.cli.commands import failure
from tests.support.served import bundles
from tests.support.upstreams import Model, serving, settings_file

LINES = [f"Das Haus kostet {number}." for number in range(1, 13)]
ANSWERS = [f"This house costs {number}." for number in range(1, 13)]


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr("engine.repository.upstreams.asking.RETRY_SECONDS", 0.0)
    with serving(Model()) as found:
        yield found


@pytest.fixture
def job(model, tmp_path):
    """The command line of a job of three shards."""
    (tmp_path / "in.txt").write_text("\n".join(LINES), "utf-8")
    upstreams = settings_file(tmp_path, model.address)
    words = ["corpus", tmp_path / "in.txt", "--out", tmp_path / "out", "--upstreams", upstreams]
    words += ["--model", "big", "--from", "de", "--to", "en", "--shard-lines", 4]
    return [str(word) for word in [*words, "--columns", "translation,model,flags"]]


def finish(job):
    """Run a job, and return its manifest and the cells of its lines."""
    with pytest.raises(SystemExit) as ended:
        app(job)
    assert ended.value.code == 0
    out = Path(job[job.index("--out") + 1])
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    text = "\n".join((out / shard["name"]).read_text("utf-8").strip("\n") for shard in manifest["shards"])
    return manifest, [line.split("\t") for line in text.split("\n")]


def text_of(request):
    return request["messages"][-1]["content"]


def asked(model):
    return list(map(text_of, model.asked))


def test_each_line_is_asked_once_and_the_manifest_counts_the_model(model, job):
    manifest, rows = finish(job)
    assert [row[0] for row in rows] == ANSWERS
    assert sorted(asked(model)) == sorted(LINES)
    assert manifest["summary"]["models"] == {"big": 12}
    assert [shard["models"] for shard in manifest["shards"]] == [{"big": 4}] * 3
    assert list(manifest["job"]["models"]) == ["big"]


def test_a_refused_key_stops_the_job_and_finished_shards_are_not_asked_again(model, job, capsys):
    model.fault_of = lambda request: "401" if text_of(request) == LINES[8] else ""
    with pytest.raises(SystemExit) as ended:
        app(job)
    assert ended.value.code == 1
    message = "convoy: error: the upstream 'big' gave no answer: it answered with status 401"
    assert message in capsys.readouterr().err
    before = asked(model)
    del model.fault_of
    assert finish(job)[1] == [[answer, "big", "[]"] for answer in ANSWERS]
    assert sorted(asked(model)[len(before) :]) == sorted(LINES[8:]), "two shards were finished"


def test_a_fallback_answers_lines_of_a_failing_upstream_and_is_named(model, job):
    model.always = "500"
    manifest, rows = finish([*job, "--fallback", str(bundles() / "toy-de-en")])
    assert [row[1] for row in rows] == ["toy-de-en"] * 12
    assert manifest["summary"]["models"] == {"toy-de-en": 12}
    assert list(manifest["job"]["fallbacks"]) == ["toy-de-en"]


def test_a_refused_text_has_a_status_and_other_lines_are_answered(model, job):
    model.fault_of = lambda request: "400" if text_of(request) == LINES[6] else ""
    manifest, rows = finish(job)
    assert [row[0] for row in rows] == [*ANSWERS[:6], "", *ANSWERS[7:]]
    assert manifest["summary"]["statuses"] == {"failed": 1, "ok": 11}


def test_a_doubtful_answer_without_a_fallback_is_flagged(model, job):
    model.always = "number"
    _, rows = finish(job)
    assert {row[2] for row in rows} == {'["doubtful"]'}


def test_a_model_of_many_languages_needs_a_direction(job, capsys):
    del job[job.index("--from") : job.index("--from") + 4]
    assert failure(capsys, *job) == (2, "convoy: error: big has several languages: give --from and --to\n")
