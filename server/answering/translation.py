"""Texts, some of them with formats, to their translations: what every translating route has in common."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from documents.attributes import AttributedPage
from documents.html import Page
from documents.projection import project, protected_ranges
from documents.spans import Segment
from engine.api import (
    Detection,
    InvalidRequest,
    Language,
    MarkedText,
    Overloaded,
    Service,
    TextOptions,
    TextResult,
    each,
    in_slices,
    one_slice,
)
from server.document_processes import OpenDocument
from server.events import OnPartial, renumber, results_of
from server.languages import inward, name_of, outward
from server.state import AppState

NOTHING: Final = {"confidence": 0.0, "language": "en"}  # LibreTranslate's answer for text without letters
INLINE: Final = 500  # characters whose formats are joined in the event loop itself
PER_SPAN: Final = 100  # of these are as much work as a span
SomePage = TypeVar("SomePage", bound=Page | AttributedPage)
CHUNK: Final = 8_000  # characters of a document that wait in the queue at once
SHORTEST: Final = 20  # characters that a segment counts as, however short it is


async def run_each(
    state: AppState,
    texts: Sequence[str | MarkedText],
    models: Sequence[str | None],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None = None,
) -> list[TextResult]:
    """Run each text by its own model; None echoes it. One group for each model: all are answered or none.

    on_partial: what is certain of the answers, by the numbers of the texts.
    """
    groups: dict[str, list[int]] = {}
    for number, model in enumerate(models):
        if model is not None:
            groups.setdefault(model, []).append(number)
    answers = [TextResult(text if isinstance(text, str) else text.text) for text in texts]
    runs = {
        model: asyncio.create_task(
            results_of(
                state,
                model,
                [texts[n] for n in numbers],
                options,
                deadline,
                renumber(on_partial, numbers) if on_partial else None,
            )
        )
        for model, numbers in groups.items()
    }
    try:
        await asyncio.gather(*runs.values())
    finally:  # one refused, or the client has gone: the others are for nobody
        for run in runs.values():
            run.cancel()
        await asyncio.gather(*runs.values(), return_exceptions=True)
    for model, numbers in groups.items():
        results = runs[model].result()
        state.metrics.record_work(model, results)
        for number, result in zip(numbers, results, strict=True):
            answers[number] = result
    return answers


async def run_segments(
    state: AppState,
    segments: Sequence[Segment],
    models: Sequence[str | None],
    options: TextOptions,
    deadline: float,
) -> tuple[list[Segment], list[TextResult]]:
    """Translate segments; one that is echoed is the very same object."""
    if any(segment.spans for segment in segments):
        options = replace(options, alignment=True)
    texts = [
        _mark_protected(state.service, segment, model) if model else segment.text
        for segment, model in zip(segments, models, strict=True)
    ]
    results = await run_each(state, texts, models, options, deadline)

    projected = each(
        one_slice(project, segment, result) if model else one_slice(lambda segment=segment: segment)
        for segment, result, model in zip(segments, results, models, strict=True)
    )
    work = sum(len(segment.text) + PER_SPAN * len(segment.spans) for segment in segments)
    return await in_slices(projected, deadline, small=work <= INLINE), results


async def read_pages(
    texts: Sequence[str], reader: Callable[[str], SomePage], deadline: float
) -> list[SomePage]:
    """Read texts with tags as pages, outside of the event loop. Raises DeadlineExceeded."""
    small = sum(map(len, texts)) <= INLINE
    return await in_slices(each(one_slice(reader, text) for text in texts), deadline, small=small)


def keeps_phrases(service: Service, model: str) -> bool:
    """Tell whether a model has symbols for what must stay as it is; of a pivot's two, both."""
    return all(info.placeholders for info in service.behind(model))


def _mark_protected(service: Service, segment: Segment, model: str) -> str | MarkedText:
    """The text, with what must stay as it is where the model has symbols for it."""
    spans = protected_ranges(segment)
    return MarkedText(segment.text, spans) if spans and keeps_phrases(service, model) else segment.text


def model_for(state: AppState, source: str, target: str, name: str | None = None) -> str | None:
    """Pick the model for two languages; None when they are the same, so that a text stays as it is.

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


def _source(service: Service, text: str) -> dict[str, Any]:
    """The most likely language of a text. Raises InvalidRequest on one that no model reads."""
    detection = service.detect(text)
    other = detection.other
    if other is not None:
        raise InvalidRequest(
            f"{name_of(other)} ({outward(other)}) is not available as a source language, and the text seems "
            "to be in it: else name its language"
        )
    return _likely(detection)[0]


async def detected_models(
    state: AppState, samples: Sequence[str], target: str, deadline: float, name: str | None = None
) -> tuple[list[dict[str, Any]], list[str | None]]:
    """Find for each text its language and its model; none for text without letters.

    Raises InvalidRequest on a text in a language that no model reads, and DeadlineExceeded.
    """
    service = state.service
    detections = await in_slices(each(one_slice(_source, service, sample) for sample in samples), deadline)
    models = [
        None if language == NOTHING else model_for(state, inward(str(language["language"])), target, name)
        for language in detections
    ]
    return detections, models


@dataclass(frozen=True, slots=True)
class DocumentTask:
    """What becomes of a document.

    model: None leaves it as it is.
    owner: whose it is.
    name: of the result.
    """

    document: OpenDocument
    model: str | None
    options: TextOptions
    owner: str
    name: str


async def translate_document(state: AppState, task: DocumentTask, deadline: float) -> bytes:
    """Translate a document, and return the translated file.

    Its text goes through the queue in parts, so that others have their turn; where the queue is full it
    waits. Raises the errors of `run_each`.
    """
    document, model, options = task.document, task.model, task.options
    translations: list[Segment] = []
    for part in _parts(document.segments):
        while True:
            try:
                segments, _ = await run_segments(state, part, [model] * len(part), options, deadline)
                break
            except Overloaded as error:
                if time.monotonic() + error.retry_after > deadline:
                    raise
                await asyncio.sleep(error.retry_after)
        translations += segments
    return await state.documents.write(document, translations, task.owner, deadline)


def _parts(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    part: list[Segment] = []
    size = 0
    for segment in segments:
        length = max(SHORTEST, len(segment.text))
        if part and size + length > CHUNK:
            yield part
            part, size = [], 0
        part.append(segment)
        size += length
    if part:
        yield part
