"""Texts through one model, or two of a pivot translation, as one group: at once, or told as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from engine.aio import generate_group
from engine.chain import Step, carried, first_options, joined
from engine.compose import TextResult, compose, doubtful, merged
from engine.drafts import Drafts, Partial
from engine.plan import Plan, TextOptions, plan
from engine.text.protect import Marked
from engine.types import Result

INLINE: Final = 2_000  # characters that are split and tokenized in the event loop itself; more go to a thread


async def answer(
    steps: Sequence[Step],
    texts: Sequence[str | Marked],
    options: TextOptions,
    deadline: float,
    drafts: Drafts | None = None,
) -> list[TextResult]:
    """Answers in the order of the texts. steps: one, or two of which the second reads the first's answers.

    drafts: told how the last step's answers grow. Raises the errors of `plan` and of the engine.
    """
    if len(steps) == 1:
        return await _once(steps[0], texts, options, deadline, drafts)
    first, last = steps
    plan(last.text, "", options)  # what the last model can't do is refused before the first has worked
    found = await _once(first, texts, first_options(options), deadline, None)
    carried_over = [carried(result, last.text) for result in found]
    final = await _once(last, carried_over, options, deadline, drafts, again=True)
    return [joined(one, other) for one, other in zip(found, final, strict=True)]


async def live(
    steps: Sequence[Step], texts: Sequence[str | Marked], options: TextOptions, deadline: float
) -> AsyncGenerator[Partial | list[TextResult]]:
    """What is certain, as soon as it is, and in the end the answers. Closing the iterator cancels all."""
    drafts = Drafts()
    task = asyncio.create_task(answer(steps, texts, options, deadline, drafts))
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


async def _once(
    step: Step,
    texts: Sequence[str | Marked],
    options: TextOptions,
    deadline: float,
    drafts: Drafts | None,
    *,
    again: bool = False,
) -> list[TextResult]:
    """again: other work for the same texts is done, so that they have had their turn."""
    long = sum(len(t.text if isinstance(t, Marked) else t) for t in texts) > INLINE

    def prepare() -> list[Plan]:
        return [plan(step.text, text, options) for text in texts]

    plans = await asyncio.to_thread(prepare) if long else prepare()
    watch = drafts.begin(step.text, plans) if drafts else None
    jobs = [job for p in plans for job in p.jobs]
    found = _dealt(plans, await generate_group(step.engine, jobs, deadline, watch, again=again))
    wrong = [doubtful(step.text, p, results) for p, results in zip(plans, found, strict=True)]
    if any(wrong):
        pairs = [p.stricter(w) for p, w in zip(plans, wrong, strict=True)]
        plans = [p for p, _ in pairs]
        jobs = [job for _, j in pairs for job in j]
        redone = iter(await generate_group(step.engine, jobs, deadline, again=True))
        for i, w in enumerate(wrong):
            found[i] = merged(found[i], w, [next(redone) for _ in w])

    def finish() -> list[TextResult]:
        return [compose(step.text, p, results) for p, results in zip(plans, found, strict=True)]

    return await asyncio.to_thread(finish) if long else finish()


def _dealt(plans: Sequence[Plan], results: Sequence[Result]) -> list[list[Result]]:
    """To each plan its own."""
    rest = iter(results)
    return [[next(rest) for _ in p.places] for p in plans]
