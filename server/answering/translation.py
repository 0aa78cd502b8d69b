"""Texts, some of them with formats, to their translations: what every translating route has in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from documents.formats.attributes import AttributedPage
from documents.formats.html import Page
from documents.projection import project, protected_ranges
from documents.spans import Segment
from engine.api import (
    Detection,
    InvalidRequest,
    Language,
    MarkedText,
    ModelRoute,
    Service,
    TextOptions,
    TextResult,
    each,
    in_slices,
    one_slice,
)
from server.answering.results import OnPartial, renumber, results_of
from server.languages import inward, name_of, outward
from server.state import AppState

NOTHING: Final = {"confidence": 0.0, "language": "en"}  # LibreTranslate's answer for text without letters
INLINE_CHARACTERS: Final = 500  # whose formats are joined in the event loop itself
DOUBTFUL_CONFIDENCE: Final = 50.0  # percent; a guess below is no reason to give a text back
NEXT_SHARE: Final = 0.25  # of a doubtful guess's confidence, from which the next language may stand in for it
SPAN_CHARACTERS: Final = 100  # that are as much work as a span
SomePage = TypeVar("SomePage", bound=Page | AttributedPage)


async def run_each(
    state: AppState,
    texts: Sequence[str | MarkedText],
    routes: Sequence[ModelRoute | None],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None = None,
) -> list[TextResult]:
    """Run each text by its own model. One group for each model: all are answered or none.

    state: what routes share.
    texts: sources, some of them with what must stay as it is.
    routes: a model for each text; None echoes it.
    options: how to answer.
    deadline: a time.monotonic() by which the answers must be there.
    on_partial: told what is certain of the answers, by the numbers of the texts.

    Raises what `Service.run` raises.
    """
    answers = [TextResult(text if isinstance(text, str) else text.text) for text in texts]
    groups: dict[str, tuple[ModelRoute, list[int]]] = {}
    for number, route in enumerate(routes):
        if route is not None:
            groups.setdefault(route.name, (route, []))[1].append(number)
    if not groups:
        state.service.check_options(options)
        return answers

    async def run(route: ModelRoute, numbers: Sequence[int]) -> None:
        listener = renumber(on_partial, numbers) if on_partial else None
        sources = [texts[number] for number in numbers]
        results = await results_of(state, route, sources, options, deadline, listener)
        state.metrics.record_work(route.name, results)
        for number, result in zip(numbers, results, strict=True):
            answers[number] = result

    if len(groups) == 1:
        ((route, numbers),) = groups.values()
        await run(route, numbers)
        return answers
    runs = [asyncio.create_task(run(route, numbers)) for route, numbers in groups.values()]
    try:
        await asyncio.gather(*runs)
    finally:  # one refused, or the client has gone: the others are for nobody
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
    return answers


async def run_segments(
    state: AppState,
    segments: Sequence[Segment],
    routes: Sequence[ModelRoute | None],
    options: TextOptions,
    deadline: float,
) -> tuple[list[Segment], list[TextResult]]:
    """Translate segments, with their formats.

    state: what routes share.
    segments: prose of pages or files; one that is echoed is the very same object in the answer.
    routes: a model for each segment; None echoes it.
    options: how to answer.
    deadline: a time.monotonic() by which the answers must be there.

    Returns the translated segments, and the results that they were made of.
    """
    if any(segment.spans for segment in segments):
        options = replace(options, alignment=True)
    work = sum(len(segment.text) + SPAN_CHARACTERS * len(segment.spans) for segment in segments)
    small = work <= INLINE_CHARACTERS
    marked = each(one_slice(_mark_protected, *pair) for pair in zip(segments, routes, strict=True))
    texts = await in_slices(marked, deadline, small=small)
    results = await run_each(state, texts, routes, options, deadline)
    projected = each(
        one_slice(project, segment, result) if route else one_slice(lambda segment=segment: segment)
        for segment, result, route in zip(segments, results, routes, strict=True)
    )
    return await in_slices(projected, deadline, small=small), results


async def read_pages(
    texts: Sequence[str], reader: Callable[[str], SomePage], deadline: float
) -> list[SomePage]:
    """Read texts with tags as pages, outside of the event loop.

    texts: HTML or XML.
    reader: reads one of them.
    deadline: a time.monotonic().

    Raises DeadlineExceeded.
    """
    small = sum(map(len, texts)) <= INLINE_CHARACTERS
    return await in_slices(each(one_slice(reader, text) for text in texts), deadline, small=small)


def page_prose(page: Page | AttributedPage) -> str:
    """Return the text of a page, to detect its language by."""
    return "\n".join(segment.text for segment in page.segments)


async def translate_pages(
    state: AppState,
    pages: Sequence[SomePage],
    routes: Sequence[ModelRoute | None],
    options: TextOptions,
    deadline: float,
) -> tuple[list[str], list[TextResult]]:
    """Translate pages with their tags.

    state: what routes share.
    pages: as `read_pages` has read them.
    routes: a model for each page; None echoes it.
    options: how to answer.
    deadline: a time.monotonic() by which the answers must be there.

    Returns the translated pages as text, and the results of their segments.
    """
    segments = [segment for page in pages for segment in page.segments]
    by_segment = [route for page, route in zip(pages, routes, strict=True) for _ in page.segments]
    translations, results = await run_segments(state, segments, by_segment, options, deadline)
    rest = iter(translations)
    joined = each(one_slice(page.join, [next(rest) for _ in page.segments]) for page in pages)
    small = sum(len(segment.text) for segment in segments) <= INLINE_CHARACTERS
    return await in_slices(joined, deadline, small=small), results


def _mark_protected(segment: Segment, route: ModelRoute | None) -> str | MarkedText:
    """The text, with what must stay as it is where the model has symbols for it."""
    spans = protected_ranges(segment) if route is not None and route.keeps_phrases else ()
    return MarkedText(segment.text, spans) if spans else segment.text


def route_for(state: AppState, source: str, target: str, name: str | None = None) -> ModelRoute | None:
    """Pick the model for two languages; None when they are the same, so that a text stays as it is.

    state: what routes share.
    source, target: our codes of languages.
    name: the model's name, where the client has named one.

    Raises InvalidRequest in LibreTranslate's words when there is none, UnknownModel when `name` is none.
    """
    service = state.service
    into = next((language for language in service.languages() if language.code == source), Language("", ()))
    if target not in into.targets and name is None:
        if source == target:
            return None
        raise InvalidRequest(
            f"{name_of(target)} ({outward(target)}) is not available as a target language from "
            f"{name_of(source)} ({outward(source)})"
        )
    return service.pick("translate", source, target, name)


def candidates(service: Service, text: str) -> list[dict[str, Any]]:
    """List languages of a text, most likely first, as LibreTranslate answers them. For a thread."""
    return _likely(service.detect(text))


def _likely(detection: Detection) -> list[dict[str, Any]]:
    ranked = [
        {"confidence": round(share, 1), "language": outward(code)}
        for code, share in detection.ranked
        if share >= 0.05
    ]
    return ranked or [dict(NOTHING)]


def _source(service: Service, text: str, target: str) -> dict[str, Any]:
    """The most likely language of a text. Raises InvalidRequest on one that no model reads.

    Who asks for a translation hardly sends what is one: a doubtful guess that is the target gives way to the
    next language, if that one is not much less likely.
    """
    detection = service.detect(text)
    other = detection.other
    if other is not None:
        raise InvalidRequest(
            f"{name_of(other)} ({outward(other)}) is not available as a source language, and the text seems "
            "to be in it; if it is not, name its language"
        )
    best, *others = _likely(detection)
    if best["confidence"] < DOUBTFUL_CONFIDENCE and inward(str(best["language"])) == target:
        reach = {outward(one.code) for one in service.languages() if target in one.targets}
        least = best["confidence"] * NEXT_SHARE
        return next((one for one in others if one["language"] in reach and one["confidence"] >= least), best)
    return best


async def routes_for(
    state: AppState,
    samples: Sequence[str],
    source: str | None,
    target: str,
    deadline: float,
    name: str | None = None,
) -> tuple[list[dict[str, Any]], list[ModelRoute | None]]:
    """Find each text's language, where it must be detected, and its model.

    state: what routes share.
    samples: prose of each text.
    source: our code of all texts' language; None detects that of each.
    target: our code of the language to translate into.
    deadline: a time.monotonic().
    name: the model's name, where the client has named one.

    Returns detections, as LibreTranslate answers them, none where `source` is given; and a model for each
    text, None for one to be echoed, such as text without letters.
    Raises InvalidRequest on a text in a language that no model reads, and DeadlineExceeded.
    """
    if source is not None:
        return [], [route_for(state, source, target, name)] * len(samples)
    service = state.service
    detections = await in_slices(
        each(one_slice(_source, service, sample, target) for sample in samples), deadline
    )
    found = {str(language["language"]) for language in detections if language != NOTHING}
    routes = {code: route_for(state, inward(code), target, name) for code in sorted(found)}
    each_route = [None if one == NOTHING else routes[str(one["language"])] for one in detections]
    return detections, each_route
