"""Imported Hugging Face models in a service: shortlists by language, batches, refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from cli.main import app
from engine.api import CheckpointError, Placement, Service, ServiceSettings, TextOptions
from engine.bundle.bundle import PACKED, open_bundle
from engine.bundle.shortlist import SHORTLIST, load_shortlist
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.graphs.onnx import add_graphs
from export.importers import convert
from export.importers.settings import HuggingFaceImport, MarianImport
from tests.export.importers.test_marian import decoded, executor
from tests.support import marian_models
from tests.support.hf_models import WISH, imported, make
from tests.support.marian_models import sentences
from tests.support.models import NEEDS_LIBRARY
from tests.support.served import server, settings_of


def lines(count, seed=5):
    return [" ".join(line.split()[:3]) for line in sentences(count, seed)]


def run(*words):
    with pytest.raises(SystemExit) as ended:
        app([str(word) for word in words])
    return ended.value.code


def shortlist_of(path):
    bundle = open_bundle(path)
    vocabularies = bundle.config.source_vocab, bundle.config.target_vocab
    return load_shortlist(bundle.file(SHORTLIST).read_bytes(), vocabularies, bundle.config.eos)


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Return a model of NLLB-200's kind with shortlists for two languages, made by the command."""
    folder, bundle = imported("nllb", "relu")
    path = tmp_path_factory.mktemp("listed") / "nllb"
    add_graphs(open_bundle(shutil.copytree(bundle.path, path)))
    for language, seed in (("de", 21), ("deu", 22), ("fr", 23)):
        text = path.parent / f"{language}.txt"
        text.write_text("\n".join(lines(6, seed)))
        assert run("shortlist", path, "--language", language, "--text", text, "--most", 12) == 0
    return folder, open_bundle(path)


def test_shortlist_holds_frequent_tokens_of_the_language_and_of_the_source(listed):
    folder, bundle = listed
    shortlist, tokenizer = shortlist_of(bundle.path), open_tokenizer(bundle)
    german, french = (folder.tokenizer.convert_tokens_to_ids(code) for code in ("deu_Latn", "fra_Latn"))
    assert set(shortlist.languages) == {german, french}  # the second list of German replaced the first
    counts = np.bincount([t for line in lines(6, 22) for t in tokenizer.encode_target(line)])
    own = shortlist.languages[german]
    assert len(own) == 12
    assert counts[own].min() >= np.sort(counts)[-12]
    source = tokenizer.encode("ba de wo")
    allowed = set(shortlist.of(source, (german,)).tolist())
    assert allowed == {*own.tolist(), *source, german, bundle.config.eos}
    english = folder.tokenizer.convert_tokens_to_ids("eng_Latn")
    assert (
        len(shortlist.of(source, (english,))) == bundle.config.target_vocab
    )  # a language without a list allows every token


@NEEDS_LIBRARY
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_requests_in_several_languages_have_their_single_answers_in_a_batch(listed, precision):
    _, bundle = listed
    placement = Placement(precision=precision, lanes=((3, 8),), shortlist=True)
    service = Service.open([bundle.path], ServiceSettings(placement))
    service.start()
    try:
        names = [service.pick("translate", "en", target, None).name for target in ("de", "fr", "zu")]
        options = TextOptions({"beam_size": 3, "max_length": 12}, split=False)
        texts = lines(6, 31)

        def ask(name, asked):
            return [(r.text, r.score) for r in service.run_many(name, asked, options)]

        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(lambda name: ask(name, texts), names))
        alone = [[ask(name, [text])[0] for text in texts] for name in names]
    finally:
        service.stop()
    assert together == alone
    assert len({tuple(answers) for answers in together}) == 3


@NEEDS_LIBRARY
def test_shortlisted_answer_equals_transformers_with_other_tokens_suppressed(listed):
    folder, bundle = listed
    service = Service.open([bundle.path], ServiceSettings(Placement(lanes=((1, 4),), shortlist=True)))
    service.start()
    (german,) = open_tokenizer(bundle).beginning
    shortlist = shortlist_of(bundle.path)
    try:
        name = service.pick("translate", "en", "de", None).name
        options = TextOptions({"beam_size": 1, "max_length": 12}, split=False)
        for text, ours in zip(lines(4, 41), service.run_many(name, lines(4, 41), options), strict=True):
            ids = folder.tokenizer(text).input_ids
            own = shortlist.of(ids, (german,)).tolist()
            theirs = folder.model.generate(
                torch.tensor([ids]),
                max_length=14,
                num_beams=1,
                forced_bos_token_id=german,
                suppress_tokens=sorted({*range(bundle.config.target_vocab)} - {*own} | {bundle.config.pad}),
                use_cache=False,
            )
            tokens = [t for t in theirs[0, 1:13].tolist() if t != german]
            assert ours.text == folder.tokenizer.decode(tokens, skip_special_tokens=True).strip()
    finally:
        service.stop()


def test_languages_and_files_without_a_shortlist_are_refused(listed, tmp_path, capsys):
    _, bundle = listed
    text = tmp_path / "text"
    text.write_text("\n")
    for words, message in (
        (("--language", "xx", "--text", text), "does not translate into 'xx'"),
        (("--language", "de", "--text", text), "no text to learn"),
        (("--language", "de"), "give a file of sentence pairs, or --language and --text"),
    ):
        assert run("shortlist", bundle.path, *words) != 0
        assert message in capsys.readouterr().err


def test_model_of_one_language_has_one_shortlist_for_every_source(tmp_path):
    _, bundle = imported("pegasus", "relu")
    path, text = shutil.copytree(bundle.path, tmp_path / "bundle"), tmp_path / "text"
    text.write_text("\n".join(lines(3, 2)))
    assert run("shortlist", path, "--language", "de", "--text", text) == 0
    tokenizer, shortlist = open_tokenizer(bundle), shortlist_of(path)
    used = {t for line in lines(3, 2) for t in tokenizer.encode_target(line)}
    assert {*shortlist.of([9]).tolist()} == {*used, 9, bundle.config.eos}


@pytest.mark.parametrize(
    ("family", "setting", "backend"),
    [
        pytest.param("bart", "large-cnn", "onnx-native", marks=NEEDS_LIBRARY),
        pytest.param("mbart50", "gelu", "onnx-native", marks=NEEDS_LIBRARY),
        pytest.param("flan", "gated", "onnx-native", marks=NEEDS_LIBRARY),
        ("byt5", "gated", "onnx-pure"),
    ],
)
def test_answer_is_equal_bit_for_bit_in_any_batch(family, setting, backend):
    _, bundle = imported(family, setting)
    tokenizer = open_tokenizer(bundle)
    texts = [" ".join(line.split()[: 1 + i % 4]) for i, line in enumerate(sentences(7, 51))]
    sources = [[*tokenizer.encode(text), bundle.config.eos] for text in texts]
    begin = tokenizer.beginning
    options = {"beam_size": 3, "max_length_b": 12, "prefix": begin, "free_prefix": len(begin)}
    for precision in ("fp32", "int8"):
        lane = executor(bundle, backend, 3, slots=5, precision=precision)
        together = decoded(lane, bundle, sources, **options)
        alone = [decoded(lane, bundle, [source], **options)[0] for source in sources]
        assert together == alone


def test_both_commands_import_the_same_marian_model(tmp_path):
    folder = marian_models.make(tmp_path / "hf", "relu")
    wish = HuggingFaceImport(name="m", source="en", target="de")
    ours = convert("hf", folder.path, tmp_path / "a", wish)
    theirs = convert("marian", folder.path, tmp_path / "b", MarianImport(name="m", source="en", target="de"))
    assert ours.manifest == theirs.manifest
    with pytest.raises(CheckpointError, match="translates without a prompt"):
        convert("hf", folder.path, tmp_path / "c", HuggingFaceImport(task="summarize"))


def test_all_problems_of_a_folder_are_in_one_message(tmp_path):
    copy = shutil.copytree(imported("bart", "large-cnn")[0].path, tmp_path / "hf")
    config = json.loads((copy / "config.json").read_text())
    wrong = {"activation_function": "mish", "d_model": -1, "pad_token_id": None}
    (copy / "config.json").write_text(json.dumps(config | wrong))
    for name in ("vocab.json", "merges.txt", "model.safetensors"):
        (copy / name).unlink()
    with pytest.raises(CheckpointError) as error:
        convert("hf", copy, tmp_path / "out", WISH)
    message = str(error.value)
    for part in ("mish", "d_model = -1", "pad_token_id", "vocab.json, merges.txt", "model.safetensors"):
        assert part in message
    assert "\n" not in message
    assert not (tmp_path / "out").exists()


@NEEDS_LIBRARY
def test_int8_weights_are_rounded_once_and_large_ones_are_packed(tmp_path, monkeypatch):
    folder, bundle = imported("nllb", "relu")
    monkeypatch.setattr("export.graphs.packed.LARGE", 1)
    whole = add_graphs(convert("hf", folder.path, tmp_path / "int8", replace(WISH, int8=True)))
    assert PACKED in whole.files()
    floats, weights = bundle.weights(), whole.weights()
    assert weights.quantized.keys() == {n for n, w in floats.items() if w.ndim == 2}
    for name, weight in floats.items():
        bound = np.abs(weight).max(-1, keepdims=True) / 254 * 1.001 if weight.ndim == 2 else 0
        assert (np.abs(weights[name] - weight) <= bound).all()
    answers = []
    for mapped in (True, False):  # mapped from the file, or packed at the start
        if not mapped:
            monkeypatch.setattr("engine.bundle.recipes.packed_name", lambda name, form: "")
        service = Service.open([whole.path], ServiceSettings(Placement(precision="int8", lanes=((3, 4),))))
        service.start()
        try:
            found = service.run_many("int8", lines(4, 61), TextOptions({"max_length": 12}, split=False))
            answers.append([(r.text, r.score) for r in found])
        finally:
            service.stop()
    assert answers[0] == answers[1]


def test_conversion_needs_little_more_memory_than_the_checkpoint(tmp_path):
    """The weights of the measured model are much larger than Python itself."""
    folder = make(tmp_path / "hf", "nllb", "relu", vocab_size=100_000, d_model=256)
    size = sum(file.stat().st_size for file in folder.path.glob("*.safetensors"))
    script = (
        "import resource, sys\nfrom pathlib import Path\nfrom export.importers import convert\n"
        "from export.importers.settings import HuggingFaceImport\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "settings = HuggingFaceImport(source='en', target='de', int8=True)\n"
        "convert('hf', Path(sys.argv[1]), Path(sys.argv[2]), settings)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)"
    )
    words = [sys.executable, "-c", script, str(folder.path), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * size


def test_summary_of_a_long_document_is_streamed(tmp_path):
    """BART's kind gets a document twenty times as long as its limit, over HTTP."""
    folder, _ = imported("bart", "large-cnn")
    bundle = add_graphs(convert("hf", folder.path, tmp_path / "news", HuggingFaceImport(source="en")))
    document = " ".join(line.capitalize() for line in sentences(90, 71))
    assert len(open_tokenizer(bundle).encode(document)) > 20 * bundle.config.max_source

    def opened(observe, **settings):
        return Service.open([bundle.path], settings_of(**settings), observe)

    asked = {"q": document, "strategy": "parts", "beam_size": 2, "max_length": 8}
    with server({}, opened) as (client, _, _):
        whole = client.post("/summarize", json=asked).json()
        with client.stream("POST", "/summarize", json=asked | {"stream": True}) as answer:
            events = [
                line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")
            ]
    told = [json.loads(event) for event in events]
    assert whole["parts"] > 20
    assert told[-1] == whole
    partial = [event["text"] for event in told[:-1]]
    assert len(partial) > 3
    assert all(whole["summaryText"].startswith(text) for text in partial)
