"""Texts, some of them with formats, to their translations: what every translating route has in common."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from documents import Document
from documents.projection import kept_ranges, project
from documents.spans import Segment
from engine.api import (
    InvalidRequest,
    Language,
    Marked,
    Overloaded,
    Service,
    TextOptions,
    TextResult,
)
from server.events import Tell, renumbered, results_of
from server.house import House
from server.languages import inward, name_of, outward

NOTHING: Final = {"confidence": 0.0, "language": "en"}  # LibreTranslate's answer for text without letters
CHUNK: Final = 8_000  # characters of a document that wait in the queue at once


async def run_each(
    house: House,
    texts: Sequence[str | Marked],
    models: Sequence[str | None],
    options: TextOptions,
    deadline: float,
    tell: Tell | None = None,
) -> list[TextResult]:
    """Each text by its own model; None echoes it. One group for each model: all are answered or none.

    tell: what is certain of the answers, by the numbers of the texts.
    """
    groups: dict[str, list[int]] = {}
    for number, model in enumerate(models):
        if model is not None:
            groups.setdefault(model, []).append(number)
    found = [TextResult(text if isinstance(text, str) else text.text) for text in texts]
    runs = {
        model: asyncio.create_task(
            results_of(
                house,
                model,
                [texts[n] for n in numbers],
                options,
                deadline,
                renumbered(tell, numbers) if tell else None,
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
        house.metrics.answered(model, results)
        for number, result in zip(numbers, results, strict=True):
            found[number] = result
    return found


async def run_segments(
    house: House,
    segments: Sequence[Segment],
    models: Sequence[str | None],
    options: TextOptions,
    deadline: float,
) -> tuple[list[Segment], list[TextResult]]:
    """Translated segments; one that is echoed is the very same object."""
    if any(segment.spans for segment in segments):
        options = replace(options, alignment=True)
    texts = [
        _marked(house.service, segment, model) if model else segment.text
        for segment, model in zip(segments, models, strict=True)
    ]
    results = await run_each(house, texts, models, options, deadline)

    def finish() -> list[Segment]:
        return [
            project(segment, result) if model else segment
            for segment, result, model in zip(segments, results, models, strict=True)
        ]

    long = sum(len(segment.text) for segment in segments) > CHUNK
    return await asyncio.to_thread(finish) if long else finish(), results


def keeps_phrases(service: Service, model: str) -> bool:
    """Whether a model has symbols for what must stay as it is; of a pivot's two, both."""
    rooms = {info.name: info.placeholders for info in service.models()}
    return all(rooms.get(name, rooms.get(name.rpartition("@")[0], 0)) for name in model.split("+"))


def _marked(service: Service, segment: Segment, model: str) -> str | Marked:
    """The text, with what must stay as it is where the model has symbols for it."""
    spans = kept_ranges(segment)
    return Marked(segment.text, spans) if spans and keeps_phrases(service, model) else segment.text


def model_for(house: House, source: str, target: str, name: str | None = None) -> str | None:
    """The model for two languages; None when they are the same, so that a text stays as it is.

    Raises InvalidRequest in LibreTranslate's words when there is none, UnknownModel when `name` is none.
    """
    service = house.service
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
    """Languages of a text, most likely first, as LibreTranslate answers them. For a thread."""
    ranked = [
        {"confidence": round(share, 1), "language": outward(code)}
        for code, share in service.detect(text)
        if share >= 0.05
    ]
    return ranked or [dict(NOTHING)]


async def detected_models(
    house: House, samples: Sequence[str], target: str, name: str | None = None
) -> tuple[list[dict[str, Any]], list[str | None]]:
    """For each text its language and its model; none for text without letters."""
    service = house.service
    found = await asyncio.to_thread(lambda: [candidates(service, sample)[0] for sample in samples])
    models = [
        None if language == NOTHING else model_for(house, inward(str(language["language"])), target, name)
        for language in found
    ]
    return found, models


async def translate_document(
    house: House, document: Document, model: str | None, options: TextOptions, deadline: float
) -> bytes:
    """The translated file. Its text goes through the queue in parts, so that others have their turn; where
    the queue is full it waits. Raises the errors of `run_each`."""
    done: list[Segment] = []
    for part in _parts(document.segments):
        while True:
            try:
                segments, _ = await run_segments(house, part, [model] * len(part), options, deadline)
                break
            except Overloaded as error:
                if time.monotonic() + error.retry_after > deadline:
                    raise
                await asyncio.sleep(error.retry_after)
        done += segments
    return await asyncio.to_thread(document.write, done)


def _parts(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    part: list[Segment] = []
    size = 0
    for segment in segments:
        if part and size + len(segment.text) > CHUNK:
            yield part
            part, size = [], 0
        part.append(segment)
        size += len(segment.text)
    if part:
        yield part
