"""Texts through one model, or two of a pivot translation, as one group: at once, or as the answers grow."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from engine.answers.compose import Retry, TextResult, settle
from engine.answers.drafts import Drafts, Partial
from engine.answers.options import TextOptions, resolve
from engine.answers.pivot import Stage, carry_over, join_results, options_of
from engine.answers.plan import Plan, plan
from engine.errors import TooLarge
from engine.schedule.aio import generate_group
from engine.schedule.slices import Slices, each, in_slices
from engine.text.placeables.masking import MarkedText
from engine.types import Result

MAX_INLINE_CHARACTERS: Final = 2_000  # that are split and tokenized in the event loop itself
# characters that are as much work as a text beside its own, and as a phrase that is looked for
CHARACTERS_PER_TEXT: Final = 50
CHARACTERS_PER_PHRASE: Final = 20
MAX_SENTENCES: Final = 4_096  # of one request: the event loop hands them over at once
# of a text whose first sentence is streamed before the others are decoded
MAX_PARAGRAPH_TOKENS: Final = 2_048


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Texts of a group, planned.

    long: whether work on them would hold the event loop for too long.
    """

    plans: list[Plan]
    long: bool


async def answer(
    stages: Sequence[Stage],
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    drafts: Drafts | None = None,
) -> list[TextResult]:
    """Answer texts, in their order.

    stages: the model, or two models of which the second reads the answers of the first.
    texts: the texts, perhaps with spans that stay as they are.
    options: how they are answered.
    deadline: time of `time.monotonic` after which the answers are of no use.
    drafts: hears how the last stage's answers grow.

    Raises the errors of `plan` and of the engine.
    """
    if len(stages) == 1 and options.strategy == "refine":
        return await _summarize_parts(stages[0], texts, options, deadline, drafts)
    if len(stages) == 1:
        return await _once(stages[0], texts, options, deadline, drafts)
    first, last = stages
    plan(last.text, "", options)  # what the last model can't do is refused before the first has worked
    early, options = options_of(options, first.text, last.text)
    results = await _once(first, texts, early, deadline, None)
    carried_over = [carry_over(result, last.text) for result in results]
    final = await _once(last, carried_over, options, deadline, drafts, follow_up=True)
    return [join_results(one, other) for one, other in zip(results, final, strict=True)]


async def live(
    stages: Sequence[Stage], texts: Sequence[str | MarkedText], options: TextOptions, deadline: float
) -> AsyncGenerator[Partial | list[TextResult]]:
    """Yield the certain beginnings of answers as they grow, and in the end the answers.

    stages, texts, options, deadline: see `answer`.

    Closing the iterator cancels all.
    """
    drafts = Drafts()
    task = asyncio.create_task(answer(stages, texts, options, deadline, drafts))
    task.add_done_callback(lambda _: drafts.changed.set())
    try:
        while not task.done():
            await drafts.changed.wait()
            if not task.done():
                for partial in drafts.take():
                    yield partial
        yield await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _summarize_parts(
    stage: Stage,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    drafts: Drafts | None,
) -> list[TextResult]:
    """Summarize long texts part by part, and the joined summaries again, until one summary is left.

    A text whose summaries do not get shorter is cut to its beginning in the end.
    """
    sources, cutting = list(texts), replace(options, strategy="parts", alternatives=0, prefix="")
    parts, rounds, shortest = [1] * len(texts), [0] * len(texts), [math.inf] * len(texts)
    long = list(range(len(texts)))
    while long:
        planned = await _plan_group(stage, [sources[i] for i in long], cutting, deadline)
        several = [(i, p) for i, p in zip(long, planned.plans, strict=True) if len(p.sentences) > 1]
        cut = {i: p for i, p in several if p.tokens < shortest[i]}
        planned = replace(planned, plans=list(cut.values()))
        results = await _decode_plans(stage, planned, deadline, None, follow_up=any(rounds))
        for i, result in zip(cut, results, strict=True):
            shortest[i], parts[i] = result.source_tokens, parts[i] if rounds[i] else result.parts
            sources[i], rounds[i] = result.text, rounds[i] + 1
        long = list(cut)
    last = replace(options, strategy="truncate")
    final = await _once(stage, sources, last, deadline, drafts, follow_up=any(rounds))
    return [replace(answer, parts=parts[i], rounds=rounds[i]) for i, answer in enumerate(final)]


async def _once(
    stage: Stage,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    drafts: Drafts | None,
    *,
    follow_up: bool = False,
) -> list[TextResult]:
    """Answer the texts by one model.

    follow_up: see `_decode_plans`.
    """
    planned = await _plan_group(stage, texts, options, deadline)
    return await _decode_plans(stage, planned, deadline, drafts, follow_up=follow_up)


async def _plan_group(
    stage: Stage, texts: Sequence[str | MarkedText], options: TextOptions, deadline: float
) -> GroupPlan:
    """Plan texts for one model."""
    long = _work(texts, options) > MAX_INLINE_CHARACTERS
    plans = await in_slices(_plans(stage, texts, options), deadline, small=not long)
    return GroupPlan(plans, long)


async def _decode_plans(
    stage: Stage, planned: GroupPlan, deadline: float, drafts: Drafts | None, *, follow_up: bool
) -> list[TextResult]:
    """Answer planned texts by one model.

    follow_up: other work for the same texts is done, so that they have had their turn.
    """
    plans, long = planned.plans, planned.long
    if drafts:
        results = _deal(plans, await _in_reading_order(stage, plans, deadline, drafts, follow_up=follow_up))
    else:
        jobs = [job for p in plans for job in p.jobs]
        results = _deal(plans, await generate_group(stage.engine, jobs, deadline, follow_up=follow_up))
    pairs = list(zip(plans, results, strict=True))
    outcomes = await _settled(stage, pairs, deadline, long=long)
    while retries := [outcome for outcome in outcomes if isinstance(outcome, Retry)]:
        jobs = [job for retry in retries for job in retry.jobs]
        redone = iter(await generate_group(stage.engine, jobs, deadline, follow_up=True))
        pairs = [(retry.plan, retry.merge(redone)) for retry in retries]
        settled = iter(await _settled(stage, pairs, deadline, long=long))
        outcomes = [next(settled) if isinstance(outcome, Retry) else outcome for outcome in outcomes]
    return [outcome for outcome in outcomes if not isinstance(outcome, Retry)]


def _plans(stage: Stage, texts: Sequence[str | MarkedText], options: TextOptions) -> Slices[list[Plan]]:
    """A plan for each text. Raises what `plan` raises, and TooLarge as soon as they are too much together."""
    plans, sentences, tokens = list[Plan](), 0, 0
    resolved = resolve(stage.text, options) if texts and stage.text.limits.attention else None
    yield
    for text in texts:
        plans.append(plan(stage.text, text, options, resolved))
        sentences += len(plans[-1].places)
        tokens += plans[-1].tokens
        if sentences > MAX_SENTENCES:
            raise TooLarge(f"more than {MAX_SENTENCES} sentences in one request: send fewer or shorter texts")
        stage.engine.settings.check_size(tokens)
        yield
    return plans


async def _in_reading_order(
    stage: Stage, plans: Sequence[Plan], deadline: float, drafts: Drafts, *, follow_up: bool
) -> list[Result]:
    """Results of all jobs, the first sentence of each text decoded before the others.

    So the first words are there as soon as if their sentence were alone. All sentences of a page are decoded
    at once: a page may not go before other requests.
    """
    watch = drafts.begin(stage.text, plans)
    jobs = [job for p in plans for job in p.jobs]
    starts = list(accumulate((len(p.places) for p in plans), initial=0))
    first = [start for start, p in zip(starts, plans, strict=False) if p.places]
    rest = sorted(set(range(len(jobs))) - set(first))
    if not rest or sum(len(jobs[i][0]) for i in rest) > MAX_PARAGRAPH_TOKENS:
        return await generate_group(stage.engine, jobs, deadline, watch, follow_up=follow_up)
    results: dict[int, Result] = {}
    for numbers in (first, rest):

        def report(job: int, news: list[int] | Result, numbers: Sequence[int] = numbers) -> None:
            watch(numbers[job], news)

        part = [jobs[i] for i in numbers]
        later = follow_up or numbers is rest
        part_results = await generate_group(stage.engine, part, deadline, report, follow_up=later)
        results |= dict(zip(numbers, part_results, strict=True))
    return [results[i] for i in range(len(jobs))]


def _work(texts: Sequence[str | MarkedText], options: TextOptions) -> int:
    """The cost of planning texts, in characters: each text and each phrase to look for costs some too."""
    characters = sum(len(t.text if isinstance(t, MarkedText) else t) for t in texts)
    phrases = len(options.ignore) + len(options.glossary)
    return (
        characters + len(options.prefix) + CHARACTERS_PER_TEXT * len(texts) + CHARACTERS_PER_PHRASE * phrases
    )


async def _settled(
    stage: Stage, pairs: Sequence[tuple[Plan, list[Result]]], deadline: float, *, long: bool
) -> list[TextResult | Retry]:
    """What `settle` makes of plans and their results: at once, or where that takes long outside of the event
    loop."""
    return await in_slices(each(settle(stage.text, *pair) for pair in pairs), deadline, small=not long)


def _deal(plans: Sequence[Plan], results: Sequence[Result]) -> list[list[Result]]:
    """Deal to each plan its own results."""
    rest = iter(results)
    return [[next(rest) for _ in p.places] for p in plans]
