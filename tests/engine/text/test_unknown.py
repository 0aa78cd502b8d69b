"""Source words in the place of unknown target words."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cli.main import table
from engine.answers.drafts import Drafts
from engine.answers.text_model import TextModel
from engine.api import Placement, Service, ServiceSettings, TextOptions
from engine.bundle.bundle import Bundle, open_bundle
from engine.errors import BundleError, CheckpointError, InvalidRequest
from engine.schedule.slices import at_once
from engine.text.tokenizers.fairseq import Fairseq, read_dictionary
from engine.text.tokenizers.fairseq import FairseqSettings as Text
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.text.tokenizers.unknown import read_table, replace_unknown, word_of_each
from engine.types import DecodeOptions, Limits
from export.graphs.onnx import add_graphs
from export.importers import convert
from export.importers.checkpoint import read_checkpoint
from export.importers.settings import FairseqImport
from server.http.schemas import TranslateRequest, text_options, validate
from tests.support.finished import plan
from tests.support.golden_fixtures import folder, parameters

NAME = "fconv_base"
MODELS = Path(__file__).parents[3] / "models"


def test_word_of_each_symbol_follows_from_the_separators() -> None:
    symbols = ["das", "Ł@@", "ó@@", "dź", "@@", "a@@", "b@@"]
    assert word_of_each(symbols, "@@") == ["das", *["Łódź"] * 3, *["ab"] * 3]
    assert word_of_each([], "@@") == []


def test_unknown_word_is_looked_up_or_copied_but_never_the_end_of_the_sentence() -> None:
    attention = np.array([[0.2, 0.1, 0.7], [0.0, 0.1, 0.9], [0.3, 0.3, 0.4], [0.9, 0.1, 0.0]], np.float32)
    words = replace_unknown(
        ["<unk>", "<unk>", "<unk>", "x"], [0, 1, 2], ["eins", "Bär"], attention, {"Bär": "bear"}
    )
    assert words == ["eins", "bear", "eins", "x"]
    # a truncated source: the model read two of three words
    cut = replace_unknown(["<unk>"], [0], ["eins", "zwei", "drei"], attention, {})
    assert cut == ["eins"]
    assert replace_unknown(["<unk>"], [0], [], attention[:, :1], {}) == ["<unk>"]


def test_dictionary_of_words_is_read_as_in_fairseq(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("Bär bear\n\n  Haus\thouse 17\r\nBär bruin\n", "utf-8")
    assert read_table(path) == {"Bär": "bruin", "Haus": "house"}
    for data, remedy in (
        (b"a b\nc\n", "line 2: must be 'source target'"),
        (b"\xff a", "not readable as UTF-8"),
    ):
        path.write_bytes(data)
        with pytest.raises(BundleError, match=remedy):
            read_table(path)
    with pytest.raises(BundleError, match="not readable"):
        read_table(tmp_path / "none")


def test_words_are_replaced_before_detokenisation(tmp_path: Path) -> None:
    path = tmp_path / "dict.txt"
    path.write_text("in 5\n, 4\nŁ@@ 3\nó@@ 3\ndź 3\n", "utf-8")
    words = read_dictionary(path)
    tokenizer = Fairseq(Text("s", "t", source_language="pl"), (words, words), None, {"in": "w"})
    attention = np.eye(6, 7, dtype=np.float32)[[5, 0, 1, 4]]
    assert tokenizer.replace_unknown([3, 5, 3, 3], attention, "a & b, in Łódź") == "Łódź, & w"
    assert tokenizer.decode([3, 5, 3, 3]) == "<unk>, <unk> <unk>"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    source = folder(NAME)
    if source is None:
        pytest.skip(f"no golden/{NAME}")
    place = tmp_path_factory.mktemp("unknown")
    (place / "words").write_text("da DA\nfa FA\nbabü X\n", "utf-8")
    settings = FairseqImport(unk_dictionary=place / "words")
    return add_graphs(convert("fairseq", source, place / "bundle", settings))


def answer(path: Path, texts: list[str], options: TextOptions):
    service = Service.open([path], ServiceSettings(Placement(lanes=((5, 8),))))
    service.start()
    try:
        return asyncio.run(service.run(service.models()[0].name, texts, options))
    finally:
        service.stop(drain=False, timeout=10.0)


def test_model_with_unknown_words_answers_with_source_words(bundle: Bundle) -> None:
    texts = ["da fa gad", "ka qqq da zzz", "ka bab@@ ü gad da"]
    decode = {"unk_penalty": -6.0, "beam_size": 4, "max_length": 12}
    wanted = answer(bundle.path, texts, TextOptions(decode, alignment=True, alternatives=2))
    found = answer(bundle.path, texts, TextOptions(decode, replace_unk=True, alternatives=2))
    table = {"da": "DA", "fa": "FA", "babü": "X"}
    copied = 0
    for text, plain, result in zip(texts, wanted, found, strict=True):
        symbols = text.split()
        whole = ["babü" if s in ("bab@@", "ü") else s for s in symbols]
        (aligned,) = plain.alignment
        words = list(plain.tokens[:-1])
        for i, word in enumerate(words):
            if word == "<unk>":
                source = whole[int(np.argmax(aligned.matrix[i][: len(whole)]))]
                words[i] = table.get(source, source)
                copied += 1
        assert result.text == (" ".join(words) + " ").replace("@@ ", "").rstrip()
        assert result.tokens == plain.tokens
        assert not result.alignment
        assert not any("<unk>" in other for other in result.alternatives)
    assert copied > 3


def test_flag_and_request_field_replace_unknown_words_alike(bundle: Bundle, tmp_path: Path) -> None:
    text, more = "ka qqq da zzz", {"unk_penalty": -6.0, "beam_size": 4, "max_length": 12}
    wish = validate(TranslateRequest, {"q": text, "replace_unk": True, **more})
    (wanted,) = answer(bundle.path, [text], text_options(wish, 0))
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in more.items()]
    source = tmp_path / "source.txt"
    source.write_text(text, encoding="utf-8")
    command = ["translate", str(source), "--model", str(bundle.path), "--threads", "1", *flags]
    plain, replacing = (CliRunner().invoke(table, [*command, *extra]) for extra in ([], ["--replace-unk"]))
    assert replacing.stdout == wanted.text + "\n"
    assert "<unk>" in plain.stdout
    assert "<unk>" not in replacing.stdout


def test_models_without_words_refuse_to_replace_unknown_words() -> None:
    bundle = open_bundle(MODELS / "tatoeba-de-en", verify=False)
    limits = Limits(beams=8, source=64, target=64, vocab=bundle.config.target_vocab)
    model = TextModel("translate", "de", "en", open_tokenizer(bundle), bundle.options, limits, eos=2)
    assert not plan(model, "Haus", TextOptions()).options.decode.alignment
    with pytest.raises(InvalidRequest, match="replace_unk"):
        plan(model, "Haus", TextOptions(replace_unk=True))


def test_stream_sends_a_sentence_only_after_unknown_words_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "dict.txt"
    path.write_text("da 5\nfa 4\ngad 3\n", "utf-8")
    words = read_dictionary(path)
    tokenizer = Fairseq(Text("s", "t"), (words, words), None, {})
    limits = Limits(beams=8, source=64, target=64, vocab=7)
    model = TextModel("translate", "de", "en", tokenizer, DecodeOptions(), limits, eos=2)
    for replaces in (False, True):
        drafts = Drafts()
        hear = drafts.begin(model, [plan(model, "da fa", TextOptions(replace_unk=replaces))])
        hear(0, model.tokenizer.encode_target("da fa gad da"))
        assert bool(at_once(drafts.take())) != replaces


@pytest.mark.parametrize("name", parameters(NAME))
def test_invalid_dictionary_of_words_is_refused_before_writing(name: str, tmp_path: Path) -> None:
    source = folder(name)
    assert source is not None
    (tmp_path / "words").write_text("alone\n", "utf-8")
    with pytest.raises(CheckpointError, match="line 1: must be 'source target'"):
        convert("fairseq", source, tmp_path / "out", FairseqImport(unk_dictionary=tmp_path / "words"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", parameters(NAME))
def test_fp16_checkpoint_is_stored_in_fp32_if_folded_weights_need_it(name: str, tmp_path: Path) -> None:
    path = folder(name)
    assert path is not None
    read = read_checkpoint(path / "checkpoint.pt")
    state = {key: torch.from_numpy(w.copy()) for key, w in read.state.items()}
    half = {key: w.half() if w.is_floating_point() else w for key, w in state.items()}
    for file in path.glob("dict.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save({"args": argparse.Namespace(**read.arguments), "model": half}, tmp_path / "model.pt")
    stored = convert("fairseq", tmp_path, tmp_path / "out").weights()["encoder.fc1.weight"]
    v, g = (half[f"encoder.fc1.weight_{part}"].double().numpy() for part in "vg")
    np.testing.assert_allclose(stored, g * v / np.linalg.norm(v, axis=1, keepdims=True), rtol=1e-6)
