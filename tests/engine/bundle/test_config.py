"""Configurations and executors refuse unsupported settings by name."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.backends import BACKENDS, EVERY_PRECISION, PRECISIONS, Placement
from engine.bundle.adaptive import Bands
from engine.bundle.bundle import open_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.tables import sinusoids
from engine.errors import BundleError, ConfigError
from engine.executors import OPENERS, open_executors
from engine.executors.onnx.sessions import open_sessions
from engine.models import load
from export.graphs.onnx import graphs
from tests.support.models import CONFIGS, weights
from tests.support.served import bundles

GOOD = CONFIGS["glu"]


@pytest.mark.parametrize("cutoffs", [(), (0, 4), (4, 4), (5, 4), (4, 10)])
def test_cutoffs_of_bands_ascend_within_the_vocabulary(cutoffs):
    assert "ascending" in next(Bands(cutoffs).problems(10, 64))
    assert not list(Bands((4, 7)).problems(10, 64))


def test_sinusoids_of_an_odd_width_end_in_zeros():
    table = sinusoids(3, 5, None)
    assert table.shape == (3, 5)
    assert np.array_equal(table[:, :4], sinusoids(3, 4, None))
    assert not table[:, 4].any()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_configuration_survives_json(name):
    config = CONFIGS[name]
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def changed(**changes):
    data = json.loads(json.dumps(GOOD.to_dict()))
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = data
        for parent in parents:
            place = place[parent]
        if value is KeyError:
            del place[key]
        else:
            place[key] = value
    return data


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"flux": 1}, "unknown keys .'flux'."),
        ({"encoder__flux": 1}, "encoder has unknown keys"),
        ({"source_vocab": KeyError}, "lacks the key 'source_vocab'"),
        ({"encoder__heads": KeyError}, "encoder lacks the key 'heads'"),
        ({"source_vocab": "many"}, "source_vocab must be of type int"),
        ({"source_vocab": True}, "source_vocab must be of type int"),
        ({"encoder": 3}, "encoder must be of type object"),
        ({"encoder__kernel_sizes": [3, 2.5]}, "must be of type int, not 2.5"),
        ({"encoder__kernel_sizes": []}, "one positive width per layer"),
        ({"encoder__kernel_sizes": [4]}, "encoder: kernel widths must be odd"),
        ({"encoder__conv_dim": 46}, "conv_dim 46 is not a multiple of heads 4"),
        ({"decoder__heads": 3}, "embed_dim 32 is not a multiple of heads 3"),
        ({"decoder__mixer": "wide"}, "mixer 'wide' is none of 'dynamic', 'lightweight'"),
        ({"decoder__ffn_dim": 0}, "decoder: all widths must be positive"),
        ({"decoder__embed_dim": 64}, "same embed_dim"),
        ({"encoder__input_dim": 8}, "belong to the decoder"),
        ({"share_embeddings": True}, "equal vocabularies"),
        ({"share_embeddings": True, "source_vocab": 47, "decoder__input_dim": 8}, "equal embedding widths"),
        ({"share_output": True, "decoder__output_dim": 8}, "share_output needs input_dim == output_dim"),
        ({"max_target": 1}, "at least 2"),
        ({"unk": 2}, "must be different ids"),
        ({"unk": 900}, "must be different ids"),
    ],
)
def test_an_impossible_configuration_is_refused_by_name(changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ModelConfig.from_dict(changed(**changes))


def test_a_configuration_that_is_no_object_is_refused():
    with pytest.raises(ConfigError, match="config must be an object, not list"):
        ModelConfig.from_dict([])


def test_all_faults_of_a_configuration_come_together():
    with pytest.raises(ConfigError, match="odd.*at least 2"):
        ModelConfig.from_dict(changed(encoder__kernel_sizes=[4], max_source=0))


def test_an_architecture_is_never_looked_up_outside_the_table():
    with pytest.raises(ConfigError, match="unknown architecture 'os'; known are .*'dynamicconv'"):
        load(replace(GOOD, architecture="os"), {})


def test_weights_that_do_not_fit_are_all_named():
    given = dict(weights("glu"))
    given["extra"] = given.pop("encoder.embed_tokens.weight")
    given["decoder.layers.0.fc1.bias"] = np.zeros(3, np.float32)
    with pytest.raises(
        BundleError, match="embed_tokens.weight is missing.*extra is not part.*fc1.bias has shape"
    ):
        load(GOOD, given)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"backend": "abacus"}, "unknown backend 'abacus'; known are onnx, onnx-native, onnx-pure"),
        ({"precision": "int1"}, "unknown precision 'int1'"),
        ({"lanes": ()}, "lanes must be pairs"),
        ({"lanes": ((1, 0),)}, "lanes must be pairs"),
        ({"device": "cuda"}, "ONNX Runtime has no CUDA provider; run: .*onnxruntime-gpu"),
        ({"device": "abacus"}, "unknown device 'abacus'; take --device cpu"),
        ({"backend": "onnx-native", "device": "cuda"}, "take --device cpu, or --backend onnx"),
        (
            {"device": "cuda", "precision": "int8"},
            "onnx backend computes in fp32, fp16 on cuda, not in int8; take one of these, or --backend cuda$",
        ),
        (
            {"device": "cuda", "precision": "bf16"},
            "onnx backend computes in fp32, fp16 on cuda, not in bf16; take one of these, or --backend cuda$",
        ),
        ({"backend": "onnx-pure", "device": "cuda", "precision": "bf16"}, "not in bf16; .* --backend cuda$"),
        (
            {"device": "cuda", "precision": "fp16"},
            r"encoder.fp16.onnx; run: convoy export .* --precision fp16",
        ),
        (
            {"precision": "fp16"},
            "computes in fp32, int8 on cpu, not in fp16; take one of these, or --backend torch$",
        ),
        ({"backend": "torch", "device": "cuda", "precision": "int8"}, "torch backend computes in fp32"),
    ],
)
def test_a_placement_that_cannot_be_is_refused_by_name(changes, complaint):
    with pytest.raises(BundleError, match=complaint):
        open_executors(open_bundle(bundles() / "toy-de-en"), Placement(**changes))


def test_every_listed_backend_opens_and_every_opened_one_is_listed():
    assert set(OPENERS) == set(BACKENDS)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_backend_of_a_refusal_computes_in_every_precision(kind):
    assert set(BACKENDS[EVERY_PRECISION[kind]].precisions[kind]) == set(PRECISIONS)


def test_the_documentation_has_the_table_of_backends():
    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")
    for name, backend in BACKENDS.items():
        (row,) = re.findall(rf"^\| `{name}`.*", text, re.MULTILINE)
        kinds = [", ".join(backend.precisions.get(kind, ())) for kind in ("cpu", "cuda")]
        assert [cell.strip() for cell in row.split("|")[2:4]] == kinds, name


@pytest.mark.parametrize("other", ["widths", "transformer", "glu pre-norm"])
def test_graphs_of_another_bundle_are_refused_with_the_remedy(other):
    config = replace(GOOD, encoder=replace(GOOD.encoder, ffn_dim=24)) if "glu" in other else CONFIGS[other]
    foreign = {part: graphs(config)[f"onnx/{part}.fp32.onnx"] for part in ("encoder", "step")}
    with pytest.raises(BundleError, match="run: convoy export"):
        open_sessions(GOOD, foreign, weights("glu"), 1)


def parts():
    made = graphs(GOOD)
    return {part: made[f"onnx/{part}.fp32.onnx"] for part in ("encoder", "step")}


@pytest.mark.parametrize(
    "damage",
    [
        lambda graph: graph[: len(graph) // 2],
        lambda graph: b"",
        lambda graph: b"\x07" + graph,
        lambda graph: graph.replace(b"convoy.initializers", b"convoy.initialisers"),
        lambda graph: graph.replace(b"LayerNormalization", b"LayerMoralization!"),
        lambda graph: graph.replace(b'"transposed"', b'"transfixed"'),
        lambda graph: graph.replace(b"eos_penalty", b"end_penalty"),
        lambda graph: graph.replace(b'"encoder.embed_tokens.weight"', b'"encoder.embed_tokens.height"'),
    ],
)
def test_a_damaged_graph_is_refused_with_the_remedy(damage):
    damaged = {name: damage(graph) for name, graph in parts().items()}
    with pytest.raises(BundleError, match="convoy export|upgrade Convoy"):
        open_sessions(GOOD, damaged, weights("glu"), 1)
