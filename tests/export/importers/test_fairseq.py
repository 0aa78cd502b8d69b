"""Import of fairseq checkpoints of all versions."""

from __future__ import annotations

import collections
import json
import re
import zipfile

import numpy as np
import pytest
import torch

from engine.bundle.bundle import open_bundle
from engine.errors import BundleError
from engine.models import load
from export.importers import convert
from export.importers.checkpoint import read_checkpoint
from export.importers.fairseq.importer import FAMILIES
from tests.support.checkpoints import folder_of, joined, namespace, refused, same_weights, state
from tests.support.golden_fixtures import (
    ENSEMBLE,
    NAMES,
    ROOT,
    SELECTION,
    fixture,
    folder,
    imported,
    parameters,
)

SHARED = ROOT.parent.parent / "shared"
OMEGACONF = SELECTION / "omegaconf"


@pytest.fixture
def made(tmp_path):
    """Write a folder with dyn_noglu's dictionaries and a checkpoint of these parts."""
    return lambda content, *, old=False: folder_of(tmp_path / "made", content, old=old)


# One checkpoint


@pytest.mark.parametrize("name", [n for n in NAMES if folder(n) and n != ENSEMBLE and "fconv" not in n])
def test_weights_are_imported_unchanged(name):
    bundle = imported(name)
    stored = read_checkpoint(fixture(name).path / "checkpoint.pt").state
    same = [n for n in bundle.weights() if n in stored]
    assert len(same) > 60
    for weight in same:
        np.testing.assert_array_equal(bundle.weights()[weight], stored[weight].astype(np.float32))
    load(bundle.config, bundle.weights())


def test_fp16_weights_stay_fp16():
    sizes = {n: imported(n).manifest["model.safetensors"].size for n in ("dyn_glu", "dyn_glu_fp16")}
    assert 1.9 < sizes["dyn_glu"] / sizes["dyn_glu_fp16"] < 2.1


def release_era(weights):
    """Return the same weights with the names of fairseq 0.6 to 0.8 (docs/reference.md 2.3)."""
    old = collections.OrderedDict()
    for name, weight in joined(weights).items():
        if name.endswith("conv_bias"):
            continue
        name = re.sub(
            r"(encoder\.layers\.\d+\.)layer_norm([12])", lambda m: f"{m[1]}layer_norms.{int(m[2]) - 1}", name
        )
        old[name.replace("decoder.output_projection.weight", "decoder.embed_out")] = weight
    for side in ("encoder", "decoder"):
        old[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
    return old


def test_files_of_fairseq_0_6_to_0_8_give_the_same_weights(made, tmp_path):
    old = {"args": namespace(left_pad_source="True"), "model": release_era(state()), "extra_state": {}}
    bundle = convert("fairseq", made(old, old=True), tmp_path / "out")
    same_weights(bundle.weights(), imported("dyn_noglu").weights())


class OldTensor:
    """A tensor pickled like before torch 0.4."""

    def __init__(self, weight):
        self.weight = weight

    def __reduce__(self):
        place = (self.weight.storage_offset(), tuple(self.weight.shape), self.weight.stride())
        return torch._utils._rebuild_tensor, (self.weight.storage(), *place)


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_tensors_of_the_oldest_torch_are_read(made, tmp_path):
    model = collections.OrderedDict((name, OldTensor(weight)) for name, weight in state().items())
    bundle = convert("fairseq", made({"args": namespace(), "model": model}, old=True), tmp_path / "out")
    same_weights(bundle.weights(), imported("dyn_noglu").weights())


@pytest.mark.parametrize("name", parameters("transformer_base"))
def test_transformers_with_the_oldest_names_give_the_same_weights(name, tmp_path):
    path = fixture(name).path
    norms = {
        "encoder": ("self_attn_layer_norm", "final_layer_norm"),
        "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
    }
    old = collections.OrderedDict()
    for key, weight in joined(state(path)).items():
        side = key.split(".")[0]
        for i, norm in enumerate(norms[side]):
            key = key.replace(f".{norm}.", f".layer_norms.{i}.")
        old[key.replace("decoder.output_projection.weight", "decoder.embed_out")] = weight
    assert {"decoder.layers.1.encoder_attn.k_proj_weight", "decoder.layers.1.self_attn.in_proj_bias"} < set(
        old
    )
    options = namespace(
        path, activation_fn="absent", no_scale_embedding="absent", cross_self_attention="absent"
    )
    source = folder_of(tmp_path / "old", {"args": options, "model": old}, old=True, like=path)
    bundle = convert("fairseq", source, tmp_path / "out")
    assert bundle.config == imported(name).config
    same_weights(bundle.weights(), imported(name).weights())


@pytest.mark.parametrize("name", parameters("transformer_base"))
@pytest.mark.parametrize("version", [1, 3])
def test_only_transformers_before_version_2_lack_the_last_norm(name, version, tmp_path):
    path = fixture(name).path
    weights = state(path)
    for side in ("encoder", "decoder"):
        weights[f"{side}.version"] = torch.tensor([float(version)])
    options = namespace(path, encoder_normalize_before=True, decoder_normalize_before=True)
    source = folder_of(tmp_path / "made", {"args": options, "model": weights}, like=path)
    if version == 1:
        config = convert("fairseq", source, tmp_path / "out").config
        assert (config.encoder.final_norm, config.decoder.final_norm) == (False, False)
        return
    refused(source, r"decoder\.layer_norm\.weight is missing", r"encoder\.layer_norm\.bias is missing")
    for side, width in (("encoder", 64), ("decoder", 48)):
        weights[f"{side}.layer_norm.weight"] = torch.full((width,), 0.5)
        weights[f"{side}.layer_norm.bias"] = torch.zeros(width)
    folder_of(source, {"args": options, "model": weights}, like=path)
    assert (
        convert("fairseq", source, tmp_path / "out").weights()["decoder.layer_norm.weight"].tolist()
        == [0.5] * 48
    )


@pytest.mark.parametrize("name", parameters("transformer_base"))
def test_options_of_transformers_are_imported(name, tmp_path):
    path, weights = fixture(name).path, state(fixture(name).path)
    for side, width, rows in (("encoder", 64, 102), ("decoder", 48, 52)):
        weights[f"{side}.layernorm_embedding.weight"] = torch.ones(width)
        weights[f"{side}.layernorm_embedding.bias"] = torch.zeros(width)
        weights[f"{side}.embed_positions.weight"] = torch.zeros(rows, width)
    weights["decoder.project_out_dim.weight"] = torch.zeros(20, 48)
    weights["decoder.output_projection.weight"] = torch.zeros(112, 20)
    options = namespace(
        path,
        activation_fn="gelu",
        no_scale_embedding=True,
        layernorm_embedding=True,
        encoder_learned_pos=True,
        decoder_learned_pos=True,
        max_source_positions=100,
        max_target_positions=50,
        decoder_output_dim="20",  # some files store numbers as text
        encoder_layerdrop=0.2,  # an option of training
        checkpoint_activations=True,
    )
    source = folder_of(tmp_path / "made", {"args": options, "model": weights}, like=path)
    config = convert("fairseq", source, tmp_path / "out").config
    assert (config.scale_embeddings, config.max_source, config.max_target) == (False, 100, 50)
    for stack in (config.encoder, config.decoder):
        assert (stack.activation, stack.embedding_norm, stack.learned_positions) == ("gelu", True, True)
    assert (config.encoder.embed_dim, config.decoder.embed_dim, config.decoder.output_dim) == (64, 48, 20)


@pytest.mark.parametrize("old", [False, True])
def test_weights_saved_on_a_gpu_are_read_on_the_cpu(made, tmp_path, old):
    """The test writes a GPU's location tag for each storage into the pickle."""
    path = made({"args": namespace(), "model": state()}, old=old) / "model.pt"
    cpu, cuda = b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"
    if old:
        content = path.read_bytes()
        assert content.count(cpu) == 1  # the pickle refers to the first one later
        path.write_bytes(content.replace(cpu, cuda))
    else:
        with zipfile.ZipFile(path) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, content.replace(cpu, cuda) if name.endswith("data.pkl") else content)
    bundle = convert("fairseq", path.parent, tmp_path / "out")
    same_weights(bundle.weights(), imported("dyn_noglu").weights())


@pytest.mark.parametrize("grouped", [False, True])
def test_cfg_with_plain_dictionaries_is_read(made, tmp_path, grouped):
    model = vars(namespace(arch="absent", source_lang="absent", target_lang="absent", task="absent"))
    if grouped:
        sides = {
            side: {k: v for k, v in model.items() if k.startswith(side)} for side in ("encoder", "decoder")
        }
        model = {k: v for k, v in model.items() if not k.startswith(("encoder_", "decoder_"))}
        model |= {s: {k.removeprefix(f"{s}_"): v for k, v in part.items()} for s, part in sides.items()}
    cfg = {
        "model": {**model, "_name": "lightconv"},
        "task": {"_name": "translation", "source_lang": "src", "target_lang": "tgt"},
    }
    bundle = convert("fairseq", made({"args": None, "cfg": cfg, "model": state()}), tmp_path / "out")
    assert bundle.config == imported("dyn_noglu").config
    assert (bundle.source, bundle.target) == ("src", "tgt")


@pytest.mark.parametrize("version", ["2.0.6", "2.4.0"])
@pytest.mark.parametrize("kind", ["dict", "namespace"])
def test_cfg_pickled_by_omegaconf_is_read_without_omegaconf(version, kind):
    """The files were written with that version of OmegaConf, like the configurations of fairseq 0.10."""
    found = read_checkpoint(OMEGACONF / f"{version}-{kind}.pt").arguments
    expected = {
        "arch": "lightconv_iwslt_de_en",
        "task": "translation",
        "source_lang": "de",
        "target_lang": "en",
        "encoder_kernel_size_list": [3, 7, 15],
        "encoder_layers": 3,
        "encoder_glu": True,
        "dropout": 0.1,
        "decoder_embed_path": None,
    }
    assert {name: found[name] for name in expected} == expected
    family = FAMILIES["lightconv_iwslt_de_en"]
    # interpolations are not resolved but reported
    unclear = [p for p in family.options(found)[1] if "weight_softmax" in p]
    assert unclear == (["weight_softmax = '${common.flag}' is not understood"] if kind == "dict" else [])


@pytest.mark.parametrize("old", [False, True])
def test_numpy_scalars_of_the_training_state_are_dropped(made, tmp_path, old):
    content = {"args": namespace(), "model": state(), "extra_state": {"best": np.float64(3.5)}}
    assert convert("fairseq", made(content, old=old), tmp_path / "out").name == "out"


def test_absent_options_have_the_defaults_of_their_architecture(made, tmp_path):
    names = ("encoder_conv_dim", "decoder_conv_dim", "decoder_embed_dim", "decoder_ffn_embed_dim")
    absent = dict.fromkeys((*names, "weight_softmax", "max_source_positions"), "absent")
    content = {"args": namespace(**absent, max_positions=1024), "model": state()}
    assert convert("fairseq", made(content), tmp_path / "out").config == imported("dyn_noglu").config


def test_defaults_agree_with_fairseq():
    path = SHARED / "arch_defaults.json"
    if not path.is_file():
        pytest.skip("no ../shared/arch_defaults.json")
    measured = json.loads(path.read_text())
    encoder_decoders = {n: v for n, v in measured.items() if n.startswith(("lightconv", "transformer"))}
    encoder_decoders = {n: v for n, v in encoder_decoders.items() if "_lm" not in n}
    assert len(encoder_decoders) == 11
    for arch, expected in encoder_decoders.items():
        values, problems = FAMILIES[arch].options({"arch": arch})
        assert problems == []
        assert len(set(values) & set(expected)) > 15
        for name in set(values) & set(expected):
            found = values[name]
            assert (list(found) if isinstance(found, tuple) else found) == expected[name], (arch, name)


def test_tensor2tensor_architecture_is_pre_norm():
    big, t2t = (
        FAMILIES[arch].options({"arch": arch})[0]
        for arch in ("transformer_wmt_en_de_big", "transformer_wmt_en_de_big_t2t")
    )
    assert {n for n in big if big[n] != t2t[n]} == {"encoder_normalize_before", "decoder_normalize_before"}
    assert t2t["encoder_normalize_before"]


def test_existing_bundle_is_kept(made, tmp_path):
    path = made({"args": namespace(), "model": state()})
    first = convert("fairseq", path, tmp_path / "out")
    with pytest.raises(BundleError, match="already exists"):
        convert("fairseq", path, tmp_path / "out")
    convert("fairseq", path, tmp_path / "out", overwrite=True)
    assert open_bundle(tmp_path / "out").manifest == first.manifest
