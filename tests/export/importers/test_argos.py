"""Packages of Argos against CTranslate2 with the settings of Argos, and hostile zips."""

from __future__ import annotations

import io
import json
import stat
import warnings
import zipfile
from pathlib import Path

import ctranslate2
import pytest
import sentencepiece

from cli.main import app
from engine.api import Placement, Service, ServiceSettings
from engine.bundle.bundle import open_bundle
from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.graphs.onnx import add_graphs
from export.importers.ctranslate2.zips import unpack
from tests.support.argos_packages import TEXTS, convert, pack, sentencepiece_model, write


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("packages"), "de", "en")


def argos(package: Path, text: str) -> str:
    """Return the answers of argostranslate 1.9 in float32: pieces, CTranslate2, pieces joined."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model())
    translator = ctranslate2.Translator(str(package / "model"), compute_type="float32", intra_threads=1)
    (result,) = translator.translate_batch(
        [processor.encode(text, out_type=str)], beam_size=4, length_penalty=0.2, replace_unknowns=True
    )
    return "".join(result.hypotheses[0]).replace("\u2581", " ").strip()


def test_packed_and_unpacked_package_give_the_same_bundle(package, tmp_path) -> None:
    (whole,) = convert(package, tmp_path / "a")
    (packed,) = convert(pack(package, tmp_path / "de_en.argosmodel"), tmp_path / "b", "a")
    assert whole.config == packed.config
    assert (whole.path / "model.safetensors").read_bytes() == (packed.path / "model.safetensors").read_bytes()
    assert (whole.source, whole.target, whole.name) == ("de", "en", "de-en")
    assert (whole.options.beam_size, whole.options.length_penalty) == (4, 0.2)
    assert whole.weights().quantized


def test_answers_agree_with_argos(package, tmp_path) -> None:
    (bundle,) = convert(package, tmp_path / "bundle")
    add_graphs(bundle)
    lines = [text.split(" ")[0] for text in TEXTS[40:52]]
    settings = ServiceSettings(Placement(lanes=((4, 8),)))
    service = Service.open([bundle.path], settings)
    service.start()
    try:
        results = list(service.run_many(service.pick("translate"), lines))
    finally:
        service.stop(drain=False, timeout=30)
    agreed = [result.text == argos(package, line) for result, line in zip(results, lines, strict=True)]
    # answers of 256 tokens differ: CTranslate2 cuts them; random models often give such answers
    assert sum(agreed) >= len(lines) - 3


def test_bpe_codes_of_a_package_are_applied_after_moses(package, tmp_path) -> None:
    folder = tmp_path / "bpe"
    folder.mkdir()
    for path in package.rglob("*"):
        if path.is_file() and path.name != "sentencepiece.model":
            target = folder / path.relative_to(package)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    with pytest.raises(CheckpointError, match="neither sentencepiece.model nor bpe.model"):
        convert(folder, tmp_path / "none")
    (folder / "bpe.model").write_text("#version: 0.2\nl o\nlo w</w>\n")
    (bundle,) = convert(folder, tmp_path / "out")
    tokenizer = open_tokenizer(bundle)
    assert bundle.text["normalize"] == "de"
    assert tokenizer.encode("low") == [bundle.config.unk]


def test_folder_of_packages_becomes_a_folder_of_bundles(package, tmp_path) -> None:
    write(tmp_path / "packages", "en", "fr", seed=1)
    write(tmp_path / "packages", "de", "en")
    with pytest.raises(SystemExit) as ended:
        app(["convert", "argos", str(tmp_path / "packages"), str(tmp_path / "out"), "--no-onnx"])
    assert not ended.value.code
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["de-en", "en-fr"]
    assert open_bundle(tmp_path / "out" / "en-fr").target == "fr"


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"type": "sbd"}, "'sbd', not of translation"),
        ({"from_code": "../x"}, "not a language code"),
        ({"to_code": None}, "not a language code"),
        ({"target_prefix": 3}, "not a symbol"),
        ({"target_prefix": "<xx>"}, "lacks the prefix"),
    ],
)
def test_invalid_metadata_is_refused(package, tmp_path, said, complaint) -> None:
    copy = write(tmp_path, "de", "en")
    path = copy / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | said))
    with pytest.raises(CheckpointError, match=complaint):
        convert(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def zipped(*members: tuple[str, bytes], kind: int = stat.S_IFREG) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = (kind | 0o644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (zipped(("p/../../x", b"")), "leads outside"),
        (zipped(("/etc/x", b"")), "leads outside"),
        (zipped(("p\\x", b"")), "leads outside"),
        (zipped(("c:x", b"")), "leads outside"),
        (zipped(("p/x\n", b"")), "leads outside"),
        (zipped(("p/link", b"/etc/passwd"), kind=stat.S_IFLNK), "is a link"),
        (zipped(("p/a", b""), ("p/a", b"")), "a file twice"),
        (zipped(("p/a", b""), ("p/A", b"")), "a file twice"),
        (zipped(("p/a", b""), ("q/a", b"")), "one top folder"),
        (zipped(("p/zeros", b"\0" * 3_000_000)), "would become"),
        (zipped(), "holds 0 files"),
        (b"PK no zip", "not a readable zip"),
        (zipped(("p/a", b"abc"))[:-30], "not a readable zip"),
    ],
)
def test_hostile_zips_are_refused_and_leave_no_files(content, complaint, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "x.argosmodel").write_bytes(content)
    with pytest.raises(CheckpointError, match=complaint) as error:
        convert(tmp_path / "x.argosmodel", tmp_path / "out")
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["tmp", "x.argosmodel"]


def test_zip_member_larger_than_its_declared_size_is_refused(tmp_path) -> None:
    content = bytearray(zipped(("p/a", b"x" * 1000)))
    at = content.rfind(b"PK\x01\x02") + 24
    content[at : at + 4] = (10).to_bytes(4, "little")
    (tmp_path / "x.argosmodel").write_bytes(content)
    with pytest.raises(CheckpointError, match="not a readable zip"), unpack(tmp_path / "x.argosmodel"):
        pass
