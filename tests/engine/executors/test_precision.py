"""The default precision of a bundle, and the command that measures it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from engine.backends import BY_BUNDLE, Placement
from engine.bundle.bundle import add_files, open_bundle
from engine.errors import BundleError
from engine.executors.precision import INT8_FILE, Int8Scores, int8_scores, precision_of
from server.settings import ServerSettings
from tests.cli.commands import done, failure
from tests.support.models import CONFIGS
from tests.support.served import bundles

DEFAULT = Placement(precision=BY_BUNDLE)


@pytest.fixture
def bundle(tmp_path):
    return open_bundle(shutil.copytree(bundles() / "toy-de-en", tmp_path / "toy-de-en"))


@pytest.mark.parametrize(
    ("fp32", "int8", "precision"), [(30.0, 29.8, "int8"), (30.0, 29.79, "fp32"), (30.0, 30.4, "int8")]
)
def test_bundle_that_loses_little_in_int8_runs_in_int8(bundle, fp32, int8, precision):
    written = add_files(bundle.path, {INT8_FILE: Int8Scores("BLEU", 500, fp32, int8).to_json()})
    assert precision_of(written, DEFAULT) == (precision, f"BLEU {int8:.2f} in int8, {fp32:.2f} in fp32")
    assert precision_of(written, replace(DEFAULT, backend="cuda", device="cuda"))[0] == "fp16"
    assert precision_of(written, Placement(precision="fp32")) == ("fp32", "")


def test_bundle_without_scores_runs_in_fp32(bundle):
    assert precision_of(bundle, DEFAULT) == ("fp32", "its scores in int8 are not measured")


def test_bundle_published_in_int8_runs_in_int8(bundle):
    published = replace(bundle, config=replace(bundle.config, quantization="rows"))
    assert precision_of(published, DEFAULT) == ("int8", "its weights are published in int8")


def test_bundle_that_exceeds_fp16_runs_in_fp32_on_a_backend_without_bf16(bundle):
    plain = CONFIGS["transformer"]
    wide = replace(bundle, config=replace(plain, encoder=replace(plain.encoder, rms_norm=True, biases=False)))
    on_gpu = replace(DEFAULT, device="cuda")
    assert precision_of(wide, replace(on_gpu, backend="onnx")) == ("fp32", "its range exceeds fp16")
    assert precision_of(wide, replace(on_gpu, backend="cuda")) == ("bf16", "its range needs bf16")


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"metric": 1}', b'{"metric": "BLEU", "lines": 1}'])
def test_damaged_scores_are_an_error_that_names_the_file(bundle, content):
    written = add_files(bundle.path, {INT8_FILE: content})
    with pytest.raises(BundleError, match=INT8_FILE):
        int8_scores(written)


def test_default_precision_of_a_server_is_chosen_by_the_bundle():
    assert ServerSettings(device="cpu").service().placement.precision == BY_BUNDLE
    assert ServerSettings(device="cpu", precision="fp32").service().placement.precision == "fp32"
    assert ServerSettings(device="cuda", backend="torch").service().placement.precision == "fp32"


def test_evaluation_writes_both_scores_into_the_bundle(bundle, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("Das ist gut.\tThat is good.\nJa.\tYes.\n", encoding="utf-8")
    command = ["evaluate", "--model", bundle.path, "--input", pairs]
    done(*command, "--choose-precision")
    found = int8_scores(open_bundle(bundle.path))
    assert (found.metric, found.lines) == ("BLEU", 2)
    capsys.readouterr()
    done(*command, "--precision", "fp32", "--json")
    assert json.loads(capsys.readouterr().out)["BLEU"] == found.fp32
    code, message = failure(capsys, *command, "--choose-precision", "--precision", "fp32")
    assert code == 2
    assert "leave out --precision" in message
