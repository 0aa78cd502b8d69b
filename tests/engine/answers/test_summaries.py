"""Summaries of texts that are too long for a model: of the beginning, of parts, and refined."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace

import pytest

from engine.answers.answer import answer, live
from engine.answers.drafts import Partial
from engine.answers.options import TextOptions
from engine.answers.pivot import Stage
from engine.answers.score import score_many
from engine.api import InvalidRequest, Placement, Service, ServiceSettings, TooLarge
from engine.bundle.bundle import Description, add_files, open_bundle, write_bundle
from export.graphs.onnx import graphs
from tests.support.finished import plan
from tests.support.served import LANES, bundles, server, settings_of

SENTENCE = "The house is small and the garden is green."
LONG = " ".join([SENTENCE, "We walk home.", "It rains, and the dog sleeps."] * 12)


@pytest.fixture(scope="module")
def stage():
    """A summarization model that reads 40 tokens, with its engine."""
    service = Service.open([bundles()], ServiceSettings(Placement(lanes=LANES)))
    service.start()
    with service._use(service.pick("summarize")) as (own,):
        limits = replace(own.text.limits, source=40)
        yield Stage(own.engine, replace(own.text, limits=limits))
    service.stop()


def summarized(stage, *texts, **options):
    chosen = TextOptions(split=False, **{"decode": {"beam_size": 1, "max_length": 12}} | options)
    return asyncio.run(answer([stage], texts, chosen, 1e12))


def test_parts_end_with_sentences_fit_the_model_and_cover_the_text(stage):
    made = plan(stage.text, LONG, TextOptions(split=False, strategy="parts"))
    assert len(made.sentences) > 5
    assert " ".join(sentence.text for sentence in made.sentences) == LONG
    assert all(len(sentence.source) <= 40 for sentence in made.sentences)
    assert all(sentence.text[-1] in ".," for sentence in made.sentences)
    # no part has space for the first sentence of the next part
    for one, other in zip(made.sentences, made.sentences[1:], strict=False):
        first = other.text.split(". ")[0] + "."
        assert len(stage.text.tokenizer.encode(f"{one.text} {first}")) >= 40


def test_a_text_in_parts_is_its_parts_summarized_and_joined(stage):
    made = plan(stage.text, LONG, TextOptions(split=False, strategy="parts"))
    (whole,) = summarized(stage, LONG, strategy="parts")
    alone = summarized(stage, *[sentence.text for sentence in made.sentences])
    assert whole.text == " ".join(result.text for result in alone)
    assert (whole.parts, whole.rounds, whole.truncated) == (len(made.sentences), 0, False)


def test_refining_repeats_until_one_summary_is_left(stage):
    (parts,) = summarized(stage, LONG, strategy="parts")
    (refined,) = summarized(stage, LONG, strategy="refine")
    text, rounds = parts.text, 1
    while len(plan(stage.text, text, TextOptions(split=False, strategy="parts")).sentences) > 1:
        text, rounds = summarized(stage, text, strategy="parts")[0].text, rounds + 1
    assert refined.text == summarized(stage, text)[0].text
    assert (refined.parts, refined.rounds, refined.truncated) == (parts.parts, rounds, False)


@pytest.mark.parametrize("strategy", ["truncate", "parts", "refine"])
def test_a_text_that_fits_is_summarized_without_parts(stage, strategy):
    (usual,), (ours,) = summarized(stage, SENTENCE), summarized(stage, SENTENCE, strategy=strategy)
    assert ours == replace(usual, timings=ours.timings)


def test_a_summary_has_no_white_space_around_it(stage):
    framed, plain = summarized(stage, f"\n  {SENTENCE}\n\n", SENTENCE)
    assert framed.text == plain.text == plain.text.strip()


def test_texts_of_one_request_are_cut_each_for_itself(stage):
    short, long = summarized(stage, SENTENCE, LONG, strategy="refine")
    assert short.text == summarized(stage, SENTENCE)[0].text
    assert (short.parts, short.rounds) == (1, 0)
    assert long.text == summarized(stage, LONG, strategy="refine")[0].text


def test_truncating_reads_the_beginning_and_marks_the_answer(stage):
    (ours,) = summarized(stage, LONG, strategy="truncate")
    assert ours.truncated
    assert ours.text == summarized(stage, LONG, truncate=True)[0].text


def test_a_truncating_model_reads_beginnings_by_default_and_parts_on_request(stage):
    unasked = Stage(stage.engine, replace(stage.text, truncates=True))
    scored = [("A house", source) for source in (LONG, LONG + " It rains.", "It rains. " + LONG)]
    (ours,), (usual,) = summarized(unasked, LONG), summarized(stage, LONG, truncate=True)
    assert ours == replace(usual, timings=ours.timings)
    assert ours.truncated
    (parts,), (usual,) = (summarized(each, LONG, strategy="parts") for each in (unasked, stage))
    assert parts == replace(usual, timings=parts.timings)
    scores = [score.token_scores for score in score_many(unasked.engine, unasked.text, scored)]
    assert scores[0] == scores[1] != scores[2]


def test_without_a_strategy_a_long_text_is_refused_with_the_remedy(stage):
    with pytest.raises(TooLarge, match="choose a strategy: parts, refine, truncate"):
        summarized(stage, LONG)
    with pytest.raises(InvalidRequest, match="'halves' is none of truncate, parts, refine"):
        summarized(stage, LONG, strategy="halves")


@pytest.mark.parametrize("strategy", ["parts", "refine"])
def test_partial_texts_of_a_long_text_begin_the_final_summary(stage, strategy):
    async def events():
        options = TextOptions({"beam_size": 1, "max_length": 12}, split=False, strategy=strategy)
        return [event async for event in live([stage], [LONG], options, 1e12)]

    *partials, (final,) = asyncio.run(events())
    assert all(isinstance(partial, Partial) for partial in partials)
    assert all(final.text.startswith(partial.text) for partial in partials)


def test_the_server_answers_parts_and_rounds_of_a_long_text():
    with server() as (client, _, _):
        asked = {"q": LONG, "max_length": 12}
        assert client.post("/summarize", json=asked).status_code == 413
        answer = client.post("/summarize", json=asked | {"strategy": "refine"}).json()
        assert answer["summaryText"]
        assert answer["parts"] > 1 <= answer["rounds"]
        wrong = client.post("/summarize", json=asked | {"strategy": "halves"})
        assert (wrong.status_code, "strategy" in wrong.json()["error"]) == (400, True)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A service with English summarizers of 64 and of 512 tokens, and a German one."""
    folder = tmp_path_factory.mktemp("several")
    for name, language, source in (("a-short", "en", 64), ("b-long", "en", 512), ("c-german", "de", 64)):
        path = shutil.copytree(bundles() / "toy-title", folder / name)
        opened = open_bundle(path)
        config = replace(opened.config, max_source=source)
        description = Description(
            name, "summarize", language, language, config, opened.text, {"beam_size": 1, "max_length": 9}
        )
        files = {"vocabulary.model": path / "vocabulary.model"}
        write_bundle(path, description, dict(opened.weights()), files, half=False, overwrite=True)
        add_files(path, graphs(config))
    return folder


def test_a_summarizer_is_picked_by_language_and_by_how_much_it_reads(several):
    service = Service.open([several], ServiceSettings(Placement(lanes=((1, 2),))))
    assert service.pick("summarize").name == "a-short"
    assert service.pick("summarize", characters=len(LONG)).name == "b-long"
    assert (
        service.pick("summarize", characters=10**6).name == "b-long"
    )  # too long for both: the larger one is picked
    assert service.pick("summarize", "de", characters=10**6).name == "c-german"
    assert service.pick("summarize", model="a-short", characters=10**6).name == "a-short"


def test_the_server_picks_by_the_text_itself(several):
    def opened(observe, **settings):
        return Service.open([several], settings_of(**settings), observe)

    german = "Der Hund schläft im Garten, und wir gehen nach Hause. Das Haus ist klein."
    with server({}, opened) as (client, house, _):
        for text, model in ((SENTENCE, "a-short"), (LONG[:900], "b-long"), (german, "c-german")):
            answer = client.post("/summarize", json={"q": text})
            assert answer.status_code == 200, answer.text
            expected = next(iter(house.service.run_many(model, [text], TextOptions(split=False))))
            assert answer.json()["summaryText"] == expected.text
