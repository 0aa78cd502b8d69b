"""Answers texts by one model, or by two for a pivot translation, as one group; also as a stream."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from engine.answers.compose import Retry, TextResult, settle
from engine.answers.drafts import Drafts, Partial
from engine.answers.options import TextOptions, resolve
from engine.answers.pivot import Stage, carry_over, join_results, options_of
from engine.answers.plan import MAX_SENTENCES, TOO_MANY_SENTENCES, Plan, plan
from engine.answers.text_model import TextModel
from engine.errors import TooLarge
from engine.schedule.aio import generate_group
from engine.schedule.engine import EngineSettings
from engine.schedule.slices import Slices, at_once, each, in_slices, in_turns
from engine.schedule.workers import run_work
from engine.text.placeables.masked_text import MarkedText
from engine.types import DecodeJob, Result

# costs of a text and of a protected phrase, as numbers of characters
CHARACTERS_PER_TEXT: Final = 50
CHARACTERS_PER_PHRASE: Final = 20
# a longer text is not streamed with its first sentence decoded before the others
MAX_PARAGRAPH_TOKENS: Final = 2_048
SMALL_DRAFT: Final = 500  # characters; the beginnings of longer answers are made outside of the event loop
DRAFT_REST: Final = 2.0  # time without new beginnings of a long answer, by the time that making the last took


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Plans of the texts of a group; `characters` estimates the work on the texts."""

    plans: list[Plan]
    characters: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """The answer to a text, with the last plan of the text and the result of each job of the plan."""

    plan: Plan
    results: list[Result]
    answer: TextResult


async def answer(
    stages: Sequence[Stage],
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    drafts: Drafts | None = None,
) -> list[TextResult]:
    """Answer texts, in their order.

    stages: one model, or two models of which the second reads the answers of the first.
    texts: texts, optionally with protected spans.
    options: options of the answers.
    deadline: time.monotonic() after which the answers are of no use.
    drafts: receiver of unfinished answers of the last stage.

    Raises the errors of `plan` and of the engine.
    """
    if len(stages) == 1 and options.strategy == "refine":
        return await _summarize_parts(stages[0], texts, options, deadline, drafts)
    if len(stages) == 1:
        return await _answer_by_one(stages[0], texts, options, deadline, drafts)
    first, last = stages
    # options that the last model refuses fail before the first model works
    at_once(plan(last.text, "", options))
    early, options = options_of(options, first.text, last.text)
    first_results = await _answer_by_one(first, texts, early, deadline, None)
    carried_over = [carry_over(result, last.text) for result in first_results]
    last_results = await _answer_by_one(last, carried_over, options, deadline, drafts, follow_up=True)
    return [join_results(*pair) for pair in zip(first_results, last_results, strict=True)]


async def live(
    stages: Sequence[Stage], texts: Sequence[str | MarkedText], options: TextOptions, deadline: float
) -> AsyncGenerator[Partial | list[TextResult]]:
    """Yield the certain beginnings of answers as they grow, and at the end the answers.

    stages, texts, options, deadline: parameters of `answer`.

    Closing the iterator cancels the requests.
    """
    drafts, small = Drafts(), planning_work(texts, options) <= SMALL_DRAFT
    task = asyncio.create_task(answer(stages, texts, options, deadline, drafts))
    task.add_done_callback(lambda _: drafts.changed.set())
    try:
        while not task.done():
            await drafts.changed.wait()
            if not task.done():
                began = time.perf_counter()
                for partial in await in_slices(drafts.take(), deadline, small=small):
                    yield partial
                if not small:
                    await asyncio.wait({task}, timeout=DRAFT_REST * (time.perf_counter() - began))
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

    If the summaries of a text stop getting shorter, only the beginning of the last one is read.
    """
    sources, cutting = list(texts), replace(options, strategy="parts", alternatives=0, prefix="")
    # of each text: parts of the first round, rounds, and source tokens of the last round
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
    final = await _answer_by_one(stage, sources, last, deadline, drafts, follow_up=any(rounds))
    return [replace(answer, parts=parts[i], rounds=rounds[i]) for i, answer in enumerate(final)]


async def _answer_by_one(
    stage: Stage,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    drafts: Drafts | None,
    *,
    follow_up: bool = False,
) -> list[TextResult]:
    """Answer texts by one model."""
    planned = await _plan_group(stage, texts, options, deadline)
    return await _decode_plans(stage, planned, deadline, drafts, follow_up=follow_up)


async def _plan_group(
    stage: Stage, texts: Sequence[str | MarkedText], options: TextOptions, deadline: float
) -> GroupPlan:
    """Plan texts for one model."""
    characters = planning_work(texts, options)
    work = stage.workers, plan_texts, stage.text, stage.engine.settings, list(texts), options
    return GroupPlan(await run_work(*work, deadline=deadline, characters=characters), characters)


async def _decode_plans(
    stage: Stage, planned: GroupPlan, deadline: float, drafts: Drafts | None, *, follow_up: bool
) -> list[TextResult]:
    """Decode plans by one model, and compose the answers.

    follow_up: the texts were accepted earlier, see `Engine.submit`.
    """
    plans, characters = planned.plans, planned.characters
    if drafts:
        results = _split_by_plan(
            plans, await _in_reading_order(stage, plans, deadline, drafts, follow_up=follow_up)
        )
    else:
        jobs = await _jobs_of(plans)
        results = _split_by_plan(
            plans, await generate_group(stage.engine, jobs, deadline, follow_up=follow_up)
        )
    decoded = await _settle_plans(stage, plans, results, deadline, characters)
    return [text.answer for text in decoded]


async def decode_texts(
    stage: Stage, texts: Sequence[str | MarkedText], options: TextOptions, deadline: float
) -> list[Decoded]:
    """Answer texts by one model, and return what the answers are composed of.

    stage: model.
    texts, options, deadline: parameters of `answer`.
    """
    planned = await _plan_group(stage, texts, options, deadline)
    results = await generate_group(stage.engine, await _jobs_of(planned.plans), deadline)
    split_results = _split_by_plan(planned.plans, results)
    return await _settle_plans(stage, planned.plans, split_results, deadline, planned.characters)


async def _settle_plans(
    stage: Stage, plans: Sequence[Plan], results: list[list[Result]], deadline: float, characters: int
) -> list[Decoded]:
    """Compose the answers of plans; sentences with wrong answers are decoded again first."""
    pairs = list(zip(plans, results, strict=True))
    outcomes = await _settle_all(stage, pairs, deadline, characters)
    while retries := {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, Retry)}:
        jobs = await in_turns(_joined(retry.job_slices() for retry in retries.values()))
        redone = iter(await generate_group(stage.engine, jobs, deadline, follow_up=True))
        again = [(retry.plan, retry.merge(redone)) for retry in retries.values()]
        settled = await _settle_all(stage, again, deadline, characters)
        for i, pair, outcome in zip(retries, again, settled, strict=True):
            pairs[i], outcomes[i] = pair, outcome
    decoded = zip(pairs, outcomes, strict=True)
    return [Decoded(*pair, answer) for pair, answer in decoded if not isinstance(answer, Retry)]


def plan_texts(
    model: TextModel, settings: EngineSettings, texts: Sequence[str | MarkedText], options: TextOptions
) -> Slices[list[Plan]]:
    """Plan each text, in slices.

    model: model that answers.
    settings: settings of its engine.
    texts: texts, optionally with protected spans.
    options: options of the answers.

    Raises the errors of `plan`, and TooLarge if the texts are too long together.
    """
    plans, sentences, tokens = list[Plan](), 0, 0
    resolved = resolve(model, options) if texts and model.limits.attention else None
    yield
    for text in texts:
        plans.append((yield from plan(model, text, options, resolved, MAX_SENTENCES - sentences)))
        sentences += len(plans[-1].job_sentences)
        tokens += plans[-1].tokens
        if sentences > MAX_SENTENCES:  # parts of summaries
            raise TooLarge(TOO_MANY_SENTENCES)
        settings.check_size(tokens)
        yield
    return plans


async def _in_reading_order(
    stage: Stage, plans: Sequence[Plan], deadline: float, drafts: Drafts, *, follow_up: bool
) -> list[Result]:
    """Decode the first sentence of each text before the other sentences; returns the results of all jobs.

    The first words are then ready as early as if their sentence were alone. Long texts are decoded at once:
    their other sentences, as a follow-up, would overtake too many requests.
    """
    watch = drafts.begin(stage.text, plans)
    jobs = await _jobs_of(plans)
    starts = list(accumulate((len(p.job_sentences) for p in plans), initial=0))
    first = [start for start, p in zip(starts, plans, strict=False) if p.job_sentences]
    rest = sorted(set(range(len(jobs))) - set(first))
    if not rest or sum(len(jobs[i][0]) for i in rest) > MAX_PARAGRAPH_TOKENS:
        return await generate_group(stage.engine, jobs, deadline, watch, follow_up=follow_up)
    results: dict[int, Result] = {}
    for numbers in (first, rest):

        def report(job: int, update: list[int] | Result, numbers: Sequence[int] = numbers) -> None:
            watch(numbers[job], update)

        part = [jobs[i] for i in numbers]
        later = follow_up or numbers is rest
        part_results = await generate_group(stage.engine, part, deadline, report, follow_up=later)
        results |= dict(zip(numbers, part_results, strict=True))
    return [results[i] for i in range(len(jobs))]


async def _jobs_of(plans: Iterable[Plan]) -> list[DecodeJob]:
    """Return the jobs of plans. The event loop serves other tasks meanwhile."""
    return await in_turns(_joined(p.job_slices(range(len(p.job_sentences))) for p in plans))


def _joined(parts: Iterable[Slices[list[DecodeJob]]]) -> Slices[list[DecodeJob]]:
    """Return the jobs of several generators as one list."""
    return [job for part in (yield from each(parts)) for job in part]


def planning_work(texts: Sequence[str | MarkedText], options: TextOptions) -> int:
    """Estimate the work of planning texts, in characters.

    texts: texts, optionally with protected spans.
    options: options of the answers.
    """
    characters = sum(len(t.text if isinstance(t, MarkedText) else t) for t in texts)
    phrases = len(options.ignore) + len(options.glossary)
    return (
        characters + len(options.prefix) + CHARACTERS_PER_TEXT * len(texts) + CHARACTERS_PER_PHRASE * phrases
    )


async def _settle_all(
    stage: Stage, pairs: list[tuple[Plan, list[Result]]], deadline: float, characters: int
) -> list[TextResult | Retry]:
    """Run `settle` on plans with their results, outside of the event loop if that takes long."""
    work = stage.workers, settle_each, stage.text, pairs
    return await run_work(*work, deadline=deadline, characters=characters)


def settle_each(
    model: TextModel, pairs: Sequence[tuple[Plan, list[Result]]]
) -> Slices[list[TextResult | Retry]]:
    """Return the outcome of `settle` for each plan, in slices.

    model: model that answered.
    pairs: plan of each text with the results of its jobs.
    """
    return (yield from each(settle(model, *pair) for pair in pairs))


def _split_by_plan(plans: Sequence[Plan], results: Sequence[Result]) -> list[list[Result]]:
    """Split the results by plan."""
    rest = iter(results)
    return [[next(rest) for _ in p.job_sentences] for p in plans]
