"""Answers of a job: each text once, seeds by line, columns of a service, two models."""

from __future__ import annotations

import json
from unittest.mock import patch

import pytest

from corpus import answering
from corpus.columns import options_for, parse_columns
from engine.api import InvalidRequest, TextOptions
from tests.corpus.jobs import MODEL, job_of, output_of, run_job, sentences, start
from tests.support.served import bundles, running

GERMAN = [
    "Ich weiß nicht, ob er morgen kommt, aber wir sollten trotzdem auf ihn warten.",
    "Meine Schwester arbeitet seit drei Jahren in einem kleinen Krankenhaus am Meer.",
]
ENGLISH = "My sister has been working in a small hospital by the sea for three years."


@pytest.fixture(scope="module")
def service():
    with running() as service:
        yield service


def written(service, tmp_path, texts, **fields):
    """Return the rows of a JSONL job, and its manifest."""
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"t": text}) for text in texts), "utf-8")
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    job = job_of(service, column="t", **fields)
    manifest = run_job(service, job, [tmp_path / "a.jsonl"], out)
    files = [data for name, data in output_of(out).items() if name != "manifest.json"]
    return [json.loads(line) for line in b"".join(files).decode().splitlines()], manifest


def test_equal_texts_of_a_window_are_answered_once(service, tmp_path):
    texts = sentences(40) * 5
    before = service.stats()[MODEL].answered
    rows, _ = written(service, tmp_path, texts)
    asked = service.stats()[MODEL].answered - before
    answers = {result.text for result in service.run_many(MODEL, sorted(set(texts)))}
    assert {row["translation"] for row in rows} == answers
    assert asked < 2 * len(set(texts)) < len(texts)


def test_seeds_of_samples_depend_on_the_line_only(service, tmp_path):
    texts = [GERMAN[0]] * 30
    decode = {"sampling": True, "beam_size": 2, "n_best": 2, "seed": 3}
    first, _ = written(service, tmp_path, texts, decode=decode)
    again, _ = written(service, tmp_path, texts, decode=decode, shard_lines=7, window_lines=3)
    other, _ = written(service, tmp_path, texts, decode=decode | {"seed": 4})
    assert first == again != other
    assert len({row["translation"] for row in first}) > 5


@pytest.mark.parametrize("decode", [{"n_best": 3}, {"n_best": 4, "beam_size": 4, "diverse_groups": 2}])
def test_alternatives_flags_and_coverage_equal_those_of_a_service(service, tmp_path, decode):
    names = ["translation", "score", "alternatives", "alternative_scores", "flags", "coverage", "version"]
    options = options_for(dict.fromkeys(names, ""), TextOptions(decode))
    rows, manifest = written(service, tmp_path, GERMAN, columns=names, options=options)
    for row, result in zip(rows, service.run_many(MODEL, GERMAN, options), strict=True):
        assert row["alternatives"] == result.alternatives
        assert row["score"] == pytest.approx(result.score, abs=1e-6)
        assert row["alternative_scores"] == pytest.approx(result.alternative_scores, abs=1e-6)
        assert ("length" in row["flags"]) == (result.finish == "length")
        assert 0 <= row["coverage"] <= 1
        assert row["version"] == manifest["job"]["models"][MODEL][:12]


def test_alignment_pairs_source_and_target_words(service, tmp_path):
    columns = ["translation", "alignment"]
    options = options_for(dict.fromkeys(columns, ""), TextOptions())
    rows, _ = written(service, tmp_path, GERMAN, columns=columns, options=options)
    for text, row in zip(GERMAN, rows, strict=True):
        pairs = [tuple(map(int, pair.split("-"))) for pair in row["alignment"].split()]
        assert pairs == sorted(set(pairs))
        assert pairs
        assert all(source < len(text.split()) for source, _ in pairs)
        assert {target for _, target in pairs} <= set(range(len(row["translation"].split())))


def test_lines_in_other_languages_are_skipped_with_only_language(service, tmp_path):
    texts = [GERMAN[0], ENGLISH, "12.5", "", GERMAN[1]]
    rows, manifest = written(
        service, tmp_path, texts, only_language=True, columns=["status", "language", "translation"]
    )
    assert [row["language"] for row in rows] == ["de", "en", None, None, "de"]
    assert rows[1]["status"] == "language"
    assert rows[1]["translation"] is None
    assert rows[2]["status"] != "language"  # no language is no other language
    assert manifest["shards"][0]["examples"][0][:2] == [2, "language"]


def test_two_models_translate_one_after_the_other(service, tmp_path):
    route = "toy-de-en+toy-en-de"
    rows, manifest = written(
        service,
        tmp_path,
        [*GERMAN, "x" * 400, *GERMAN],
        route=route,
        columns=["translation", "pivot", "status", "model"],
    )
    expected = list(service.run_many(route, GERMAN))
    assert [row["translation"] for row in rows[:2]] == [result.text for result in expected]
    assert [row["pivot"] for row in rows[-2:]] == [result.via.text for result in expected]
    assert {row["model"] for row in rows} == {route}
    assert list(manifest["job"]["models"]) == route.split("+")


def test_text_that_is_too_long_has_a_status_and_others_are_answered(service, tmp_path):
    options = TextOptions(split=False)
    rows, manifest = written(
        service,
        tmp_path,
        [GERMAN[0], "Wort " * 500, GERMAN[1]],
        options=options,
        columns=["status", "translation"],
    )
    assert [row["status"] for row in rows][1] == "too_long"
    assert rows[0]["translation"]
    assert rows[2]["translation"]
    (example,) = [each for each in manifest["shards"][0]["examples"] if each[1] == "too_long"]
    assert "this model reads at most" in example[2]


def test_windows_of_equal_lines_do_not_accumulate(service, tmp_path):
    """Uses more lines than may be read ahead; each window has one distinct text."""
    most = 0
    finished = answering._finished

    def watched(pending):
        nonlocal most
        most = max(most, sum(len(batch.rows) for batch in pending))
        return finished(pending)

    (tmp_path / "a.txt").write_text(f"{GERMAN[0]}\n" * 2_000, "utf-8")
    with patch.multiple(answering, LINES_AHEAD=500, _finished=watched):
        job = job_of(service, window_lines=100)
        manifest = run_job(service, job, [tmp_path / "a.txt"], tmp_path / "out")
    assert manifest["summary"]["rows"] == 2_000
    assert most <= 600


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("translation=mt, score", {"translation": "mt", "score": "score"}),
        ("nothing", "unknown column 'nothing'; known are translation"),
        ("score,score", "column 'score' comes twice"),
        ("score=x,translation=x", "column 'translation=x' comes twice"),
        (" ,", "no columns"),
    ],
)
def test_columns_are_parsed(text, expected):
    if isinstance(expected, dict):
        assert parse_columns(text) == expected
    else:
        with pytest.raises(InvalidRequest, match=expected):
            parse_columns(text)


def test_command_takes_two_models_and_prints_a_summary(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(GERMAN), "utf-8")
    flags = [
        "--then",
        bundles() / "toy-en-de",
        "--columns",
        "pivot,translation",
        "--n-best",
        2,
        "--price-per-hour",
        1,
    ]
    with start([tmp_path / "a.txt"], tmp_path / "out", *flags) as process:
        stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr.decode()
    assert json.loads(stdout)["rows"] == 2
    assert output_of(tmp_path / "out")["a.txt"].count(b"\t") == 2
