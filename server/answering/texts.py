"""Texts of a request to their answers: the few calls that a contract needs beside its own words.

A contract resolves its languages, has the texts accepted (limits, charge), and has them translated or
summarized; what is particular to it is a field of the task.
"""

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
from server.languages import inward, resolve_code
from server.state import AppState, state_of

TRANSLATION: Final = USUAL_OPTIONS["translate"]
SUMMARY: Final = USUAL_OPTIONS["summarize"]


@dataclass(frozen=True, slots=True)
class TranslationTask:
    """Texts to be translated.

    texts: in the order of the request.
    source: our code of their language; None asks for detection of each.
    target: our code of the language to translate into.
    deadline: a time.monotonic() by which the answer must be there.
    options: how to answer.
    reader: reads a text as a page, where texts have tags; None: they are plain.
    model: name of the model, where the client has named one.
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
    """What a task has come to.

    texts: the translations.
    sources: our code of each text's language, as it was given or detected.
    detections: as LibreTranslate answers them; none where the language was given.
    results: of each text, or of each segment where texts have tags.
    """

    texts: list[str]
    sources: list[str]
    detections: list[dict[str, Any]] = field(default_factory=list)
    results: list[TextResult] = field(default_factory=list)


def resolve_pair(service: Service, source: str, target: str) -> tuple[str | None, str]:
    """Resolve a client's codes of two languages to ours.

    service: the models.
    source: None is returned for "auto", whose texts' languages are to be detected.
    target: the language to translate into.

    Raises InvalidRequest, in LibreTranslate's words, on a language of no model.
    """
    known = {language.code for language in service.languages()}
    detect = source.casefold() == "auto"
    for code in (target,) if detect else (source, target):
        if resolve_code(code, known) not in known:
            raise InvalidRequest(f"{code[:SHOWN_CHARACTERS]} is not supported")
    return None if detect else resolve_code(source, known), resolve_code(target, known)


async def accept_texts(request: Request, texts: str | list[str], *, tags: bool = False) -> list[str]:
    """Check that texts are within this server's limits, and charge whoever sends them.

    request: the client's.
    texts: one, or several.
    tags: whether the texts are HTML or XML.

    Returns the texts as a list. Raises InvalidRequest in LibreTranslate's words, and Refusal on a quota.
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
    """Translate the texts of a task: all are answered or none.

    state: what routes share.
    task: checked and charged.
    on_partial: told what is certain of the answers to plain texts.

    Raises InvalidRequest on a language that no model reads, and what `Service.run` raises.
    """
    pages = await read_pages(task.texts, task.reader, task.deadline) if task.reader else None
    samples = task.texts if pages is None else [page_prose(page) for page in pages]
    detections, routes = await routes_for(state, samples, task.source, task.target, task.deadline, task.model)
    sources = [inward(str(one["language"])) for one in detections] or [task.source or ""] * len(task.texts)
    if pages is None:
        results = await run_each(state, task.texts, routes, task.options, task.deadline, on_partial)
        return Translations([result.text for result in results], sources, detections, results)
    texts, results = await translate_pages(state, pages, routes, task.options, task.deadline)
    return Translations(texts, sources, detections, results)


async def pick_summarizer(
    service: Service, texts: Sequence[str], source: str | None = None, model: str | None = None
) -> ModelRoute:
    """Pick the named model, else the first for the texts' language that is likely to read the longest whole.

    service: the models.
    texts: to be summarized.
    source: the client's code of their language; None or "auto" detects it, where models are of several.
    model: the model's name, where the client has named one.

    Raises UnknownModel.
    """
    code: str | None = None
    if source and source.casefold() != "auto":
        codes = {code for info in service.models() for code in info.directions.sources}
        code = resolve_code(source, codes)
    elif model is None:
        models = [info for info in service.models() if info.task == "summarize"]
        spoken = list(dict.fromkeys(code for info in models for code in info.directions.sources))
        if len(spoken) > 1:
            detection = await in_slices(one_slice(service.detect, texts[0], spoken))
            code = detection.ranked[0][0] if detection.other is None else None
    return service.pick("summarize", code, None, model, characters=max(map(len, texts), default=0))
