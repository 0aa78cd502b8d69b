"""Scores of given texts: by every architecture, in flight, from Python, over HTTP and on the command line."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from cli.main import app as command_line
from engine.api import InvalidRequest, Placement, Service, ServiceSettings, perplexity
from engine.bundle.adaptive import AdaptiveConfig, Bands
from engine.bundle.bundle import Description, open_bundle, write_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.models import build, load
from engine.schedule.lane import Lane
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions, Request
from export.graphs.onnx import graphs
from server.app import create_app
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.support.golden_fixtures import SHARED, fixture, folder, imported
from tests.support.models import CONFIGS, executor, model
from tests.support.served import LANES, STACK, VOCABULARY, bundles
from tests.support.thorough import some_of

EOS = 2
LONGEST = 30
TEXTS = ["Where is the station?", "", "Tom likes it.", "a b c"]
GERMAN = ["Wo ist der Bahnhof?", "Ja.", "Tom mag das.", "ä"]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Two translators and a language model of the same vocabulary."""
    path = tmp_path_factory.mktemp("scored")
    for name in ("toy-de-en", "toy-en-de"):
        shutil.copytree(bundles() / name, path / name)
    bands = Bands((40, 150))
    config = ModelConfig(
        "lightconv_lm",
        VOCABULARY,
        VOCABULARY,
        None,
        StackConfig(16, 16, 16, 2, (3, 5), normalize_before=True, final_norm=False),
        max_target=LONGEST + 1,
        adaptive=AdaptiveConfig(bands, bands, tie_weights=True, tie_projections=True),
    )
    assert STACK.embed_dim == 16
    net = build(config)
    net.initialise(seed=9)
    text = {"kind": "sentencepiece", "model": "vocabulary.model"}
    said = Description("toy-lm", "language-model", "en", "en", config, text, {"beam_size": 4})
    held = {key: p.detach().numpy() for key, p in net.named_parameters()}
    vocabulary = open_bundle(bundles() / "toy-de-en").file("vocabulary.model")
    write_bundle(path / "toy-lm", said, held, {"vocabulary.model": vocabulary, **graphs(config)}, half=False)
    return path


@pytest.fixture(scope="module")
def service(place):
    found = Service.open([place], ServiceSettings(Placement(lanes=LANES)))
    found.start()
    yield found
    found.stop(drain=False, timeout=30)


@pytest.fixture
async def client(service):
    made = create_app(service, ServerSettings(char_limit=200, batch_limit=5), Metrics())
    transport = httpx.ASGITransport(app=made)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as found:
        yield found


@torch.no_grad()
def teacher_forced(path: Path, text: str, source: str | None) -> list[float]:
    """Every token's log-probability, by one full pass of the torch model."""
    bundle = open_bundle(path)
    tokenizer, net = open_tokenizer(bundle), load(bundle.config, bundle.weights())
    target = [*tokenizer.encode_target(text), EOS]
    read = [EOS] if source is None else [*tokenizer.encode(source), EOS]
    scores = net(torch.tensor([read]), torch.tensor([[EOS, *target[:-1]]]))[0]
    return scores.gather(1, torch.tensor(target)[:, None])[:, 0].tolist()


# every architecture


@pytest.mark.parametrize(
    ("backend", "name"),
    [*(("onnx", name) for name in CONFIGS), *(("torch", name) for name in some_of(list(CONFIGS)))],
)
@torch.no_grad()
def test_forced_tokens_have_the_log_probabilities_of_a_full_pass(name, backend):
    rng, config = np.random.default_rng(3), CONFIGS[name]
    lane = Lane(executor(backend, name, 2, 3), lambda request, outcome: request.reply(outcome))
    found = {}
    for i, length in enumerate((0, 1, 5, 17, config.max_target - 1)):
        source = [*rng.integers(4, 47, 7).tolist(), EOS] if config.reads_source else [EOS]
        target = rng.integers(4, 47, length).tolist()
        options = DecodeOptions(beam_size=1, min_length=0, max_length_b=length, prefix=tuple(target))
        options.check(lane.executor.limits)
        while not lane.free:
            lane.step()
        lane.admit(
            [Request(source, options, lambda r, i=i, s=source, t=target: found.update({i: (s, t, r)}))]
        )
        lane.step()
    lane.drain()
    assert len(found) == 5
    for source, target, result in found.values():
        full = model(name)(torch.tensor([source]), torch.tensor([[config.first_token, *target]]))[0]
        want = full.gather(1, torch.tensor([*target, EOS])[:, None])[:, 0]
        (hypothesis,) = result.hypotheses
        assert hypothesis.tokens == target
        np.testing.assert_allclose(hypothesis.token_scores, want.numpy(), atol=1e-4)


@pytest.mark.parametrize("name", ["glu", "transformer", "ensemble", "lm tied"])
def test_a_models_own_answers_score_as_when_they_were_made(name):
    lane = Lane(executor("onnx", name, 3, 2), lambda request, outcome: request.reply(outcome))
    source = [5, 9, 14, EOS] if CONFIGS[name].reads_source else [EOS]

    def decode(options):
        found = []
        lane.drain([Request(source, options, found.append)])
        return found[0].hypotheses

    made = decode(DecodeOptions(beam_size=3, n_best=3, max_length=12))
    for hypothesis in made:
        tokens = tuple(hypothesis.tokens)
        (again,) = decode(DecodeOptions(beam_size=1, min_length=0, max_length_b=len(tokens), prefix=tokens))
        np.testing.assert_allclose(again.token_scores, hypothesis.token_scores, atol=1e-5)


# from Python


async def test_a_language_model_scores_texts_as_a_full_pass_does(service, place):
    for text, score in zip(TEXTS, await service.score("toy-lm", TEXTS), strict=True):
        want = teacher_forced(place / "toy-lm", text, None)
        np.testing.assert_allclose(score.token_scores, want, atol=1e-4)
        assert score.total == pytest.approx(sum(want), abs=1e-3)
        assert score.perplexity == pytest.approx(math.exp(-sum(want) / len(want)), rel=1e-3)
        assert score.tokens[-1] == "</s>"
        assert "".join(score.tokens[:-1]).replace("▁", " ").strip() == text
        assert score.words == len(text.split())
        assert score.word_perplexity == pytest.approx(math.exp(-sum(want) / (score.words + 1)), rel=1e-3)


async def test_a_translator_scores_a_target_of_its_source(service, place):
    found = await service.score("toy-de-en", TEXTS, GERMAN)
    for text, source, score in zip(TEXTS, GERMAN, found, strict=True):
        np.testing.assert_allclose(
            score.token_scores, teacher_forced(place / "toy-de-en", text, source), atol=1e-4
        )


async def test_the_models_decoding_defaults_change_no_score(place, tmp_path):
    changed = tmp_path / "toy-lm"
    shutil.copytree(place / "toy-lm", changed)
    bundle = open_bundle(changed)
    odd = {"unk_penalty": 3.0, "temperature": 2.0, "min_length": 4, "no_repeat_ngram_size": 1, "beam_size": 2}
    files = {n: bundle.file(n) for n in bundle.files() if "/" in n or n == "vocabulary.model"}
    said = Description("toy-lm", bundle.task, "en", "en", bundle.config, bundle.text, odd)
    write_bundle(changed, said, bundle.weights(), files, half=False, overwrite=True)
    found = Service.open([changed], ServiceSettings(Placement(lanes=LANES)))
    found.start()
    try:
        texts = ["Tom Tom Tom", "", "日本"]
        for text, score in zip(texts, await found.score("toy-lm", texts), strict=True):
            np.testing.assert_allclose(
                score.token_scores, teacher_forced(changed, text, None), atol=1e-4, err_msg=text
            )
    finally:
        found.stop()


@pytest.mark.parametrize("precision", ["fp32", "int8"])
async def test_scores_are_the_same_bit_for_bit_alone_and_in_company(place, precision):
    found = Service.open(
        [place / "toy-lm"], ServiceSettings(Placement(lanes=((1, 8), (4, 1)), precision=precision))
    )
    found.start()
    try:
        together = await found.score("toy-lm", TEXTS * 4)
        for text, score in zip(TEXTS, together, strict=False):
            (alone,) = await found.score("toy-lm", [text])
            assert alone.token_scores == score.token_scores
        streamed = list(found.score_many("toy-lm", ((text, None) for text in TEXTS * 40)))
        assert [s.token_scores for s in streamed] == [s.token_scores for s in together] * 10
    finally:
        found.stop()


async def test_the_longest_text_is_scored_and_one_token_more_is_refused(service, place):
    tokenizer = open_tokenizer(open_bundle(place / "toy-lm"))
    text = "x"
    while len(tokenizer.encode_target(text + " x")) <= LONGEST:
        text += " x"
    assert len(tokenizer.encode_target(text)) == LONGEST
    (score,) = await service.score("toy-lm", [text])
    np.testing.assert_allclose(score.token_scores, teacher_forced(place / "toy-lm", text, None), atol=1e-4)
    with pytest.raises(InvalidRequest, match=rf"the text has 3\d tokens.* at most {LONGEST}: split"):
        await service.score("toy-lm", [text + " x"])


async def test_scores_stay_exact_over_a_thousand_tokens(service, place):
    text = " ".join(["Tom mag das nicht, denn es ist gut."] * 90)
    (score,) = await service.score("toy-de-en", [text], ["Ja."])
    assert len(score.tokens) > 1000
    np.testing.assert_allclose(
        score.token_scores, teacher_forced(place / "toy-de-en", text, "Ja."), atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "texts", "sources", "complaint"),
    [
        ("toy-lm", ["a"], ["b"], "reads no source"),
        ("toy-de-en", ["a"], None, "give the source of each text"),
        ("toy-de-en", ["a", "b"], ["c"], "2 texts, but 1 sources"),
        ("toy-de-en", ["a"], ["c " * 100], "the source has .* tokens; this model reads at most 64"),
        ("toy-lm", ["\ud800"], None, "surrogate"),
        ("toy-de-en", ["a"], ["\udfff"], "surrogate"),
    ],
)
async def test_what_can_not_be_scored_is_refused_with_the_remedy(service, name, texts, sources, complaint):
    with pytest.raises(InvalidRequest, match=complaint):
        await service.score(name, texts, sources)


async def test_a_language_model_takes_no_part_in_translation(service):
    assert [language.code for language in service.languages()] == ["de", "en"]
    assert service.pick("translate", target="en").name == "toy-de-en"
    with pytest.raises(InvalidRequest, match="does not answer texts"):
        await service.run("toy-lm", ["Ja."])


async def test_the_canary_of_a_language_model_is_a_score(service):
    before = service.stats()["toy-lm"].answered
    await service.canary("toy-lm")
    assert service.stats()["toy-lm"].answered == before + 1


def test_a_perplexity_beyond_all_numbers_is_infinite():
    assert perplexity(-1e9, 2) == math.inf
    assert perplexity(-2 * math.log(8), 2) == pytest.approx(8)


@pytest.mark.skipif(folder("lm_adaptive") is None, reason=f"no {SHARED.name}/lm_adaptive")
@pytest.mark.parametrize("backend", ["onnx", "torch"])
async def test_texts_of_the_references_language_model_score_as_there(backend):
    from export.graphs.onnx import add_graphs

    bundle, golden = add_graphs(imported("lm_adaptive")), fixture("lm_adaptive").golden
    lines = (folder("lm_adaptive") / "dict.txt").read_text("utf-8").splitlines()
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *(line.rsplit(" ", 1)[0] for line in lines)]
    # the text "<unk>" is no symbol of a text, and becomes unk like any other that is not known
    texts = [" ".join(symbols[token] for token in tokens[:-1]) for tokens in golden["seqs"]]
    found = Service.open([bundle.path], ServiceSettings(Placement(lanes=((1, 4), (5, 1)), backend=backend)))
    found.start()
    try:
        scores = await found.score("lm_adaptive", texts)
    finally:
        found.stop()
    for score, tokens, want in zip(scores, golden["seqs"], golden["token_logprobs"], strict=True):
        assert score.tokens == [symbols[token] for token in tokens]
        np.testing.assert_allclose(score.token_scores, want, atol=1e-4)
    total = sum(sum(want) for want in golden["token_logprobs"])
    count = sum(map(len, golden["seqs"]))
    ours = perplexity(sum(score.total for score in scores), count)
    assert ours == pytest.approx(math.exp(-total / count), rel=1e-5)


# over HTTP


async def test_a_text_is_scored_over_http(client, service):
    answer = await client.post("/score", json={"q": TEXTS[0]})
    assert answer.status_code == 200
    (want,) = await service.score("toy-lm", [TEXTS[0]])
    assert answer.json() == {
        "model": "toy-lm",
        "scores": {
            "score": want.total,
            "perplexity": want.perplexity,
            "words": 4,
            "tokens": want.tokens,
            "tokenScores": want.token_scores,
        },
        "perplexity": want.perplexity,
    }


async def test_an_array_has_a_score_for_each_text_and_the_perplexity_of_all(client, service):
    answer = (await client.post("/score", json={"q": TEXTS, "timings": True})).json()
    want = await service.score("toy-lm", TEXTS)
    assert [found["tokenScores"] for found in answer["scores"]] == [score.token_scores for score in want]
    count = sum(len(score.tokens) for score in want)
    assert answer["perplexity"] == pytest.approx(math.exp(-sum(score.total for score in want) / count))
    assert answer["timings"]["decode"] > 0


@pytest.mark.parametrize("wish", [{"model": "toy-de-en"}, {"source": "de", "target": "en"}, {}])
async def test_a_translation_is_scored_with_its_source(client, service, wish):
    body = {"q": "It is good.", "source_text": "Das ist gut."} | wish
    (want,) = await service.score("toy-de-en", [body["q"]], [body["source_text"]])
    for sent in ({"json": body}, {"data": body}):
        answer = (await client.post("/score", **sent)).json()
        assert answer["model"] == "toy-de-en"
        assert answer["scores"]["tokenScores"] == want.token_scores
    both = body | {"q": [body["q"]] * 2, "source_text": [body["source_text"]] * 2}
    answer = (await client.post("/score", json=both)).json()
    assert [found["score"] for found in answer["scores"]] == [want.total] * 2


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ({}, 400, "missing q"),
        ({"q": [3]}, 400, "q must be a string"),
        ({"q": "a", "source_text": ["b"]}, 400, "source_text must be"),
        ({"q": ["a", "b"], "source_text": ["c"]}, 400, "2 texts, but 1 sources"),
        ({"q": ["a", "b"], "source_text": ["c", "d", "e"]}, 400, "2 texts, but 3 sources"),
        ({"q": ["a", "b"], "source_text": []}, 400, "2 texts, but 0 sources"),
        ({"q": "a", "model": "toy-lm", "source_text": "b"}, 400, "reads no source"),
        ({"q": "a", "model": "toy-de-en"}, 400, "give the source"),
        ({"q": "Tom " * 40}, 400, "this model scores at most 30"),
        ({"q": "a" * 201}, 400, r"request \(201\) exceeds text limit \(200\)"),
        ({"q": "a", "source_text": "b" * 201}, 400, r"request \(201\) exceeds text limit"),
        ({"q": ["a"] * 6}, 400, r"request \(6\) exceeds text limit \(5\)"),
        ({"q": "a", "model": 3}, 400, "model"),
        ({"q": "a", "model": "nobody"}, 404, "no model 'nobody'"),
        ({"q": "a", "target": "fr"}, 404, "give source_text.*toy-lm"),
        ({"q": "a", "source_text": "b", "target": "fr"}, 404, "toy-de-en"),
    ],
)
async def test_a_wrong_request_gets_one_clear_error(client, body, status, complaint):
    answer = await client.post("/score", json=body)
    assert answer.status_code == status, answer.text
    (message,) = answer.json().values()
    assert re.search(complaint, message), message


async def test_openais_clients_are_told_of_models_that_answer_texts_and_of_no_other(client):
    listed = (await client.get("/v1/models")).json()["data"]
    assert {model["id"] for model in listed} == {"convoy", "toy-de-en", "toy-en-de"}
    assert (await client.get("/v1/models/toy-lm")).status_code == 404


async def test_scoring_is_counted_as_other_work_is(client):
    assert (await client.post("/score", json={"q": "Tom mag das."})).status_code == 200
    assert (await client.post("/score", json={"q": "a", "model": "nobody"})).status_code == 404
    text = (await client.get("/metrics")).text
    assert 'convoy_decode_duration_seconds_count{model="toy-lm"} 1.0' in text
    assert 'convoy_rejected_total{reason="unknown_model"} 1.0' in text
    assert 'route="/score"' in text


# on the command line


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        command_line(["score", *map(str, arguments)])
    streams = capsys.readouterr()
    return stopped.value.code, streams.out, streams.err


def test_a_file_is_scored_line_by_line_with_its_perplexity(capsys, place, tmp_path):
    file, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    file.write_text("\n".join(TEXTS) + "\n", "utf-8")
    want = [teacher_forced(place / "toy-lm", text, None) for text in TEXTS]
    total, count = sum(map(sum, want)), sum(map(len, want))
    words = sum(len(text.split()) for text in TEXTS)

    code, printed, _ = run(capsys, place / "toy-lm", file, "--threads", 1)
    *lines, last = printed.splitlines()
    assert code == 0
    for line, text, scores in zip(lines, TEXTS, want, strict=True):
        score, ppl, rest = line.split("\t")
        assert float(score) == pytest.approx(sum(scores), abs=1e-3)
        assert float(ppl) == pytest.approx(math.exp(-sum(scores) / len(scores)), abs=0.02, rel=1e-3)
        assert rest == text
    loss = -total / math.log(2) / count
    said = r"4 lines, (\d+) tokens, loss (\S+) \(base 2\), perplexity (\S+); (\d+) words, .* (\S+) a word"
    figures = [float(figure) for figure in re.fullmatch(said, last).groups()]
    by_words = math.exp(-total / (words + 4))
    assert figures == pytest.approx([count, loss, 2**loss, words, by_words], rel=1e-4)

    code, printed, _ = run(capsys, place / "toy-lm", file, "--json", "--output", out, "--threads", 1)
    assert (code, printed) == (0, "")
    *found, summary = (json.loads(line) for line in out.read_text("utf-8").splitlines())
    assert [f["text"] for f in found] == TEXTS
    for number, (f, scores) in enumerate(zip(found, want, strict=True), 1):
        assert f["line"] == number
        np.testing.assert_allclose(f["token_scores"], scores, atol=1e-4)
    assert summary["total"]["loss"] == pytest.approx(loss, rel=1e-5)
    assert summary["total"]["perplexity"] == pytest.approx(2**loss, rel=1e-5)
    assert run(capsys, place / "toy-lm", file, "--total", "--threads", 1)[1].splitlines() == [last]


def test_translations_are_scored_with_their_sources(capsys, place, tmp_path):
    file, source = tmp_path / "en.txt", tmp_path / "de.txt"
    file.write_text("\n".join(TEXTS) + "\n", "utf-8")
    source.write_text("\n".join(GERMAN) + "\n", "utf-8")
    code, printed, _ = run(capsys, place / "toy-de-en", file, "--source", source, "--json", "--threads", 1)
    assert code == 0
    for line, text, german in zip(printed.splitlines(), TEXTS, GERMAN, strict=False):
        want = teacher_forced(place / "toy-de-en", text, german)
        np.testing.assert_allclose(json.loads(line)["token_scores"], want, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "text", "source", "complaint"),
    [
        ("toy-lm", "", None, "has no lines"),
        ("toy-lm", "a\n" + "Tom " * 40, None, "line 2: the text has"),
        ("toy-de-en", "a\n", None, "line 1: .*--source"),
        ("toy-de-en", "a\nb\n", "c\n", "de.txt ends before line 2"),
        ("toy-de-en", "a\n", "c\nd\n", "en.txt ends before line 2"),
        ("toy-lm", "a\n", "b\n", "line 1: a language model reads no source"),
    ],
)
def test_a_wrong_file_gets_one_clear_line_and_nothing_is_written(
    capsys, place, tmp_path, name, text, source, complaint
):
    file, given, out = tmp_path / "en.txt", tmp_path / "de.txt", tmp_path / "out"
    file.write_text(text, "utf-8")
    more = []
    if source is not None:
        given.write_text(source, "utf-8")
        more = ["--source", given]
    code, _, printed = run(capsys, place / name, file, *more, "--output", out, "--threads", 1)
    assert code == 2
    assert re.fullmatch(f"convoy: error: .*{complaint}.*", printed.strip())
    assert not out.exists()


def test_the_forced_prefix_may_be_as_long_as_the_longest_target_and_no_longer():
    limits = executor("torch", "glu", 1, 1).limits
    for most, longest in ((None, limits.target), (3, 3)):
        DecodeOptions(beam_size=1, prefix=(5,) * longest, max_length=most).check(limits)
        with pytest.raises(InvalidRequest, match="prefix must not be longer"):
            DecodeOptions(beam_size=1, prefix=(5,) * (longest + 1), max_length=most).check(limits)
