"""The load tests: arrivals, percentiles, plots, and short runs against a real server."""

import asyncio
import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.api import ConfigError, Service, TextOptions
from engine.bundle.bundle import Description, write_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.models import build
from export.graphs.onnx import graphs
from loadtest.engine import record
from loadtest.engine.processor import nearest
from loadtest.http.openloop import TimedAnswer, arrivals, percentile, run, summarise, translate
from loadtest.texts import sentences
from tests.support.served import VOCABULARY, bundles, server
from training.curve import svg

ROOT = Path(__file__).parents[2]
DE_EN = {"source": "de", "target": "en"}


def test_arrivals_form_a_poisson_process():
    times = np.array(arrivals(50.0, 400.0, seed=3))
    gaps = np.diff(times)
    assert times.max() < 400
    assert abs(len(times) - 20_000) < 5 * 20_000**0.5
    # exponential gaps: mean equals standard deviation, and neighbours are independent
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.05
    assert arrivals(50.0, 400.0, seed=3) == times.tolist()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.sampled_from([1, 50, 90, 95, 99, 100]))
def test_percentiles_equal_numpy_nearest_rank(values, p):
    assert percentile(values, p) == np.percentile(values, p, method="inverted_cdf")


def test_a_summary_counts_each_answer_once_and_times_only_the_good_ones():
    answers = [
        TimedAnswer(0, 1, 200),
        TimedAnswer(1, 4, 200),
        TimedAnswer(2, 3, 429),
        TimedAnswer(2, 3, 503),
        TimedAnswer(2, 9, 0),
    ]
    found = summarise(answers, 1.0)
    assert (found.sent, found.answered, found.refused, found.failed) == (5, 2, 2, 1)
    assert found.latency["p50"] == 1
    assert found.latency["p99"] == 3
    assert found.throughput == pytest.approx(2 / 9)


def test_made_up_sentences_have_the_lengths_of_news_and_are_always_the_same():
    found = list(islice(sentences(1), 2000))
    words = [len(sentence.split()) for sentence in found]
    assert 15 < np.median(words) < 25
    assert np.percentile(words, 95) > 35
    assert found == list(islice(sentences(1), 2000))
    assert found != list(islice(sentences(2), 2000))


def test_a_plot_is_an_image_with_a_line_for_each_name():
    root = ElementTree.fromstring(svg({"a < b": [(0, 0), (1, 2)], "c": [(0, 1), (2, 1)]}, "x", "y & z"))
    lines = root.findall("{*}polyline")
    assert [line.get("points").split()[0] for line in lines] == ["70.0,370.0", "70.0,205.0"]
    texts = {node.text for node in root.findall("{*}text")}
    assert {"a < b", "c", "x", "y & z"} <= texts


def test_latency_counts_from_when_a_request_was_due():
    """Ten requests are due while the load generator is blocked; their latency includes the delay."""

    async def ask(client, text):
        time.sleep(0.05)  # noqa: ASYNC251 - the generator itself is late
        return 200, None

    answers = asyncio.run(run("http://127.0.0.1:9", ask, sentences(0), [0.0] * 10))
    assert max(a.latency for a in answers) > 0.45


@pytest.mark.parametrize("stream", [False, True])
def test_an_open_loop_run_gets_every_answer_of_a_real_server(stream):
    with server() as (client, house, _):
        before = house.service.stats()["toy-de-en"].answered
        times = arrivals(40.0, 1.0, seed=1)
        texts = (text.split(",")[0] for text in sentences(1))
        ask = translate(DE_EN, stream=stream)
        answers = asyncio.run(run(str(client.base_url), ask, texts, times))
        assert [a.status for a in answers] == [200] * len(times)
        assert house.service.stats()["toy-de-en"].answered - before >= len(times)
        assert all((a.first is not None and a.first <= a.latency) == stream for a in answers)
        full = asyncio.run(
            run(
                str(client.base_url),
                translate({"source": "zz", "target": "en"}, stream=stream),
                sentences(1),
                times[:3],
            )
        )
        assert {a.status for a in full} == {400}


def test_the_open_loop_command_writes_figures_and_a_plot(tmp_path):
    with server() as (client, _, _):
        command = [
            sys.executable,
            "-m",
            "loadtest.http.openloop",
            "--url",
            str(client.base_url),
            "--out",
            tmp_path,
        ]
        done = subprocess.run(
            [*command, "--rate", "20", "--seconds", "1"], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "openloop.json").read_text("utf-8"))
    assert record["summary"] == json.loads(done.stdout)
    assert record["summary"]["answered"] == len(record["answers"]) > 0
    ElementTree.parse(tmp_path / "openloop.svg")


def test_every_kind_of_locust_user_gets_its_answers():
    if find_spec("locust") is None:  # importing locust would patch the whole process
        pytest.skip("needs the extra load")
    with server() as (client, _, _):
        command = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            "loadtest/http/locustfile.py",
            "--headless",
            "--json",
        ]
        command += ["--users", "10", "--spawn-rate", "10", "--run-time", "6s", "--host", str(client.base_url)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {row["name"]: row for row in json.loads(done.stdout)}
    assert set(found) == {"translate", "summarize", "batch of 32", "stream", "first words"}
    assert all(row["num_requests"] > 0 and row["num_failures"] == 0 for row in found.values())


def transformer_bundle(path):
    """Write a Transformer bundle with random weights and the vocabulary of the toy models."""
    stack = StackConfig(32, 32, 48, 4, (0, 0), mixer="attention", glu=False)
    tables = {"share_embeddings": True, "share_output": True, "max_source": 256, "max_target": 128}
    config = ModelConfig("transformer", VOCABULARY, VOCABULARY, stack, stack, **tables)
    model = build(config)
    model.initialise(seed=3)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return write_bundle(
        path,
        Description(
            "de-en",
            "translate",
            "de",
            "en",
            config,
            {"kind": "sentencepiece", "model": "vocabulary.model"},
            {},
        ),
        {key: p.detach().numpy() for key, p in model.named_parameters()},
        {"vocabulary.model": bundles().parent / "vocabulary.model", **graphs(config)},
        half=False,
    )


def test_the_peer_answers_with_our_weights_as_we_do(tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    from loadtest.http.compare.transformer import convert

    bundle = transformer_bundle(tmp_path / "de-en")
    convert(bundle.path, tmp_path / "peer")
    peer = ctranslate2.Translator(str(tmp_path / "peer"), device="cpu", compute_type="float32")
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "peer" / "vocabulary.model"))
    texts = list(islice(sentences(5), 6))
    found = peer.translate_batch(
        pieces.encode(texts, out_type=str), beam_size=1, max_decoding_length=12, return_scores=True
    )
    service = Service.open([bundle.path])
    service.start()
    try:
        options = TextOptions(decode={"beam_size": 1, "max_length": 12})
        ours = list(service.run_many("de-en", texts, options))
    finally:
        service.stop()
    assert [pieces.decode(r.hypotheses[0]) for r in found] == [r.text for r in ours]


def test_a_peer_of_another_architecture_is_refused(tmp_path):
    pytest.importorskip("ctranslate2")
    from loadtest.http.compare.transformer import convert

    with pytest.raises(ConfigError, match="no post-norm Transformer"):
        convert(ROOT / "models" / "tatoeba-de-en", tmp_path / "peer")
    assert not (tmp_path / "peer").exists()


def test_page_of_a_processor_names_it_above_its_tables():
    here = {"cpu": "AMD EPYC", "family": "25", "model": "1", "isa": "avx2"}
    page = record.page_of(["## one\n|a|\n", "## two\n|b|\n"], here, "2026-11-26, alone.")
    assert page.startswith("# Record of AMD EPYC, family 25, model 1 (avx2)\n")
    assert page.endswith(" 2026-11-26, alone.\n\n## one\n|a|\n\n## two\n|b|\n")


def test_processor_record_has_a_table_and_command_for_each_instruction_set(tmp_path):
    files = record.texts(tmp_path)
    parts = record.parts("docs/benchmarks/today-zen", "avx512vnni", 5, files)
    commands = [part.command() for part in parts]
    for name in ("avx512vnni", "avx512", "avx2"):
        assert any(f"today-zen-cpu-compare-iwslt-{name}.json" in command for command in commands)
    held = "CONVOY_KERNELS_ISA=avx2 CT2_FORCE_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 python -m"
    assert any(held in command for command in commands)
    assert all(file.read_text(encoding="utf-8").strip() for file in files.values())


def test_ratios_are_guarded_by_the_record_of_the_nearest_processor(tmp_path):
    facts = {"vendor": "AuthenticAMD", "family": "25", "model": "17", "isa": "avx512vnni"}
    for name, changes in {"other": {"family": "26"}, "same": {}, "held": {"isa": "avx2"}}.items():
        setup = json.dumps({"setup": facts | changes | {"cpu": name}, "rows": []})
        (tmp_path / f"{name}.json").write_text(setup, encoding="utf-8")
    records = sorted(tmp_path.glob("*.json"))
    assert nearest(records, facts)[0].name == "same.json"
    assert nearest(records, facts | {"isa": "avx2"})[0].name == "held.json"
    assert nearest(records, facts | {"family": "27"})[0].name in ("other.json", "same.json")
