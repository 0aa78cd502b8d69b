"""The seam of every answer: texts and a model to results, by the cache where it has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

from engine.api import MarkedText, ModelRoute, Partial, Service, TextOptions, TextResult, in_slices
from server.cache import keys_of, repeatable
from server.state import AppState

OnPartial = Callable[[Partial], None]

INLINE_DIGESTS: Final = 20  # texts and phrases whose digests are made in the event loop itself


async def results_of(
    state: AppState,
    route: ModelRoute,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None = None,
) -> list[TextResult]:
    """Answer texts as `Service.run` does, from the cache where it has them.

    state: what routes share.
    route: the model that answers, or two.
    texts: one group: all are accepted or none.
    options: how to answer.
    deadline: a time.monotonic() by which the answers must be there.
    on_partial: told the certain beginnings of answers; nothing of answers that the cache has.

    Raises what `Service.run` raises.
    """
    cache = state.cache
    if cache is None or not repeatable(route.infos, options):
        return await _run_or_stream(state.service, route, texts, options, deadline, on_partial)
    small = len(texts) * (1 + len(options.glossary) + len(options.ignore)) <= INLINE_DIGESTS
    keys = await in_slices(keys_of(route, texts, options), deadline, small=small)
    results = [cache.get(key) for key in keys]
    missing = [number for number, result in enumerate(results) if result is None]
    state.metrics.hits.labels(route.name).inc(len(texts) - len(missing))
    state.metrics.misses.labels(route.name).inc(len(missing))
    if missing:
        misses = [texts[number] for number in missing]
        listener = renumber(on_partial, missing) if on_partial else None
        new = await _run_or_stream(state.service, route, misses, options, deadline, listener)
        # a reload came between if the infos are others: whose answer is it?
        same = state.service.route(route.name).infos == route.infos
        for number, result in zip(missing, new, strict=True):
            results[number] = result
            if same:
                cache.put(keys[number], result)
    return [result for result in results if result is not None]


def renumber(on_partial: OnPartial, numbers: Sequence[int]) -> OnPartial:
    """Make a listener for some of a request's texts, which tells of them by their numbers in the request."""
    return lambda partial: on_partial(Partial(numbers[partial.index], partial.text))


async def _run_or_stream(
    service: Service,
    route: ModelRoute,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None,
) -> list[TextResult]:
    if on_partial is None:
        return await service.run(route, texts, options, deadline)
    answers: list[TextResult] = []
    async with aclosing(service.stream(route, texts, options, deadline)) as results:
        async for event in results:
            if isinstance(event, Partial):
                on_partial(event)
            else:
                answers = event
    return answers
