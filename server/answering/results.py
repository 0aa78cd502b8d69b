"""Results of texts from a model, or from the cache. Every route that answers texts goes through here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from engine.api import MarkedText, ModelRoute, Partial, Service, TextOptions, TextResult, in_slices
from server.cache import keys_of, repeatable
from server.observing.context import note_model
from server.state import AppState

OnPartial = Callable[[Partial], None]
T = TypeVar("T")

INLINE_DIGESTS: Final = 20  # digests of more texts and phrases are computed in slices


async def results_of(
    state: AppState,
    route: ModelRoute,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None = None,
) -> list[TextResult]:
    """Return the results of texts from the cache, and of the others from `Service.run`.

    state: state that routes share.
    route: model that answers, or two for a pivot translation.
    texts: texts of one group: either all are accepted, or none.
    options: text options.
    deadline: latest time of the answers, of time.monotonic().
    on_partial: listener for final beginnings of answers that are not in the cache.

    Raises what `Service.run` raises.
    """
    model = route.models
    note_model(model)
    if on_partial is not None:
        on_partial = _timed(on_partial, state.metrics.stream_listener(model))
    cache = state.cache
    if cache is None or not repeatable(route.infos, options):
        return await _run_or_stream(state.service, route, texts, options, deadline, on_partial)
    small = len(texts) * (1 + len(options.glossary) + len(options.ignore)) <= INLINE_DIGESTS
    second = state.service.router.second_of(route, state.service.models)
    keys = await in_slices(keys_of(route, texts, options, second), deadline, small=small)
    results = [cache.get(key) for key in keys]
    missing = [number for number, result in enumerate(results) if result is None]
    state.metrics.hits.labels(model).inc(len(texts) - len(missing))
    state.metrics.misses.labels(model).inc(len(missing))
    if missing:
        missing_texts = [texts[number] for number in missing]
        listener = renumber(on_partial, missing) if on_partial else None
        computed = await _run_or_stream(state.service, route, missing_texts, options, deadline, listener)
        # after a reload in between, the results may belong to either bundle
        same_bundle = state.service.route(route.name).infos == route.infos
        for number, result in zip(missing, computed, strict=True):
            results[number] = result
            if same_bundle:
                cache.put(keys[number], result)
    # every result is present now: the condition is for the type checker
    return [result for result in results if result is not None]


async def run_together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time; return their results. After an error the others are cancelled."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:  # after an error, or when the client has disconnected, the other results are not needed
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def renumber(on_partial: OnPartial, numbers: Sequence[int]) -> OnPartial:
    """Return a listener for some texts of a request, which passes their numbers in the request on.

    on_partial: listener for the whole request.
    numbers: number of each text in the request.
    """
    return lambda partial: on_partial(Partial(numbers[partial.index], partial.text))


def _timed(on_partial: OnPartial, on_part: Callable[[], None]) -> OnPartial:
    """Return a listener that also calls `on_part`, which measures times, for each partial."""

    def listener(partial: Partial) -> None:
        on_part()
        on_partial(partial)

    return listener


async def _run_or_stream(
    service: Service,
    route: ModelRoute,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None,
) -> list[TextResult]:
    """Return the results of the model; with a listener, it gets final beginnings in the meantime."""
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
