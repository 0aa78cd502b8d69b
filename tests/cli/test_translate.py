"""`convoy translate` and `convoy summarize` with a local model."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields

import pytest

from engine.answers.options import TEXTUAL_OPTIONS
from engine.types import OPTION_HELP as HELP
from engine.types import DecodeOptions
from tests.cli.commands import ROOT, dictionary, done, failure, golden_lines, run, translated


@pytest.mark.parametrize("setting", ["b4_maxb5", "b4_fixedmax40", "b4_default_maxlen"])
def test_translate_equals_tokens_and_scores_of_fairseq(bundle, setting):
    golden, lines = golden_lines()
    params = golden["settings"][setting]["params"]
    flags = [
        *("--beam-size", params["beam_size"], "--length-penalty", params["len_penalty"]),
        *("--max-length-a", params["max_len_a"], "--max-length-b", params["max_len_b"]),
        *("--no-split", "--json", "--threads", 1),
    ]
    printed = run("translate", "--model", bundle, *flags, stdin="\n".join(lines.values())).stdout
    made = [json.loads(line) for line in printed.decode().splitlines()]
    assert [m["line"] for m in made] == list(range(1, len(lines) + 1))
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *dictionary("tgt")]
    expected = {r["id"]: r for r in golden["settings"][setting]["results"]}
    compared = 0
    for i, found in zip(lines, made, strict=True):
        best = expected[i]["hyps"][0]
        if expected[i]["stable"]:
            assert found["tokens"] == [symbols[t] for t in best["tokens"]]
            assert found["score"] == pytest.approx(best["score"], abs=1e-4)
            compared += 1
    assert compared > 30


def test_each_line_has_one_answer_and_empty_lines_stay_empty(bundle, source, capsys):
    plain = translated(capsys, bundle, source)
    records = [json.loads(line) for line in translated(capsys, bundle, source, "--json")]
    assert plain == [t["text"] for t in records]
    assert plain[3:5] == ["", "..."]
    assert all(plain[:3])


def test_file_standard_input_and_output_file_give_equal_answers(bundle, source, capsys, tmp_path):
    plain = translated(capsys, bundle, source)
    piped = run("translate", "--model", bundle, stdin=source.read_bytes())
    assert piped.stdout.decode().splitlines() == plain
    assert piped.stderr == b""  # no progress bar without a terminal
    out = tmp_path / "out.txt"
    translated(capsys, bundle, source, "--output", out)
    assert out.read_text("utf-8").splitlines() == plain


def test_windows_line_ends_and_byte_order_mark_are_not_text(bundle, source, capsys, tmp_path):
    windows = tmp_path / "windows.txt"
    windows.write_bytes(b"\xef\xbb\xbf" + source.read_bytes().replace(b"\n", b"\r\n"))
    assert translated(capsys, bundle, windows) == translated(capsys, bundle, source)


def test_scores_are_printed_before_their_texts(bundle, source, capsys):
    records = [json.loads(line) for line in translated(capsys, bundle, source, "--json")]
    assert translated(capsys, bundle, source, "--scores") == [
        f"{t['score']:.4f}\t{t['text']}" for t in records
    ]


def test_n_best_prints_distinct_hypotheses_best_first(bundle, source, capsys):
    rows = [line.split("\t") for line in translated(capsys, bundle, source, "--n-best", 4)]
    best = translated(capsys, bundle, source)
    by_line = {number: [r for r in rows if r[0] == str(number)] for number in range(1, len(best) + 1)}
    assert [found[0][2] for found in by_line.values()] == best
    assert max(map(len, by_line.values())) > 1
    for found in by_line.values():
        assert len({text for _, _, text in found}) == len(found) <= 4
        assert [float(s) for _, s, _ in found] == sorted((float(s) for _, s, _ in found), reverse=True)


def test_alignment_rows_are_one_per_target_token_and_sum_to_one(bundle, source, capsys):
    records = [json.loads(line) for line in translated(capsys, bundle, source, "--json", "--alignment")]
    (aligned,) = records[0]["alignment"]
    assert aligned["target"] == records[0]["tokens"]
    assert [len(row) for row in aligned["matrix"]] == [len(aligned["source"])] * len(aligned["target"])
    assert [sum(row) for row in aligned["matrix"]] == pytest.approx([1.0] * len(aligned["matrix"]), abs=1e-4)


def test_environment_variable_sets_its_flag(bundle, source, capsys, monkeypatch):
    greedy = translated(capsys, bundle, source, "--scores", "--beam-size", 1)
    assert greedy != translated(capsys, bundle, source, "--scores")
    monkeypatch.setenv("CONVOY_TRANSLATE_BEAM_SIZE", "1")
    assert translated(capsys, bundle, source, "--scores") == greedy


def test_every_decoding_option_has_a_flag_with_help():
    names = {f.name for f in fields(DecodeOptions)} - TEXTUAL_OPTIONS
    assert set(HELP) == names
    shown = run("translate", "--help", env={"COLUMNS": "200"}).stdout.decode()
    for name in names:
        assert f"--{name.replace('_', '-')} " in shown


def test_line_that_is_not_utf_8_is_named_and_no_output_is_left(bundle, tmp_path, capsys):
    wrong, out = tmp_path / "latin1.txt", tmp_path / "out.txt"
    wrong.write_bytes("da fa\nf\xfcr\n".encode("latin-1"))
    code, message = failure(capsys, "translate", "--model", bundle, "--input", wrong, "--output", out)
    assert code == 2
    assert "line 2" in message
    assert list(tmp_path.iterdir()) == [wrong]


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (["--beam-size", "0"], "convoy: error: beam_size must be between 1 and 2048"),
        (["--beam-size", "100000"], "beam_size must be between 1 and 2048"),
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "2"], "top_p"),
        (["--precision", "fp4"], "fp4"),
        (["--backend", "abacus"], "abacus"),
    ],
)
def test_impossible_option_is_bad_input(bundle, source, capsys, flags, wanted):
    code, message = failure(capsys, "translate", "--model", bundle, "--input", source, *flags)
    assert code == 2
    assert wanted in message


def test_model_for_another_task_is_refused(bundle, source, capsys):
    code, message = failure(capsys, "summarize", "--model", bundle, "--input", source)
    assert (code, message) == (2, "convoy: error: model 'dyn_glu' can't summarize\n")


def test_closed_pipe_is_no_error(bundle, source):
    command = f"'{sys.executable}' -m cli.main translate --model '{bundle}' --input '{source}' | head -n 1"
    ended = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, timeout=600)
    assert ended.stdout.count(b"\n") == 1
    assert ended.stderr == b""


def test_long_document_is_refused_or_truncated(summarizer, tmp_path, capsys):
    _, lines = golden_lines()
    limit = json.loads((summarizer / "config.json").read_text("utf-8"))["model"]["max_source"]
    words = " ".join(lines.values()).split()
    words = (words * (limit // len(words) + 1))[: limit + 10]
    (tmp_path / "long.txt").write_text(" ".join(words) + "\n", "utf-8")
    arguments = ("summarize", "--model", summarizer, "--input", tmp_path / "long.txt", "--max-length", 5)
    code, message = failure(capsys, *arguments)
    assert code == 2
    assert "truncate" in message
    done(*arguments, "--truncate", "--json")
    record = json.loads(capsys.readouterr().out)
    assert record["truncated"]
    assert record["source_tokens"] == limit
    assert record["target_tokens"] <= 5
