"""Scores of texts: by every architecture, in batches, and by the service."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
import torch

from engine.api import InvalidRequest, Placement, Service, ServiceSettings, perplexity
from engine.bundle.bundle import Description, open_bundle, write_bundle
from engine.schedule.lane import Lane
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions, Request
from tests.support.golden_fixtures import SHARED, fixture, folder, imported
from tests.support.models import CONFIGS, executor, model
from tests.support.served import LANES
from tests.support.teacher_forcing import teacher_forced
from tests.support.thorough import some_of

EOS = 2
LONGEST = 30
TEXTS = ["Where is the station?", "", "Tom likes it.", "a b c"]
GERMAN = ["Wo ist der Bahnhof?", "Ja.", "Tom mag das.", "ä"]


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
def test_a_models_own_answers_have_the_scores_of_their_search(name):
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
async def test_scores_are_the_same_bit_for_bit_alone_and_in_a_batch(place, precision):
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
async def test_unscorable_texts_are_refused_with_the_remedy(service, name, texts, sources, complaint):
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


def test_a_perplexity_too_large_for_a_float_is_infinite():
    assert perplexity(-1e9, 2) == math.inf
    assert perplexity(-2 * math.log(8), 2) == pytest.approx(8)


@pytest.mark.skipif(folder("lm_adaptive") is None, reason=f"no {SHARED.name}/lm_adaptive")
@pytest.mark.parametrize("backend", ["onnx", "torch"])
async def test_scores_of_fairseqs_language_model_equal_fairseqs(backend):
    from export.graphs.onnx import add_graphs

    bundle, golden = add_graphs(imported("lm_adaptive")), fixture("lm_adaptive").golden
    lines = (folder("lm_adaptive") / "dict.txt").read_text("utf-8").splitlines()
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *(line.rsplit(" ", 1)[0] for line in lines)]
    # the text "<unk>" is an unknown word like others, not a symbol
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


def test_the_forced_prefix_may_be_as_long_as_the_longest_target_and_no_longer():
    limits = executor("torch", "glu", 1, 1).limits
    for most, longest in ((None, limits.target), (3, 3)):
        DecodeOptions(beam_size=1, prefix=(5,) * longest, max_length=most).check(limits)
        with pytest.raises(InvalidRequest, match="prefix must not be longer"):
            DecodeOptions(beam_size=1, prefix=(5,) * (longest + 1), max_length=most).check(limits)
