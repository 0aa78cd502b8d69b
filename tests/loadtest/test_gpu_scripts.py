"""The scripts for a GPU machine: copied tree, tests to run, training."""

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file

from engine.bundle.bundle import open_bundle
from engine.models import load
from loadtest.engine import gpu_bleu, gpu_compare, gpu_train
from loadtest.engine.gpu_bench.checks import gpu_tests, suite
from tests.support.gpu_bench import ROOT, part_run
from tests.training.numbers import TINY as NUMBERS
from tests.training.numbers import write_numbers


def test_copied_tree_is_small_and_complete(tmp_path):
    command = ["bash", "loadtest/gpu_tree.sh", str(tmp_path / "tree")]
    alone = os.environ | {"PIP_NO_INDEX": "1"}  # wheels are missing, with a message
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
    """pytest runs only these files on a GPU machine."""
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
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # plugins start slower than three tests
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


def test_script_looks_for_races_in_tests_that_exist():
    script = (ROOT / "loadtest/gpu.sh").read_text("utf-8")
    terms = re.search(r'fused="(.*)"', script)[1].split(" or ")
    files = re.search(r"tests/engine/kernels/test_\{(.*)\}\.py", script)[1].split(",")
    texts = [(ROOT / f"tests/engine/kernels/test_{name}.py").read_text("utf-8") for name in files]
    names = re.findall(r"def (test_\w+)\(\s*place", "".join(texts))
    assert "wide_product" in terms and not [term for term in terms if not any(term in name for name in names)]


def test_a_call_without_a_purpose_names_them():
    done = subprocess.run(["bash", "loadtest/gpu.sh"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert all(f"gpu.sh {purpose} " in done.stderr for purpose in ("right", "fast", "record", "train"))


def test_script_lists_missing_packages_with_a_remedy_and_continues(tmp_path):
    """The remedy must not install another torch than that of the CUDA image."""
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


def test_script_without_a_gpu_ends_with_the_reason_in_one_line(tmp_path):
    told = {"OUT": str(tmp_path), "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    command = ["bash", "loadtest/gpu.sh", "ten"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | told, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last.startswith("no GPU: ") and last.endswith("DEVICE=cpu and --tiny")
    assert [path.name for path in tmp_path.iterdir()] == ["ten.log"]


# quality of int8
def test_int8_of_a_gpu_multiplies_the_weights_that_a_shipped_bundle_stores():
    bundle = open_bundle(ROOT / "models" / "tatoeba-en-de")
    rounded, exact = gpu_bleu.model_of(bundle, "int8"), load(bundle.config, bundle.weights()).half()
    parameters = dict(exact.named_parameters())
    assert all(torch.equal(each, parameters[name]) for name, each in rounded.named_parameters())


def test_bleu_of_int8_is_compared_with_fp32(tmp_path, monkeypatch, capsys):
    (tmp_path / "texts.tsv").write_text("Where is the station?\tWo ist der Bahnhof?\nYes.\tJa.\n", "utf-8")
    bundle = str(ROOT / "models" / "tatoeba-en-de")
    arguments = [bundle, "--texts", str(tmp_path / "texts.tsv"), "--count", "1"]
    monkeypatch.setattr("sys.argv", ["gpu_bleu", *arguments])
    gpu_bleu.main()
    found = json.loads(capsys.readouterr().out)
    assert found["lines"] == 1 and found["int8"] == found["fp32"] > 50
    assert gpu_bleu.read_pairs(tmp_path / "texts.tsv", None, 9, reverse=True)[1] == ("Ja.", "Yes.")


def test_comparison_with_ctranslate2_measures_all_contenders(tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    for name in ("TURNS", "SINGLES", "TINY_COUNT"):
        monkeypatch.setattr(gpu_compare, name, 1)
    monkeypatch.setattr(gpu_compare, "SLOTS", 2)
    record = tmp_path / "record.json"
    gpu_compare.main(["--device", "cpu", "--tiny", "--json", str(record)])
    rows = json.loads(record.read_text("utf-8"))["rows"]
    assert [row.pop("contender").partition(",")[0] for row in rows] == ["CTranslate2", "Convoy", "Convoy"]
    assert all(len(row) == 3 and min(row.values()) > 0 for row in rows)


# training by the clock
def test_timed_training_packs_a_bundle_and_resumes(tmp_path):
    write_numbers(tmp_path, {"train": 400, "valid": 20, "test": 20})
    path = tmp_path / "numbers.toml"
    path.write_text(NUMBERS, "utf-8")
    flags = [f"--recipes={path}", f"--corpora={tmp_path}", "--device=cpu", f"--out={tmp_path / 'out'}"]
    flags += [f"--runs={tmp_path / 'runs'}", "--minutes=0.01"]  # without time only the first piece is trained
    for least in (20, 21):
        assert gpu_train.main(flags) == 0
        said = json.loads((tmp_path / "out" / "numbers.json").read_text("utf-8"))
        assert said["updates"] >= least
        assert said["wanted"] == 240
    first = said["points"][0]["train"]  # loss of the first updates
    with tarfile.open(tmp_path / "out" / "numbers.tar.gz") as packed:
        packed.extractall(tmp_path / "again", filter="data")
    bundle = open_bundle(tmp_path / "again" / "numbers")
    flags = [*flags[:-2], f"--runs={tmp_path / 'more'}", "--minutes=0.01"]
    assert gpu_train.main([*flags, f"--start={tmp_path / 'again'}", "--weights"]) == 0
    assert set(load_file(tmp_path / "out" / "numbers.safetensors")) == set(bundle.weights())
    said = json.loads((tmp_path / "out" / "numbers.json").read_text("utf-8"))
    assert said["points"][0]["train"] < first
    weights = tmp_path / "out" / "numbers.safetensors"
    assert gpu_train.main([*flags, f"--start={tmp_path / 'again'}", f"--pack={weights}"]) == 0
    packed_bundle = open_bundle(tmp_path / "more" / "numbers")
    assert set(packed_bundle.weights()) == set(bundle.weights())
    assert f"{said['updates']} updates" in packed_bundle.file("README.md").read_text("utf-8")
