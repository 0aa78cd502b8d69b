"""Bundles on disk: round trips, damage, and writes that fail half-way."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.bundle.bundle import Description, add_files, open_bundle, write_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.bundle.weights import quantize_rows
from engine.errors import BundleError, ConfigError
from engine.types import MAX_SENTENCE_TOKENS, DecodeOptions

STACK = StackConfig(embed_dim=8, conv_dim=8, ffn_dim=8, heads=2, kernel_sizes=(3,))
CONFIG = ModelConfig("dynamicconv", source_vocab=9, target_vocab=9, encoder=STACK, decoder=STACK)
DESCRIBED = Description(
    name="toy",
    task="translate",
    source="de",
    target="en",
    config=CONFIG,
    text={"kind": "sentencepiece", "model": "vocabulary.model"},
    generation={"beam_size": 3, "max_length_a": 2, "length_penalty": 0.6},
)
WEIGHTS = {"b": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4), "a": np.ones(5, np.float32)}
FILES = {"vocabulary.model": b"pieces", "README.md": "Grüße\n".encode(), "onnx/step.onnx": b"graph"}


def write(path, *, half=False, **options):
    return write_bundle(path, DESCRIBED, WEIGHTS, FILES, half=half, **options)


@pytest.fixture
def toy(tmp_path):
    return write(tmp_path / "toy").path


def test_written_bundle_reads_back_equal(tmp_path):
    write(tmp_path / "toy")
    bundle = open_bundle(tmp_path / "toy")
    assert (bundle.name, bundle.task, bundle.source, bundle.target) == ("toy", "translate", "de", "en")
    assert bundle.config == CONFIG
    assert bundle.options == DecodeOptions(beam_size=3, max_length_a=2, length_penalty=0.6)
    assert bundle.text == DESCRIBED.text
    for name, weight in bundle.weights().items():
        np.testing.assert_array_equal(weight, WEIGHTS[name])
        assert weight.dtype == np.float32
    assert {name: bundle.file(name).read_bytes() for name in FILES} == FILES
    assert sorted({*FILES, "config.json", "generation_config.json", "model.safetensors"}) == bundle.files()


def test_optional_settings_are_written_only_if_they_differ_from_the_defaults(tmp_path, toy):
    assert not {"shortlisted", "truncates"} & json.loads((toy / "config.json").read_bytes()).keys()
    for flag in ("shortlisted", "truncates"):
        written = write_bundle(
            tmp_path / flag, replace(DESCRIBED, **{flag: True}), WEIGHTS, FILES, half=False
        )
        assert [written.shortlisted, written.truncates] == [flag == "shortlisted", flag == "truncates"]


def test_max_sentence_tokens_is_written_and_read(tmp_path, toy):
    assert "max_sentence_tokens" not in json.loads((toy / "config.json").read_bytes())
    assert open_bundle(toy).max_sentence_tokens == MAX_SENTENCE_TOKENS
    short = replace(DESCRIBED, max_sentence_tokens=48)
    written = write_bundle(tmp_path / "short", short, WEIGHTS, FILES, half=False)
    assert written.max_sentence_tokens == open_bundle(written.path).max_sentence_tokens == 48


@pytest.mark.parametrize("tokens", [15, 0, -1, "48", 48.0, True])
def test_a_cut_that_leaves_no_room_for_a_character_is_refused(tmp_path, tokens):
    with pytest.raises((BundleError, ConfigError), match="max_sentence_tokens"):
        write_bundle(
            tmp_path / "toy", replace(DESCRIBED, max_sentence_tokens=tokens), WEIGHTS, FILES, half=False
        )
    assert not (tmp_path / "toy").exists()


def test_half_precision_is_widened_to_fp32(tmp_path):
    weights = write(tmp_path / "toy", half=True).weights()
    assert weights["b"].dtype == np.float32
    np.testing.assert_array_equal(weights["b"], WEIGHTS["b"].astype(np.float16).astype(np.float32))


def test_weights_rounded_by_rows_need_a_quarter_and_are_not_rounded_twice(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(40, 24)).astype(np.float32) * rng.uniform(0.01, 10, (40, 1)).astype(np.float32)
    weight[3] = 0
    rounded = quantize_rows(weight)
    stored = write_bundle(tmp_path / "toy", DESCRIBED, {"w": rounded}, {}, half=True).weights()
    assert stored.quantized["w"].values.dtype == np.int8
    largest = np.abs(weight).max(axis=1, keepdims=True)
    assert (np.abs(stored["w"] - weight) <= largest / 254 * 1.001).all()
    again = quantize_rows(stored["w"])
    np.testing.assert_array_equal(again.values, rounded.values)
    np.testing.assert_allclose(again.scale, rounded.scale, rtol=1e-6)


def test_the_manifest_holds_what_sha256sum_would_print(toy):
    listed = json.loads((toy / "manifest.json").read_text())["files"]
    assert list(listed) == sorted(listed)
    for name, entry in listed.items():
        content = (toy / name).read_bytes()
        assert entry == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_the_same_input_gives_the_same_bytes(tmp_path):
    one = write(tmp_path / "one").path
    turned = dict(reversed(WEIGHTS.items()))
    files = dict(reversed(FILES.items()))
    two = write_bundle(tmp_path / "two", DESCRIBED, turned, files, half=False).path
    for name in ("manifest.json", *open_bundle(one).files()):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_files_come_from_paths_too(tmp_path):
    (tmp_path / "v").write_bytes(b"pieces")
    bundle = write_bundle(
        tmp_path / "toy", DESCRIBED, WEIGHTS, {"vocabulary.model": tmp_path / "v"}, half=False
    )
    assert bundle.file("vocabulary.model").read_bytes() == b"pieces"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"nowhere: no such bundle folder.*convoy convert"):
        open_bundle(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["manifest.json", "config.json", "model.safetensors", "vocabulary.model"])
def test_a_missing_file_is_named(toy, name):
    (toy / name).unlink()
    with pytest.raises(BundleError, match=f"{name}.*missing"):
        open_bundle(toy)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "model.safetensors", "onnx/step.onnx"]
)
def test_a_changed_byte_is_found(toy, name):
    content = bytearray((toy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (toy / name).write_bytes(content)
    with pytest.raises(BundleError, match=f"{name}.*SHA-256"):
        open_bundle(toy)


def test_a_truncated_file_is_found_even_without_hashing(toy):
    os.truncate(toy / "model.safetensors", 20)
    with pytest.raises(BundleError, match=r"model\.safetensors: has 20 bytes"):
        open_bundle(toy, verify=False)


def forge(toy, name, content):
    """Replace a file and update its hash in the manifest."""
    (toy / name).write_bytes(content)
    manifest = json.loads((toy / "manifest.json").read_text())
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["files"][name] = entry
    (toy / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", "not readable as JSON"),
        ("config.json", b"\xff", "not readable as JSON"),
        ("config.json", b"[]", "must be a JSON object"),
        ("config.json", b'{"format": 2}', "format 2 is unknown.*upgrade"),
        ("config.json", b'{"format": true}', "format True is unknown"),
        ("config.json", b'{"format": 1, "later": 0}', "unknown keys.*newer"),
        ("config.json", b'{"format": 1, "name": 5}', "lacks the keys 'task'.*name must be of type str"),
        ("generation_config.json", b'{"beams": 3}', "unknown keys.*beam_size"),
        ("generation_config.json", b'{"beam_size": "3"}', "beam_size must be of type int"),
        ("generation_config.json", b'{"beam_size": true}', "beam_size must be of type int"),
    ],
)
def test_a_wrong_configuration_is_named(toy, name, content, message):
    forge(toy, name, content)
    with pytest.raises(BundleError, match=f"{name}.*({message})"):
        open_bundle(toy)


def test_an_impossible_model_is_a_config_error_with_the_file(toy):
    values = json.loads((toy / "config.json").read_text())
    values["model"]["encoder"]["heads"] = 3
    forge(toy, "config.json", json.dumps(values).encode())
    with pytest.raises(ConfigError, match=r"config\.json.*heads 3"):
        open_bundle(toy)


@pytest.mark.parametrize("content", [b"", b"x" * 100, (2**40).to_bytes(8, "little") + b"{}"])
def test_weights_that_are_not_safetensors_are_refused(toy, content):
    forge(toy, "model.safetensors", content)
    with pytest.raises(BundleError, match=r"model\.safetensors: not a readable safetensors file"):
        open_bundle(toy).weights()


def test_weights_of_another_type_are_refused(toy):
    from safetensors.numpy import save

    forge(toy, "model.safetensors", save({"a": np.ones(3, np.int64)}))
    with pytest.raises(BundleError, match="a is I64, not one of F32, F16, I8"):
        open_bundle(toy).weights()


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/../../b", "a//b", ".", "", "a\\..\\b", "C:/x"]
)
def test_a_manifest_that_leaves_the_folder_is_refused(toy, name):
    manifest = json.loads((toy / "manifest.json").read_text())
    manifest["files"][name] = {"size": 0, "sha256": ""}
    (toy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="leaves the bundle's folder"):
        open_bundle(toy)


def test_files_that_are_not_listed_can_not_be_reached(toy):
    (toy / "notes.txt").write_text("mine")
    bundle = open_bundle(toy)
    with pytest.raises(BundleError, match="no file 'notes.txt'"):
        bundle.file("notes.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "more"])
def test_a_pipe_in_a_bundle_is_refused_without_being_read(toy, name):
    (toy / name).unlink(missing_ok=True)
    os.mkfifo(toy / name)
    with pytest.raises(BundleError, match=f"{name} is no regular file"):
        open_bundle(toy)


@pytest.mark.parametrize("name", ["model.pt", "onnx/weights.bin", "x.PKL"])
def test_pickles_have_no_place_in_a_bundle(toy, name):
    (toy / name).write_bytes(b"")
    with pytest.raises(BundleError, match="remove it"):
        open_bundle(toy)
    with pytest.raises(BundleError, match="looks like a pickle"):
        write_bundle(toy.parent / "other", DESCRIBED, WEIGHTS, {name: b""}, half=False)


def test_weights_too_large_for_fp16_are_refused_before_anything_is_written(tmp_path):
    big = {"a": np.array([70_000.0], np.float32)}
    with pytest.raises(BundleError, match="a holds values that are not finite.*fp32"):
        write_bundle(tmp_path / "toy", DESCRIBED, big, {}, half=True)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_bundle_is_not_overwritten_unasked(toy):
    with pytest.raises(BundleError, match="already exists"):
        write(toy)


def test_overwriting_replaces_everything(toy):
    (toy / "left-over.txt").write_text("old")
    write(toy, half=True, overwrite=True)
    assert not (toy / "left-over.txt").exists()
    assert [p.name for p in toy.parent.iterdir()] == ["toy"]


@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_failing_write_leaves_the_old_bundle(toy, monkeypatch, call):
    before = {p.name: p.read_bytes() for p in toy.iterdir() if p.is_file()}
    true, calls = getattr(os, call), []

    def failing(*arguments, **named):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return true(*arguments, **named)

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(OSError, match="No space"):
        write(toy, half=True, overwrite=True)
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in toy.iterdir() if p.is_file()} == before
    assert [p.name for p in toy.parent.iterdir()] == ["toy"]
    open_bundle(toy)


def test_invalid_description_never_replaces_a_bundle(toy):
    import dataclasses

    for wrong in ({"text": {}}, {"generation": {"beams": 1}}, {"name": 5}):
        with pytest.raises(BundleError):
            write_bundle(
                toy, dataclasses.replace(DESCRIBED, **wrong), WEIGHTS, {}, half=False, overwrite=True
            )
    assert open_bundle(toy).name == "toy"


def test_files_can_be_added_and_replaced(toy):
    (toy / "notes.txt").write_text("mine")
    held = (toy / "model.safetensors").read_bytes()
    bundle = add_files(toy, {"onnx/encode.onnx": b"new", "onnx/step.onnx": b"other"})
    assert bundle.file("onnx/encode.onnx").read_bytes() == b"new"
    assert open_bundle(toy).file("onnx/step.onnx").read_bytes() == b"other"
    assert (toy / "model.safetensors").read_bytes() == held
    assert (toy / "notes.txt").read_text() == "mine"


def test_file_can_be_removed(toy):
    bundle = add_files(toy, {"onnx/step.onnx": None, "onnx/none.onnx": None})
    assert "onnx/step.onnx" not in bundle.files()
    assert not (toy / "onnx" / "step.onnx").exists()
    with pytest.raises(BundleError):
        add_files(toy, {"config.json": None})
    assert open_bundle(toy).files() == bundle.files()


def test_adding_does_not_touch_a_copy_that_shares_its_files(toy, tmp_path):
    shutil.copytree(toy, tmp_path / "copy", copy_function=os.link)
    add_files(toy, {"onnx/step.onnx": b"other"})
    assert open_bundle(tmp_path / "copy").file("onnx/step.onnx").read_bytes() == b"graph"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "manifest.json", "../x"])
def test_own_files_can_not_be_added(toy, name):
    with pytest.raises(BundleError):
        add_files(toy, {name: b""})
    open_bundle(toy)


@given(st.binary(max_size=200))
def test_no_manifest_makes_a_traceback(tmp_path_factory, content):
    toy = tmp_path_factory.mktemp("fuzz")
    (toy / "manifest.json").write_bytes(content)
    with pytest.raises(BundleError):
        open_bundle(toy)
