"""The command `convoy export`: verification, standalone graphs, refused options."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from cli.verify import TOLERANCES, Check, _verdict
from engine.bundle.bundle import open_bundle
from engine.types import Hypothesis
from tests.support.models import model
from tests.support.toy import toy


@pytest.fixture
def bundle(tmp_path):
    return toy(tmp_path)


def convoy(*arguments: object) -> tuple[int, str, str]:
    from typer.testing import CliRunner

    from cli.main import table

    found = CliRunner().invoke(table, ["export", *map(str, arguments)])
    return found.exit_code, found.output, f"{type(found.exception).__name__}: {found.exception}"


SHIPPED = Path(__file__).parents[2] / "models" / "tatoeba-de-en"


def test_verify_compares_with_torch_and_fails_beyond_the_tolerance(tmp_path, monkeypatch):
    shipped = shutil.copytree(SHIPPED, tmp_path / "shipped")
    sentences = tmp_path / "de.txt"
    sentences.write_text("Wo ist der Bahnhof?\nDas Wetter ist heute schön.\nIch habe keine Zeit.\n")
    flags = ("--precision", "fp16", "--verify", "--sentences", sentences, "--beams", 2)
    code, told, _ = convoy(shipped, *flags)
    assert code == 0
    assert "| onnx fp16 | 100.0% |" in told
    monkeypatch.setitem(TOLERANCES, "bf16", (0.6, 0.1))  # of three sentences
    code, told, _ = convoy(shipped, "--precision", "bf16", "--standalone", tmp_path / "bf16", *flags[2:])
    assert code == 0
    assert "| onnx bf16 |" in told
    assert (tmp_path / "bf16" / "step.onnx").exists()
    assert "onnx/step.fp16.onnx" in open_bundle(shipped).files()
    references = tmp_path / "en.txt"
    references.write_text("Where is the station?\nThe weather is nice today.\nI have no time.\n")
    assert convoy(shipped, *flags, "--references", references)[0] == 0
    monkeypatch.setitem(TOLERANCES, "fp16", (1.1, -1.0))
    code, told, _ = convoy(shipped, *flags, "--references", references)
    assert code == 1
    assert "out of tolerance" in told


def test_bleu_difference_comes_with_its_probability_by_chance():
    """With three different pairs, all eight ways to swap them are equally probable."""
    from sacrebleu.metrics.bleu import BLEU

    references = ["the cat sat on the mat", "it rains in the north today", "we like old books very much"] * 2
    better, worse = [f"{r} ." for r in references], [f"{r} ." for r in references[:3]]
    worse += ["a cat was on mats", "it rains now in the north", "we like the old books"]
    check, never = Check("onnx", "bf16", 1), Hypothesis([5], 0.0, [0.0, 0.0], "stop")
    found = [never] * len(references)

    def chance(mine, theirs):
        verdict = _verdict(check, (found, found), [mine, theirs], references)
        assert verdict.bleu == pytest.approx([bleu(mine), bleu(theirs)])
        return verdict.chance

    def bleu(texts):
        return BLEU().corpus_score(list(texts), [references]).score

    observed, extreme = bleu(better) - bleu(worse), 0
    for swaps in product((False, True), repeat=3):
        pairs = [(b, w) for b, w in zip(better, worse, strict=True)]
        for i, swap in enumerate(swaps, 3):
            pairs[i] = pairs[i][::-1] if swap else pairs[i]
        one, other = zip(*pairs, strict=True)
        extreme += abs(bleu(one) - bleu(other)) >= observed - 1e-9
    assert chance(better, worse) == pytest.approx(extreme / 8, abs=0.05)
    assert chance(better, better) == 1.0


@pytest.mark.parametrize("precision", ["fp32", "int8", "fp16"])
def test_standalone_graphs_need_only_their_own_files(tmp_path, precision):
    import onnxruntime as ort

    made = toy(tmp_path)
    out = tmp_path / "out"
    assert convoy(made.path, "--precision", precision, "--standalone", out)[0] == 0
    assert sorted(p.name for p in out.iterdir()) == [
        f"{part}.onnx{ending}" for part in ("encoder", "step") for ending in ("", ".data")
    ]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    encoder = ort.InferenceSession(out / "encoder.onnx", options, providers=["CPUExecutionProvider"])
    feeds = {"tokens": np.arange(4, 12)[None], "positions": np.arange(8), "real": np.ones((1, 8), np.float32)}
    found = encoder.run(["keys.0"], feeds)[0]
    with torch.no_grad():
        want = model("glu").encode(
            *(torch.from_numpy(feeds[name]) for name in ("tokens", "positions", "real"))
        )
    limit = {"fp32": 1e-5, "fp16": 0.02, "int8": 0.1}[precision]
    assert np.abs(found - want["keys.0"].numpy()).max() < limit
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "already exists" in convoy(made.path, "--precision", precision, "--standalone", out)[2]
    assert convoy(made.path, "--precision", precision, "--standalone", tmp_path / "again")[0] == 0
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (("--to", "tflite"), "InvalidRequest: can't export to 'tflite'; known are onnx, tensorrt"),
        (("--precision", "fp8"), "InvalidRequest: no 'fp8' of onnx"),
        (("--to", "tensorrt", "--precision", "int8"), "InvalidRequest: no 'int8' of tensorrt"),
        (("--to", "tensorrt"), "ConfigError: no TensorRT"),
        (("--precision", "int8", "--verify", "--device", "abacus"), "InvalidRequest: no device 'abacus'"),
        (
            ("--precision", "bf16"),
            "InvalidRequest: ONNX Runtime lacks operators in bf16 on GPUs; take --precision fp16",
        ),
        (
            ("--precision", "bf16", "--standalone", "bf16-graphs", "--verify", "--device", "cuda"),
            "InvalidRequest: ONNX Runtime lacks operators in bf16 on GPUs; leave out --device cuda",
        ),
    ],
)
def test_unsupported_export_is_refused_with_the_remedy_and_writes_nothing(
    bundle, flags, remedy, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in bundle.path.rglob("*")}
    assert convoy(bundle.path, *flags)[2].startswith(remedy)
    assert before == {path: path.stat().st_mtime_ns for path in bundle.path.rglob("*")}
    assert not (tmp_path / "bf16-graphs").exists()
