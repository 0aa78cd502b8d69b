"""Text pipelines of imported fairseq models: Moses with BPE codes, SentencePiece, plain tokens."""

from __future__ import annotations

import collections
import json
import shutil
import subprocess
import sys

import pytest
import sentencepiece
import torch
from sacremoses import MosesPunctNormalizer

from engine.bundle.bundle import open_bundle
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.checkpoint import read_checkpoint
from export.importers.settings import FairseqImport
from tests.support.checkpoints import folder_of, namespace, state
from tests.support.golden_fixtures import REAL, ROOT, SELECTION, fixture, folder, imported, real_golden

SENTENCES = [
    "The ship sails well-known waters at 7:30, doesn't it?",
    'He said: "Two & three make five" - and left.',
    "Über den Wolken muss die Freiheit grenzenlos sein.",
    "A price of 3,50 € is <too> high [for me] | you.",
]


def resized(source: int, target: int) -> collections.OrderedDict:
    """Return the weights of dyn_noglu for dictionaries of other sizes."""
    weights = state()
    weights["encoder.embed_tokens.weight"] = torch.zeros(source, 64)
    weights["decoder.embed_tokens.weight"] = torch.zeros(target, 64)
    weights["decoder.output_projection.weight"] = torch.zeros(target, 64)
    return weights


def of_dictionaries(path, symbols, languages=("de", "en"), **options):
    """Write a folder of a model with these symbols on both sides."""
    size = len(symbols) + 4
    given = namespace(source_lang=languages[0], target_lang=languages[1])
    folder_of(path, {"args": given, "model": resized(size, size)})
    for language in languages:
        lines = "".join(f"{symbol} {1000 - i}\n" for i, symbol in enumerate(symbols))
        (path / f"dict.{language}.txt").write_text(lines, "utf-8")
    return path


@pytest.mark.skipif(folder(REAL) is None, reason="no ../shared/golden/real-de-en")
def test_published_model_keeps_its_text_pipeline():
    bundle = imported(REAL)
    found = {
        k: bundle.text[k] for k in ("bpe", "aggressive", "escape", "lowercase", "pretokenized", "normalize")
    }
    assert found == {
        "bpe": "bpecodes",
        "aggressive": True,
        "escape": True,
        "lowercase": False,
        "pretokenized": False,
        "normalize": "en",
    }
    tokenizer = open_tokenizer(bundle)
    for result in real_golden()["results"]:
        assert [*tokenizer.encode(result["src"]), bundle.config.eos] == result["source_ids"]
        assert tokenizer.decode(result["hyps"][0]["tokens"]) == result["text"]


def dictionary_symbols(language):
    lines = (SELECTION / REAL / f"dict.{language}.txt").read_text("utf-8").splitlines()
    return [line.rsplit(" ", 1)[0] for line in lines]


@pytest.fixture(scope="module")
def moses(tmp_path_factory):
    """Write a folder with the published model's dictionaries and codes."""
    path = of_dictionaries(tmp_path_factory.mktemp("moses") / "made", dictionary_symbols("de"))
    shutil.copyfile(SELECTION / REAL / "bpecodes", path / "bpecodes")
    return path


def test_codes_of_fastbpe_and_subword_nmt_segment_alike(moses, tmp_path):
    ours = open_tokenizer(convert("fairseq", moses, tmp_path / "subword-nmt"))
    shutil.copytree(moses, tmp_path / "fast")
    lines = (moses / "bpecodes").read_text("utf-8").splitlines()
    assert lines[0] == "#version: 0.2"
    counted = "".join(f"{line} {5000 - i}\n" for i, line in enumerate(lines[1:]))
    (tmp_path / "fast" / "bpecodes").write_text(counted, "utf-8")
    fast = open_tokenizer(convert("fairseq", tmp_path / "fast", tmp_path / "fastBPE"))
    for sentence in SENTENCES:
        ids = ours.encode(sentence)
        assert len(ids) > 8
        assert fast.encode(sentence) == ids


def test_moses_text_decodes_to_itself_after_segmentation(moses, tmp_path):
    """The test skips translations of fairseq with a piece that is not in the dictionary."""
    tokenizer = open_tokenizer(convert("fairseq", moses, tmp_path / "out"))
    texts = [result["text"] for result in real_golden()["results"]]
    encoded = [(text, tokenizer.encode_target(text)) for text in texts]
    whole = [(text, ids) for text, ids in encoded if 3 not in ids]
    assert len(whole) > 180
    punctuated = MosesPunctNormalizer("en").normalize  # it moves full stops into quotes
    assert [tokenizer.decode(ids) for _, ids in whole] == [punctuated(text) for text, _ in whole]


def test_pretokenized_text_is_not_changed(moses, tmp_path):
    tokenizer = open_tokenizer(convert("fairseq", moses, tmp_path / "out", FairseqImport(pretokenized=True)))
    symbols = dictionary_symbols("de")
    begun = next(s for s in symbols if s.endswith("@@"))
    text = f"{symbols[5]} {begun} {symbols[9]} unheard-of-symbol"
    ids = tokenizer.encode(text)
    assert ids == [9, symbols.index(begun) + 4, 13, 3]
    assert tokenizer.decode(ids[:3]) == f"{symbols[5]} {begun.removesuffix('@@')}{symbols[9]}"


def test_without_codes_text_is_tokens_between_spaces():
    bundle = imported("dyn_glu")
    assert bundle.text["pretokenized"]
    tokenizer = open_tokenizer(bundle)
    lines = (fixture("dyn_glu").path / "dict.src.txt").read_text("utf-8").split("\n")
    assert tokenizer.encode(lines[0].split(" ")[0] + " " + lines[7].split(" ")[0]) == [4, 11]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Write a folder with a SentencePiece model, and dictionaries in another order."""
    path = tmp_path_factory.mktemp("pieces")
    lines = [result["src"] for result in real_golden()["results"]] + SENTENCES
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(path / "trained"),
        vocab_size=300,
        model_type="bpe",
        character_coverage=1.0,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path / "trained.model"))
    symbols = sorted(processor.id_to_piece(i) for i in range(3, 300))
    made = of_dictionaries(path / "made", symbols)
    shutil.copyfile(path / "trained.model", made / "sentencepiece.bpe.model")
    return made, processor, symbols


def test_sentencepiece_text_is_mapped_by_the_dictionary_and_back(pieces, tmp_path):
    path, processor, symbols = pieces
    bundle = convert("fairseq", path, tmp_path / "out")
    assert (bundle.text["sentencepiece"], bundle.text["pretokenized"]) == ("sentencepiece.bpe.model", False)
    tokenizer = open_tokenizer(bundle)
    for sentence in SENTENCES:
        expected = processor.encode(sentence, out_type=str)
        ids = tokenizer.encode(sentence)
        assert ids == [symbols.index(piece) + 4 for piece in expected]
        assert tokenizer.pieces(ids, target=True) == expected
        assert tokenizer.decode([*ids, 2]) == sentence
        words = tokenizer.words(ids, target=True)
        assert len(words) == len(sentence.split())
        ends = [*words[1:], len(ids)]
        assert [
            tokenizer.word(ids[a:b], target=True) for a, b in zip(words, ends, strict=True)
        ] == sentence.split()
        for count in range(len(ids)):
            settled = tokenizer.decode_whole_words(ids[:count])
            assert sentence.startswith(settled)
            assert len(settled.split()) >= sum(word < count for word in words) - 1
    assert tokenizer.encode("a \u4e2d")[-1] == 3


def test_dictionary_of_a_language_model_is_used_on_both_sides(tmp_path):
    if "lm_adaptive" not in {p.name for p in (ROOT.parent.parent / "shared" / "golden").glob("*")}:
        pytest.skip("no ../shared/golden/lm_adaptive")
    path = ROOT.parent.parent / "shared" / "golden" / "lm_adaptive"
    assert read_checkpoint(path / "checkpoint.pt").arguments["task"] == "language_modeling"
    bundle = convert("fairseq", path, tmp_path / "out")
    assert (bundle.source, bundle.target) == ("und", "und")
    assert bundle.text["source_dictionary"] == bundle.text["target_dictionary"] == "dict.txt"
    assert open_tokenizer(bundle).encode_target("unheard-of") == [3]
    named = convert("fairseq", path, tmp_path / "named", FairseqImport(target="en"))
    assert (named.source, named.target) == ("en", "en")


def test_inspect_shows_the_text_pipeline_and_the_members(tmp_path):
    members = tuple(str(SELECTION / name / "checkpoint.pt") for name in ("dyn_glu", "dyn_glu_fp16"))
    convert(
        "fairseq", SELECTION / "dyn_glu", tmp_path / "out", FairseqImport(checkpoints=members, lowercase=True)
    )
    command = [sys.executable, "-m", "cli.main", "inspect", str(tmp_path / "out"), "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT.parent).stdout)
    assert said["text"] == open_bundle(tmp_path / "out").text
    assert (said["text"]["pretokenized"], said["text"]["lowercase"]) == (True, True)
    assert said["architecture"] == "ensemble"
    assert said["members"] == ["dynamicconv", "dynamicconv"]
