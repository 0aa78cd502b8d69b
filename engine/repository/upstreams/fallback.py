"""Answers of local models in the place of an upstream's failed and doubtful ones."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Final, TypeAlias

from engine.answers.compose import TextResult
from engine.answers.drafts import Partial
from engine.answers.options import TextOptions
from engine.answers.stream import Outcomes
from engine.errors import ConvoyError, DeadlineExceeded, ExecutorFailed, Overloaded, Unavailable
from engine.repository.catalogue import ModelRoute, local_route
from engine.repository.loading import ModelInfo
from engine.repository.upstreams.markers import marked_for, unmarked
from engine.text.placeables.masked_text import MarkedText

logger = logging.getLogger(__name__)

Texts: TypeAlias = Sequence[str | MarkedText]
Run: TypeAlias = Callable[[ModelRoute, Texts], Awaitable[list[TextResult]]]
Stream: TypeAlias = Callable[[ModelRoute, Texts], AsyncGenerator[Partial | list[TextResult]]]

Models: TypeAlias = Callable[[], Sequence[ModelInfo]]
TextWithOptions: TypeAlias = tuple[str | MarkedText, TextOptions]
RunEach: TypeAlias = Callable[[Iterable[TextWithOptions]], Outcomes]
RunLocal: TypeAlias = Callable[[ModelRoute, Iterable[TextWithOptions]], Outcomes]

MOST_HELD: Final = 64  # outcomes that wait for an answer of a local model
FAILURES: Final = (Unavailable, Overloaded, ExecutorFailed)


async def run_or_fall_back(run: Run, route: ModelRoute, models: Models, texts: Texts) -> list[TextResult]:
    """Return the answers of a route, or of the local route where its upstream gives no good answer.

    run: function that answers texts by a route.
    route: route that is asked first.
    models: function that returns the models, for a route of local ones.
    texts: texts.

    Raises the errors of `run`.
    """
    local = local_route(models, route)
    try:
        results = await run(route, texts)
    except FAILURES as error:
        if local is None:
            raise
        return _instead(await _answer_after(error, run, local, texts), route)
    return await _replace_doubtful(run, route, local, texts, results)


async def stream_or_fall_back(
    stream: Stream, run: Run, route: ModelRoute, models: Models, texts: Texts
) -> AsyncGenerator[Partial | list[TextResult]]:
    """Yield the events of a route's stream; an answer of which a part was sent stays as it is.

    stream: function that streams the answers of a route.
    run, route, models, texts: parameters of `run_or_fall_back`.
    """
    local, sent = local_route(models, route), set[int]()
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


def each_or_fall_back(
    run: RunEach,
    run_local: RunLocal,
    route: ModelRoute,
    models: Models,
    texts: Iterable[TextWithOptions],
) -> Outcomes:
    """Yield the outcome of each text, of local models where an upstream fails or is doubtful.

    run: function that answers texts by the route.
    run_local: function that answers texts by a route of local models.
    route, models: parameters of `run_or_fall_back`.
    texts: texts with their options, read as needed.
    """
    if not any(info.remote for info in route.infos):
        return (yield from run(texts))
    local = local_route(models, route)
    sent, held = deque[TextWithOptions](), list[tuple[TextWithOptions, TextResult | ConvoyError]]()

    def noted() -> Iterator[TextWithOptions]:
        for text, options in texts:
            sent.append((text, options))
            yield marked_for(route, [text])[0], options

    with closing(run(noted())) as outcomes:
        for outcome in outcomes:
            text, options = sent.popleft()
            if isinstance(outcome, TextResult):
                (outcome,) = unmarked(route, [text], [outcome])
            held.append(((text, options), outcome))
            if len(held) >= MOST_HELD or local is None or not any(_fails(one) for _, one in held):
                yield from _settled(held, run_local, route, local)
                held = []
    yield from _settled(held, run_local, route, local)


def _settled(
    held: Sequence[tuple[TextWithOptions, TextResult | ConvoyError]],
    run_local: RunLocal,
    route: ModelRoute,
    local: ModelRoute | None,
) -> Outcomes:
    """Yield outcomes, with answers of local models in the place of failures and doubtful answers.

    held: texts with their outcomes.
    run_local, route: parameters of `each_or_fall_back`.
    local: route of local models; None: there is none.
    """
    outcomes = [outcome for _, outcome in held]
    failed = [number for number, outcome in enumerate(outcomes) if _fails(outcome)]
    if local and failed:
        texts = (held[number][0] for number in failed)
        readable = [(_readable([text], local)[0], options) for text, options in texts]
        for number, answer in zip(failed, run_local(local, readable), strict=True):
            if isinstance(answer, TextResult):
                outcomes[number] = replace(answer, instead_of=route.name)
    yield from outcomes


def _fails(outcome: TextResult | ConvoyError) -> bool:
    return bool(outcome.doubtful) if isinstance(outcome, TextResult) else isinstance(outcome, FAILURES)


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
