"""Checkpoints written by TensorFlow (tests/golden/README.md), and models of tensor2tensor and THUMT."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.main import app
from engine.bundle.bundle import open_bundle
from engine.errors import CheckpointError
from engine.models import build, load, weight_shapes
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.settings import ThumtImport
from export.importers.tensorflow import aan, slicenet
from export.importers.tensorflow.checkpoint import read_variables
from tests.support.golden_fixtures import ROOT

GOLDEN = ROOT / "golden" / "tensorflow"
INDEX, DATA = "model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001"
OPTIONS = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_heads": 4,
    "large_kernel_size": 3,
    "separability": 0,
    "kernel_scheme": "3.3.3.3",
    "dilation_scheme": "1.1.1.1",
    "shared_embedding_and_softmax_weights": True,
    "vocab_divisor": 8,
}


def converted(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        app(["convert", *map(str, words), "--no-onnx"])
    return int(ended.value.code or 0)


def test_variables_of_a_checkpoint_agree_with_tensorflow() -> None:
    path, variables = read_variables(GOLDEN, None)
    assert path == GOLDEN / INDEX
    rng = np.random.default_rng(7)
    for name in sorted(variables):
        np.testing.assert_array_equal(
            variables[name], rng.standard_normal(variables[name].shape).astype(np.float32)
        )
    assert len(variables) == 32
    assert not any("Adam" in name or "global_step" in name for name in variables)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from([INDEX, DATA]))
def test_damaged_checkpoint_is_refused_in_one_line(data, name, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    for file in (INDEX, DATA):
        shutil.copy(GOLDEN / file, folder)
    content = bytearray((folder / name).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del content[at:]
    (folder / name).write_bytes(content)
    try:
        _, variables = read_variables(folder, None)
    except CheckpointError as error:
        assert "\n" not in str(error)
    else:  # an unused byte: padding of the footer, or variables that are not imported
        _, whole = read_variables(GOLDEN, None)
        assert set(variables) == set(whole)
        assert all(np.array_equal(variables[n], whole[n]) for n in whole)


@pytest.mark.parametrize(
    ("chosen", "files", "complaint"),
    [
        ("model.ckpt-8", (INDEX, DATA), "no checkpoint 'model.ckpt-8'"),
        (None, (), "holds no checkpoint"),
        (None, (INDEX,), "model.ckpt-7.data-00000-of-00001"),
        (None, (INDEX, DATA, "other.npz"), "several checkpoints"),
    ],
)
def test_folder_with_missing_files_is_refused(tmp_path, chosen, files, complaint) -> None:
    for name in files:
        shutil.copy(GOLDEN / (name if name in (INDEX, DATA) else DATA), tmp_path / name)
    with pytest.raises(CheckpointError, match=complaint):
        read_variables(tmp_path, chosen)


def test_thumt_folder_becomes_a_bundle_with_its_weights(tmp_path) -> None:
    out = tmp_path / "aan"
    assert converted("thumt", GOLDEN, out, "--source", "de", "--target", "en") == 0
    bundle = open_bundle(out)
    _, variables = read_variables(GOLDEN, None)
    options = json.loads((GOLDEN / "transformer.json").read_text()) | {"pad_id": 0, "eos_id": 1}
    config = aan.config(options, (20, 20), unk=2)
    assert bundle.config == config
    weights = aan.weights(variables, config)
    assert all(np.array_equal(weights[name], w) for name, w in bundle.weights().items())
    tokenizer = open_tokenizer(bundle)
    assert tokenizer.encode("w0 w4 other <eos>") == [3, 7, 2, 2]
    assert tokenizer.decode([3, 7, 2, 1]) == "w0 w4 <unk>"


@pytest.mark.parametrize(
    ("said", "flags", "cut"),
    [({}, (), 256), ({"max_length": 60}, (), 60), ({"max_length": 0}, (), 256)]
    + [({"max_length": 60}, ("--max-sentence-tokens", "80"), 80)],
)
def test_sentences_are_cut_at_the_training_length_of_a_thumt_model(tmp_path, said, flags, cut) -> None:
    folder = tmp_path / "thumt"
    shutil.copytree(GOLDEN, folder)
    known = json.loads((GOLDEN / "params.json").read_text())
    (folder / "params.json").write_text(json.dumps(known | said))
    languages = ("--source", "de", "--target", "en")
    assert converted("thumt", folder, tmp_path / "out", "--no-onnx", *languages, *flags) == 0
    assert open_bundle(tmp_path / "out").max_sentence_tokens == cut


def test_bpe_codes_of_a_thumt_model_split_and_join_text(tmp_path) -> None:
    folder = tmp_path / "thumt"
    shutil.copytree(GOLDEN, folder)
    words = ["<pad>", "<eos>", "<unk>", "lo@@", "w", "low", "!", *(f"x{i}" for i in range(13))]
    for language in ("de", "en"):
        (folder / f"vocab.{language}.txt").write_text("\n".join(words) + "\n")
    (folder / "codes").write_text("#version: 0.2\nl o\n")
    out = tmp_path / "out"
    code = converted("thumt", folder, out, "--source", "de", "--target", "en", "--codes", "codes")
    assert code == 0
    tokenizer = open_tokenizer(open_bundle(out))
    assert tokenizer.encode("low!") == [3, 4, 6]
    assert tokenizer.decode([3, 4, 6, 1]) == "low!"


def test_vocabulary_of_another_model_is_refused(tmp_path) -> None:
    folder = tmp_path / "thumt"
    shutil.copytree(GOLDEN, folder)
    (folder / "vocab.de.txt").write_text("a\nb\n")
    with pytest.raises(CheckpointError, match="lacks"):
        convert("thumt", folder, tmp_path / "out", ThumtImport(source="de", target="en"))
    assert not (tmp_path / "out").exists()


def variables_of(options: dict[str, object]) -> dict[str, np.ndarray]:
    """Return random variables with tensor2tensor's names and shapes for these options."""
    config, _ = slicenet.model_config(options)
    assert config is not None
    with torch.device("meta"):
        shapes = weight_shapes(build(config))
        model = build(config)
    rng = np.random.default_rng(3)
    made = {}
    for ours, names in slicenet._names(model, config):
        shape = shapes[ours]
        for name in names:
            if name.endswith("depthwise_kernel"):
                made[name] = rng.standard_normal((shape[0], 1, shape[1] // len(names), 1))
            elif name.endswith("pointwise_kernel"):
                made[name] = rng.standard_normal((1, 1, shape[1], shape[0]))
            elif name.endswith("conv2d/kernel") or "_single/kernel" in name:
                width = 1 if "conv2d" in name else 3
                made[name] = rng.standard_normal((width, 1, shape[1] // width, shape[0]))
            else:
                made[name] = rng.standard_normal(shape)
    return {name: (array * 0.1).astype(np.float32) for name, array in made.items()}


def test_tensor2tensor_folder_becomes_a_bundle_that_tokenizes_text(tmp_path) -> None:
    folder, out = tmp_path / "t2t", tmp_path / "out"
    folder.mkdir()
    (folder / "hparams.json").write_text(json.dumps(OPTIONS | {"max_length": 96}))
    shutil.copy(GOLDEN / "vocab.subwords", folder / "vocab.translate.100")
    options = OPTIONS | {"vocab_in": 104, "vocab_out": 104, "target_space_id": 3}
    variables = variables_of(options)
    np.savez(folder / "model.npz", **variables, global_step=np.array(7))
    words = ("tensor2tensor", folder, out, "--source", "en", "--target", "de", "--target-space", "3")
    assert converted(*words) == 0
    bundle = open_bundle(out)
    config, _ = slicenet.model_config(options)
    assert bundle.config == config
    weights, problems = slicenet.weights(variables, bundle.config)
    assert not problems
    assert all(np.array_equal(weights[name], w) for name, w in bundle.weights().items())
    load(bundle.config, weights)
    said = json.loads((GOLDEN / "subwords.json").read_text())["encoded"][0]
    assert open_tokenizer(bundle).encode(said["text"]) == said["ids"]
    assert bundle.max_sentence_tokens == 96  # the longest training line


def test_npz_with_a_duplicate_member_is_refused(tmp_path) -> None:
    import warnings
    import zipfile

    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("a.npy", b"")
    with pytest.raises(CheckpointError, match="a member twice"):
        read_variables(Path(tmp_path), None)
