"""Texts through small models: the service compared with the engine, sentence by sentence."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answers.options import resolve
from engine.answers.text_model import TextModel
from engine.api import InvalidRequest, Placement, Service, ServiceSettings, TextOptions, TooLarge
from engine.bundle.bundle import open_bundle
from engine.schedule.aio import generate
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions
from tests.support.finished import plan
from tests.support.served import SOURCE, bundles, running


def ask(service, text, options=None, model="toy-de-en"):
    return asyncio.run(service.run(model, [text], options))[0]


def alone(service, sentence, model="toy-de-en", **changes):
    """Return the engine's answer to one sentence."""
    bundle = open_bundle(bundles() / model)
    source = [*open_tokenizer(bundle).encode(sentence), bundle.config.eos]
    engine = service.repository.loaded[model].engine
    return asyncio.run(generate(engine, source, replace(bundle.options, **changes)))


def text_of(hypothesis):
    return open_tokenizer(open_bundle(bundles() / "toy-de-en")).decode(hypothesis.tokens)


def test_sentences_are_translated_one_by_one_and_the_layout_is_kept(service):
    sentences = ["Das ist gut.", "Wer bist du?", "Guten Abend!"]
    text = f"  {sentences[0]}  {sentences[1]}\r\n\n\t{sentences[2]}\n"
    found = [text_of(alone(service, s).hypotheses[0]) for s in sentences]
    result = ask(service, text)
    assert result.text == f"  {found[0]}  {found[1]}\r\n\n\t{found[2]}\n"
    assert len(set(found)) == 3
    assert not result.truncated


def test_the_score_of_several_sentences_is_weighted_by_their_lengths(service):
    best = [alone(service, s).hypotheses[0] for s in ("Das ist gut.", "Wer bist du?")]
    result = ask(service, "Das ist gut. Wer bist du?")
    lengths = [len(h.token_scores) for h in best]
    assert result.score == pytest.approx(np.average([h.score for h in best], weights=lengths))
    assert result.token_scores == [s for h in best for s in h.token_scores]
    assert len(result.tokens) == len(result.token_scores)
    assert result.tokens.count("</s>") == 2
    assert result.target_tokens == sum(len(h.tokens) for h in best)


def test_a_single_sentence_keeps_its_own_score(service):
    assert ask(service, "Wer bist du?").score == alone(service, "Wer bist du?").hypotheses[0].score


def test_alternatives_combine_rank_by_rank(service):
    one, two = (alone(service, s, n_best=3).hypotheses for s in ("Das ist gut.", "Wer bist du?"))
    result = ask(service, "Das ist gut. Wer bist du?", TextOptions(alternatives=2))
    wanted = list(dict.fromkeys(f"{text_of(a)} {text_of(b)}" for a, b in zip(one, two, strict=True)))
    assert [result.text, *result.alternatives] == wanted
    assert len(result.alternative_scores) == len(result.alternatives) >= 1


def test_alternatives_widen_the_beam_unless_the_caller_sets_it():
    with running(lanes=((1, 2), (2, 2), (4, 2)), beam_size=2) as service:
        names = {s.options.beam_size for s in service.models()}
        assert names == {2}
        wide = ask(service, "Wer bist du?", TextOptions(alternatives=3))
        assert wide.text == text_of(alone(service, "Wer bist du?", beam_size=4).hypotheses[0])
        with pytest.raises(InvalidRequest, match="3 alternatives need a beam_size of at least 4"):
            ask(service, "Wer bist du?", TextOptions({"beam_size": 2}, alternatives=3))


@pytest.mark.parametrize("text", ["", " ", "\n\n", "😀 😀", "…!", "\u3000\t"])
def test_text_without_words_is_echoed_without_the_model(service, text):
    before = service.stats()["toy-de-en"]
    result = ask(service, text)
    after = service.stats()["toy-de-en"]
    assert (result.text, result.score, result.tokens) == (text, 0.0, [])
    assert (before.steps, before.encoded_requests) == (after.steps, after.encoded_requests)


def test_an_emoji_between_sentences_stays(service):
    result = ask(service, "Wer bist du?\n😀\nDas ist gut.", TextOptions(alternatives=1))
    lines = result.text.split("\n")
    assert lines[1] == "😀"
    assert lines[0] == text_of(alone(service, "Wer bist du?").hypotheses[0])


def test_a_sentence_too_long_for_the_model_is_split_without_loss(service):
    bundle = open_bundle(bundles() / "toy-de-en")
    text = " ".join(f"Haus{i} und Hof" for i in range(60))
    result = ask(service, text)
    pieces = len(open_tokenizer(bundle).encode(text))
    parts = result.tokens.count("</s>")
    assert parts >= pieces // SOURCE > 1
    assert result.source_tokens >= pieces + parts - 1
    assert not result.truncated


@pytest.mark.parametrize("order", [1, -1])
def test_finish_is_length_if_any_sentence_was_ended_by_its_limit(order):
    folder = Path(__file__).parents[3] / "models" / "tatoeba-de-en"
    decode = {"max_length_a": 0.0, "max_length_b": 6}
    sentences = ["Es ist gut.", "Tom und Maria gehen morgen mit dem Hund durch den großen Wald."][::order]
    service = Service.open([folder], ServiceSettings(Placement(threads=1)))
    service.start()
    results = service.run_many(folder.name, [*sentences, " ".join(sentences)], TextOptions(decode))
    finishes = [result.finish for result in results]
    service.stop(drain=False, timeout=30)
    assert finishes == [*["stop", "length"][::order], "length"]


@pytest.mark.parametrize("name", ["tatoeba-de-en", "tatoeba-en-fr"])
def test_a_text_without_sentence_ends_is_cut_at_the_limit_of_its_bundle(name):
    folder = Path(__file__).parents[3] / "models" / name
    bundle = open_bundle(folder, verify=False)
    text = "Tom und Maria gehen in das Haus " * 100
    service = Service.open([folder], ServiceSettings(Placement(threads=1)))
    service.start()
    (loaded,) = service.repository.loaded.values()
    sources = [sentence.source for sentence in plan(loaded.text, text, TextOptions()).sentences]
    service.stop(drain=False, timeout=30)
    count = len(open_tokenizer(bundle).encode(text.strip()))
    assert bundle.max_sentence_tokens - 3 <= max(map(len, sources)) <= bundle.max_sentence_tokens == 48
    assert sum(map(len, sources)) - len(sources) == count
    assert len(sources) <= math.ceil(count / 44)


def test_a_text_that_must_stay_whole_is_refused_when_it_is_too_long(service):
    with pytest.raises(TooLarge, match=f"at most {SOURCE}: let it be split"):
        ask(service, "Haus und Hof " * 60, TextOptions(split=False))


def test_unsplit_text_is_one_source(service):
    whole = ask(service, " Das ist gut.\nWer bist du? ", TextOptions(split=False))
    assert whole.tokens.count("</s>") == 1
    assert whole.text == f" {text_of(alone(service, 'Das ist gut. Wer bist du?').hypotheses[0])} "


def test_a_summary_of_a_shortened_text_is_marked_as_truncated(service):
    text = "We prove a theorem. It is new. " * 20
    with pytest.raises(TooLarge, match=f"reads at most {SOURCE}: choose a strategy"):
        ask(service, text, model="toy-title")
    short = ask(service, text, TextOptions(truncate=True), model="toy-title")
    assert short.truncated
    assert short.source_tokens == SOURCE
    whole = ask(service, "We prove a theorem. It is new.", TextOptions(truncate=True), model="toy-title")
    assert not whole.truncated
    assert whole.tokens.count("</s>") == 1
    assert ask(service, "  ", model="toy-title").text == "  "


def test_a_prefix_begins_the_first_sentence_only(service):
    result = ask(service, "Wer bist du? Das ist gut.", TextOptions(prefix="The house"))
    assert result.text.startswith("The house")
    assert result.text.count("The house") == 1
    assert result.text.endswith(text_of(alone(service, "Das ist gut.").hypotheses[0]))


def test_alignment_is_one_matrix_of_distributions_for_each_sentence(service):
    result = ask(service, "Wer bist du?\n😀 Das ist gut.", TextOptions(alignment=True))
    assert len(result.alignment) == 2
    for sentence in result.alignment:
        assert sentence.matrix.shape == (len(sentence.target), len(sentence.source))
        assert sentence.matrix.sum(-1) == pytest.approx(1.0, abs=1e-5)
        assert sentence.source[-1] == sentence.target[-1] == "</s>"
    assert "".join(result.alignment[0].source).startswith("▁")


def test_an_answer_at_its_limit_has_finish_length(service):
    assert ask(service, "Wer bist du?", TextOptions({"min_length": 3, "max_length": 3})).finish == "length"


def test_the_texts_of_a_batch_are_accepted_together_or_not_at_all():
    with running(queue_tokens=40) as service, pytest.raises(TooLarge, match="send fewer texts"):
        asyncio.run(service.run("toy-de-en", ["Das ist gut."] * 20))


def test_long_batches_are_planned_outside_the_event_loop(service):
    texts = [f"Das ist Haus {i}." for i in range(150)]
    together = asyncio.run(service.run("toy-de-en", texts))
    assert [r.text for r in together] == [r.text for r in service.run_many("toy-de-en", texts)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TextOptions({"beams": 2}), r"unknown decoding options \['beams'\]"),
        (TextOptions({"prefix": (1,)}), "prefix as text"),
        (TextOptions(alternatives=-1), "must not be negative"),
        (TextOptions(prefix="\ud800"), "surrogate"),
        (TextOptions({"length_penalty": math.nan}), "finite"),
        (TextOptions({"beam_size": 5}), "between 1 and 4"),
    ],
)
@pytest.mark.parametrize("text", ["Wer bist du?", "😀"])
def test_wrong_options_are_refused_even_when_the_model_is_not_needed(service, options, message, text):
    with pytest.raises(InvalidRequest, match=message):
        ask(service, text, options)


def test_text_that_is_no_unicode_is_refused(service):
    with pytest.raises(InvalidRequest, match="surrogate"):
        ask(service, "a\udfffb")


@given(text=st.text(max_size=60))
def test_any_text_is_answered_with_its_white_space(service, text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    result = ask(service, text, TextOptions({"beam_size": 1, "max_length": 2}))
    assert result.text[: len(text) - len(text.lstrip())].isspace() == bool(text[:1].isspace())


def test_a_translation_from_chinese_has_spaces_between_its_sentences():
    limits = DecodeOptions()
    for pair, wanted in {
        ("zh", "en"): " ",
        ("de", "en"): "",
        ("ja", "zh"): "",
        ("zh-Hans", "de"): " ",
    }.items():
        assert TextModel("translate", *pair, None, limits, None, 2).space("", "One.") == wanted


@pytest.mark.parametrize(
    ("pair", "gap", "before", "wanted"),
    [
        (("en", "zh"), " ", "你好。", ""),
        (("en", "ja"), "  ", "元気ですか？", ""),
        (("de", "zt"), " ", "（好）", ""),
        (("en", "zh"), " ", "OK.", " "),
        (("en", "zh"), "\n", "你好。", "\n"),
        (("en", "zh"), "", "你好。", ""),
        (("en", "ko"), " ", "好。", " "),
        (("en", "th"), " ", "ดี", " "),
        (("ja", "en"), " ", "Good。", " "),
    ],
)
def test_no_space_follows_a_wide_mark_in_chinese_and_japanese(pair, gap, before, wanted):
    model = TextModel("translate", *pair, None, DecodeOptions(), None, 2)
    assert model.space(gap, before) == wanted


def test_raw_texts_are_one_source_whatever_else_is_requested(service):
    model = service.repository.loaded["toy-de-en"].text
    wishes = {"split": True, "protect": True, "follow_form": True}
    for raw in (False, True):
        resolved = resolve(model, TextOptions(**wishes, raw=raw))
        assert (resolved.split, resolved.protect, resolved.follow_form) == (not raw,) * 3
