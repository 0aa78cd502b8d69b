"""Texts through two models: the second one answers the sentences in doubt, within its budget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from engine.answers.answer import Decoded, decode_texts, planning_work
from engine.answers.choices import Choice
from engine.answers.compose import SentenceVia, TextResult, slowest
from engine.answers.options import TextOptions
from engine.answers.pivot import Stage
from engine.answers.plan import Plan
from engine.answers.routing.doubts import Doubt, Doubts, find_doubts_each
from engine.answers.routing.weaving import choice_of, compose_each, spell
from engine.answers.text_model import TextModel
from engine.errors import ConvoyError, InvalidRequest, TooLarge
from engine.schedule.workers import run_work
from engine.text.placeables.masked_text import MarkedText

BUDGET, FAILED = "budget", "failed"  # reasons of the first model's answer to a sentence in doubt
DEADLINE_SHARE: Final = 0.9  # share of the time until the deadline that the second model may use
OF_A_TEXT: Final = (InvalidRequest, TooLarge)  # an option or a length that only the first model supports


class SecondModel(Protocol):
    """The model for sentences in doubt, with a budget.

    name: name of the model.
    doubts: limits of the first model's answers.
    timeout: longest time of its answers, in seconds.
    """

    @property
    def name(self) -> str: ...

    @property
    def doubts(self) -> Doubts: ...

    @property
    def timeout(self) -> float: ...

    def admit(self, sentences: int, doubted: int) -> int:
        """Return how many sentences in doubt the budget allows, and take these from it.

        sentences: number of sentences that the first model answered.
        doubted: number of sentences in doubt.
        """

    def finish(self, *, answered: bool) -> None:
        """Record the end of a request.

        answered: whether the model gave an answer in time.
        """


# answers texts by the second model until a time of time.monotonic()
Ask = Callable[[Sequence[str | MarkedText], TextOptions, float], Awaitable[list[TextResult]]]


@dataclass(frozen=True, slots=True)
class Second:
    """The model for sentences in doubt.

    model: its name, limits and budget.
    ask: function that answers texts by it.
    languages: codes of the languages that the first model's answers are compared with.
    """

    model: SecondModel
    ask: Ask
    languages: Sequence[str]


@dataclass(slots=True)
class _Text:
    """A text with the first model's answer.

    doubts: doubt of each sentence in doubt, by number of the sentence.
    admitted: numbers of the sentences for the second model.
    given: answers of the second model to these sentences, or to the whole text, by number of the sentence.
    """

    source: str | MarkedText
    decoded: Decoded
    doubts: Mapping[int, Doubt]
    admitted: list[int] = field(default_factory=list)
    given: dict[int, tuple[TextResult, Choice]] = field(default_factory=dict)
    whole: TextResult | None = None

    @property
    def plan(self) -> Plan:
        return self.decoded.plan

    @property
    def goes_whole(self) -> bool:
        """Whether the second model reads the whole text, because all sentences are in doubt."""
        return 0 < len(self.admitted) == len(self.plan.job_sentences)


async def answer_routed(
    stage: Stage,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    second: Second,
) -> list[TextResult]:
    """Answer texts by a first model, and their sentences in doubt by a second one, within its budget.

    stage: first model.
    texts: texts, optionally with protected spans.
    options: options of the answers.
    deadline: time.monotonic() after which the answers are of no use.
    second: second model. If it is late or fails, the first model's answers stay.

    Raises the errors of the first model.
    """
    characters = planning_work(texts, options)
    measured = replace(options, coverage=True) if second.model.doubts.missed is not None else options
    decoded = await decode_texts(stage, texts, measured, deadline)
    pairs = [(text.plan, text.results) for text in decoded]
    finding = stage.workers, find_doubts_each, stage.text, pairs, second.model.doubts, list(second.languages)
    doubts = await run_work(*finding, deadline=deadline, characters=characters)
    routed = [_Text(*parts) for parts in zip(texts, decoded, doubts, strict=True)]
    if _admit(routed, options, second.model):
        await _ask_second(stage.text, routed, options, deadline, second)
    woven = [text for text in routed if text.given]
    parts = [(t.plan, t.decoded.results, {n: [c] for n, (_, c) in t.given.items()}) for t in woven]
    weaving = stage.workers, compose_each, stage.text, parts
    composed = await run_work(*weaving, deadline=deadline, characters=characters) if woven else []
    answers = dict(zip(map(id, woven), composed, strict=True))
    return [_finished(stage.text, text, answers.get(id(text))) for text in routed]


def _admit(routed: Sequence[_Text], options: TextOptions, second: SecondModel) -> bool:
    """Choose the sentences for the second model, the greatest doubts first; returns whether there are any.

    A prefix is for the first sentence of a text: if others are not in doubt, that sentence stays.
    """
    doubted = [
        (doubt.score, text, number)
        for text in routed
        for number, doubt in text.doubts.items()
        if not options.prefix or number or len(text.doubts) == len(text.plan.job_sentences)
    ]
    doubted.sort(key=lambda one: one[0])
    sentences = sum(len(text.plan.job_sentences) for text in routed)
    count = second.admit(sentences, len(doubted)) if sentences else 0
    for _, text, number in doubted[:count]:
        text.admitted.append(number)
    return count > 0


async def _ask_second(
    model: TextModel, routed: Sequence[_Text], options: TextOptions, deadline: float, second: Second
) -> None:
    """Ask the second model for the admitted sentences, and store the answers that come in time."""
    now = time.monotonic()
    seconds = min(second.model.timeout, DEADLINE_SHARE * max(0.0, deadline - now))
    work = list[Coroutine[Any, Any, bool]]()
    for text in routed:
        if text.goes_whole:
            work.append(_ask_whole(text, options, second.ask, now + seconds))
        else:
            work += [_ask_sentence(model, text, n, options, second.ask, now + seconds) for n in text.admitted]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.wait(tasks, timeout=seconds)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        second.model.finish(answered=True in ended)
    for error in ended:
        if isinstance(error, Exception) and not isinstance(error, ConvoyError):
            raise error


async def _ask_whole(text: _Text, options: TextOptions, ask: Ask, until: float) -> bool:
    """Store the answer to a text if it can be used. Returns whether the second model works."""
    try:
        (result,) = await ask([text.source], options, until)
    except OF_A_TEXT:
        return True
    text.whole = result if is_usable(result) else None
    return True


async def _ask_sentence(
    model: TextModel, text: _Text, number: int, options: TextOptions, ask: Ask, until: float
) -> bool:
    """Store the answer to a sentence if it can be used. Returns whether the second model works."""
    asked = replace(options, prefix="", alternatives=0, wraps=False)
    asked = replace(asked, alignment=options.alignment or text.plan.formats is not None)
    try:
        (result,) = await ask([spell(text.plan, number)[0]], asked, until)
    except OF_A_TEXT:
        return True
    if is_usable(result) and (choice := choice_of(model, text.plan, number, result)):
        text.given[number] = result, choice
    return True


def is_usable(result: TextResult) -> bool:
    """Return whether an answer of the second model is better than an answer in doubt."""
    return (
        bool(result.text.strip())
        and result.finish == "stop"
        and not result.doubtful
        and not result.repetition.loop
    )


def _finished(model: TextModel, text: _Text, woven: TextResult | None) -> TextResult:
    """Return the answer to a text with the origin of each sentence."""
    first, given = text.decoded.answer, [result for result, _ in text.given.values()]
    used = [text.whole] if text.whole else given
    sentences = [_via(model, text, number) for number in text.plan.job_sentences]
    timings = first.timings + slowest([result.timings for result in used]) if used else first.timings
    return replace(text.whole or woven or first, sentences=sentences, timings=timings)


def _via(model: TextModel, text: _Text, number: int) -> SentenceVia:
    """Return the origin of the answer to a sentence."""
    doubt = text.doubts.get(number)
    if doubt is None:
        return SentenceVia(model.name)
    result = text.whole or text.given.get(number, (None,))[0]
    if result:
        return SentenceVia(result.model, doubt.reason)
    return SentenceVia(model.name, doubt.reason, FAILED if number in text.admitted else BUDGET)
