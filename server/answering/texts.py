"""The steps of a contract from texts to answers: resolve languages, check and charge texts, translate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request

from documents.formats.attributes import AttributedPage
from documents.formats.html import Page
from engine.api import (
    USUAL_OPTIONS,
    InvalidRequest,
    ModelRoute,
    Service,
    TextOptions,
    TextResult,
    in_slices,
    one_slice,
)
from server.answering.results import OnPartial
from server.answering.translation import page_prose, read_pages, routes_for, run_each, translate_pages
from server.callers.access import charge
from server.http.schemas import SHOWN_CHARACTERS, check_sizes, check_tags
from server.languages import resolve_code
from server.state import AppState, state_of

TRANSLATION: Final = USUAL_OPTIONS["translate"]
SUMMARY: Final = USUAL_OPTIONS["summarize"]


@dataclass(frozen=True, slots=True)
class TranslationTask:
    """Texts to be translated.

    texts: texts in the order of the request.
    source: our code of the texts' language; None: detect the language of each.
    target: our code of the language to translate into.
    deadline: latest time of the answer, of time.monotonic().
    options: text options.
    reader: function that parses a text with tags as a page; None: texts are plain.
    model: name of the model that the client chose; None: none.
    """

    texts: Sequence[str]
    source: str | None
    target: str
    deadline: float
    options: TextOptions = TRANSLATION
    reader: Callable[[str], Page | AttributedPage] | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Translations:
    """The answer to a task.

    texts: translations.
    sources: our code of each text's language, given or detected.
    detections: detected languages in LibreTranslate's format; empty if the language was given.
    results: results of the texts, or of all segments if texts have tags.
    """

    texts: list[str]
    sources: list[str]
    detections: list[dict[str, Any]] = field(default_factory=list)
    results: list[TextResult] = field(default_factory=list)


def resolve_pair(service: Service, source: str, target: str) -> tuple[str | None, str]:
    """Return our codes for a client's codes of two languages; None as source for "auto".

    service: service with the models.
    source: client's code of the source language, or "auto".
    target: client's code of the target language.

    Raises InvalidRequest, in LibreTranslate's words, when no model has a language.
    """
    known = {language.code for language in service.languages()}
    detect = source.casefold() == "auto"
    for code in (target,) if detect else (source, target):
        if resolve_code(code, known) not in known:
            raise InvalidRequest(f"{code[:SHOWN_CHARACTERS]} is not supported")
    return None if detect else resolve_code(source, known), resolve_code(target, known)


async def accept_texts(request: Request, texts: str | list[str], *, tags: bool = False) -> list[str]:
    """Check that texts are within the limits, charge the client, and return the texts as a list.

    request: request of the client.
    texts: one text, or several.
    tags: whether the texts are HTML or XML.

    Raises InvalidRequest in LibreTranslate's words, and Refusal when a quota is exceeded.
    """
    settings = state_of(request).settings
    batch = check_sizes(texts, settings.char_limit, settings.batch_limit)
    if tags:
        check_tags(batch, settings.tag_limit)
    await charge(request, batch)
    return batch


async def translate_texts(
    state: AppState, task: TranslationTask, on_partial: OnPartial | None = None
) -> Translations:
    """Translate the texts of a task: either all are answered, or none.

    state: state that routes share.
    task: texts, checked and charged.
    on_partial: listener for final beginnings of the answers to plain texts.

    Raises InvalidRequest when no model reads a text's language, and what `Service.run` raises.
    """
    pages = await read_pages(state, task.texts, task.reader, task.deadline) if task.reader else None
    samples = task.texts if pages is None else [page_prose(page) for page in pages]
    detections, routes = await routes_for(state, samples, task.source, task.target, task.deadline, task.model)
    known = {language.code for language in state.service.languages()}
    sources = [resolve_code(str(detection["language"]), known) for detection in detections]
    sources = sources or [task.source or ""] * len(task.texts)
    if pages is None:
        results = await run_each(state, task.texts, routes, task.options, task.deadline, on_partial)
        return Translations([result.text for result in results], sources, detections, results)
    texts, results = await translate_pages(state, pages, routes, task.options, task.deadline)
    return Translations(texts, sources, detections, results)


async def pick_summarizer(
    service: Service, texts: Sequence[str], source: str | None = None, model: str | None = None
) -> ModelRoute:
    """Return the named model, or the first one for the language that can read the longest text whole.

    service: service with the models.
    texts: texts to be summarized.
    source: client's code of the texts' language; None or "auto": detected, if models differ in language.
    model: name of the model that the client chose; None: none.

    Raises UnknownModel.
    """
    code: str | None = None
    if source and source.casefold() != "auto":
        codes = {code for info in service.models() for code in info.directions.sources}
        code = resolve_code(source, codes)
    elif model is None:
        models = [info for info in service.models() if info.task == "summarize"]
        languages = list(dict.fromkeys(code for info in models for code in info.directions.sources))
        if len(languages) > 1:
            detection = await in_slices(one_slice(service.detect, texts[0], languages))
            # `other`: the text is in a language that no model reads
            code = detection.ranked[0][0] if detection.other is None else None
    return service.pick("summarize", code, None, model, characters=max(map(len, texts), default=0))
