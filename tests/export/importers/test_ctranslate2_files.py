"""Files in CTranslate2's format: versions, vocabularies, refused files."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ctranslate2.specs import wav2vec2_spec, whisper_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.bundle.bundle import open_bundle
from engine.errors import BundleError, CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.ctranslate2 import vocabulary_map as ctranslate2_map
from export.importers.ctranslate2.variables import Variables, read_variables
from export.importers.settings import CTranslate2Import
from tests.support.ctranslate2_imports import ARCHITECTURES, imported
from tests.support.ctranslate2_models import Options, write


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ctranslate2")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"w1 w2\n", "no tab"), (b"\xff\t\n", "not readable"), (b"w1\tw1 w2 w3 w4", "4 targets for one")],
)
def test_damaged_vocabulary_map_is_refused(content, complaint, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ctranslate2_map, "MAX_SYMBOL_TARGETS", 3)
    folder = write(tmp_path / "model", Options(layers=(1, 1)))
    (folder / "vmap.txt").write_bytes(content)
    with pytest.raises(CheckpointError, match=complaint):
        convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))
    assert not (tmp_path / "out").exists()


def write_older_version(path: Path, version: int) -> None:
    """Rewrite a model.bin in an older version, without types or aliases."""
    variables = read_variables(path)
    out = [struct.pack("<I", version)]

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    out += [text("TransformerSpec"), struct.pack("<I", 5)]
    names = [*variables.arrays, *(variables.aliases if version < 3 else ())]
    names = [name for name in names if variables.origin(name) in variables.arrays]
    out.append(struct.pack("<I", len(names)))
    for name in names:
        array = variables.array(name)
        out += [text(name), struct.pack("<B", array.ndim), struct.pack(f"<{array.ndim}I", *array.shape)]
        if version < 4:
            out += [struct.pack("<BI", array.dtype.itemsize, array.size), array.tobytes()]
        else:
            out += [struct.pack("<BI", 1 if array.dtype == np.int8 else 0, array.nbytes), array.tobytes()]
    if version >= 3:
        out.append(struct.pack("<I", len(variables.aliases)))
        out += [text(alias) + text(name) for alias, name in variables.aliases.items()]
    path.write_bytes(b"".join(out))


@pytest.mark.parametrize("version", [2, 3])
def test_older_versions_give_the_same_weights(version, tmp_path) -> None:
    options = replace(ARCHITECTURES["OpenNMT-py"], positions="stored")
    folder = write(tmp_path / "new", options)
    new = convert("ctranslate2", folder, tmp_path / "a", CTranslate2Import(source="en", target="de"))
    variables = read_variables(folder / "model.bin")
    # before version 4 a number of four bytes is a float, and attributes are single bytes
    keep = {n: a for n, a in variables.arrays.items() if a.dtype == np.float32 or a.dtype.itemsize == 1}
    assert {a.dtype.itemsize for a in keep.values()} <= {1, 4}
    write_older_version(folder / "model.bin", version)
    old = convert("ctranslate2", folder, tmp_path / "b", CTranslate2Import(source="en", target="de"))
    assert all(np.array_equal(new.weights()[name], weight) for name, weight in old.weights().items())


def test_vocabularies_of_text_lines_are_read(tmp_path) -> None:
    folder = write(tmp_path / "model", Options())
    symbols = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").unlink()
    (folder / "shared_vocabulary.txt").write_text("\r\n".join(symbols) + "\r\n")
    bundle = convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))
    assert open_tokenizer(bundle).encode("w5") == [5 + 4]


def test_unknown_pieces_are_replaced_by_source_pieces() -> None:
    from engine.text.tokenizers.fairseq_pieces import DictionaryPieces
    from engine.text.tokenizers.symbols import make_dictionary

    class Words:
        def encode(self, text: str, out_type: type) -> list[str]:
            return [f"▁{word}" for word in text.split()]

    both = make_dictionary(["<unk>", "</s>", "▁a", "▁b"], {1}, 0)
    tokenizer = DictionaryPieces((Words(), Words()), both, both)
    attention = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0, 0, 1.0]])
    assert tokenizer.encode("a Qx") == [2, 0]
    assert tokenizer.replace_unknown([3, 0], attention, "a Qx") == "b Qx"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: setattr(s.decoder, "alibi", True), "ALiBi"),
        (lambda s: setattr(s.encoder.layer[0].self_attention, "queries_scale", np.nan), "not finite"),
    ],
)
def test_unsupported_parts_are_refused_by_name(change, complaint, tmp_path, monkeypatch) -> None:
    import tests.support.ctranslate2_models as made

    whole = made.specification

    def changed(options: Options) -> Any:
        spec = whole(options)
        change(spec)
        return spec

    monkeypatch.setattr(made, "specification", changed)
    folder = write(tmp_path / "model", Options())
    with pytest.raises(CheckpointError, match=complaint):
        convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["WhisperSpec", "TransformerDecoderSpec", "Wav2Vec2Spec"])
def test_other_kinds_of_models_are_refused_by_name(name, tmp_path) -> None:
    assert whisper_spec.WhisperSpec.__name__ == "WhisperSpec"
    assert wav2vec2_spec.Wav2Vec2Spec.__name__ == "Wav2Vec2Spec"
    (tmp_path / "model.bin").write_bytes(
        struct.pack("<IH", 6, len(name) + 1) + name.encode() + b"\0" + struct.pack("<III", 3, 0, 0)
    )
    with pytest.raises(CheckpointError, match=name):
        convert("ctranslate2", tmp_path, tmp_path / "out", CTranslate2Import(source="en", target="de"))


@pytest.fixture(scope="module")
def small(root) -> bytes:
    return (imported("OpenNMT-py", "int8", root)[0] / "model.bin").read_bytes()


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_damaged_model_is_refused_in_one_line_or_imported_whole(data, small, root, tmp_path_factory) -> None:
    content = bytearray(small)
    for _ in range(data.draw(st.integers(1, 3))):
        near = data.draw(st.sampled_from([200, 2000, len(content) - 1]))
        content[data.draw(st.integers(0, near))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    folder = tmp_path_factory.mktemp("fuzzed")
    (folder / "model.bin").write_bytes(content)
    original = imported("OpenNMT-py", "int8", root)[0]
    for name in ("config.json", "shared_vocabulary.json"):
        (folder / name).write_bytes((original / name).read_bytes())
    try:
        convert("ctranslate2", folder, folder / "out", CTranslate2Import(source="en", target="de"))
    except (CheckpointError, BundleError) as error:
        assert "\n" not in str(error)
        assert not (folder / "out").exists()
    else:
        open_bundle(folder / "out")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("config.json", b"[]", "must be a JSON object"),
        ("config.json", b'{"eos_token": 3}', "eos_token"),
        ("config.json", b'{"decoder_start_token": null}', "decoder_start_token"),
        ("config.json", b'{"layer_norm_epsilon": -1}', "layer_norm_epsilon"),
        ("config.json", b'{"eos_token": "<none>"}', "lacks"),
        ("shared_vocabulary.json", b"{}", "list of symbols"),
        ("shared_vocabulary.json", b'["<unk>", "</s>", "<s>"]', "rows"),
        ("shared_vocabulary.json", b"\xff", "not readable"),
    ],
)
def test_invalid_files_of_the_folder_are_refused(name, content, complaint, root, tmp_path) -> None:
    folder = write(tmp_path / "model", Options(layers=(1, 1)))
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=complaint):
        convert("ctranslate2", folder, tmp_path / "out", CTranslate2Import(source="en", target="de"))


def test_lowest_integer_of_weights_is_minus_127():
    """A kernel that multiplies by the sign can't represent 128."""
    stored = {"w": np.array([[-128, -127, 127]], np.int8), "w_scale": np.array([2.0], np.float32)}
    weight = Variables(6, "TransformerSpec", 7, stored, {}).weight("w")
    assert weight.values.tolist() == [[-127, -127, 127]]
    assert weight.scales.tolist() == [0.5]
