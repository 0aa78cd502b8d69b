"""Answers of local models in the place of an upstream's failed and doubtful ones."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeAlias

from engine.answers.compose import TextResult
from engine.answers.drafts import Partial
from engine.errors import ConvoyError, DeadlineExceeded, ExecutorFailed, Overloaded, Unavailable
from engine.repository.catalogue import ModelRoute
from engine.text.placeables.masked_text import MarkedText

logger = logging.getLogger(__name__)

Texts: TypeAlias = Sequence[str | MarkedText]
Run: TypeAlias = Callable[[ModelRoute, Texts], Awaitable[list[TextResult]]]
Stream: TypeAlias = Callable[[ModelRoute, Texts], AsyncGenerator[Partial | list[TextResult]]]

FAILURES: Final = (Unavailable, Overloaded, ExecutorFailed)


async def run_or_fall_back(
    run: Run, route: ModelRoute, local: ModelRoute | None, texts: Texts
) -> list[TextResult]:
    """Return the answers of a route, or of the local route where its upstream gives no good answer.

    run: function that answers texts by a route.
    route: route that is asked first.
    local: route of local models; None: there is none.
    texts: texts.

    Raises the errors of `run`.
    """
    try:
        results = await run(route, texts)
    except FAILURES as error:
        if local is None:
            raise
        return _instead(await _answer_after(error, run, local, texts), route)
    return await _replace_doubtful(run, route, local, texts, results)


async def stream_or_fall_back(
    stream: Stream, run: Run, route: ModelRoute, local: ModelRoute | None, texts: Texts
) -> AsyncGenerator[Partial | list[TextResult]]:
    """Yield the events of a route's stream; an answer of which a part was sent stays as it is.

    stream: function that streams the answers of a route.
    run, route, local, texts: parameters of `run_or_fall_back`.
    """
    sent = set[int]()
    try:
        async with aclosing(stream(route, texts)) as events:
            async for event in events:
                if isinstance(event, Partial):
                    sent.add(event.index)
                    yield event
                else:
                    yield await _replace_doubtful(run, route, local, texts, event, sent)
    except FAILURES as error:
        if sent or local is None:
            raise
        logger.info("%s answers instead of %s: %s", local.name, route.name, error)
    else:
        return
    async with aclosing(stream(local, _readable(texts, local))) as events:
        async for event in events:
            yield event if isinstance(event, Partial) else _instead(event, route)


async def _answer_after(error: ConvoyError, run: Run, local: ModelRoute, texts: Texts) -> list[TextResult]:
    """Return the answers of local models after an error, which is raised if they fail too."""
    logger.info("%s answers after an error: %s", local.name, error)
    try:
        return await run(local, _readable(texts, local))
    except DeadlineExceeded:
        raise
    except ConvoyError:
        raise error from None


async def _replace_doubtful(
    run: Run,
    route: ModelRoute,
    local: ModelRoute | None,
    texts: Texts,
    results: list[TextResult],
    kept: Collection[int] = (),
) -> list[TextResult]:
    """Return results with local answers in the place of doubtful ones, except some by their number."""
    numbers = [i for i, result in enumerate(results) if result.doubtful and i not in kept]
    if not numbers or local is None:
        return results
    try:
        doubtful = _readable([texts[number] for number in numbers], local)
        answers = _instead(await run(local, doubtful), route)
    except ConvoyError as error:
        logger.warning("%s could not replace doubtful answers: %s", local.name, error)
        return results
    better = dict(zip(numbers, answers, strict=True))
    return [better.get(number, result) for number, result in enumerate(results)]


def _readable(texts: Texts, local: ModelRoute) -> Texts:
    """Return texts without spans that must not change if a local model has no placeholders."""
    return texts if local.keeps_phrases else [text if isinstance(text, str) else text.text for text in texts]


def _instead(results: Sequence[TextResult], route: ModelRoute) -> list[TextResult]:
    """Mark results as given instead of a route's."""
    return [replace(result, instead_of=route.name) for result in results]
