"""`convoy evaluate` and `convoy bench`."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys

import pytest

from tests.cli.commands import done, failure, translated


def test_evaluate_equals_bleu_and_chrf_of_sacrebleu(bundle, source, capsys, tmp_path):
    texts = translated(capsys, bundle, source, "--no-protect", "--no-follow-form")
    references = [" ".join(t.split()[i % 2 :]) or "nothing" for i, t in enumerate(texts)]
    lines = source.read_text("utf-8").splitlines()
    table, reference, hypotheses = (tmp_path / n for n in ("pairs.tsv.gz", "reference.txt", "made.txt"))
    with gzip.open(table, "wt", encoding="utf-8") as out:
        out.writelines(f"{r}\t{s}\n" for r, s in zip(references, lines, strict=True))
    columns = ("--source-column", 1, "--target-column", 0)
    done("evaluate", "--model", bundle, "--input", table, *columns, "--output", hypotheses, "--json")
    found = json.loads(capsys.readouterr().out)
    assert hypotheses.read_text("utf-8").splitlines() == texts
    reference.write_text("\n".join(references) + "\n", "utf-8")
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        reference,
        "-i",
        hypotheses,
        "-m",
        "bleu",
        "chrf",
        "-w",
        "2",
    ]
    theirs = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert [found["BLEU"], found["chrF"]] == pytest.approx([m["score"] for m in theirs], abs=0.01)
    assert 0 < found["BLEU"] < 100
    done("evaluate", "--model", bundle, "--input", source, "--reference", reference, "--json")
    assert json.loads(capsys.readouterr().out)["BLEU"] == found["BLEU"]


def test_evaluate_prints_rouge_for_summaries(summarizer, source, capsys, tmp_path):
    done("summarize", "--model", summarizer, "--input", source)
    made = capsys.readouterr().out.splitlines()
    # half the lines are exactly right, the others share no word with their reference
    right = [i % 2 == 0 and bool(re.search(r"[a-z0-9]", text)) for i, text in enumerate(made)]
    table = tmp_path / "pairs.tsv"
    rows = zip(source.read_text("utf-8").splitlines(), made, right, strict=True)
    table.write_text("".join(f"{s}\t{m if r else 'zzzz'}\n" for s, m, r in rows), "utf-8")
    done("evaluate", "--model", summarizer, "--input", table, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["ROUGE-1"] == found["ROUGE-L"] == pytest.approx(100 * sum(right) / len(made), abs=0.01)


def test_evaluate_scores_each_domain_as_a_file_of_its_own(bundle, source, capsys, tmp_path):
    rows = [
        f"{('letters', 'news', 'chat')[i % 3]}\t{text}\t{' '.join(text.split()[::-1]) or 'nothing'}\n"
        for i, text in enumerate(source.read_text("utf-8").splitlines())
    ]
    (tmp_path / "all.tsv").write_text("".join(rows), "utf-8")
    columns = ("--source-column", 1, "--target-column", 2)
    arguments = ("evaluate", "--model", bundle, *columns, "--input")
    done(*arguments, tmp_path / "all.tsv", "--domain-column", 0)
    table = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    found = {name.strip(): [float(cell) for cell in cells] for _, name, *cells, _ in table[2:]}
    assert [cell.strip() for cell in table[0][1:-1]] == ["domain", "lines", "BLEU", "chrF"]
    assert list(found) == ["letters", "news", "chat"]
    for domain, figures in found.items():
        own = [row for row in rows if row.startswith(domain)]
        (tmp_path / "own.tsv").write_text("".join(own), "utf-8")
        done(*arguments, tmp_path / "own.tsv", "--json")
        scores = json.loads(capsys.readouterr().out)
        assert figures == [len(own), scores["BLEU"], scores["chrF"]]
    flags = ("--domain-column", 0, "--reference", tmp_path / "own.tsv")
    assert "--domain-column" in failure(capsys, *arguments, tmp_path / "all.tsv", *flags)[1]
    assert "columns" in failure(capsys, *arguments, tmp_path / "all.tsv", "--domain-column", 9)[1]


def test_evaluate_refuses_a_wrong_number_of_references(bundle, source, capsys, tmp_path):
    (tmp_path / "short.txt").write_text("one\n", "utf-8")
    arguments = ("evaluate", "--model", bundle, "--input", source)
    assert "references" in failure(capsys, *arguments, "--reference", tmp_path / "short.txt")[1]
    assert "columns" in failure(capsys, *arguments)[1]


def test_bench_measures_every_case(bundle, source, capsys, tmp_path):
    flags = ["--beams", "1,2", "--sentences", "1,3", "--steps", 4, "--source", 6, "--runs", 2, "--texts", 5]
    done("bench", "--model", bundle, "--input", source, *flags, "--json", tmp_path / "bench.json")
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    written = json.loads((tmp_path / "bench.json").read_text("utf-8"))
    cases = [tuple(row["case"].values()) for row in written["rows"]]
    kinds = [("step", 1), ("step", 3), ("mixed", 32), ("text", 5)]
    assert cases == [(k, p, b, n) for p in ("fp32", "int8") for b in (1, 2) for k, n in kinds]
    assert len(table) == len(cases)
    assert written["machine"]["numpy"]
    for row in written["rows"]:
        assert 0 < row["least"] <= row["median"] <= row["greatest"]
        assert row["tokens_per_second"] > 0


def test_bench_efficiency_measures_raw_text(bundle, source, capsys):
    table = done("bench", "efficiency", "--model", bundle, "--input", source, "--alone", "2", "--beam", "2")
    row = (table or capsys.readouterr().out).splitlines()[-1].split("|")
    assert row[1].strip() == bundle.name
    assert float(row[3].replace(",", "")) > 0
    assert float(row[6]) >= float(row[5])
    assert row[7].strip().endswith("MB")


def test_bench_refuses_impossible_numbers(bundle, capsys):
    assert "--sentences" in failure(capsys, "bench", "--model", bundle, "--sentences", "1,64")[1]
    assert "steps" in failure(capsys, "bench", "--model", bundle, "--steps", 100_000)[1]
