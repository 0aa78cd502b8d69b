"""Importing fairseq checkpoints of both eras; what is refused, and that nothing in a file is ever run."""

from __future__ import annotations

import argparse
import collections
import os
import random
import re
import shutil
import zipfile

import numpy as np
import pytest
import torch

from engine.bundle import open_bundle
from engine.errors import BundleError, CheckpointError
from engine.models import load
from engine.text.tokenizer import open_tokenizer
from export.checkpoint import read_checkpoint
from export.fairseq import Settings, convert
from export.lightconv import options
from tests.golden_fixtures import NAMES, REAL, ROOT, SELECTION, fixture, folder, imported, real_golden

DYN = SELECTION / "dyn_noglu"


def namespace(**changes):
    given = {**read_checkpoint(DYN / "checkpoint.pt").arguments, **changes}
    return argparse.Namespace(**{k: v for k, v in given.items() if v != "absent"})


def state():
    return collections.OrderedDict(read_checkpoint(DYN / "checkpoint.pt").state)


@pytest.fixture
def made(tmp_path):
    """Write a folder with dyn_noglu's dictionaries and a checkpoint of these parts."""

    def make(content, *, old=False):
        path = tmp_path / "made"
        path.mkdir(exist_ok=True)
        for name in ("dict.src.txt", "dict.tgt.txt"):
            shutil.copyfile(DYN / name, path / name)
        torch.save(content, path / "model.pt", _use_new_zipfile_serialization=not old)
        return path

    return make


def refused(path, *patterns, settings=None):
    """The import fails with one CheckpointError that says all this, and leaves nothing behind."""
    out = path.parent / "out"
    with pytest.raises(CheckpointError) as caught:
        convert(path, out, settings)
    for pattern in patterns:
        assert re.search(pattern, str(caught.value)), str(caught.value)
    assert [p.name for p in path.parent.iterdir() if "out" in p.name] == []


# What comes in


@pytest.mark.parametrize("name", [n for n in NAMES if folder(n)])
def test_weights_come_through_unchanged(name):
    bundle = imported(name)
    stored = read_checkpoint(fixture(name).path / "checkpoint.pt").state
    same = [n for n in bundle.weights() if n in stored]
    assert len(same) > 60
    for weight in same:
        np.testing.assert_array_equal(bundle.weights()[weight], stored[weight].float().numpy())
    load(bundle.config, bundle.weights())


def test_half_precision_stays_half_in_the_file():
    sizes = {n: imported(n).manifest["model.safetensors"].size for n in ("dyn_glu", "dyn_glu_fp16")}
    assert 1.9 < sizes["dyn_glu"] / sizes["dyn_glu_fp16"] < 2.1


def release_era(weights):
    """The same weights under the names of fairseq 0.6 to 0.8 (REFERENCE.md 2.3)."""
    old = collections.OrderedDict()
    for name, weight in weights.items():
        if name.endswith("conv_bias"):
            continue
        name = re.sub(
            r"(encoder\.layers\.\d+\.)layer_norm([12])", lambda m: f"{m[1]}layer_norms.{int(m[2]) - 1}", name
        )
        name = name.replace("decoder.output_projection.weight", "decoder.embed_out")
        joint = re.search(r"\.([qkv])_proj\.(weight|bias)$", name)
        if joint:
            old.setdefault(f"{name[: joint.start()]}.in_proj_{joint[2]}", {})[joint[1]] = weight
        else:
            old[name] = weight
    for side in ("encoder", "decoder"):
        old[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
    return collections.OrderedDict(
        (n, torch.cat([w[letter] for letter in "qkv"]) if isinstance(w, dict) else w) for n, w in old.items()
    )


def test_release_era_files_give_the_same_weights(made, tmp_path):
    old = {"args": namespace(left_pad_source="True"), "model": release_era(state()), "extra_state": {}}
    bundle = convert(made(old, old=True), tmp_path / "out")
    expected = imported("dyn_noglu").weights()
    assert set(bundle.weights()) == set(expected)
    for name, weight in bundle.weights().items():
        np.testing.assert_array_equal(weight, expected[name])


@pytest.mark.parametrize("old", [False, True])
def test_weights_saved_on_a_gpu_are_read_on_the_cpu(made, tmp_path, old):
    """The location tag of each storage is rewritten in the pickle, as a GPU would have written it."""
    path = made({"args": namespace(), "model": state()}, old=old) / "model.pt"
    cpu, cuda = b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"
    if old:
        content = path.read_bytes()
        assert content.count(cpu) == 1  # later ones are references into the pickle's memory
        path.write_bytes(content.replace(cpu, cuda))
    else:
        with zipfile.ZipFile(path) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, content.replace(cpu, cuda) if name.endswith("data.pkl") else content)
    bundle = convert(path.parent, tmp_path / "out")
    np.testing.assert_array_equal(
        bundle.weights()["decoder.embed_tokens.weight"],
        imported("dyn_noglu").weights()["decoder.embed_tokens.weight"],
    )


def test_a_cfg_with_plain_dictionaries_is_read(made, tmp_path):
    model = vars(namespace(arch="absent", source_lang="absent", target_lang="absent", task="absent"))
    cfg = {
        "model": {**model, "_name": "lightconv"},
        "task": {"_name": "translation", "source_lang": "src", "target_lang": "tgt"},
    }
    bundle = convert(made({"args": None, "cfg": cfg, "model": state()}), tmp_path / "out")
    assert bundle.config == imported("dyn_noglu").config
    assert (bundle.source, bundle.target) == ("src", "tgt")


@pytest.mark.parametrize("old", [False, True])
def test_numpy_scalars_of_the_training_state_are_dropped(made, tmp_path, old):
    content = {"args": namespace(), "model": state(), "extra_state": {"best": np.float64(3.5)}}
    assert convert(made(content, old=old), tmp_path / "out").name == "made"


def test_absent_options_default_as_the_architecture(made, tmp_path):
    absent = dict.fromkeys(
        (
            "encoder_conv_dim",
            "decoder_conv_dim",
            "decoder_embed_dim",
            "decoder_ffn_embed_dim",
            "weight_softmax",
        ),
        "absent",
    )
    bundle = convert(made({"args": namespace(**absent), "model": state()}), tmp_path / "out")
    assert bundle.config == imported("dyn_noglu").config


def test_defaults_are_those_measured_in_the_reference():
    path = ROOT.parent.parent / "shared" / "arch_defaults.json"
    if not path.is_file():
        pytest.skip("no ../shared/arch_defaults.json")
    import json

    measured = {
        k: v for k, v in json.loads(path.read_text()).items() if k.startswith("lightconv") and "_lm" not in k
    }
    assert len(measured) == 6
    for arch, expected in measured.items():
        values, problems = options({"arch": arch})
        assert problems == []
        assert {k: expected[k] for k in values} == values


# Text


@pytest.mark.skipif(folder(REAL) is None, reason="no ../shared/golden/real-de-en")
def test_the_real_model_keeps_its_text_pipeline():
    bundle = imported(REAL)
    found = {
        k: bundle.text[k] for k in ("bpe", "aggressive", "escape", "lowercase", "pretokenized", "normalize")
    }
    assert found == {
        "bpe": "bpecodes",
        "aggressive": True,
        "escape": True,
        "lowercase": False,
        "pretokenized": False,
        "normalize": "en",
    }
    tokenizer = open_tokenizer(bundle)
    for result in real_golden()["results"]:
        assert [*tokenizer.encode(result["src"]), bundle.config.eos] == result["source_ids"]
        assert tokenizer.decode(result["hyps"][0]["tokens"]) == result["text"]


def test_without_codes_text_comes_in_tokens():
    bundle = imported("dyn_glu")
    assert bundle.text["pretokenized"]
    tokenizer = open_tokenizer(bundle)
    lines = (fixture("dyn_glu").path / "dict.src.txt").read_text("utf-8").split("\n")
    assert tokenizer.encode(lines[0].split(" ")[0] + " " + lines[7].split(" ")[0]) == [4, 11]


def test_languages_are_never_guessed(made, tmp_path):
    content = {"args": namespace(source_lang=None), "model": state()}
    refused(made(content), r"give source and target.*src.*tgt")
    refused(made(content), r"no dict\.fr\.txt", settings=Settings(source="fr"))
    turned = convert(made(content), tmp_path / "out", Settings(source="src", target="tgt", name="mine"))
    assert (turned.source, turned.target, turned.name) == ("src", "tgt", "mine")


# What is refused


def test_all_unsupported_options_are_named_at_once(made):
    wrong = namespace(
        adaptive_softmax_cutoff=[10, 20],
        renorm_padding=True,
        task="multilingual_translation",
        encoder_glu="maybe",
    )
    refused(
        made({"args": wrong, "model": state()}),
        r"adaptive_softmax_cutoff = \[10, 20\]",
        "renorm_padding = True",
        "multilingual_translation",
        "encoder_glu = 'maybe'",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "fconv_wmt_en_de"}, "'fconv_wmt_en_de' is not supported.*lightconv_iwslt_de_en"),
        ({"arch": "absent"}, "architecture None"),
        ({"encoder_kernel_size_list": [3, 7]}, "2 widths for 3 layers"),
        ({"encoder_kernel_size_list": [2, 7, 15]}, "must be odd"),
        ({"encoder_conv_type": "renorm"}, "conv_type 'renorm'"),
        ({"max_target_positions": 10**9}, "max_target_positions.*65536"),
        ({"encoder_embed_dim": 10**9}, r"shape \(120, 64\).*1000000000"),
        (
            {"decoder_layers": 4, "decoder_kernel_size_list": [3]},
            r"decoder\.layers\.3\.fc1\.weight is missing",
        ),
        (
            {"decoder_layers": 2, "decoder_kernel_size_list": [3, 7]},
            r"decoder\.layers\.2\.fc1\.weight is not part",
        ),
        (
            {"decoder_kernel_size_list": [3, 7, 31]},
            r"weight_linear\.weight has shape \(60, 64\), not \(124, 64\)",
        ),
        ({"share_decoder_input_output_embed": True}, "output_projection.weight differs from"),
        ({"share_all_embeddings": True}, "share"),
    ],
)
def test_options_that_do_not_fit_are_refused(made, changes, message):
    refused(made({"args": namespace(**changes), "model": state()}), message)


def test_values_that_are_not_finite_are_refused(made):
    weights = state()
    weights["decoder.layers.0.fc1.bias"][3] = float("nan")
    refused(made({"args": namespace(), "model": weights}), r"decoder\.layers\.0\.fc1\.bias.*not finite")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "no 'model'"),
        ({"args": None}, "no 'model'"),
        ({"model": {"a": 1}}, "names to tensors"),
        ({"model": {}, "args": None, "cfg": 5}, "neither 'args' nor a 'cfg'"),
    ],
)
def test_other_files_of_torch_are_refused(made, content, message):
    refused(made(content), message)


def test_a_folder_without_a_clear_checkpoint_is_refused(made, tmp_path):
    path = made({"args": namespace(), "model": state()})
    (path / "model.pt").rename(path / "a.pt")
    assert convert(path, tmp_path / "one").name == "made"
    shutil.copyfile(path / "a.pt", path / "b.pt")
    refused(path, r"several checkpoints \['a.pt', 'b.pt'\].*ensembles")
    assert convert(path, tmp_path / "two", Settings(checkpoint="b.pt")).name == "made"
    refused(path, "no checkpoint 'c.pt'", settings=Settings(checkpoint="c.pt"))
    (path / "a.pt").unlink()
    (path / "b.pt").unlink()
    refused(path, "holds no checkpoint")
    refused(path / "nowhere", "no such folder")


def test_wrong_dictionaries_and_codes_are_refused(made):
    path = made({"args": namespace(), "model": state()})
    with (path / "dict.src.txt").open("a") as lines:
        lines.write("more 1\n")
    refused(path, r"shape \(120, 64\).*\(121, 64\)")
    (path / "dict.src.txt").write_text("a b c\n")
    refused(path, r"dict\.src\.txt, line 1")
    (path / "dict.src.txt").unlink()
    refused(path, r"no dict\.src\.txt")
    shutil.copyfile(DYN / "dict.src.txt", path / "dict.src.txt")
    (path / "code").write_text("a b 7\n")
    refused(path, "line 1.*two units")
    (path / "bpecodes").write_text("a b\n")
    refused(path, "several files of BPE codes")
    (path / "bpecodes").unlink()
    (path / "code").rename(path / "sentencepiece.bpe.model")
    refused(path, "SentencePiece")


def test_an_existing_bundle_is_kept(made, tmp_path):
    path = made({"args": namespace(), "model": state()})
    first = convert(path, tmp_path / "out")
    with pytest.raises(BundleError, match="already exists"):
        convert(path, tmp_path / "out")
    convert(path, tmp_path / "out", overwrite=True)
    assert open_bundle(tmp_path / "out").manifest == first.manifest


# Hostile and damaged files


class Trap:
    """Runs a function of the standard library when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("place", ["model", "args", "extra_state"])
@pytest.mark.parametrize("function", [os.mkdir, os.system, eval], ids=lambda f: f.__name__)
def test_a_malicious_pickle_runs_nothing(made, tmp_path, old, place, function):
    marker = tmp_path / "marker"
    argument = {
        "mkdir": str(marker),
        "system": f"mkdir {marker}",
        "eval": f"__import__('os').mkdir({str(marker)!r})",
    }
    trap = Trap(function, argument[function.__name__])
    content = {"args": namespace(), "model": state(), "extra_state": {}}
    content[place] = {"a": trap} if place != "args" else argparse.Namespace(arch=trap)
    path = made(content, old=old)
    refused(path, rf"refers to (posix\.|nt\.|builtins\.)?{function.__name__}, which is not on the list")
    assert not marker.exists()
    torch.load(path / "model.pt", weights_only=False)  # the trap does work
    assert marker.exists()


def test_other_classes_are_refused_by_name(made):
    content = {"args": namespace(extra=argparse.ArgumentParser), "model": state()}
    refused(made(content), r"argparse\.ArgumentParser")


def test_a_truncated_checkpoint_is_one_clear_error(tmp_path):
    draw = random.Random(3)
    for name in ("old061_dyn_glu", "dyn_glu_fp16"):
        path = tmp_path / name
        shutil.copytree(SELECTION / name, path)
        content = (path / "checkpoint.pt").read_bytes()
        for size in [
            0,
            1,
            10,
            100,
            4000,
            *(draw.randrange(len(content)) for _ in range(8)),
            len(content) - 1,
        ]:
            (path / "checkpoint.pt").write_bytes(content[:size])
            refused(path, "not a readable checkpoint|no 'model'")


def test_a_damaged_checkpoint_is_one_clear_error_or_still_a_whole_bundle(tmp_path):
    draw = random.Random(5)
    failed = 0
    for name in ("old061_dyn_glu", "dyn_glu_fp16"):
        path, out = tmp_path / name, tmp_path / "out"
        shutil.copytree(SELECTION / name, path)
        content = (path / "checkpoint.pt").read_bytes()
        for _ in range(30):
            damaged = bytearray(content)
            for _ in range(draw.choice([1, 20])):
                # the pickles lie at the beginning; the rest is numbers
                damaged[draw.randrange(draw.choice([300, 20_000, len(content)]))] = draw.randrange(256)
            (path / "checkpoint.pt").write_bytes(damaged)
            try:
                open_bundle(convert(path, out).path)
                shutil.rmtree(out)
            except CheckpointError:
                failed += 1
                assert not out.exists()
    assert failed > 20
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dyn_glu_fp16", "old061_dyn_glu"]
