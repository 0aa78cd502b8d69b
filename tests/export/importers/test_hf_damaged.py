"""Thirteen damaged folders of each of six families: each gives an error of one line and leaves no files."""

from __future__ import annotations

import json
import shutil

import pytest

from engine.errors import BundleError, CheckpointError
from export.importers import convert
from tests.support.hf_models import WISH, imported
from tests.support.marian_models import make as make_marian

CUTTERS = ("spiece.model", "sentencepiece.bpe.model", "source.spm", "vocab.json", "tokenizer_config.json")


def settings(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def weights(folder, change):
    path = folder / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))


def lied_header(data):
    """Return a safetensors file with wrong offsets in its header."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for entry in header.values():
        if "data_offsets" in entry:
            entry["data_offsets"] = [entry["data_offsets"][0], 2**62]
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + data[8 + length :]


def cutter(folder):
    return next(folder / name for name in CUTTERS if (folder / name).is_file())


DAMAGES = {
    "weights cut short": lambda f: weights(f, lambda data: data[: len(data) // 2]),
    "weights of zeros": lambda f: weights(f, lambda data: bytes(len(data))),
    "a header of 2**63": lambda f: weights(f, lambda data: (2**63).to_bytes(8, "little") + data[8:]),
    "offsets that lie": lambda f: weights(f, lied_header),
    "no weights": lambda f: (f / "model.safetensors").unlink(),
    "a pickle that is none": lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
    "an empty text model": lambda f: cutter(f).write_bytes(b""),
    "a text model of noise": lambda f: cutter(f).write_bytes(bytes(range(256)) * 8),
    "settings that are no JSON": lambda f: (f / "config.json").write_bytes(b'{"model_type": '),
    "settings as a list of lists": lambda f: (f / "config.json").write_text("[" * 9_000),
    "a size in words": lambda f: settings(f, d_model="many"),
    "a vocabulary of billions": lambda f: settings(f, vocab_size=10**12),
    "ids that are none": lambda f: settings(f, pad_token_id=-7, eos_token_id=2.5),
}
FAMILIES = {
    **{"bart": "large-cnn", "pegasus": "relu", "nllb": "relu", "m2m100": "relu"},
    **{"t5": "tied relu", "marian": "relu"},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a valid folder of each family."""
    place = tmp_path_factory.mktemp("whole")
    made = {f: imported(f, s)[0].path for f, s in FAMILIES.items() if f != "marian"}
    return made | {"marian": make_marian(place / "marian", FAMILIES["marian"]).path}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folder_is_refused_in_one_line(tmp_path, whole, family, damage):
    folder = shutil.copytree(whole[family], tmp_path / "hf", ignore=shutil.ignore_patterns("parts"))
    DAMAGES[damage](folder)
    with pytest.raises((CheckpointError, BundleError)) as error:
        convert("hf", folder, tmp_path / "out", WISH)
    message = str(error.value)
    assert "\n" not in message
    assert 20 < len(message) < 2_000
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]
