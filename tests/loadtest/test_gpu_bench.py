"""What measures a GPU, run on the CPU with tiny models: right counts, fair contenders, records that
survive."""

import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.bundle.bundle import open_bundle
from engine.types import Hypothesis, Result, Timings
from loadtest.engine import gpu_train
from loadtest.engine.gpu_bench import __main__ as command
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.arrivals import LaneBatcher
from loadtest.engine.gpu_bench.checks import agreement, gpu_tests, suite
from loadtest.engine.gpu_bench.clock import alternate
from loadtest.engine.gpu_bench.contenders import (
    Flow,
    check_lengths,
    contenders,
    make_requests,
    open_contender,
)
from loadtest.engine.gpu_bench.floors import Cost, cost
from loadtest.engine.gpu_bench.peer import Peer, PeerError
from loadtest.engine.gpu_bench.record import BenchRecord, PartRun
from loadtest.engine.gpu_bench.run import PART_RUNS, run_parts
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import TINY, Setting
from loadtest.engine.gpu_bench.tables import markdown
from loadtest.engine.gpu_bench.throughput import in_batches, steady
from tests.training.numbers import TINY as NUMBERS
from tests.training.numbers import write_numbers

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "models" / "tatoeba-en-de"
SMALLEST = replace(TINY, turns=1, singles=1, sentences=6, requests=6, checked=2, steps=2, slots=4)
ENGLISH = ["Yes.", "It rains, again.", "He's there."] * 8
GERMAN = ["Ja.", "Es regnet schon wieder, leider.", "Er ist dort, sagt man."] * 8


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "newstest").mkdir()
    for language, lines in (("en", ENGLISH), ("de", GERMAN)):
        text = gzip.compress("\n".join(lines).encode())
        (folder / "newstest" / f"newstest2013.{language}.gz").write_bytes(text)
    return Setting("cpu", folder / "models", folder, SHIPPED, SMALLEST, ("torch",), ("fp32",))


@pytest.fixture(scope="module")
def bundle(setting):
    return models.bundle_of(setting.folder, models.SIX, tiny=True)


def executors(setting, bundle, *lanes):
    (contender,) = contenders(setting)
    return open_contender(setting, bundle, contender, lanes)


def far():
    return time.monotonic() + 600


# what figures are stated against


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
    assert models.bundle_of(folder, models.IWSLT, tiny=True).name == models.IWSLT  # whoever has been killed


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
    """Four slots that take a second each, and a start that takes nine."""
    ended = [10.0 + i // 4 for i in range(40)]
    assert steady(ended, 4) == pytest.approx(4.0, rel=0.15)
    assert steady(ended[:8], 4) == pytest.approx(8 / 11)  # too few to tell


def test_part_without_time_for_any_contender_is_not_done(setting, tmp_path, monkeypatch):
    monkeypatch.setitem(
        PART_RUNS, "single", lambda *_: {"rows": [], "not_run": {"cuda bf16": "no time was left"}}
    )
    book = BenchRecord(tmp_path / "a.json")
    assert run_parts(setting, book, {"single": 1.0}, 5.0)
    assert book.values["parts"]["single"]["status"] == "empty"


def test_copied_tree_is_small_and_complete(tmp_path):
    command = ["bash", "loadtest/gpu_tree.sh", str(tmp_path / "tree")]
    alone = os.environ | {"PIP_NO_INDEX": "1"}  # wheels are left out, and that is said
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no wheels of array-api-compat" in done.stderr
    for path in (
        "loadtest/gpu.sh",
        "models/tatoeba-en-de/model.safetensors",
        "engine/kernels/product.cu",
        "tests/support/emulated.py",
    ):
        assert (tmp_path / "tree" / path).is_file()
    assert not (tmp_path / "tree" / "models" / "tatoeba-de-en" / "model.safetensors").exists()
    again = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True)
    assert again.returncode == 1
    assert "is not empty" in again.stderr


def test_gpu_tests_are_found_in_all_folders():
    """Only these files are given to pytest there: without any it would run all there are."""
    files = {path.relative_to(ROOT).as_posix() for path in gpu_tests(ROOT / "tests")}
    assert {
        "tests/engine/executors/test_cuda_graph.py",
        "tests/engine/kernels/test_attention.py",
        "tests/training/test_resuming_on_a_gpu.py",
    } <= files


def test_crash_of_one_test_file_is_reported_and_others_run(setting, tmp_path, monkeypatch, capsys):
    marked = "import os, pytest\npytestmark = pytest.mark.gpu\ndef test_one():\n    {}\n"
    for name, body in (("dies", "os._exit(9)"), ("passes", "pass"), ("fails", "assert 0")):
        (tmp_path / f"test_{name}.py").write_text(marked.format(body), "utf-8")
    monkeypatch.setattr("loadtest.engine.gpu_bench.checks.REPOSITORY", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than three tests
    (tmp_path / "tests").symlink_to(tmp_path)
    run = part_run(setting, tmp_path)
    found = suite(run)
    assert not found["ok"]
    assert {Path(row["file"]).stem: row["code"] for row in found["rows"]} == {
        "test_dies": 9,
        "test_passes": 0,
        "test_fails": 1,
    }
    said = capsys.readouterr().out
    assert "tests/test_dies.py" in said
    assert "test_fails.py::test_one" in said
    assert "test_passes" not in said
    assert "1 passed" in (tmp_path / "tests.log").read_text("utf-8")


def test_a_call_without_a_purpose_names_them():
    done = subprocess.run(["bash", "loadtest/gpu.sh"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert all(f"gpu.sh {purpose} " in done.stderr for purpose in ("right", "fast", "record", "train"))


def test_script_lists_missing_packages_with_a_remedy_and_continues(tmp_path):
    """A CUDA image's torch is the one for its driver: a remedy that brings another can't be followed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\nfound = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'sacremoses' else found(name, *more)\n"
    )
    told = {"OUT": str(tmp_path / "out"), "DEVICE": "cpu", "PYTHON": sys.executable}
    environment = os.environ | told | {"PYTHONPATH": str(tmp_path)}
    command = ["bash", "loadtest/gpu.sh", "right", "--tiny", "--parts", "floors", "--seconds", "5"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    remedy = lines.index("  pip install --no-deps sacremoses")
    assert remedy < lines.index("# GPU")
    assert any(line.startswith("torch 2") for line in lines[:remedy])
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".log", ".md"}


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
    batcher.submit(requests)  # as many as a batch holds: the window is not waited for
    answers.results(60)
    batcher.stop()
    assert active == [0, 0]
    with pytest.raises(ValueError, match="batch of 5 in a lane of 4"):
        batcher.tune(0.01, 5)


def part_run(setting, tmp_path, until=None, part="single"):
    return PartRun(BenchRecord(tmp_path / "gpu.json"), part, setting, {}, far() if until is None else until)


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


def test_fairseqs_batches_are_of_like_lengths_and_hold_as_many_tokens():
    chance = random.Random(1)
    work = [SizedSentence((4,) * chance.randint(2, 40), chance.randint(1, 40)) for _ in range(50)]
    batches = in_batches(work, 8)
    assert sorted(n for sources, _ in batches for n in sources) == sorted(len(s.source) for s in work)
    assert max(len(sources) for sources, _ in batches) == 8
    tokens = sum(len(sources) * target for sources, target in batches)
    assert tokens == pytest.approx(sum(s.target for s in work), rel=0.05)


# fairseq's public interface, as far as the peer uses it: what it is called with is checked, nothing is
# decoded
STAND_IN = {
    "__init__.py": """
from dataclasses import dataclass
@dataclass
class Inner:
    a: int = 1
@dataclass
class Outer:
    inner: Inner = Inner()
""",
    "data.py": """
class Dictionary:
    nspecial = 4
    def __init__(self): self.words = ["<s>", "<pad>", "</s>", "<unk>"]
    def add_symbol(self, word): self.words.append(word)
    def __len__(self): return len(self.words)
    def pad(self): return 1
    def eos(self): return 2
""",
    "models/__init__.py": "",
    "models/lightconv.py": """
import torch
def base_architecture(args): assert args.decoder_kernel_size_list == [3, 7, 15, 31, 31, 31]
class LightConvModel(torch.nn.Module):
    @classmethod
    def build_model(cls, args, task):
        model = cls()
        assert len(task.source_dictionary) == 97 and not args.encoder_glu
        model.decoder = torch.nn.Module()
        model.decoder.layers = torch.nn.ModuleList([torch.nn.Module()])
        model.decoder.layers[0].conv = torch.nn.Linear(2, 2)
        return model
    def make_generation_fast_(self): pass
""",
    "sequence_generator.py": """
class SequenceGenerator:
    def __init__(self, MODELS tgt_dict, beam_size=1, max_len_a=0, max_len_b=200, min_len=1):
        self.target, self.beam = max_len_b, beam_size
        assert min_len == max_len_b and len(tgt_dict) == 97
    def generate(self, models, sample):
        tokens = sample["net_input"]["src_tokens"]
        assert (tokens[:, -1] == 2).all() and (tokens != 1).sum(1).tolist() == [3, 5]
        return [[{"tokens": [4] * (self.target + 1)}] * self.beam for _ in tokens]
""",
}


@pytest.mark.parametrize("models_first", ["", "models,"], ids=["0.6", "0.12"])
def test_fairseq_is_asked_in_a_process_of_its_own(setting, tmp_path, models_first):
    for name, text in STAND_IN.items():
        path = tmp_path / "fairseq" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("MODELS", models_first), "utf-8")
    peer = Peer(replace(setting, fairseq=tmp_path), models.config_of(models.SIX, tiny=True), "fp32")
    assert peer.about["convolution"] == "Linear"
    assert peer.seconds([([3, 5], 4)], 2) > 0
    with pytest.raises(PeerError, match="AssertionError"):
        peer.seconds([([3, 6], 4)], 2)
    peer.close()


def test_record_without_fairseq_has_a_reason(setting, tmp_path):
    with pytest.raises(PeerError, match="No module named 'fairseq'"):
        Peer(replace(setting, fairseq=tmp_path), models.config_of(models.SIX, tiny=True), "fp32")


# checks


def test_agreement_counts_answers_tokens_and_scores():
    def result(tokens, score):
        return Result([Hypothesis(tokens, score, [], "stop")], Timings(0, 0, 0, 0))

    wanted = [result([5, 6, 7], -1.0), result([5, 6, 7], -2.0), result([8], -1.0)]
    found = [result([5, 6, 7], -1.25), result([5, 9, 7], -3.0), result([8, 8], -9.0)]
    assert agreement(wanted, found) == {"equal": 1 / 3, "tokens": (4 + 1 + 1) / 10, "score_difference": 0.25}


# a whole call


def test_every_part_runs_and_leaves_a_complete_record(setting, tmp_path):
    book = BenchRecord(tmp_path / "gpu.json")
    shares = {part: 1.0 for part in PART_RUNS if part != "tests"}
    assert run_parts(setting, book, shares, 60.0)
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
    late = {name for name, why in parts["throughput"]["not_run"].items() if why == "no time was left"}
    measured = {row["model"] for row in parts["throughput"]["rows"]}
    assert models.SIX in measured
    assert measured | late == wanted - {models.ONE} | {models.IWSLT}
    arrivals = parts["arrivals"]
    assert arrivals["rate"] == pytest.approx(0.7 * min(arrivals["peaks"].values()))
    assert len(arrivals["tuning"]) == 2
    assert set(arrivals["p99"]) == {"in flight", "window"}
    assert all(row["kernels"] for row in parts["profiles"]["rows"])
    assert {row["backend"] for row in parts["real"]["rows"]} == {"torch"}  # and not the bundle's name
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
from loadtest.engine.gpu_bench.record import BenchRecord, PartRun
record = BenchRecord(Path({str(path)!r}))
record.values["running"] = {{"part": "single", "until": time.time()}}
PartRun(record, "single", None, {{}}, 0.0).measuring("cuda bf16")
time.sleep(60)
"""
    code, why = command._run_with_limit([sys.executable, "-c", script], path, 0.5)
    assert code
    book = BenchRecord(path)
    left = command._after(book, book.values.pop("running"), ["checks", "single", "real"], why)
    assert left == ["single", "real"]
    assert "over its time" in BenchRecord(path).values["skipped"]["cuda bf16"]
    assert BenchRecord(path).values["parts"]["single"]["status"] == "failed"
    # nobody is left out twice: then the part is given up
    assert command._after(book, {"part": "single", "contender": "cuda bf16"}, left, "again") == ["real"]
    assert command._after(book, {"part": "real"}, ["real"], "it ended with 70") == []


def test_contender_that_broke_the_device_is_skipped(setting, bundle, tmp_path):
    from loadtest.engine.gpu_bench.contenders import open_all

    not_run = {}
    skipping = replace(setting, skip=("torch fp32",))
    assert list(open_all(part_run(skipping, tmp_path), bundle, [(1, 1)], not_run)) == []
    assert "in this call" in not_run[f"{models.SIX}, torch fp32"]


# training by the clock


def test_timed_training_packs_a_bundle_and_resumes(tmp_path):
    write_numbers(tmp_path, {"train": 400, "valid": 20, "test": 20})
    path = tmp_path / "numbers.toml"
    path.write_text(NUMBERS, "utf-8")
    flags = [f"--recipes={path}", f"--corpora={tmp_path}", "--device=cpu", f"--out={tmp_path / 'out'}"]
    flags += [f"--runs={tmp_path / 'runs'}", "--minutes=0.01"]  # no time: the first piece only
    for least in (20, 21):
        assert gpu_train.main(flags) == 0
        said = json.loads((tmp_path / "out" / "numbers.json").read_text("utf-8"))
        assert said["updates"] >= least
        assert said["wanted"] == 240
    with tarfile.open(tmp_path / "out" / "numbers.tar.gz") as packed:
        packed.extractall(tmp_path / "again", filter="data")
    assert open_bundle(tmp_path / "again" / "numbers").name == "numbers"
