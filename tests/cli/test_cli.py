"""The command line, run as a user runs it, on a converted fixture of the reference implementation."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import fields
from html import unescape
from pathlib import Path

import pytest

from cli.convert import ModelSources
from cli.lines import count, read, table
from cli.main import COMMANDS, app
from engine.answers.options import TEXTUAL_OPTIONS
from engine.api import Service
from engine.types import OPTION_HELP as HELP
from engine.types import DecodeOptions
from server.callers.keys import KeyRing
from server.settings import ServerSettings
from tests.documents.samples import book, slides
from tests.documents.test_documents import odt, word
from tests.support.golden_fixtures import read_golden
from tests.support.served import bundles, server, settings_of, until
from tests.training.numbers import ENGLISH, TINY, WORDS

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "dyn_glu"


def run(*arguments, stdin="", check=True, env=None):
    """A command in a process of its own: its streams and exit code."""
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        timeout=120,
    )
    assert not check or ended.returncode == 0, ended.stderr.decode()
    return ended


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "dyn_glu"
    done("convert", "fairseq", GOLDEN, path)
    return path


def done(*arguments):
    """A command in this process, where torch is imported already; it must succeed."""
    with pytest.raises(SystemExit) as stopped:
        app([str(a) for a in arguments])
    assert stopped.value.code == 0


def failure(capsys, *arguments):
    """Exit code and the one line of an error."""
    with pytest.raises(SystemExit) as stopped:
        app([str(a) for a in arguments])
    message = capsys.readouterr().err
    assert message.startswith("convoy: error: ")
    assert message.count("\n") == 1
    return stopped.value.code, message


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffa\r\nb\u2028\n\ufeffc".encode())
    assert list(read(path)) == ["a", "b\u2028", "\ufeffc"]


def test_help_lists_every_command_and_torch_stays_unimported():
    code = (
        "import sys\nfrom cli.main import app\ntry: app(['--help'])\n"
        "finally: print('heavy:', [m for m in ('torch', 'onnxruntime') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "heavy: []" in ended.stdout
    assert all(f"\n  {name} " in ended.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        app([command, "--help"])
    assert stopped.value.code == 0
    assert f"convoy {command}" in capsys.readouterr().out


def test_a_wrong_flag_is_one_line_that_names_the_help(capsys):
    code, message = failure(capsys, "inspect", "--nonsense")
    assert code == 2
    assert "--nonsense" in message
    assert "convoy inspect --help" in message


def test_an_unknown_command_is_one_line(capsys):
    assert failure(capsys, "transmogrify")[0] == 2


def test_a_missing_bundle_is_bad_input(capsys, tmp_path):
    code, message = failure(capsys, "inspect", tmp_path / "nowhere")
    assert code == 2
    assert "nowhere" in message


def test_inspect_says_what_the_bundle_is(bundle):
    told = json.loads(run("inspect", bundle, "--json").stdout)
    golden = read_golden(GOLDEN)
    assert told["vocabulary"] == {"source": golden["n_src"], "target": golden["n_tgt"]}
    files = {str(p.relative_to(bundle)): p.stat().st_size for p in bundle.rglob("*") if p.is_file()}
    assert told["files"] == {name: size for name, size in files.items() if name != "manifest.json"}
    text = run("inspect", bundle).stdout.decode()
    assert f"{told['parameters']:,}" in text
    assert told["architecture"] in text


def test_inspect_refuses_a_bundle_whose_weights_were_changed(bundle, tmp_path, capsys):
    copied = tmp_path / "changed"
    shutil.copytree(bundle, copied)
    weights = copied / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    code, message = failure(capsys, "inspect", copied)
    assert code == 2
    assert "SHA-256" in message


@pytest.mark.parametrize("source", ModelSources.names)
def test_every_source_of_models_has_a_help_of_its_own(source):
    ended = run("convert", source, "--help")
    assert f"convoy convert {source} [OPTIONS]" in ended.stdout.decode()


def test_convert_refuses_a_format_it_does_not_know(capsys, tmp_path):
    code, message = failure(capsys, "convert", "opennmt", GOLDEN, tmp_path / "out")
    assert code == 2
    assert "fairseq" in message


def test_export_writes_the_same_graphs_again(bundle, tmp_path):
    copied = tmp_path / "copy"
    shutil.copytree(bundle, copied)
    before = {p.name: p.read_bytes() for p in (copied / "onnx").iterdir()}
    done("export", copied)
    assert {p.name: p.read_bytes() for p in (copied / "onnx").iterdir()} == before


def test_train_names_the_shipped_recipes_when_one_is_missing(capsys, tmp_path):
    code, message = failure(capsys, "train", "klingon", "--corpora", tmp_path, "--out", tmp_path / "out")
    assert code == 2
    assert "tatoeba-de-en" in message


def golden_lines():
    """Sources of the fixture as text, and the indices that they have there; the empty one is left out."""
    golden = read_golden(GOLDEN)
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *dictionary("src")]
    lines = {
        i: " ".join(symbols[t] if t != 3 else "nowhere" for t in ids[:-1])
        for i, ids in enumerate(golden["src"])
    }
    return golden, {i: line for i, line in lines.items() if line}


def dictionary(side):
    rows = (GOLDEN / f"dict.{side}.txt").read_text("utf-8").splitlines()
    return [row.rsplit(" ", 1)[0] for row in rows]


@pytest.mark.parametrize("setting", ["b4_maxb5", "b4_fixedmax40", "b4_default_maxlen"])
def test_translate_gives_the_reference_s_tokens_and_scores(bundle, setting):
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


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Twelve lines with an empty one and one without words among them."""
    _, lines = golden_lines()
    chosen = list(lines.values())[:10]
    path = tmp_path_factory.mktemp("text") / "source.txt"
    path.write_text("\n".join([*chosen[:3], "", "...", *chosen[3:]]) + "\n", "utf-8")
    return path


def translated(capsys, bundle, source, *flags):
    done("translate", "--model", bundle, "--input", source, "--threads", 1, *flags)
    return capsys.readouterr().out.splitlines()


def test_every_line_gives_one_line_and_empty_ones_stay_empty(bundle, source, capsys):
    plain = translated(capsys, bundle, source)
    told = [json.loads(line) for line in translated(capsys, bundle, source, "--json")]
    assert plain == [t["text"] for t in told]
    assert plain[3:5] == ["", "..."]
    assert all(plain[:3])


def test_a_file_standard_input_and_an_output_file_give_the_same(bundle, source, capsys, tmp_path):
    plain = translated(capsys, bundle, source)
    piped = run("translate", "--model", bundle, stdin=source.read_bytes())
    assert piped.stdout.decode().splitlines() == plain
    assert piped.stderr == b""  # no bar where nobody watches
    out = tmp_path / "out.txt"
    translated(capsys, bundle, source, "--output", out)
    assert out.read_text("utf-8").splitlines() == plain


def test_windows_line_ends_and_a_byte_order_mark_are_no_part_of_the_text(bundle, source, capsys, tmp_path):
    windows = tmp_path / "windows.txt"
    windows.write_bytes(b"\xef\xbb\xbf" + source.read_bytes().replace(b"\n", b"\r\n"))
    assert translated(capsys, bundle, windows) == translated(capsys, bundle, source)


def test_scores_stand_before_their_texts(bundle, source, capsys):
    told = [json.loads(line) for line in translated(capsys, bundle, source, "--json")]
    assert translated(capsys, bundle, source, "--scores") == [f"{t['score']:.4f}\t{t['text']}" for t in told]


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
    told = [json.loads(line) for line in translated(capsys, bundle, source, "--json", "--alignment")]
    (aligned,) = told[0]["alignment"]
    assert aligned["target"] == told[0]["tokens"]
    assert [len(row) for row in aligned["matrix"]] == [len(aligned["source"])] * len(aligned["target"])
    assert [sum(row) for row in aligned["matrix"]] == pytest.approx([1.0] * len(aligned["matrix"]), abs=1e-4)


def test_an_environment_variable_stands_for_its_flag(bundle, source, capsys, monkeypatch):
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


def test_text_that_is_not_utf_8_names_its_line_and_leaves_no_output(bundle, tmp_path, capsys):
    wrong, out = tmp_path / "latin1.txt", tmp_path / "out.txt"
    wrong.write_bytes("da fa\nf\xfcr\n".encode("latin-1"))
    code, message = failure(capsys, "translate", "--model", bundle, "--input", wrong, "--output", out)
    assert code == 2
    assert "line 2" in message
    assert list(tmp_path.iterdir()) == [wrong]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--beam-size", "0"], "convoy: error: beam_size must be between 1 and 2048"),
        (["--beam-size", "100000"], "beam_size must be between 1 and 2048"),
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "2"], "top_p"),
        (["--precision", "fp4"], "fp4"),
        (["--backend", "abacus"], "abacus"),
    ],
)
def test_an_impossible_option_is_bad_input(bundle, source, capsys, flags, told):
    code, message = failure(capsys, "translate", "--model", bundle, "--input", source, *flags)
    assert code == 2
    assert told in message


def test_a_model_for_another_task_is_refused(bundle, source, capsys):
    code, message = failure(capsys, "summarize", "--model", bundle, "--input", source)
    assert (code, message) == (2, "convoy: error: model 'dyn_glu' can't summarize\n")


def test_a_reader_that_has_seen_enough_gets_no_complaint(bundle, source):
    command = f"'{sys.executable}' -m cli.main translate --model '{bundle}' --input '{source}' | head -n 1"
    ended = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, timeout=120)
    assert ended.stdout.count(b"\n") == 1
    assert ended.stderr == b""


@pytest.fixture(scope="module")
def summarizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "summarizer"
    done("convert", "fairseq", GOLDEN, path, "--task", "summarize")
    return path


def test_a_long_document_is_refused_or_shortened_on_request(summarizer, tmp_path, capsys):
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
    told = json.loads(capsys.readouterr().out)
    assert told["truncated"]
    assert told["source_tokens"] == limit
    assert told["target_tokens"] <= 5


def test_evaluate_gives_the_bleu_and_chrf_of_sacrebleu_s_own_command(bundle, source, capsys, tmp_path):
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


def test_evaluate_gives_rouge_for_summaries(summarizer, source, capsys, tmp_path):
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


def test_evaluate_refuses_references_that_do_not_fit(bundle, source, capsys, tmp_path):
    (tmp_path / "short.txt").write_text("one\n", "utf-8")
    arguments = ("evaluate", "--model", bundle, "--input", source)
    assert "references" in failure(capsys, *arguments, "--reference", tmp_path / "short.txt")[1]
    assert "columns" in failure(capsys, *arguments)[1]


def test_bench_measures_every_case_it_lists(bundle, source, capsys, tmp_path):
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


def test_bench_efficiency_counts_from_raw_text_to_raw_text(bundle, source, capsys):
    table = done("bench", "efficiency", "--model", bundle, "--input", source, "--alone", "2", "--beam", "2")
    row = (table or capsys.readouterr().out).splitlines()[-1].split("|")
    assert row[1].strip() == bundle.name
    assert float(row[3].replace(",", "")) > 0
    assert float(row[6]) >= float(row[5])
    assert row[7].strip().endswith("MB")


def test_bench_refuses_numbers_it_can_not_run(bundle, capsys):
    assert "--sentences" in failure(capsys, "bench", "--model", bundle, "--sentences", "1,64")[1]
    assert "steps" in failure(capsys, "bench", "--model", bundle, "--steps", 100_000)[1]


def test_serve_has_a_flag_and_a_variable_for_every_setting():
    shown = run("serve", "--help", env={"COLUMNS": "200"}).stdout.decode()
    assert ServerSettings.model_fields
    for name in ServerSettings.model_fields:
        assert re.search(rf"--{name.replace('_', '-')}\b", shown)
        assert f"CONVOY_{name.upper()}" in shown


@pytest.mark.parametrize("given", [["--port", "seven"], ["--threads", "0"], ["--lanes", "5by32"]])
def test_a_wrong_setting_names_its_flag_and_variable(capsys, given):
    code, message = failure(capsys, "serve", *given)
    assert code == 2
    assert given[0] in message
    assert f"CONVOY_{given[0].strip('-').upper()}" in message
    assert message.count(f"not '{given[1]}'") == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--engines", "2"], "--engines 2 needs front ends: add --frontends 1 or more"),
        (["--port", "8999", "--grpc-port", "8999"], "--port and --grpc-port are both 8999: gRPC needs one"),
        (
            ["--store-folder", "FILE/store"],
            "--store-folder FILE/store: can't make the folder (Not a directory)",
        ),
        (["--suggestions", "FILE/x"], "--suggestions FILE/x: can't write the file (Not a directory)"),
    ],
)
def test_settings_that_can_not_be_are_told_before_a_model_is_loaded(capsys, tmp_path, bundle, given, told):
    file = tmp_path / "file"
    file.touch()
    secret = "0123456789abcdef"
    flags = [flag.replace("FILE", str(file)) for flag in given]
    code, message = failure(capsys, "serve", "--models", bundle, "--api-keys", secret, *flags)
    assert code == 2
    assert message.startswith(f"convoy: error: {told.replace('FILE', str(file))}")
    assert secret not in message


def test_a_wrong_variable_is_told_like_a_wrong_flag(capsys, monkeypatch):
    monkeypatch.setenv("CONVOY_PORT", "70000")
    assert "--port (CONVOY_PORT)" in failure(capsys, "serve")[1]


def test_serve_refuses_a_folder_without_models(tmp_path):
    # in a process of its own: serving sets ONNX Runtime's thread pool for the whole process
    ended = run("serve", "--models", tmp_path, check=False)
    assert ended.returncode == 2
    assert ended.stderr.decode().startswith(f"convoy: error: {tmp_path}")
    assert ended.stderr.count(b"\n") == 1


@pytest.fixture
def recipe(tmp_path):
    """A recipe of a few updates, and its corpus of counted words."""
    folder = tmp_path / "corpora" / "numbers"
    folder.mkdir(parents=True)
    rng = random.Random(0)
    for part, lines in (("train", 200), ("valid", 10), ("test", 10)):
        with gzip.open(folder / f"{part}.tsv.gz", "wt", encoding="utf-8") as out:
            for _ in range(lines):
                picked = [rng.randrange(len(WORDS)) for _ in range(rng.randrange(1, 6))]
                german, english = (" ".join(w[i] for i in picked) for w in (WORDS, ENGLISH))
                out.write(f"{german}\t{english}\n")
    path = tmp_path / "numbers.toml"
    path.write_text(TINY, "utf-8")
    return path


def test_train_goes_from_a_recipe_to_a_bundle_whose_card_states_what_evaluate_measures(
    recipe, tmp_path, capsys
):
    corpora, out = tmp_path / "corpora", tmp_path / "numbers"
    changes = ["--set", "updates=6", "--set", "save_every=3", "--set", "warmup=2"]
    places = ["--corpora", corpora, "--out", out, "--run", tmp_path / "run"]
    done("train", recipe, *places, *changes)
    capsys.readouterr()
    test = corpora / "numbers" / "test.tsv.gz"
    done("evaluate", "--model", out, "--input", test, "--truncate", "--json")
    found = json.loads(capsys.readouterr().out)
    card = (out / "README.md").read_text("utf-8")
    for metric in ("BLEU", "chrF"):
        assert f"| {metric} | `CORPORA/numbers/test.tsv.gz` | {found[metric]:.2f} |" in card
    told = json.loads(run("inspect", out, "--json").stdout)
    assert any("BLEU" in line for line in told["scores"])
    assert told["licence"] == ["licence: CC0-1.0"]


def test_a_student_learns_what_its_teacher_makes_of_the_sources(recipe, tmp_path):
    corpora, teacher, run = (tmp_path / name for name in ("corpora", "teacher", "run"))
    updates = ["--set", "updates=2", "--set", "save_every=2", "--no-scores", "--corpora", corpora]
    done("train", recipe, "--out", teacher, "--run", tmp_path / "first", *updates)
    done("train", recipe, "--out", tmp_path / "student", "--run", run, "--teacher", teacher, *updates)
    assert (run / "vocabulary.model").read_bytes() == (teacher / "vocabulary.model").read_bytes()
    train, taught = corpora / "numbers" / "train.tsv.gz", tmp_path / "taught.txt"
    done("evaluate", "--model", teacher, "--input", train, "--precision", "int8", "--output", taught)
    sources = [line.split("\t")[0] for line in table(train)]
    known = dict(zip(sources, read(taught), strict=True))
    pairs = [tuple(line.split("\t")) for line in table(run / "pairs.tsv.gz")]
    assert sorted(pairs) == sorted(known.items())
    assert len(set(known.values())) > 1


def test_lines_of_the_target_language_are_learnt_with_sources_that_another_model_makes(
    recipe, tmp_path, capsys
):
    corpora, back, run = (tmp_path / name for name in ("corpora", "back", "run"))
    updates = ["--set", "updates=2", "--set", "save_every=2", "--no-scores", "--corpora", corpora]
    opposite = tmp_path / "opposite.toml"
    opposite.write_text(TINY.replace('source = "de"\ntarget = "en"', 'source = "en"\ntarget = "de"'), "utf-8")
    done("train", opposite, "--out", back, "--run", tmp_path / "first", *updates)
    pairs = [tuple(line.split("\t")) for line in table(corpora / "numbers" / "train.tsv.gz")]
    english = tmp_path / "english.txt"
    english.write_text(f"zero point five\n\n{pairs[0][1].upper()}!\nzero point five\nminus one\n", "utf-8")
    made = ["--back", back, english, "--from", back]
    done("train", recipe, "--out", tmp_path / "numbers", "--run", run, *made, *updates)
    learnt = [tuple(line.split("\t")) for line in table(run / "pairs.tsv.gz")]
    alone = ["--no-protect", "--no-follow-form", "--precision", "int8"]
    done("translate", "--model", back, *alone, "--input", english, "--output", tmp_path / "german.txt")
    german = [*read(tmp_path / "german.txt")]
    assert learnt[: len(pairs)] == pairs
    known = f"{pairs[0][1].upper()}!"
    assert learnt[len(pairs) :] == [
        (german[0], "zero point five"),
        (german[2], known),
        (german[4], "minus one"),
    ]
    capsys.readouterr()
    code, message = failure(
        capsys, "train", opposite, "--out", tmp_path / "other", "--run", tmp_path / "new", *made, *updates
    )
    assert code == 2
    assert message == "convoy: error: model 'numbers' can't translate from de to en\n"


def test_train_does_not_replace_another_model_unless_told(recipe, tmp_path, bundle, capsys):
    corpora, other = tmp_path / "corpora", tmp_path / "other"
    shutil.copytree(bundle, other)
    code, message = failure(
        capsys, "train", recipe, "--corpora", corpora, "--out", other, "--run", tmp_path / "run"
    )
    assert code == 2
    assert "--overwrite" in message
    assert not (tmp_path / "run").exists()


# by a server


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


def test_what_can_not_be_written_is_named_as_it_was_given(bundle, source, capsys, tmp_path):
    for out, told in ((tmp_path, "is a folder; give a file"), (tmp_path / "a" / "b", "make it first")):
        code, message = failure(capsys, "translate", source, "--model", bundle, "-o", out)
        assert code == 2
        assert f"{out}: " in message
        assert told in message
        assert ".partial" not in message
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_bundles_is_no_bundle_and_its_bundles_are_named(source, capsys):
    for command in (("translate", source, "--model", bundles()), ("inspect", bundles())):
        assert "name one of them: toy-de-en, toy-en-de, toy-title" in failure(capsys, *command)[1]


def test_a_command_that_is_told_to_end_leaves_no_half_of_a_file(tmp_path):
    command = ["translate", "--model", bundles() / "toy-de-en", "-o", tmp_path / "out.txt", "--threads", "1"]
    words = [sys.executable, "-m", "cli.main", *map(str, command)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        until(lambda: list(tmp_path.iterdir()) or process.poll() is not None, 60)
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_the_bar_knows_how_many_lines_a_file_has(tmp_path, monkeypatch):
    path = tmp_path / "lines.txt"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for content, wanted in ((b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n\n", 2)):
        path.write_bytes(content)
        assert count(path) == wanted == len(list(read(path)))
    assert count(None) is None


def test_numbers_are_protected_here_as_by_a_server(tmp_path, capsys):
    """The shipped model, which has placeholders."""
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
def test_a_server_gives_what_its_model_gives_here(url, german, capsys, flags):
    name = {"translate": "toy-de-en", "summarize": "toy-title"}[flags[0]]
    done(*flags, "--model", bundles() / name, "--input", german, "--threads", 1)
    here = capsys.readouterr().out
    done(*flags, "--model", name, "--url", url, german, "--concurrency", 3)
    assert capsys.readouterr().out == here
    assert len(here.splitlines()) >= 48


@pytest.mark.parametrize("flags", [[], ["--json"], ["--total"]])
def test_a_server_scores_as_its_model_does_here(url, german, tmp_path, capsys, flags):
    english = tmp_path / "english.txt"
    lines = len(german.read_text("utf-8").split("\n")) - 1
    english.write_text("".join(f"It is {number} o'clock.\n\n" for number in range(lines // 2)), "utf-8")
    given = (english, "--source", german, *flags)
    done("score", bundles() / "toy-de-en", *given, "--threads", 1)
    here = capsys.readouterr().out
    done("score", "toy-de-en", *given, "--url", url, "--concurrency", 3)
    assert capsys.readouterr().out == here


def test_what_a_server_can_not_score_is_one_line(url, german, tmp_path, capsys):
    server = ("--url", url, "-o", tmp_path / "out")
    cases = [
        (("toy-nobody", german, "--source", german), "line 1: no model 'toy-nobody'"),
        (("toy-de-en", german), "line 1: .*source"),
        (("toy-de-en", german, "--source", os.devnull), "ends before line 1"),
        (("toy-de-en", german, "--source", german, "--threads", 1), "--threads"),
    ]
    for arguments, told in cases:
        code, message = failure(capsys, "score", *arguments, *server)
        assert code == 2
        assert re.search(told, message), message
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_gets_each_answer_before_the_next_line_is_there(url):
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


def test_without_a_key_the_way_to_give_one_is_named(place, german, capsys):
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
    ("flags", "code", "told"),
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
def test_what_a_server_can_not_do_is_one_line(url, german, tmp_path, capsys, flags, code, told):
    out = tmp_path / "out.txt"
    found = failure(capsys, "translate", german, "--url", url, "-o", out, *flags)
    assert found[0] == code
    assert told in found[1]
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_is_not_utf_8_is_named_in_its_turn_and_leaves_no_output(url, tmp_path, capsys):
    (tmp_path / "wrong.txt").write_bytes(b"Gut.\n" * 50 + b"f\xfcr\n")
    code, message = failure(
        capsys, "translate", tmp_path / "wrong.txt", "--url", url, "--target", "en", "-o", tmp_path / "out"
    )
    assert code == 2
    assert "line 51: not UTF-8" in message
    assert [p.name for p in tmp_path.iterdir()] == ["wrong.txt"]


def test_a_document_is_translated_by_a_server_in_its_own_format(url, tmp_path, capsys):
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
    told = failure(capsys, "translate", page, "-o", tmp_path / "x.html", "--beam-size", 1, *flags)[1]
    assert "its own options" in told
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
def test_a_document_is_the_same_here_and_by_a_server_of_the_same_model(url, tmp_path, name):
    file = tmp_path / name
    file.write_bytes(DOCUMENTS[name])
    here, there = (file.with_stem(stem) for stem in ("here", "there"))
    done("translate", file, "-o", here, "--model", bundles() / "toy-de-en", "--threads", 1)
    done("translate", file, "-o", there, "--model", "toy-de-en", "--url", url)
    assert contents(here) == contents(there) != contents(file)


def contents(path):
    """The bytes; of an archive those of its entries, as it also holds the time of day."""
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_document_is_decoded_here_as_the_flags_say(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p>Wo ist denn hier der Bahnhof?</p>", "utf-8")
    flags = ("--model", bundles() / "toy-de-en", "--threads", 1, "--max-length", 2)
    done("translate", page, "-o", tmp_path / "short.html", *flags)
    (tmp_path / "line.txt").write_text("Wo ist denn hier der Bahnhof?\n", "utf-8")
    done("translate", tmp_path / "line.txt", "-o", tmp_path / "short.txt", *flags)
    line = (tmp_path / "short.txt").read_text("utf-8").strip()
    assert unescape((tmp_path / "short.html").read_text("utf-8")) == f"<p>{line}</p>"


def test_languages_that_are_not_the_models_are_refused(german, capsys):
    arguments = ("translate", german, "--model", bundles() / "toy-de-en")
    assert "can't translate from any language to fr" in failure(capsys, *arguments, "--target", "fr")[1]
    assert "can't translate from en" in failure(capsys, *arguments, "--source", "en")[1]


def test_without_a_model_or_a_server_both_are_named(german, capsys):
    code, message = failure(capsys, "translate", german)
    assert code == 2
    assert "--model" in message
    assert "--url" in message


def test_without_httpx_the_extra_is_named(german):
    code = (
        "import sys; sys.modules['httpx'] = None\nfrom cli.main import app\n"
        f"app(['translate', '--url', 'http://x', '--target', 'en', {str(german)!r}])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "convoy-server[client]" in ended.stderr


def completed(*words, **env):
    """What bash would offer for the last word."""
    variables = {"_CONVOY_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["convoy", *map(str, words)])}
    ended = run(env=variables | {"COMP_CWORD": str(len(words))} | env)
    return ended.stdout.decode().split()


def test_the_shell_completes_commands_models_and_languages(url):
    assert completed("tra") == ["translate", "train"]
    assert completed("translate", "--url", url, "--model", "toy-d") == ["toy-de-en"]
    assert completed("translate", "--url", url, "--target", "") == ["de", "en"]
    assert completed("translate", "--model", f"{bundles()}/toy-t") == [f"{bundles()}/toy-title/"]
    assert completed("translate", "--model", bundles() / "toy-de-en", "--source", "") == ["de"]
    assert completed("translate", "--url", "http://127.0.0.1:1", "--target", "") == []
    assert "--beam-size" in completed("translate", "--beam")


# keys


def test_a_key_is_shown_once_listed_without_it_and_revoked(tmp_path, capsys):
    path = tmp_path / "keys.json"
    done("keys", "new", "--file", path, "--name", "Ann", "--requests", 5, "--characters", -1)
    told = capsys.readouterr()
    (token,) = told.out.split()
    assert token not in told.err
    done("keys", "new", "--file", path)
    other = capsys.readouterr().out.strip()
    done("keys", "list", "--file", path, "--json")
    listed = capsys.readouterr().out
    first, second = json.loads(listed)
    assert (first["name"], first["requests"], first["characters"]) == ("Ann", 5, -1)
    done("keys", "list", "--file", path)
    shown = capsys.readouterr().out
    assert [row.split()[0] for row in shown.splitlines()] == ["id", first["id"], second["id"]]
    assert not [text for text in (token, other) if text in shown + listed + path.read_text()]
    assert KeyRing((), path).find(token).name == "Ann"
    done("keys", "revoke", "--file", path, "Ann")
    assert KeyRing((), path).find(token) is None
    assert KeyRing((), path).find(other).id == second["id"]


def test_keys_name_what_is_wrong(tmp_path, capsys):
    missing = tmp_path / "none.json"
    for command in (["list"], ["revoke", "Ann"]):
        code, message = failure(capsys, "keys", *command, "--file", missing)
        assert code == 2
        assert "convoy keys new" in message
    assert not missing.exists()
    done("keys", "new", "--file", missing)
    capsys.readouterr()
    assert "keys list" in failure(capsys, "keys", "revoke", "Bob", "--file", missing)[1]
    assert failure(capsys, "keys")[0] == 2
    assert "--file" in failure(capsys, "keys", "new")[1]
