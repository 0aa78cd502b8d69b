"""Several checkpoints at once: ensembles and averages."""

from __future__ import annotations

import collections
import itertools
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cli.main import app
from engine.bundle.bundle import open_bundle
from engine.models import load
from export.importers import convert
from export.importers.settings import FairseqImport
from tests.support.checkpoints import folder_of, namespace, refused, same_weights, state
from tests.support.golden_fixtures import SELECTION, imported


@pytest.fixture
def several(tmp_path):
    """Return a folder with three checkpoints of one shape, and their states."""
    path, base = tmp_path / "several", state()
    torch.manual_seed(1)
    states = [
        collections.OrderedDict((n, w + torch.randn_like(w) * 0.01) for n, w in base.items())
        for _ in range(3)
    ]
    for i, weights in enumerate(states):
        for side in ("encoder", "decoder"):
            weights[f"{side}.version"] = base[f"{side}.version"]
        folder_of(path, {"args": namespace(), "model": weights})
        (path / "model.pt").rename(path / f"checkpoint{i + 1}.pt")
    return path, states


NAMED = ("checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt")


def test_several_checkpoints_become_an_ensemble_with_the_mean_probability(several, tmp_path):
    path, _ = several
    bundle = convert("fairseq", path, tmp_path / "all", FairseqImport(checkpoints=NAMED))
    assert (bundle.config.architecture, len(bundle.config.members)) == ("ensemble", 3)
    source, previous = torch.tensor([[5, 9, 30, 2]]), torch.tensor([[2, 7, 8]])
    with torch.no_grad():
        alone = []
        for name in NAMED:
            single = convert("fairseq", path, tmp_path / name, FairseqImport(checkpoints=(name,)))
            alone.append(load(single.config, single.weights())(source, previous).double().exp())
        together = load(bundle.config, bundle.weights())(source, previous).double()
    assert (alone[0] - alone[1]).abs().max() > 1e-3
    torch.testing.assert_close(together, (sum(alone) / 3).log(), atol=1e-5, rtol=0)


def test_members_of_an_ensemble_may_differ_in_everything_except_dictionaries(tmp_path):
    members = [SELECTION / name / "checkpoint.pt" for name in ("dyn_glu", "dyn_glu_fp16", "old061_dyn_glu")]
    chosen = FairseqImport(checkpoints=tuple(map(str, members)))
    bundle = convert("fairseq", SELECTION / "dyn_glu", tmp_path / "out", chosen)
    assert len(bundle.config.members) == 3
    half = bundle.weights()["members.1.decoder.embed_tokens.weight"]
    same_weights({"": half}, {"": imported("dyn_glu_fp16").weights()["decoder.embed_tokens.weight"]})
    other = SELECTION / "light_glu" / "checkpoint.pt"
    path = SELECTION / "dyn_glu"
    with_other = FairseqImport(checkpoints=("checkpoint.pt", str(other)))
    message = refused_at(path, tmp_path, with_other)
    assert re.search(r"light_glu.dict\.src\.txt: differs from .*dyn_glu.dict\.src\.txt", message)


def refused_at(path: Path, tmp_path: Path, settings: FairseqImport) -> str:
    shutil.copytree(path, tmp_path / "copy" / path.name)
    return refused(tmp_path / "copy" / path.name, settings=settings)


def test_incompatible_members_are_refused(several):
    path, states = several
    refused(path, "named twice", settings=FairseqImport(checkpoints=(NAMED[0], f"./{NAMED[0]}")))
    shutil.copyfile(path / NAMED[0], path / "again.pt")
    refused(
        path,
        "again.pt: holds the same weights as",
        settings=FairseqImport(checkpoints=(NAMED[0], "again.pt")),
    )
    torch.save({"args": namespace(target_lang="src"), "model": states[1]}, path / "turned.pt")
    refused(path, "turned.pt: its target_lang", settings=FairseqImport(checkpoints=(NAMED[0], "turned.pt")))
    wrong = {"args": namespace(renorm_padding=True), "model": states[1]}
    torch.save(wrong, path / "wrong1.pt")
    torch.save({**wrong, "args": namespace(arch="tacotron")}, path / "wrong2.pt")
    both = FairseqImport(checkpoints=("wrong1.pt", NAMED[0], "wrong2.pt"))
    refused(path, r"wrong1\.pt.*renorm_padding = True.*wrong2\.pt.*'tacotron'", settings=both)


def test_average_is_the_mean_of_the_weights(several, tmp_path):
    path, states = several
    bundle = convert("fairseq", path, tmp_path / "out", FairseqImport(checkpoints=NAMED, average=True))
    assert bundle.config == imported("dyn_noglu").config
    for name, weight in bundle.weights().items():
        mean = np.mean([s[name].double().numpy() for s in states], 0)
        np.testing.assert_allclose(weight, mean, rtol=0, atol=1e-7 * max(1, np.abs(mean).max()))


def test_checkpoints_without_an_average_are_refused(several):
    path, states = several
    refused(path, "needs several", settings=FairseqImport(checkpoints=NAMED[:1], average=True))
    torch.save({"args": namespace(encoder_normalize_before=True), "model": states[0]}, path / "pre.pt")
    chosen = FairseqImport(checkpoints=(NAMED[0], "pre.pt"), average=True)
    refused(path, r"pre\.pt: can't be averaged.*encoder_normalize_before", settings=chosen)
    states[1].popitem()
    torch.save({"args": namespace(), "model": states[1]}, path / "less.pt")
    chosen = FairseqImport(checkpoints=(NAMED[0], "less.pt"), average=True)
    refused(path, r"less\.pt: can't be averaged.*differ in name or shape", settings=chosen)


def test_average_of_fp16_checkpoints_is_stored_in_fp32(tmp_path):
    path = SELECTION / "dyn_glu_fp16"
    source = folder_of(tmp_path / "two", {"args": namespace(path), "model": state(path)}, like=path)
    moved = collections.OrderedDict((n, w * 1.5) for n, w in state(path).items())
    torch.save({"args": namespace(path), "model": moved}, source / "b.pt")
    chosen = FairseqImport(checkpoints=("model.pt", "b.pt"), average=True)
    weight = convert("fairseq", source, tmp_path / "out", chosen).weights()["decoder.layers.0.fc1.weight"]
    first = state(path)["decoder.layers.0.fc1.weight"]
    mean = (first.float() + (first * 1.5).float()) / 2
    np.testing.assert_array_equal(weight, mean.numpy())
    assert np.any(weight != weight.astype(np.float16))


@pytest.mark.parametrize("separator", [",", ":", None])
def test_command_accepts_checkpoints_in_every_form(several, tmp_path, separator):
    path, _ = several
    given = [separator.join(NAMED)] if separator else list(NAMED)
    options = itertools.chain.from_iterable(("--checkpoint", one) for one in given)
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        app(["convert", "fairseq", str(path), str(out), "--no-onnx", *options])
    assert ended.value.code == 0
    assert len(open_bundle(out).config.members) == 3
