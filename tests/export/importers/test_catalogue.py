"""Every layout of the catalogue (`tests/support/catalogue.py`) is imported.

Some layouts (in the thorough run all) also get graphs and answer a text.
"""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.huggingface.files import DEFAULTS
from export.importers.proving import add_graphs, prove_answer
from export.importers.settings import HuggingFaceImport
from tests.support import marian_models
from tests.support.catalogue import LAYOUTS, REFUSED
from tests.support.golden_fixtures import ROOT
from tests.support.hf_models import WISH, imported, transformers
from tests.support.marian_models import sentences
from tests.support.thorough import some_of

OPEN_TASK = HuggingFaceImport(source="en", target="de")
ANSWERED = set(some_of(list(LAYOUTS), 6))


def written(path, changes):
    """Change settings of a JSON file; None removes a setting."""
    said = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({k: v for k, v in (said | changes).items() if v is not None}))


def published(layout, source, place):
    """Return a folder in the layout with the weights of `source`."""
    folder = shutil.copytree(source, place, ignore=shutil.ignore_patterns("parts", *layout.without))
    own = load_file(folder / "model.safetensors")
    shared = next((own[name] for name in ("shared.weight", "model.shared.weight") if name in own), None)
    copies = {name: shared.clone() for name in layout.copies if name not in own}
    tensors = own | copies | {name: torch.randn(shape) for name, shape in layout.extra.items()}
    tensors = {n: w.half() if layout.half else w for n, w in tensors.items() if n not in layout.dropped}
    (folder / "model.safetensors").unlink()
    if layout.weights.endswith(".index.json"):
        names, stem = sorted(tensors), layout.weights.removesuffix(".bin.index.json")
        parts = {f"{stem}-0000{i + 1}-of-00003.bin": names[i::3] for i in range(3)}
        for part, mine in parts.items():
            torch.save({name: tensors[name] for name in mine}, folder / part)
        places = {name: part for part, mine in parts.items() for name in mine}
        written(folder / layout.weights, {"metadata": {"total_size": 1}, "weight_map": places})
    elif layout.weights.endswith(".bin"):
        torch.save(tensors, folder / layout.weights)
    else:
        save_file(tensors, folder / layout.weights, metadata={"format": "pt"})
    written(folder / "config.json", {"dtype": None, "transformers_version": "4.20.0"} | layout.config)
    if layout.generation is None:
        (folder / "generation_config.json").unlink(missing_ok=True)
    else:
        written(folder / "generation_config.json", layout.generation)
    if layout.tokenizer is None:
        (folder / "tokenizer_config.json").unlink(missing_ok=True)
    else:
        written(folder / "tokenizer_config.json", layout.tokenizer)
    return folder


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    made = {}

    def of(setting):
        if setting not in made:
            place = tmp_path_factory.mktemp("marian")
            folder = marian_models.make(place / "hf", setting)
            made[setting] = folder, convert("hf", folder.path, place / "bundle", OPEN_TASK)
        return made[setting]

    return of


@pytest.mark.parametrize("name", LAYOUTS)
def test_published_layout_becomes_a_bundle_with_its_weights(tmp_path, marian, name):
    layout = LAYOUTS[name]
    of_marian = layout.family == "marian"
    folder, plain = marian(layout.setting) if of_marian else imported(layout.family, layout.setting)
    place = published(layout, folder.path, tmp_path / name.rpartition("/")[2])
    stages = (add_graphs, prove_answer) if name in ANSWERED else ()
    bundle = convert("hf", place, tmp_path / "out", OPEN_TASK, stages=stages)
    ours, theirs = bundle.weights(), plain.weights()
    assert set(ours) == set(theirs)
    for weight, array in theirs.items():
        np.testing.assert_allclose(
            np.asarray(ours[weight], np.float32),
            array,
            rtol=2e-3 * layout.half,
            atol=1e-6 + 1e-4 * layout.half,
        )
    tokenizer, usual = open_tokenizer(bundle), open_tokenizer(plain)
    for line in sentences(4, 3):
        ids = tokenizer.encode(line)
        prompt = len(ids) - len(usual.encode(line))  # prompt of config.json
        assert ids[prompt:] == usual.encode(line) or prompt > 0
        assert tokenizer.beginning == usual.beginning
    options = bundle.options
    assert {key: getattr(options, key) for key in layout.expected} == layout.expected


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_kind_of_folder_is_refused_in_one_line(tmp_path, name):
    family, changes, message = REFUSED[name]
    setting = next(layout.setting for layout in LAYOUTS.values() if layout.family == family)
    folder = shutil.copytree(imported(family, setting)[0].path, tmp_path / "hf")
    written(folder / "config.json", changes)
    if "tokenizer_class" in changes:
        written(folder / "tokenizer_config.json", changes)
    with pytest.raises(CheckpointError, match=message) as error:
        convert("hf", folder, tmp_path / "out", WISH)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_absent_settings_have_the_defaults_of_transformers():
    types = {name: getattr(transformers, cls) for name, cls in CONFIGS.items()}
    assert set(types) == set(DEFAULTS)
    for name, cls in types.items():
        usual = cls()
        assert {key: getattr(usual, key) for key in DEFAULTS[name]} == DEFAULTS[name], name


CONFIGS = {
    **{"bart": "BartConfig", "mbart": "MBartConfig", "m2m_100": "M2M100Config", "pegasus": "PegasusConfig"},
    **{"fsmt": "FSMTConfig", "t5": "T5Config", "mt5": "MT5Config", "umt5": "UMT5Config"},
    "blenderbot": "BlenderbotConfig",
}


def test_docs_name_every_layout_and_every_refused_kind():
    page = (ROOT.parent / "docs" / "models.md").read_text("utf-8")
    table = "".join(
        re.findall(r"^\|.*", page.split("## Published folders")[1].split("\n## ")[0], re.MULTILINE)
    )
    assert set(re.findall(r"`([\w.-]+/[\w.-]+)`", table)) == {*LAYOUTS, *REFUSED}
