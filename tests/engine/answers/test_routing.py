"""Routing by confidence: sentences in doubt go to a second model, and the text keeps its form."""

import asyncio
import time

import pytest

from engine.answers.routing.doubts import Doubts
from engine.answers.routing.routed import Second, answer_routed
from engine.api import (
    InvalidRequest,
    KeptSpan,
    MarkedText,
    Placement,
    Service,
    ServiceSettings,
    TextOptions,
    TextResult,
    Unavailable,
)
from engine.repository.routing import RouteBudget, Router, Rule
from tests.support.routed import FIRST, SECOND, SHIPPED, renamed

SURE, UNSURE = "Ich heiße Tom.", "Der Vorstand beschloss gestern eine Satzungsänderung."
OPTIONS = TextOptions(protect=True, follow_form=True)
NEVER, ALWAYS = -100.0, 0.0


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    second = renamed(tmp_path_factory.mktemp("routed"))
    lanes = Placement(threads=1, lanes=((1, 4), (5, 8)))
    made = Service.open([SHIPPED, second], ServiceSettings(lanes, verify=False))
    made.start()
    yield made
    made.stop(drain=False, timeout=30)


@pytest.fixture(scope="module")
def between(service):
    """Return a score between the scores of the two sentences."""
    service.router = Router([])
    sure, unsure = asyncio.run(service.run(FIRST, [SURE, UNSURE], OPTIONS))
    assert unsure.score < sure.score
    return (sure.score + unsure.score) / 2


def rule(score, **others):
    values = {"second": SECOND, "share": 1.0, "first": FIRST} | others
    return Rule("de", "en", doubts=Doubts(score), **values)


def run(service, text, score, options=OPTIONS, model=FIRST, **others):
    """Answer a text with a rule, by the two models of the service."""
    service.router = Router([rule(score, **others)])
    return asyncio.run(service.run(model, [text], options))[0]


def run_with(service, text, score, ask, options=OPTIONS, deadline=float("inf"), **others):
    """Answer a text with a rule, by the first model of the service and an answer of the test."""
    service.router = Router([])
    second = Second(RouteBudget(rule(score, **others)), ask, ["de", "en"])

    async def answer():
        route = service.route(FIRST)
        async with service._use_async(route, float("inf")) as (stage,):
            return await answer_routed(stage, [text], options, deadline, second)

    return asyncio.run(answer())[0]


def replying(*answers):
    """Return a second model that gives these answers, and the list of its requests."""
    rest, asked = list(answers), []

    async def ask(texts, options, until):
        asked.extend(zip(texts, [options] * len(texts), [until] * len(texts), strict=True))
        return [rest.pop(0) for _ in texts]

    return ask, asked


def models(result):
    return [(sentence.model, sentence.doubt, sentence.refused) for sentence in result.sentences]


def test_only_sentences_in_doubt_go_to_the_second_model(service, between):
    before = service.stats()[SECOND].answered
    text = f"{SURE} {UNSURE}"
    plain = run(service, text, NEVER)
    assert models(plain) == [(FIRST, "", "")] * 2
    assert service.stats()[SECOND].answered == before
    routed = run(service, text, between)
    assert models(routed) == [(FIRST, "", ""), (SECOND, "score", "")]
    assert service.stats()[SECOND].answered > before
    # the second model has the same weights, so that it gives the same answer
    assert (routed.text, routed.tokens, routed.token_scores) == (plain.text, plain.tokens, plain.token_scores)
    assert routed.score == pytest.approx(plain.score)


def test_a_text_whose_sentences_are_all_in_doubt_goes_as_a_whole(service):
    ask, asked = replying(TextResult("Both at once.", model=SECOND))
    result = run_with(service, f"{SURE} {UNSURE}", ALWAYS, ask)
    assert [text for text, _, _ in asked] == [f"{SURE} {UNSURE}"]
    assert (result.text, result.model) == ("Both at once.", SECOND)
    assert models(result) == [(SECOND, "score", "")] * 2


def test_an_answer_takes_the_place_of_its_sentence_with_white_space_kept(service, between):
    ask, asked = replying(TextResult("The board did it.", model=SECOND))
    result = run_with(service, f"  {UNSURE}\n\n{SURE} ", between, ask)
    assert [text.text for text, _, _ in asked] == [UNSURE]
    assert result.text == f"  The board did it.\n\n{run(service, SURE, NEVER).text} "


def test_spans_of_the_caller_are_kept_in_the_second_answer(service, between):
    text = f"{SURE} Der Vorstand beschloss mit Quux gestern eine Satzungsänderung."
    begin = text.index("Quux")
    answer = TextResult("Quux did, said the board.", kept=[KeptSpan(0, 4, 0)], model=SECOND)
    ask, asked = replying(answer)
    result = run_with(service, MarkedText(text, ((begin, begin + 4),)), between, ask)
    ((piece, _, _),) = asked
    assert [piece.text[b:e] for b, e in piece.spans] == ["Quux"]
    ((place,)) = [kept for kept in result.kept if kept.span == 0]
    assert result.text[place.begin :] == "Quux did, said the board."
    assert models(result)[1] == (SECOND, "score", "")


@pytest.mark.parametrize(
    "answer",
    [
        TextResult("The board did it.", model=SECOND),  # without the span
        TextResult(" ", model=SECOND),
        TextResult("Quux did", kept=[KeptSpan(0, 4, 0)], finish="length", model=SECOND),
    ],
)
def test_an_answer_that_cannot_be_used_leaves_the_first_one(service, between, answer):
    text = f"{SURE} Der Vorstand beschloss mit Quux gestern eine Satzungsänderung."
    begin = text.index("Quux")
    marked = MarkedText(text, ((begin, begin + 4),))
    ask, _ = replying(answer)
    result = run_with(service, marked, between, ask)
    assert models(result)[1] == (FIRST, "score", "failed")
    assert result.text == run(service, marked, NEVER).text


@pytest.mark.parametrize("error", [Unavailable("down"), InvalidRequest("no prefix")])
def test_a_failure_of_the_second_model_leaves_the_first_answer(service, error):
    async def ask(texts, options, until):
        raise error

    result = run_with(service, UNSURE, ALWAYS, ask)
    assert models(result) == [(FIRST, "score", "failed")]
    assert result.text == run(service, UNSURE, NEVER).text


def test_a_silent_second_model_is_cancelled_before_the_deadline(service):
    ended = []

    async def ask(texts, options, until):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(until)

    deadline = time.monotonic() + 1_000
    result = run_with(service, UNSURE, ALWAYS, ask, deadline=deadline, timeout=0.1)
    assert models(result) == [(FIRST, "score", "failed")]
    assert len(ended) == 1 and ended[0] < deadline


def test_the_second_model_gets_no_more_than_nine_tenths_of_the_time(service):
    ask, asked = replying(TextResult("The board did it.", model=SECOND))
    began = time.monotonic()
    run_with(service, UNSURE, ALWAYS, ask, deadline=began + 1_000, timeout=3_600)
    ((_, _, until),) = asked
    assert until - began < 950


def test_the_least_certain_sentences_go_first_when_the_budget_is_short(service, between):
    result = run(service, f"{SURE} {UNSURE}", ALWAYS, share=1e-9)  # the first sentence is free
    assert models(result) == [(FIRST, "score", "budget"), (SECOND, "score", "")]


def test_tags_and_alignment_stay_right_around_a_second_answer(service, between):
    options = TextOptions(protect=True, follow_form=True, alignment=True, coverage=True)
    text = f"{SURE} Der <b>Vorstand</b> beschloss gestern eine Satzungsänderung."
    plain, routed = run(service, text, NEVER, options), run(service, text, between, options)
    assert models(routed)[1][0] == SECOND
    assert routed.text == plain.text and routed.text.count("<b>") == 1
    assert len(routed.coverage) == 2
    for sentence in routed.alignment:
        assert sentence.matrix.shape == (len(sentence.target), len(sentence.source))
        for piece, place in zip(sentence.target, sentence.target_places, strict=True):
            assert place is None or routed.text[slice(*place)] == piece.strip("▁")


def test_a_measured_coverage_is_a_doubt(service):
    def reason(missed):
        service.router = Router([Rule("de", "en", SECOND, Doubts(NEVER, missed=missed), 1.0)])
        return asyncio.run(service.run(FIRST, [UNSURE], OPTIONS))[0].sentences[0].doubt

    assert reason(1.0) == ""
    (covered,) = run(service, UNSURE, NEVER, TextOptions(coverage=True, protect=True)).coverage
    assert (reason(0.0) == "coverage") == bool(covered.missed)


def test_an_answer_that_the_limit_ended_is_in_doubt_at_any_score(service):
    options = TextOptions({"max_length": 2, "max_length_a": 0.0, "max_length_b": 2}, protect=True)
    assert run(service, UNSURE, NEVER, options).sentences[0].doubt == "length"


def test_a_stream_sends_no_beginning_that_a_second_model_may_replace(service, between):
    service.router = Router([rule(between)])

    async def events():
        return [event async for event in service.stream(FIRST, [f"{UNSURE} {SURE}"], OPTIONS)]

    ((result,),) = asyncio.run(events())
    assert models(result) == [(SECOND, "score", ""), (FIRST, "", "")]


def test_a_rule_is_for_its_first_model_only(service):
    assert run(service, UNSURE, ALWAYS, model=SECOND).sentences == []
    assert run(service, UNSURE, ALWAYS, model=SECOND, first="").sentences == []
    assert run(service, UNSURE, ALWAYS, first="").sentences[0].model == SECOND
