"""Students of Firefox Translations and Bergamot against marian-decoder and Marian's arithmetic in numpy."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
import zstandard

from cli.main import app
from engine.backends import Placement
from engine.bundle.bundle import open_bundle
from engine.bundle.shortlist import SHORTLIST, load_shortlist
from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.graphs.onnx import add_graphs
from export.importers import convert
from export.importers.settings import StudentImport
from tests.support.marian_models import pieces, sentences
from tests.support.marian_reference import Reference, write_binary
from tests.support.models import NEEDS_LIBRARY
from tests.support.native_marian_models import AAN, BASE, DECODING, PRE, SSRU, random_arrays, with_options
from tests.support.students import GOLDEN, agreement, alignment_agreement, answers, quantised

INT8 = ["onnx-pure", pytest.param("onnx-native", marks=NEEDS_LIBRARY)]
TEXTS = (GOLDEN / "input.txt").read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """Return the golden student as a bundle with graphs."""
    return add_graphs(convert("bergamot", GOLDEN, tmp_path_factory.mktemp("student") / "deen"))


@pytest.mark.parametrize("backend", [*INT8, "torch"])
@pytest.mark.parametrize(("name", "beam"), [("int8.b1", 1), ("int8.lex.b1", 1), ("int8.lex.b4", 4)])
def test_int8_answers_with_alphas_agree_with_marian_decoder(student, backend, name, beam):
    if backend == "torch" and "lex" in name:
        pytest.skip("the torch backend has no shortlists")
    placement = Placement(backend, precision="int8", shortlist="lex" in name)
    found = agreement(student, placement, GOLDEN / f"{name}.nbest.gz", TEXTS, beam)
    assert (found.lines, found.entries) == (39, 39 * beam)
    assert found.best >= 38
    assert found.common >= found.entries * 0.96
    assert found.score < 0.05


@pytest.mark.parametrize("backend", INT8)
def test_alignments_use_the_head_that_marian_prints(student, backend):
    found = alignment_agreement(
        student, Placement(backend, precision="int8"), GOLDEN / "int8.lex.b1.align.gz", TEXTS
    )
    assert found.lines >= 11
    assert found.score < 0.05


def test_sentences_are_cut_at_the_students_max_length_break(tmp_path, student):
    assert student.max_sentence_tokens == 128  # Firefox's default
    make(tmp_path / "student", SSRU)
    (tmp_path / "student" / "config.yml").write_text(yaml.safe_dump(DECODING | {"max-length-break": 64}))
    settings = StudentImport(source="de", target="en")
    assert convert("bergamot", tmp_path / "student", tmp_path / "out", settings).max_sentence_tokens == 64


def test_firefox_settings_are_the_default_and_give_its_answers(student):
    options = student.options
    assert (options.beam_size, options.length_penalty, options.max_length_a) == (1, 1.0, 2.0)
    assert (options.beam_rule, student.shortlisted) == ("marian", True)
    tokenizer = open_tokenizer(student)
    told = (GOLDEN / "int8.lex.firefox.txt").read_text("utf-8").splitlines()
    lines = [i for i, text in enumerate(TEXTS) if tokenizer.encode(text)]
    sources = [[*tokenizer.encode(TEXTS[i]), 0] for i in lines]
    placement = Placement("onnx-pure", precision="int8")  # the shortlist is used by default
    found = [tokenizer.decode(h.tokens) for (h,) in answers(student, placement, sources, options)]
    assert sum(text == told[i] for i, text in zip(lines, found, strict=True)) >= 38


def test_int8_weights_equal_the_file_and_floats_derive_from_them(student):
    from export.importers.marian.files import read_arrays

    theirs = read_arrays(GOLDEN / "model.deen.intgemm.alphas.bin.gz")
    ours, matrix = student.weights(), theirs["decoder_l1_rnn_Wf"]
    name = "decoder.layers.0.forget_gate.weight"
    kept = ours.quantized[name]
    np.testing.assert_array_equal(kept.values, matrix.values.T)
    assert kept.alpha == theirs["decoder_l1_rnn_Wf_QuantMultA"].ravel()
    np.testing.assert_array_equal(ours[name], kept.values * kept.scale)
    size = student.file("model.safetensors").stat().st_size
    assert size < 1.1 * len(gzip.decompress((GOLDEN / "model.deen.intgemm.alphas.bin.gz").read_bytes()))


VARIANTS = {
    "ssru": SSRU,
    "ssru pre-norm": SSRU | PRE,
    "ssru of two vocabularies": SSRU | {"tied-embeddings-all": False, "tied-embeddings": True},
    "averaged attention": AAN | {"transformer-dim-aan": 24},
}


def make(folder: Path, changes: dict, alpha: float | None = 127 / 6) -> tuple[dict, dict]:
    """Write a quantised student with random weights, and return its arrays and options."""
    folder.mkdir()
    options = {**BASE, **changes, "dim-vocabs": [len_of(side) for side in ("source", "target")]}
    if options["tied-embeddings-all"]:
        options["dim-vocabs"] = [len_of("source")] * 2
        (folder / "vocab.deen.spm").write_bytes(pieces("source"))
    else:
        for side, name in (("source", "src"), ("target", "trg")):
            (folder / f"{name}vocab.deen.spm").write_bytes(pieces(side))
    arrays = quantised(random_arrays(options, options["dim-vocabs"]), alpha)
    write_binary(with_options(arrays, options), folder / "model.deen.intgemm.bin")
    (folder / "config.yml").write_text(yaml.safe_dump(DECODING))
    return arrays, options


def len_of(side: str) -> int:
    import sentencepiece

    return int(sentencepiece.SentencePieceProcessor(model_proto=pieces(side)).get_piece_size())


@pytest.mark.parametrize("name", VARIANTS)
def test_quantised_models_of_every_kind_equal_marian_in_float_and_int8(tmp_path, name):
    arrays, options = make(tmp_path / "deen", VARIANTS[name])
    bundle = add_graphs(convert("bergamot", tmp_path / "deen", tmp_path / "out"))
    assert bundle.config.quantization == "alphas"
    assert (bundle.source, bundle.target) == ("de", "en")
    tokenizer = open_tokenizer(bundle)
    sources = [[*tokenizer.encode(line)[:6], 0] for line in sentences(5, 8)]
    for precision, backends in (("fp32", ["torch", "onnx-pure"]), ("int8", ["onnx-pure", "onnx", "torch"])):
        reference = Reference(arrays, options, int8=precision == "int8")
        wanted = [reference.beam(s, beams=4, alpha=0.8, penalty=0.3, longest=2 * len(s)) for s in sources]
        for backend in backends:
            found = answers(bundle, Placement(backend, precision=precision), sources, bundle.options)
            close = 1e-4 if precision == "fp32" else 0.05
            for (best, *_), (score, tokens) in zip(found, wanted, strict=True):
                assert best.score == pytest.approx(score, abs=close)
                assert precision == "int8" or best.tokens == list(tokens)
            same = [
                best.tokens == list(tokens) for (best, *_), (_, tokens) in zip(found, wanted, strict=True)
            ]
            assert sum(same) >= len(same) - 1


def test_without_alphas_int8_scales_row_by_row(tmp_path):
    make(tmp_path / "deen", SSRU, alpha=None)
    assert convert("bergamot", tmp_path / "deen", tmp_path / "out").config.quantization == "rows"


def test_alphas_can_be_ignored(tmp_path):
    bundle = convert("bergamot", GOLDEN, tmp_path / "out", StudentImport(alphas=False))
    assert bundle.config.quantization == "rows"
    assert not any(weight.alpha for weight in bundle.weights().quantized.values())


def test_intgemm16_weights_become_floats(tmp_path):
    arrays, options = make(tmp_path / "deen", SSRU)
    sixteen = {
        name: (np.rint(item[0] * np.float32(1024) / item[1]).astype(np.int16), np.float32(1024))
        if isinstance(item, tuple)
        else item
        for name, item in arrays.items()
        if not name.endswith("_QuantMultA")
    }
    write_binary(with_options(sixteen, options), tmp_path / "deen" / "model.deen.intgemm.bin")
    bundle = convert("bergamot", tmp_path / "deen", tmp_path / "out")
    assert bundle.config.quantization == "none"
    whole, multiplier = sixteen["decoder_l1_rnn_W"]
    weight = bundle.weights()["decoder.layers.0.candidate.weight"]
    np.testing.assert_array_equal(weight, whole.T.astype(np.float32) * (np.float32(1) / multiplier))


def test_packed_files_give_the_same_model(tmp_path):
    whole = convert("bergamot", GOLDEN, tmp_path / "deen")
    plain = tmp_path / "unpacked"
    plain.mkdir()
    for path in GOLDEN.iterdir():
        if path.name.startswith("model"):
            (plain / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".zst":
            (plain / path.stem).write_bytes(zstandard.decompress(path.read_bytes()))
    again = convert("bergamot", plain, tmp_path / "again", StudentImport(name="deen"))
    assert again.digest == whole.digest


def test_tree_becomes_a_bundle_for_each_pair_and_failures_are_named(tmp_path, capsys):
    tree = tmp_path / "models"
    for where in ("tiny/deen", "base/deen", "tiny/enfr"):
        (tree / where).mkdir(parents=True)
        for path in GOLDEN.glob("*deen*"):
            shutil.copy(path, tree / where / path.name.replace("deen", where[-4:]))
    (tree / "tiny" / "enfr" / "vocab.enfr.spm.zst").unlink()
    with pytest.raises(SystemExit) as end:
        app(["convert", "bergamot", str(tree), str(tmp_path / "out"), "--all", "--no-onnx"])
    assert end.value.code == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["base-deen", "tiny-deen"]
    told = capsys.readouterr()
    assert "1 of 3 students were not imported" in told.err
    assert "enfr: which vocabularies?" in told.err
    with pytest.raises(SystemExit):
        app(["convert", "bergamot", str(tree), str(tmp_path / "out"), "--all", "--no-onnx"])
    assert "tiny-deen: exists" in capsys.readouterr().out


def test_metadata_with_another_hash_is_refused(tmp_path):
    folder = tmp_path / "deen"
    shutil.copytree(GOLDEN, folder)
    (folder / "metadata.json").write_text(json.dumps({"hash": "0" * 64, "architecture": "tiny"}))
    with pytest.raises(CheckpointError, match=r"its SHA-256 is not that of metadata\.json"):
        convert("bergamot", folder, tmp_path / "out")


def test_answer_of_a_student_is_equal_bit_for_bit_in_any_batch(student):
    tokenizer = open_tokenizer(student)
    sources = [[*tokenizer.encode(text), 0] for text in TEXTS if tokenizer.encode(text)]
    options = replace(student.options, beam_size=3, n_best=3)
    for precision in ("fp32", "int8"):
        placement = Placement(precision=precision)
        together = answers(student, placement, sources, options, together=11)
        alone = answers(student, placement, sources[::6], options, together=1)
        for one, other in zip(together[::6], alone, strict=True):
            assert [(h.tokens, h.score, h.token_scores) for h in one] == [
                (h.tokens, h.score, h.token_scores) for h in other
            ]


def test_shortlist_of_the_bundle_equals_the_file(student):
    config = student.config
    sizes = config.source_vocab, config.target_vocab
    shortlist = load_shortlist(student.file(SHORTLIST).read_bytes(), sizes, config.eos)
    assert shortlist.multiple == 8
    tokens = shortlist.of([*open_tokenizer(student).encode("Guten Morgen"), 0])
    assert len(tokens) % 8 == 0
    assert set(range(50)) <= set(tokens.tolist())
    assert open_bundle(student.path).shortlisted
