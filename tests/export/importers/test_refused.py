"""Refused imports of fairseq: all problems are in one clear error, and no files are written."""

from __future__ import annotations

import argparse
import re
import shutil
import warnings
import zipfile

import pytest
import torch

from engine.errors import CheckpointError
from export.importers import convert
from export.importers.settings import FairseqImport
from tests.support.checkpoints import folder_of, namespace, refused, state
from tests.support.golden_fixtures import ROOT, fixture, parameters


@pytest.fixture
def made(tmp_path):
    """Write a folder with dyn_noglu's dictionaries and a checkpoint of these parts."""
    return lambda content, *, old=False: folder_of(tmp_path / "made", content, old=old)


@pytest.fixture
def whole(made):
    """Return a valid folder."""
    return made({"args": namespace(), "model": state()})


# Options


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


@pytest.mark.parametrize("name", parameters("transformer_base"))
def test_all_unsupported_options_of_a_transformer_are_named_at_once(name, tmp_path):
    path = fixture(name).path
    wrong = {
        "activation_fn": "relu_squared",
        "adaptive_softmax_cutoff": [10],
        "base_layers": 2,
        "char_inputs": True,
        "cross_self_attention": True,
        "decoder_layers_to_keep": "0,1",
        "encoder_xformers_att_config": "{}",
        "merge_src_tgt_embed": True,
        "no_cross_attention": True,
        "quant_noise_pq": 0.1,
        "quant_noise_scalar": 0.5,
        "scale_heads": True,
    }
    content = {"args": namespace(path, **wrong), "model": state(path)}
    refused(folder_of(tmp_path / "made", content, like=path), *(f"{option} = " for option in wrong))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "tacotron_2"}, "'tacotron_2' is not supported.*fconv_wmt_en_de.*lightconv_iwslt_de_en"),
        ({"arch": "absent"}, "architecture None"),
        ({"arch": ["lightconv"]}, r"architecture \['lightconv'\]"),
        ({"encoder_kernel_size_list": [3, 7]}, "2 widths for 3 layers"),
        ({"encoder_kernel_size_list": [2, 7, 15]}, "must be odd"),
        ({"encoder_kernel_size_list": "[3, 7, 15]"}, r"encoder_kernel_size_list = '\[3, 7, 15\]' is not"),
        ({"encoder_conv_type": "renorm"}, "mixer 'renorm'"),
        ({"max_target_positions": 10**9}, "max_target_positions.*65536"),
        ({"encoder_embed_dim": 10**9}, "encoder_embed_dim = 1000000000 is not between"),
        ({"decoder_layers": 10**4, "decoder_kernel_size_list": [3]}, "decoder_layers = 10000 is not between"),
        ({"encoder_attention_heads": 0}, "encoder_attention_heads = 0 is not between"),
        ({"encoder_embed_dim": 60_000, "decoder_embed_dim": 60_000}, r"shape \(120, 64\).*60000"),
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
def test_inconsistent_options_are_refused(made, changes, message):
    refused(made({"args": namespace(**changes), "model": state()}), message)


# Weights


def test_values_that_are_not_finite_are_refused(made):
    weights = state()
    weights["decoder.layers.0.fc1.bias"][3] = float("nan")
    refused(made({"args": namespace(), "model": weights}), r"decoder\.layers\.0\.fc1\.bias.*not finite")


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.zeros(128, dtype=torch.int32), "holds int32, not floats"),
        (torch.zeros(1).expand(128), "not an ordinary tensor"),
        (torch.zeros(128, device="meta"), "not an ordinary tensor"),
        (torch.zeros(128).to_sparse(), "not an ordinary tensor|not a readable checkpoint"),
    ],
)
def test_weights_other_than_plain_floats_are_refused(made, weight, message):
    weights = state()
    weights["decoder.layers.0.fc1.bias"] = weight
    refused(made({"args": namespace(), "model": weights}), message)


def test_every_weight_that_does_not_fit_is_named(made):
    weights = state()
    weights["decoder.layers.0.extra"] = torch.zeros(3)
    del weights["encoder.layers.1.fc2.bias"]
    weights["encoder.layers.0.layer_norms.0.bias"] = torch.zeros(64)
    refused(
        made({"args": namespace(), "model": weights}),
        r"decoder\.layers\.0\.extra is not part of the model",
        r"encoder\.layers\.1\.fc2\.bias is missing",
        r"encoder\.layers\.0\.layer_norm1\.bias occurs under two names",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "no 'model'"),
        ({"args": None}, "no 'model'"),
        ({"model": {"a": 1}}, "names to tensors"),
        ({"model": {"a\x1b[2Jb": torch.zeros(1)}}, r"a weight called 'a\\x1b\[2Jb'"),
        ({"model": {}, "args": None, "cfg": 5}, "neither 'args' nor a 'cfg'"),
        ({"model": {}, "args": argparse.Namespace()}, "architecture None"),
        (
            {"model": {"encoder.version": torch.zeros(2)}, "args": argparse.Namespace()},
            "version must be one number",
        ),
    ],
)
def test_other_files_of_torch_are_refused(made, content, message):
    refused(made(content), message)


def test_configuration_that_contains_itself_is_refused(made):
    endless = {"_name": "lightconv"}
    endless["encoder"] = endless
    refused(made({"args": None, "cfg": {"model": endless}, "model": state()}), "nested without end")


# Folders


def test_folder_without_a_clear_checkpoint_is_refused(whole, tmp_path):
    (whole / "model.pt").rename(whole / "a.pt")
    assert convert("fairseq", whole, tmp_path / "one").name == "one"
    shutil.copyfile(whole / "a.pt", whole / "b.pt")
    refused(whole, r"several checkpoints \['a.pt', 'b.pt'\].*--checkpoint.*ensemble")
    assert convert("fairseq", whole, tmp_path / "two", FairseqImport(checkpoints=("b.pt",))).name == "two"
    refused(whole, "no checkpoint 'c.pt'", settings=FairseqImport(checkpoints=("b.pt", "c.pt")))
    (whole / "a.pt").unlink()
    (whole / "b.pt").unlink()
    refused(whole, "holds no checkpoint")
    refused(whole / "nowhere", "no such folder")


def test_languages_are_never_guessed(made, tmp_path):
    path = made({"args": namespace(source_lang=None), "model": state()})
    refused(path, r"give source and target.*src.*tgt")
    refused(path, r"no 'dict\.fr\.txt'", settings=FairseqImport(source="fr"))
    turned = convert(
        "fairseq", path, tmp_path / "out", FairseqImport(source="src", target="tgt", name="mine")
    )
    assert (turned.source, turned.target, turned.name) == ("src", "tgt", "mine")


def test_unambiguous_dictionaries_are_found(whole, tmp_path):
    inner = whole / "data-bin" / "wmt"
    inner.mkdir(parents=True)
    for name in ("dict.src.txt", "dict.tgt.txt"):
        (whole / name).rename(inner / name)
    found = convert("fairseq", whole, tmp_path / "found")
    shutil.copytree(inner, whole / "other")
    refused(whole, r"several folders \['data-bin/wmt', 'other'\].*--dictionaries")
    chosen = convert("fairseq", whole, tmp_path / "chosen", FairseqImport(dictionaries=whole / "other"))
    assert found.manifest.keys() == chosen.manifest.keys() >= {"dict.src.txt", "dict.tgt.txt"}
    refused(whole, "no such folder of dict", settings=FairseqImport(dictionaries=whole / "nowhere"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a b c\n", r"dict\.src\.txt, line 1: must be 'symbol count'"),
        (b"a 1\nb\n", r"dict\.src\.txt, line 2: must be 'symbol count'"),
        (b"a 1\nb many\n", r"dict\.src\.txt, line 2: must be 'symbol count'"),
        (b"a 1\n\nb 2\n", r"dict\.src\.txt, line 2: must be 'symbol count'"),
        (b"a 1\na 2\n", r"dict\.src\.txt, line 2: 'a' occurs twice"),
        (b"\xff\xfe 1\n", r"dict\.src\.txt: not readable as UTF-8"),
        (b"", r"shape \(120, 64\).*\(4, 64\)"),
    ],
)
def test_invalid_dictionaries_are_refused(whole, content, message):
    (whole / "dict.src.txt").write_bytes(content)
    refused(whole, message)


def test_missing_dictionary_or_one_of_another_size_is_refused(whole):
    with (whole / "dict.src.txt").open("a") as lines:
        lines.write("more 1\n")
    refused(whole, r"shape \(120, 64\).*\(121, 64\)")
    (whole / "dict.src.txt").unlink()
    refused(whole, r"no 'dict\.src\.txt'")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a b\nc\n", "line 2: must be two units"),
        ("a b 7\nc d\n", "line 2: must be two units and a count"),
        ("a b 7\nc d e\n", "line 2: must be two units and a count"),
        ("#version: 0.2\na b 7\n", "line 2: must be two units,"),
        ("#version: 9\na b\n", "version: 9"),
    ],
)
def test_invalid_codes_are_refused(whole, content, message):
    (whole / "code").write_text(content)
    refused(whole, message)


def test_folder_with_two_kinds_of_segmentation_is_refused(whole):
    for name in ("code", "bpecodes"):
        (whole / name).write_text("#version: 0.2\na b\n")
    refused(whole, r"several files of BPE codes \['bpecodes', 'code'\]")
    (whole / "code").rename(whole / "sentencepiece.bpe.model")
    refused(whole, r"BPE codes \(bpecodes\) and a SentencePiece model")
    (whole / "bpecodes").unlink()
    refused(whole, "not a SentencePiece model")
    (whole / "sentencepiece.bpe.model").rename(whole / "vocab.json")
    refused(whole, r"byte-level BPE \(vocab.json\) without merges.txt")


@pytest.mark.parametrize(
    ("bpe", "message"),
    [
        ("sentencepiece", r"it holds no \*\.model"),
        ("gpt2", "it holds neither encoder.json with vocab.bpe nor vocab.json with merges.txt"),
        ("byte_bpe", "cut by byte_bpe, which is not read; .* with --pretokenized"),
        ("bytes", "most symbols of its dictionary are not bytes|one dictionary for both sides"),
        ("characters", "most symbols of its dictionary are longer; with --pretokenized"),
    ],
)
def test_missing_tokenizer_of_the_checkpoint_is_refused(made, tmp_path, bpe, message):
    folder = made({"args": namespace(bpe=bpe), "model": state()})
    refused(folder, message)
    bundle = convert("fairseq", folder, tmp_path / "out", FairseqImport(pretokenized=True))
    assert bundle.text["pretokenized"] is True


def test_pointer_or_web_page_in_place_of_a_checkpoint_is_named(whole):
    (path,) = whole.glob("*.pt")
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    refused(whole, "Git LFS pointer")
    path.write_text("<html><body>404</body></html>")
    refused(whole, "is a web page")


def test_convolution_with_exchanged_axes_is_refused(tmp_path):
    """The projection made of it would have the right shape."""
    folder = tmp_path / "fconv"
    shutil.copytree(ROOT / "golden" / "options" / "f_plain", folder)
    content = torch.load(folder / "model.pt", weights_only=False)
    name = next(n for n in content["model"] if re.search(r"encoder\.convolutions\.\d+\.weight_v", n))
    kernel = content["model"][name]
    content["model"][name] = kernel.transpose(0, 1).contiguous()
    torch.save(content, folder / "model.pt")
    with pytest.raises(CheckpointError, match=r"convolutions\.0\.weight has shape"):
        convert("fairseq", folder, tmp_path / "out")


def test_zip_with_a_duplicate_member_is_refused(whole, tmp_path):
    path = whole / "model.pt"
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(archive.namelist()[0], b"")
    with pytest.raises(CheckpointError, match="it holds a member twice"):
        convert("fairseq", whole, tmp_path / "out")
