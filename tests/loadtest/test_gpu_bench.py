"""The GPU benchmark with tiny models on the CPU."""

import json
import random
import statistics
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from engine.types import Hypothesis, Result, Timings
from loadtest.engine.gpu_bench import __main__ as command
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.arrivals import LaneBatcher
from loadtest.engine.gpu_bench.checks import agreement
from loadtest.engine.gpu_bench.clock import alternate
from loadtest.engine.gpu_bench.contenders import (
    Flow,
    check_lengths,
    contenders,
    make_requests,
    open_contender,
)
from loadtest.engine.gpu_bench.floors import Cost, cost
from loadtest.engine.gpu_bench.run import PART_RUNS, run_parts
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import BenchRecord
from loadtest.engine.gpu_bench.steps import ABLATIONS, MANY, ONE
from loadtest.engine.gpu_bench.tables import markdown
from loadtest.engine.gpu_bench.throughput import steady
from tests.support.gpu_bench import ROOT, SMALLEST, part_run


@pytest.fixture(scope="module")
def bundle(setting):
    return models.bundle_of(setting.folder, models.SIX, tiny=True)


def executors(setting, bundle, *lanes):
    (contender,) = contenders(setting)
    return open_contender(setting, bundle, contender, lanes)


# floors
def test_the_weights_that_a_step_reads_are_those_counted_by_hand():
    config = models.config_of(models.SIX, tiny=True)
    d, ffn, heads, taps, vocabulary, source = 32, 64, 4, (3, 7, 15, 31, 31, 31), 97, 32
    projections = 4 * d * d + 2 * d * ffn  # in and out of the convolution, query, output of attention; FFN
    biases, norms = 4 * d + ffn + d, 3 * 2 * d
    read = sum(projections + biases + norms + heads * k * d for k in taps) + vocabulary * d
    found = cost(config, source)
    assert found.weights == read
    products = 2 * (sum(projections + heads * k * d for k in taps) + vocabulary * d)
    attention = len(taps) * 2 * 2 * source * d
    convolution = 2 * sum(taps) * d
    assert products + attention <= found.step <= products + attention + convolution
    memory = len(taps) * 2 * 2 * d * d * source  # keys and values of each decoder layer
    layers = (3, 7, 15, 31, 31, 31, 31)
    encoder = sum(2 * source * (2 * d * d + 2 * d * ffn + heads * k * d) for k in layers) + memory
    assert encoder <= found.encoder <= encoder + sum(2 * source * k * d for k in layers) * 2


def test_floor_of_the_papers_model_counts_111_million_weights():
    found = cost(models.config_of(models.SIX))
    assert found.weights == pytest.approx(111e6, rel=0.01)
    assert found.step_seconds("bf16", 4.3e12) == pytest.approx(52e-6, rel=0.02)


def test_operations_of_translations_grow_with_sources_steps_and_beams():
    each = Cost(source=10, weights=0, step=7, encoder=50)
    work = [SizedSentence((4,) * 10, 3), SizedSentence((4,) * 20, 5)]
    assert each.operations(work, 4) == 5 * 30 + 7 * 4 * (4 + 6)


def test_process_waits_for_a_model_that_another_one_writes(setting, bundle, tmp_path):
    folder = tmp_path / "models"
    with models.preparing(folder, tiny=True) as writer:
        found = models.bundle_of(folder, models.SIX, tiny=True)
        assert writer.poll() is None  # it has others to write
        assert found.manifest == bundle.manifest
    assert models.bundle_of(folder, models.IWSLT, tiny=True).name == models.IWSLT  # a killed process


# sentences and arrivals
def test_lengths_are_counted_by_words_and_marks_of_both_sides(setting):
    said, pairs = lengths(setting.corpora, 24)
    assert "newstest2013" in said
    assert set(pairs) == {(2, 2), (6, 8)}
    assert lengths(setting.corpora, 24)[1] == pairs
    made_up, more = lengths(setting.corpora / "none", 500)
    assert "made up" in made_up
    assert 15 < statistics.median(s for s, _ in more) < 30


def test_every_answer_has_exactly_the_length_that_it_was_given(setting, bundle):
    (executor,) = executors(setting, bundle, (2, 3))
    work = sentences(bundle.config, [(5, 9), (3, 1), (12, 4), (1, 6), (8, 2)])
    flow = Flow(executor, 2)
    requests, answers = make_requests(work, 2)
    flow.submit(requests)
    results = answers.results(60)
    flow.stop()
    assert [len(r.hypotheses[0].tokens) for r in results] == [9, 1, 4, 6, 2]
    check_lengths(work, results)
    with pytest.raises(ValueError, match="not the 4 asked for"):
        check_lengths([replace(work[0], target=4)], results[:1])


def test_the_rate_of_a_steady_state_leaves_out_how_slots_fill_and_empty():
    """Four slots take a second each, and the start takes nine."""
    ended = [10.0 + i // 4 for i in range(40)]
    assert steady(ended, 4) == pytest.approx(4.0, rel=0.15)
    assert steady(ended[:8], 4) == pytest.approx(8 / 11)  # too few answers


def test_part_without_time_for_any_contender_is_not_done(setting, tmp_path, monkeypatch):
    monkeypatch.setitem(
        PART_RUNS, "single", lambda *_: {"rows": [], "not_run": {"cuda bf16": "no time was left"}}
    )
    book = BenchRecord(tmp_path / "a.json")
    assert run_parts(setting, book, {"single": 1.0}, 5.0)
    assert book.values["parts"]["single"]["status"] == "empty"


# contenders
def test_the_window_batcher_answers_as_the_engine_does(setting, bundle):
    one, other = executors(setting, bundle, (2, 4), (2, 4))
    chance = random.Random(0)
    work = sentences(
        bundle.config, [(chance.randint(1, 12), chance.randint(1, 10)) for _ in range(11)], seed=5
    )
    found = {}
    flow, batcher = Flow(one, 2), LaneBatcher(other, 0.01, 3)
    for name, server in (("flow", flow), ("batcher", batcher)):
        requests, answers = make_requests(work, 2)
        server.submit(requests)
        found[name] = [r.hypotheses[0] for r in answers.results(60)]
        server.stop()
    for a, b in zip(found["flow"], found["batcher"], strict=True):
        assert a.tokens == b.tokens
        assert a.score == pytest.approx(b.score, abs=1e-4)


def test_a_window_batch_is_answered_when_its_longest_is_done(setting, bundle):
    (executor,) = executors(setting, bundle, (1, 4))
    batcher = LaneBatcher(executor, 5.0, 2)
    requests, answers = make_requests(sentences(bundle.config, [(3, 1), (3, 30)]), 1)
    active = []
    for request in requests:
        answer = request.reply
        request.reply = lambda outcome, answer=answer: (
            active.append(len(batcher._lane.active)),
            answer(outcome),
        )
    batcher.submit(requests)  # a full batch does not wait for the window
    answers.results(60)
    batcher.stop()
    assert active == [0, 0]
    with pytest.raises(ValueError, match="batch of 5 in a lane of 4"):
        batcher.tune(0.01, 5)


def test_contenders_take_turns_and_one_that_fails_is_left_out_with_its_reason(setting, tmp_path):
    order = []

    def runner(name, fails_at):
        def run():
            order.append(name)
            if order.count(name) > fails_at:
                raise RuntimeError("no such kernel")
            return float(order.count(name))

        return run

    three = replace(setting, scale=replace(SMALLEST, turns=3))
    run = part_run(three, tmp_path)
    runs = {"m, a fp32": runner("a", 9), "m, b fp16": runner("b", 2)}
    found = alternate(runs, run)
    assert order == ["a", "b", "a", "b", "a", "b", "a"]
    assert found.values == {"m, a fp32": [2.0, 3.0, 4.0]}  # the first run only warms up
    assert found.not_run == {"m, b fp16": "RuntimeError: no such kernel"}
    assert BenchRecord(run.record.path).values["running"]["contender"] == "a fp32"
    late = alternate(runs, part_run(three, tmp_path, time.monotonic() - 1))
    assert set(late.not_run) == set(runs)


# checks
def test_agreement_counts_answers_tokens_and_scores():
    def result(tokens, score):
        return Result([Hypothesis(tokens, score, [], "stop")], Timings(0, 0, 0, 0))

    wanted = [result([5, 6, 7], -1.0), result([5, 6, 7], -2.0), result([8], -1.0)]
    found = [result([5, 6, 7], -1.25), result([5, 9, 7], -3.0), result([8, 8], -9.0)]
    assert agreement(wanted, found) == {"equal": 1 / 3, "tokens": (4 + 1 + 1) / 10, "score_difference": 0.25}


# a whole call
def test_every_part_runs_and_leaves_a_complete_record(setting, tmp_path, monkeypatch):
    monkeypatch.setattr("loadtest.engine.gpu_bench.steps.SHAPES", (ONE, MANY))
    monkeypatch.setattr(
        "loadtest.engine.gpu_bench.steps.ABLATIONS", {"own products": ABLATIONS["own products of 16 rows"]}
    )
    book = BenchRecord(tmp_path / "gpu.json")
    shares = {part: 1.0 for part in PART_RUNS if part != "tests"}
    assert run_parts(setting, book, shares, 600.0)
    record = json.loads(book.path.read_text("utf-8"))
    assert {part: v["status"] for part, v in record["parts"].items()} == dict.fromkeys(
        ("floors", *shares), "done"
    )
    facts = record["machine"]
    assert {"date", "device", "driver", "torch", "revision"} <= set(facts)
    parts = record["parts"]
    assert parts["checks"]["ok"]
    assert parts["checks"]["rows"][0]["equal"] == parts["checks"]["rows"][0]["alone"] == 1.0
    wanted = {models.SIX, models.ONE, models.ATTENTION, models.GLU}
    assert {row["model"] for row in parts["single"]["rows"]} == wanted
    for row in parts["single"]["rows"]:
        speed = row["tokens/s"]["median"]
        assert row["share"] == pytest.approx(speed * row["weights"] * 4 / parts["floors"]["bandwidth"])
    skipped = parts["throughput"]["not_run"].items()
    late = {name.partition(", ")[0] for name, why in skipped if why == "no time was left"}
    measured = {row["model"] for row in parts["throughput"]["rows"]}
    assert models.SIX in measured
    assert measured | late == wanted - {models.ONE} | {models.IWSLT}
    arrivals = parts["arrivals"]
    assert arrivals["rate"] == pytest.approx(0.7 * min(arrivals["peaks"].values()))
    assert len(arrivals["tuning"]) == 2
    assert set(arrivals["p99"]) == {"in flight", "window"}
    assert all(row["kernels"] for row in parts["profiles"]["rows"])
    # a slow machine measures the first only
    assert [row["slots"] for row in parts["steps"]["rows"]] in ([1], [1, 256])
    assert parts["ablations"]["rows"][0]["without"] == "nothing"
    assert all(row["step_milliseconds"] >= row["host_milliseconds"] > 0 for row in parts["host"]["rows"])
    assert {row["backend"] for row in parts["real"]["rows"]} == {"torch"}  # without the name of the bundle
    text = markdown([record])
    for name in (*shares, *wanted, "tokens/s", "sentences/s", "kernels of torch fp32", "Tiny models"):
        assert name in text
    assert "fairseq (single, throughput): no checkout" in text
    median = parts["single"]["rows"][0]["tokens/s"]["median"]
    assert f"| {median:,.0f} (" in text or f"| {median:.3g} (" in text


def test_command_writes_record_and_table(tmp_path):
    out = tmp_path / "found" / "gpu.json"
    flags = ["--device", "cpu", "--tiny", "--parts", "floors", "--seconds", "20", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.engine.gpu_bench", *flags], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(out.read_text("utf-8"))
    assert record["parts"]["floors"]["status"] == "done"
    assert "running" not in record
    assert "--parts floors" in record["command"]
    assert out.with_suffix(".md").read_text("utf-8") in done.stdout


def test_a_part_that_hangs_is_ended_and_the_culprit_left_out(tmp_path):
    path = tmp_path / "gpu.json"
    script = f"""
import time
from pathlib import Path
from loadtest.engine.gpu_bench.setting import BenchRecord, PartRun
record = BenchRecord(Path({str(path)!r}))
record.values["running"] = {{"part": "single", "until": time.time()}}
PartRun(record, "single", None, {{}}, 0.0).measuring("cuda bf16")
time.sleep(60)
"""
    code, why = command._run_with_limit([sys.executable, "-c", script], path, 0.5)
    assert code
    book = BenchRecord(path)
    left = command._remaining_parts(book, book.values.pop("running"), ["checks", "single", "real"], why)
    assert left == ["single", "real"]
    assert "over its time" in BenchRecord(path).values["skipped"]["cuda bf16"]
    assert BenchRecord(path).values["parts"]["single"]["status"] == "failed"
    # a second failure ends the part
    assert command._remaining_parts(book, {"part": "single", "contender": "cuda bf16"}, left, "again") == [
        "real"
    ]
    assert command._remaining_parts(book, {"part": "real"}, ["real"], "it ended with 70") == []


def test_contender_that_broke_the_device_is_skipped(setting, bundle, tmp_path):
    from loadtest.engine.gpu_bench.contenders import open_all

    not_run = {}
    skipping = replace(setting, skip=("torch fp32",))
    assert list(open_all(part_run(skipping, tmp_path), bundle, [(1, 1)], not_run)) == []
    assert "in this call" in not_run[f"{models.SIX}, torch fp32"]
