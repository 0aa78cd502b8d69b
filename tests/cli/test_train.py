"""`convoy train`."""

from __future__ import annotations

import gzip
import json
import random
import shutil

import pytest

from cli.lines import read, table
from engine.bundle.bundle import open_bundle
from engine.text.known_words import read_known_words
from tests.cli.commands import done, failure, run
from tests.training.numbers import ENGLISH, TINY, WORDS


def test_train_lists_the_shipped_recipes_for_an_unknown_one(capsys, tmp_path):
    code, message = failure(capsys, "train", "klingon", "--corpora", tmp_path, "--out", tmp_path / "out")
    assert code == 2
    assert "tatoeba-de-en" in message


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


def test_train_writes_a_bundle_with_the_scores_of_evaluate_in_its_card(recipe, tmp_path, capsys):
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
    description = json.loads(run("inspect", out, "--json").stdout)
    assert any("BLEU" in line for line in description["scores"])
    assert description["licence"] == ["licence: CC0-1.0"]
    assert read_known_words(open_bundle(out)).knows(WORDS[0])


def test_student_learns_the_translations_of_its_teacher(recipe, tmp_path):
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


def test_back_translation_adds_target_lines(recipe, tmp_path, capsys):
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


def test_train_replaces_another_model_only_with_overwrite(recipe, tmp_path, bundle, capsys):
    corpora, other = tmp_path / "corpora", tmp_path / "other"
    shutil.copytree(bundle, other)
    code, message = failure(
        capsys, "train", recipe, "--corpora", corpora, "--out", other, "--run", tmp_path / "run"
    )
    assert code == 2
    assert "--overwrite" in message
    assert not (tmp_path / "run").exists()
