"""`convoy calibrate`: quality by the share of texts that a second model answers."""

import json
import math

import pytest

from cli.calibrate import confidence, measure
from engine.answers.quality import Repetition
from engine.api import TextResult
from tests.cli.commands import done
from tests.support.routed import SHIPPED, renamed

SENTENCES = [f"the {animal} sleeps on the old roof of the house" for animal in ("dog", "cat", "cow", "hen")]


def test_the_least_certain_answers_are_replaced_first():
    wrong = "a mistake of four words"
    scores = (-0.1, -0.9, -0.2, -0.8)
    results = [
        TextResult(wrong if score < -0.5 else text, score=score)
        for score, text in zip(scores, SENTENCES, strict=True)
    ]
    rows = measure(results, [TextResult(text) for text in SENTENCES], SENTENCES)
    by_share = {row.share: row for row in rows}
    assert by_share[0].score is None
    assert by_share[0].BLEU < by_share[0.25].BLEU < by_share[0.5].BLEU == pytest.approx(100)
    assert by_share[0.25].score == -0.8  # the first score that stays
    assert by_share[0.5].score == -0.2
    assert by_share[1].BLEU == by_share[1].chance == pytest.approx(100)


def test_an_answer_with_a_fault_has_no_confidence():
    assert confidence(TextResult("a", score=-0.3)) == -0.3
    faulty = [
        TextResult("a", finish="length"),
        TextResult("a", forced=1),
        TextResult("a", repetition=Repetition(1.0, True)),
    ]
    assert [confidence(result) for result in faulty] == [-math.inf] * 3


def test_two_models_are_measured_and_drawn(tmp_path, capsys):
    second = renamed(tmp_path)
    (tmp_path / "pairs.tsv").write_text(
        "Ich heiße Tom.\tMy name is Tom.\nDas ist gut.\tThat's good.\n", "utf-8"
    )
    plot = tmp_path / "plot.svg"
    arguments = ("--input", tmp_path / "pairs.tsv", "--plot", plot, "--threads", 1, "--json")
    done("calibrate", "--model", SHIPPED, "--upstream", second, *arguments)
    report = json.loads(capsys.readouterr().out)
    assert [row["share"] for row in report["rows"]] == [0, 0.5, 1]
    assert len({row["BLEU"] for row in report["rows"]}) == 1  # both models have the same weights
    assert report["proposed"] is None
    assert plot.read_text("utf-8").startswith("<svg")
