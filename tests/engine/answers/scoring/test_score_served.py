"""Scores of texts over HTTP and on the command line."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from cli.main import app as command_line
from tests.support.teacher_forcing import teacher_forced

TEXTS = ["Where is the station?", "", "Tom likes it.", "a b c"]
GERMAN = ["Wo ist der Bahnhof?", "Ja.", "Tom mag das.", "ä"]


async def test_a_text_is_scored_over_http(client, service):
    answer = await client.post("/score", json={"q": TEXTS[0]})
    assert answer.status_code == 200
    (want,) = await service.score("toy-lm", [TEXTS[0]])
    assert answer.json() == {
        "model": "toy-lm",
        "scores": {
            "score": want.total,
            "perplexity": want.perplexity,
            "words": 4,
            "tokens": want.tokens,
            "tokenScores": want.token_scores,
        },
        "perplexity": want.perplexity,
    }


async def test_an_array_has_a_score_for_each_text_and_the_perplexity_of_all(client, service):
    answer = (await client.post("/score", json={"q": TEXTS, "timings": True})).json()
    want = await service.score("toy-lm", TEXTS)
    assert [found["tokenScores"] for found in answer["scores"]] == [score.token_scores for score in want]
    count = sum(len(score.tokens) for score in want)
    assert answer["perplexity"] == pytest.approx(math.exp(-sum(score.total for score in want) / count))
    assert answer["timings"]["decode"] > 0


@pytest.mark.parametrize("wish", [{"model": "toy-de-en"}, {"source": "de", "target": "en"}, {}])
async def test_a_translation_is_scored_with_its_source(client, service, wish):
    body = {"q": "It is good.", "source_text": "Das ist gut."} | wish
    (want,) = await service.score("toy-de-en", [body["q"]], [body["source_text"]])
    for sent in ({"json": body}, {"data": body}):
        answer = (await client.post("/score", **sent)).json()
        assert answer["model"] == "toy-de-en"
        assert answer["scores"]["tokenScores"] == want.token_scores
    both = body | {"q": [body["q"]] * 2, "source_text": [body["source_text"]] * 2}
    answer = (await client.post("/score", json=both)).json()
    assert [found["score"] for found in answer["scores"]] == [want.total] * 2


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ({}, 400, "missing q"),
        ({"q": [3]}, 400, "q must be a string"),
        ({"q": "a", "source_text": ["b"]}, 400, "source_text must be"),
        ({"q": ["a", "b"], "source_text": ["c"]}, 400, "2 texts, but 1 sources"),
        ({"q": ["a", "b"], "source_text": ["c", "d", "e"]}, 400, "2 texts, but 3 sources"),
        ({"q": ["a", "b"], "source_text": []}, 400, "2 texts, but 0 sources"),
        ({"q": "a", "model": "toy-lm", "source_text": "b"}, 400, "reads no source"),
        ({"q": "a", "model": "toy-de-en"}, 400, "give the source"),
        ({"q": "Tom " * 40}, 400, "this model scores at most 30"),
        ({"q": "a" * 201}, 400, r"request \(201\) exceeds text limit \(200\)"),
        ({"q": "a", "source_text": "b" * 201}, 400, r"request \(201\) exceeds text limit"),
        ({"q": ["a"] * 6}, 400, r"request \(6\) exceeds text limit \(5\)"),
        ({"q": "a", "model": 3}, 400, "model"),
        ({"q": "a", "model": "nobody"}, 404, "no model 'nobody'"),
        ({"q": "a", "target": "fr"}, 404, "give source_text.*toy-lm"),
        ({"q": "a", "source_text": "b", "target": "fr"}, 404, "toy-de-en"),
    ],
)
async def test_a_wrong_request_gets_one_clear_error(client, body, status, complaint):
    answer = await client.post("/score", json=body)
    assert answer.status_code == status, answer.text
    (message,) = answer.json().values()
    assert re.search(complaint, message), message


async def test_openais_list_has_the_models_that_answer_texts_only(client):
    listed = (await client.get("/v1/models")).json()["data"]
    assert {model["id"] for model in listed} == {"convoy", "toy-de-en", "toy-en-de"}
    assert (await client.get("/v1/models/toy-lm")).status_code == 404


async def test_scoring_is_counted_in_metrics(client):
    assert (await client.post("/score", json={"q": "Tom mag das."})).status_code == 200
    assert (await client.post("/score", json={"q": "a", "model": "nobody"})).status_code == 404
    text = (await client.get("/metrics")).text
    assert 'convoy_decode_duration_seconds_count{model="toy-lm"} 1.0' in text
    assert 'convoy_rejected_total{model="none",reason="unknown_model",route="/score"} 1.0' in text
    assert 'route="/score"' in text


# on the command line


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        command_line(["score", *map(str, arguments)])
    streams = capsys.readouterr()
    return stopped.value.code, streams.out, streams.err


def test_a_file_is_scored_line_by_line_with_its_perplexity(capsys, place, tmp_path):
    file, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    file.write_text("\n".join(TEXTS) + "\n", "utf-8")
    want = [teacher_forced(place / "toy-lm", text, None) for text in TEXTS]
    total, count = sum(map(sum, want)), sum(map(len, want))
    words = sum(len(text.split()) for text in TEXTS)

    code, printed, _ = run(capsys, place / "toy-lm", file, "--threads", 1)
    *lines, last = printed.splitlines()
    assert code == 0
    for line, text, scores in zip(lines, TEXTS, want, strict=True):
        score, ppl, rest = line.split("\t")
        assert float(score) == pytest.approx(sum(scores), abs=1e-3)
        assert float(ppl) == pytest.approx(math.exp(-sum(scores) / len(scores)), abs=0.02, rel=1e-3)
        assert rest == text
    loss = -total / math.log(2) / count
    said = r"4 lines, (\d+) tokens, loss (\S+) \(base 2\), perplexity (\S+); (\d+) words, .* (\S+) a word"
    figures = [float(figure) for figure in re.fullmatch(said, last).groups()]
    by_words = math.exp(-total / (words + 4))
    assert figures == pytest.approx([count, loss, 2**loss, words, by_words], rel=1e-4)

    code, printed, _ = run(capsys, place / "toy-lm", file, "--json", "--output", out, "--threads", 1)
    assert (code, printed) == (0, "")
    *found, summary = (json.loads(line) for line in out.read_text("utf-8").splitlines())
    assert [f["text"] for f in found] == TEXTS
    for number, (f, scores) in enumerate(zip(found, want, strict=True), 1):
        assert f["line"] == number
        np.testing.assert_allclose(f["token_scores"], scores, atol=1e-4)
    assert summary["total"]["loss"] == pytest.approx(loss, rel=1e-5)
    assert summary["total"]["perplexity"] == pytest.approx(2**loss, rel=1e-5)
    assert run(capsys, place / "toy-lm", file, "--total", "--threads", 1)[1].splitlines() == [last]


def test_translations_are_scored_with_their_sources(capsys, place, tmp_path):
    file, source = tmp_path / "en.txt", tmp_path / "de.txt"
    file.write_text("\n".join(TEXTS) + "\n", "utf-8")
    source.write_text("\n".join(GERMAN) + "\n", "utf-8")
    code, printed, _ = run(capsys, place / "toy-de-en", file, "--source", source, "--json", "--threads", 1)
    assert code == 0
    for line, text, german in zip(printed.splitlines(), TEXTS, GERMAN, strict=False):
        want = teacher_forced(place / "toy-de-en", text, german)
        np.testing.assert_allclose(json.loads(line)["token_scores"], want, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "text", "source", "complaint"),
    [
        ("toy-lm", "", None, "has no lines"),
        ("toy-lm", "a\n" + "Tom " * 40, None, "line 2: the text has"),
        ("toy-de-en", "a\n", None, "line 1: .*--source"),
        ("toy-de-en", "a\nb\n", "c\n", "de.txt ends before line 2"),
        ("toy-de-en", "a\n", "c\nd\n", "en.txt ends before line 2"),
        ("toy-lm", "a\n", "b\n", "line 1: a language model reads no source"),
    ],
)
def test_a_wrong_file_gets_one_clear_line_and_nothing_is_written(
    capsys, place, tmp_path, name, text, source, complaint
):
    file, given, out = tmp_path / "en.txt", tmp_path / "de.txt", tmp_path / "out"
    file.write_text(text, "utf-8")
    more = []
    if source is not None:
        given.write_text(source, "utf-8")
        more = ["--source", given]
    code, _, printed = run(capsys, place / name, file, *more, "--output", out, "--threads", 1)
    assert code == 2
    assert re.fullmatch(f"convoy: error: .*{complaint}.*", printed.strip())
    assert not out.exists()
