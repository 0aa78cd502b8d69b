"""Translations of plain texts, pages and segments, for every route that translates."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from documents.formats.attributes import AttributedPage
from documents.formats.html import Page
from documents.projection import format_borders, protected_ranges
from documents.spans import Segment
from engine.api import (
    Detection,
    InvalidRequest,
    Language,
    MarkedText,
    ModelRoute,
    Service,
    Slices,
    TextOptions,
    TextResult,
    each,
    in_slices,
    is_doubtful,
    one_slice,
    run_work,
)
from server.answering.pages import SomePage, join_pages, parse_pages, project_segments
from server.answering.results import OnPartial, renumber, results_of, run_together
from server.languages import inward, name_of, outward, resolve_code
from server.state import AppState

NOTHING: Final = {"confidence": 0.0, "language": "en"}  # LibreTranslate's answer for text without letters
INLINE_CHARACTERS: Final = 500  # formats of longer texts are joined in slices
DOUBTFUL_CONFIDENCE: Final = 50.0  # percent; below, a detected target language is doubted
NEXT_SHARE: Final = 0.25  # least confidence of the next language, as a share of a doubtful guess's
SAMPLE_CHARACTERS: Final = 500  # characters that are read to check a given language
SAMPLE_TEXTS: Final = 8  # texts of a request that are checked
TAGS: Final = re.compile(r"<[^<>]{0,500}>")
SPAN_CHARACTERS: Final = 100  # one span is as much work as this many characters
T = TypeVar("T")


async def run_each(
    state: AppState,
    texts: Sequence[str | MarkedText],
    routes: Sequence[ModelRoute | None],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None = None,
) -> list[TextResult]:
    """Answer each text with its own model; texts of one model are one group. All are answered, or none.

    state: state that routes share.
    texts: sources, some with ranges that must stay unchanged.
    routes: model of each text; None: the answer is the text itself.
    options: text options.
    deadline: latest time of the answers, of time.monotonic().
    on_partial: listener for final beginnings of answers, by the number of the text.

    Raises what `Service.run` raises.
    """
    answers = [TextResult(_text(text)) for text in texts]
    groups: dict[str, tuple[ModelRoute, list[int]]] = {}
    for number, route in enumerate(routes):
        if route is not None:
            groups.setdefault(route.name, (route, []))[1].append(number)
    if not groups:
        state.service.check_options(options)
        return answers

    async def run(route: ModelRoute, numbers: Sequence[int]) -> None:
        """Store the answers to the texts of one model."""
        listener = renumber(on_partial, numbers) if on_partial else None
        sources = [texts[number] for number in numbers]
        results = await results_of(state, route, sources, options, deadline, listener)
        state.metrics.record_work(route, sum(len(_text(source)) for source in sources), results)
        for number, result in zip(numbers, results, strict=True):
            answers[number] = result

    if len(groups) == 1:
        ((route, numbers),) = groups.values()
        await run(route, numbers)
        return answers
    await run_together(run(route, numbers) for route, numbers in groups.values())
    return answers


def _text(text: str | MarkedText) -> str:
    """Return a text without its marks."""
    return text if isinstance(text, str) else text.text


async def run_segments(
    state: AppState,
    segments: Sequence[Segment],
    routes: Sequence[ModelRoute | None],
    options: TextOptions,
    deadline: float,
) -> tuple[list[Segment], list[TextResult]]:
    """Translate segments and copy their formats to the translations.

    Returns the translated segments, and the results of their texts.

    state: state that routes share.
    segments: prose of pages or files.
    routes: model of each segment; None: the segment object itself is returned.
    options: text options.
    deadline: latest time of the answers, of time.monotonic().
    """
    results = await _answer_segments(state, segments, routes, options, deadline)
    projecting = project_segments, segments, _to_project(results, routes)
    projected = await _run_work(state, *projecting, deadline=deadline, characters=_work_on(segments))
    return [new or old for new, old in zip(projected, segments, strict=True)], results


async def _answer_segments(
    state: AppState,
    segments: Sequence[Segment],
    routes: Sequence[ModelRoute | None],
    options: TextOptions,
    deadline: float,
) -> list[TextResult]:
    """Answer the texts of segments, with the alignments that their formats need."""
    if any(segment.spans for segment in segments):
        # the alignment of words shows where formats belong in the translation
        options = replace(options, alignment=True)
    small = _work_on(segments) <= INLINE_CHARACTERS
    marking = each(one_slice(_mark_protected, *pair) for pair in zip(segments, routes, strict=True))
    texts = await in_slices(marking, deadline, small=small)
    return await run_each(state, texts, routes, options, deadline)


def _to_project(
    results: Sequence[TextResult], routes: Sequence[ModelRoute | None]
) -> list[TextResult | None]:
    """Return the parts of results that formats need; None for a segment that stays unchanged."""
    return [
        TextResult(result.text, alignment=result.alignment, kept=result.kept) if route else None
        for result, route in zip(results, routes, strict=True)
    ]


def _work_on(segments: Sequence[Segment]) -> int:
    """Estimate the work of projecting segments, in characters."""
    return sum(len(segment.text) + SPAN_CHARACTERS * len(segment.spans) for segment in segments)


async def _run_work(
    state: AppState, work: Callable[..., Slices[T]], *arguments: Any, deadline: float, characters: int
) -> T:
    """Run work on pages or segments, in a worker if it is long."""
    limits = {"characters": characters, "inline": INLINE_CHARACTERS}
    return await run_work(state.workers, work, *arguments, deadline=deadline, **limits)


async def read_pages(
    state: AppState, texts: Sequence[str], reader: Callable[[str], SomePage], deadline: float
) -> list[SomePage]:
    """Parse texts with tags as pages.

    state: state that routes share.
    texts: HTML or XML.
    reader: function of a module that parses one text, or a `partial` of it.
    deadline: latest time, of time.monotonic().

    Raises DeadlineExceeded, and TooLarge when a worker would take too long.
    """
    work = parse_pages, reader, list(texts)
    return await _run_work(state, *work, deadline=deadline, characters=sum(map(len, texts)))


def page_prose(page: Page | AttributedPage) -> str:
    """Return the prose of a page, for language detection."""
    return "\n".join(segment.text for segment in page.segments)


async def translate_pages(
    state: AppState,
    pages: Sequence[SomePage],
    routes: Sequence[ModelRoute | None],
    options: TextOptions,
    deadline: float,
) -> tuple[list[str], list[TextResult]]:
    """Translate pages with their tags; return them as text, and the results of their segments.

    state: state that routes share.
    pages: pages from `read_pages`.
    routes: model of each page; None: the page stays unchanged.
    options: text options.
    deadline: latest time of the answers, of time.monotonic().
    """
    segments = [segment for page in pages for segment in page.segments]
    by_segment = [route for page, route in zip(pages, routes, strict=True) for _ in page.segments]
    results = await _answer_segments(state, segments, by_segment, options, deadline)
    joining = join_pages, list(pages), _to_project(results, by_segment)
    joined = await _run_work(state, *joining, deadline=deadline, characters=_work_on(segments))
    return joined, results


def _mark_protected(segment: Segment, route: ModelRoute | None) -> str | MarkedText:
    """Return a segment's text, with the ranges that must stay unchanged if the model has placeholders.

    An upstream also gets the borders of formats, as it has no attention.
    """
    if route is None:
        return segment.text
    return route.marked(segment.text, protected_ranges(segment), format_borders(segment))


def route_for(state: AppState, source: str, target: str, name: str | None = None) -> ModelRoute | None:
    """Return the model for two languages; None when they are the same, so that a text stays unchanged.

    state: state that routes share.
    source, target: our codes of the languages.
    name: name of the model that the client chose; None: none.

    Raises InvalidRequest in LibreTranslate's words when no model fits, UnknownModel when `name` is unknown.
    """
    service = state.service
    source_language = next(
        (language for language in service.languages() if language.code == source), Language("", ())
    )
    if target not in source_language.targets and name is None:
        if source == target:
            return None
        raise InvalidRequest(
            f"{name_of(target)} ({outward(target)}) is not available as a target language from "
            f"{name_of(source)} ({outward(source)})"
        )
    return service.pick("translate", source, target, name)


def candidates(service: Service, text: str) -> list[dict[str, Any]]:
    """Return the likely languages of a text in LibreTranslate's format, the most likely first."""
    return _likely_languages(service.detect(text))


def _likely_languages(detection: Detection) -> list[dict[str, Any]]:
    """Return the languages of a detection of at least 0.05 %, or NOTHING."""
    ranked = [
        {"confidence": round(share, 1), "language": outward(code)}
        for code, share in detection.ranked
        if share >= 0.05
    ]
    return ranked or [dict(NOTHING)]


def _guess_source(service: Service, text: str, target: str) -> dict[str, Any]:
    """Return the most likely language of a text. Raises InvalidRequest when no model reads it.

    A doubtful guess is replaced by the next language that can be translated into the target, if that guess is
    not much less likely: a client rarely asks for a translation into the text's own language.
    """
    detection = service.detect(text)
    unserved = detection.other
    if unserved is not None:
        raise InvalidRequest(
            f"{name_of(unserved)} ({outward(unserved)}) is not available as a source language, and the text "
            "seems to be in it; if it is not, name its language"
        )
    best, *guesses = _likely_languages(detection)
    if best["confidence"] < DOUBTFUL_CONFIDENCE and inward(str(best["language"])) == target:
        sources = {outward(known.code) for known in service.languages() if target in known.targets}
        least = best["confidence"] * NEXT_SHARE
        likely = (guess for guess in guesses if guess["confidence"] >= least)
        return next((guess for guess in likely if guess["language"] in sources), best)
    return best


async def wrong_source(
    service: Service, texts: Sequence[str], source: str | None, field: str, deadline: float
) -> dict[str, str]:
    """Return a warning, by the name of the field, if texts are surely not in the language that a client gave.

    service: service that the texts are for.
    texts: texts of a request; the first characters of the first ones are read, without tags.
    source: our code of the language; None: it is detected.
    field: name of the field of the language.
    deadline: latest time, of time.monotonic().
    """
    if source is None:
        return {}
    sample = TAGS.sub(" ", "\n".join(text[:SAMPLE_CHARACTERS] for text in texts[:SAMPLE_TEXTS]))
    if not is_doubtful(sample, source):  # so that an ordinary request does not wait for the shared thread
        return {}
    other = await in_slices(one_slice(service.surely_other, sample, source), deadline)
    if other is None:
        return {}
    return {
        field: f"the text seems to be in {name_of(other)} ({outward(other)}), not in {name_of(source)} "
        f"({outward(source)}), as the request says"
    }


async def routes_for(
    state: AppState,
    samples: Sequence[str],
    source: str | None,
    target: str,
    deadline: float,
    name: str | None = None,
) -> tuple[list[dict[str, Any]], list[ModelRoute | None]]:
    """Return the detected language of each text, and its model.

    state: state that routes share.
    samples: prose of each text.
    source: our code of the language of all texts; None: detect the language of each.
    target: our code of the language to translate into.
    deadline: latest time, of time.monotonic().
    name: name of the model that the client chose; None: none.

    Languages are in LibreTranslate's format, an empty list if `source` is given. The model is None for a text
    that stays unchanged, such as text without letters.
    Raises InvalidRequest when no model reads the language of a text, and DeadlineExceeded.
    """
    if source is not None:
        return [], [route_for(state, source, target, name)] * len(samples)
    service = state.service
    detections = await in_slices(
        each(one_slice(_guess_source, service, sample, target) for sample in samples), deadline
    )
    codes = {str(language["language"]) for language in detections if language != NOTHING}
    known = {language.code for language in service.languages()}
    routes = {code: route_for(state, resolve_code(code, known), target, name) for code in sorted(codes)}
    detected = (None if detection == NOTHING else str(detection["language"]) for detection in detections)
    return detections, [routes[code] if code else None for code in detected]
