"""POST /translate: LibreTranslate's contract, with optional fields of Convoy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from fastapi import APIRouter, Request

from documents.formats.attributes import read_with_attributes
from documents.formats.html import read_html
from engine.api import InvalidRequest, in_slices
from server.answering.partly import TextCall, add_text_routes
from server.answering.results import OnPartial, run_together
from server.answering.texts import TranslationTask, resolve_pair, translate_texts
from server.answering.translation import wrong_source
from server.callers.access import charge
from server.http.openapi import MAX_TARGETS, TargetsAnswer, TranslateAnswer
from server.http.parameters import parameters
from server.http.schemas import (
    SHOWN_CHARACTERS,
    TranslateFields,
    TranslateRequest,
    alternatives_of,
    as_asked,
    check_phrases,
    check_sizes,
    check_tags,
    extras,
    is_short,
    phrases_of,
    text_limit,
    text_options,
    texts_of,
    validate,
)
from server.http.unread import unread_of
from server.state import AppState, deadline_of, state_of

FORMATS: Final = ("text", "html")
# LibreTranslate's own page sends `secret`
READ: Final = frozenset(
    (*TranslateRequest.model_fields, "q", "source", "target", "format", "alternatives", "secret")
)

router = APIRouter()


@dataclass(frozen=True, slots=True)
class TranslateCall(TextCall):
    """A checked request.

    source: our code of the texts' language; None: the language is to be detected.
    targets: our code of each language to translate into, with the client's code.
    several: whether the request had an array of targets.
    html: whether the texts are HTML.
    """

    options: TranslateFields
    source: str | None
    targets: list[tuple[str, str]]
    several: bool
    html: bool


async def _checked(request: Request) -> TranslateCall:
    """Translate a text, or an array of texts (JSON only) of which all are accepted or none.

    With `stream`, the answer is sent as server-sent events: `partial` events with final beginnings, then a
    `result` event with the whole answer. `translations` has an answer for each target of an array (JSON
    only), in their order.
    """
    state = state_of(request)
    deadline = deadline_of(request, state)
    values = await parameters(request, state.settings.body_limit)
    call = _call_of(values, state, deadline)
    if "json" not in request.headers.get("content-type", ""):  # lines of forms end with CR and LF
        call = replace(call, texts=["\n".join(text.splitlines()) for text in call.texts])
    wrong = await wrong_source(state.service, call.texts, call.source, "source", deadline)
    call = replace(call, warnings=call.warnings | wrong)
    if not (call.batch and call.options.partial):
        await charge(request, call.texts * len(call.targets), call.options.prefix)
    return call


async def _answer(
    state: AppState, call: TranslateCall, on_partial: OnPartial | None = None
) -> dict[str, Any]:
    """Return the answer to a checked call, with the language of each answer if there are several."""
    if not call.several:
        return await _answer_in(call.targets[0][0], state, call, on_partial)
    answers = await run_together(_answer_in(target, state, call) for target, _ in call.targets)
    named = zip(call.targets, answers, strict=True)
    return {"translations": [{"target": asked} | answer for (_, asked), answer in named]}


async def _answer_in(
    target: str, state: AppState, call: TranslateCall, on_partial: OnPartial | None = None
) -> dict[str, Any]:
    """Return the answer in one of the languages of a call."""
    fields = call.options
    reader = (read_with_attributes if fields.attributes else read_html) if call.html else None
    options = text_options(fields, 0 if call.html else call.alternatives)
    task = TranslationTask(call.texts, call.source, target, call.deadline, options, reader, fields.model)
    translations = await translate_texts(state, task, on_partial)
    results = translations.results
    lists: dict[str, list[Any]] = {"translatedText": translations.texts}
    if call.source is None:
        lists["detectedLanguage"] = translations.detections
    if call.alternatives:
        alternatives = [result.alternatives[: call.alternatives] for result in results]
        lists["alternatives"] = [[] for _ in call.texts] if call.html else alternatives
    optional = in_slices(extras(fields, results, batch=call.batch), call.deadline, small=is_short(results))
    return as_asked(lists, batch=call.batch) | await optional


def _call_of(values: dict[str, Any], state: AppState, deadline: float) -> TranslateCall:
    """Return a checked request. The order of checks is LibreTranslate's: the first error is the answer."""
    settings, q = state.settings, texts_of(values)
    source, targets, several = _language_code(values, "source"), *_targets(values)
    beams = max((i.limits.beams for i in state.service.models() if i.task == "translate"), default=1)
    alternatives = alternatives_of(values, beams, settings.alternatives_limit)
    texts = check_sizes(q, text_limit(values, settings.char_limit), settings.batch_limit)
    if several:
        check_sizes([""] * len(texts) * len(targets), -1, settings.batch_limit)
    pairs = [resolve_pair(state.service, source, target) for target in targets]
    html = _is_html(values)
    check_phrases(phrases_of(values), settings.phrase_limit)
    options = validate(TranslateRequest, values)
    if html:
        check_tags(texts, settings.tag_limit)
        _check_options_of_html(options)
    if several and (options.stream or options.partial):
        raise InvalidRequest("Invalid request: stream and partial take one target; send a request for each")
    return TranslateCall(
        texts=texts,
        batch=not isinstance(q, str),
        source=pairs[0][0],
        targets=[(pair[1], asked) for pair, asked in zip(pairs, targets, strict=True)],
        several=several,
        html=html,
        alternatives=alternatives,
        options=options,
        deadline=deadline,
        warnings=unread_of(values, READ, state.names.query_key_fields),
    )


def _is_html(values: dict[str, Any]) -> bool:
    """Return whether a request's texts are HTML. Raises InvalidRequest in LibreTranslate's words."""
    text_format = values.get("format")
    text_format = "text" if text_format in (None, "") else text_format
    if text_format not in FORMATS:
        raise InvalidRequest(f"{str(text_format)[:SHOWN_CHARACTERS]} format is not supported")
    return bool(text_format == "html")


def _check_options_of_html(options: TranslateFields) -> None:
    """Raise InvalidRequest when a request for HTML has an option of plain text."""
    if options.scores or options.alignment or options.forced or options.via:
        raise InvalidRequest(
            "Invalid request: scores, alignment, forced and via are of plain text; use format text"
        )
    if options.partial and (options.coverage or options.repetition):
        raise InvalidRequest("Invalid request: coverage and repetition of HTML do not go with partial")


def _targets(values: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the codes of the languages to translate into, and whether the request has an array of them."""
    targets = values.get("target")
    if not targets or not isinstance(targets, list):
        return [_language_code(values, "target")], False
    if not all(isinstance(code, str) and code for code in targets):
        raise InvalidRequest("Invalid request: target must be a string or an array of strings")
    if len(targets) > MAX_TARGETS:
        raise InvalidRequest(f"Invalid request: {len(targets)} targets; a request takes {MAX_TARGETS}")
    return targets, True


def _language_code(values: dict[str, Any], name: str) -> str:
    """Return the code of a language in a request. Raises InvalidRequest in LibreTranslate's words."""
    code = values.get(name)
    if not code:
        raise InvalidRequest(f"Invalid request: missing {name} parameter")
    if not isinstance(code, str):
        raise InvalidRequest(f"Invalid request: {name} must be a string")
    return code


add_text_routes(
    router,
    "/translate",
    _checked,
    _answer,
    tags=["LibreTranslate"],
    response_model=TranslateAnswer | TargetsAnswer,
    request_model=TranslateRequest,
    codes=("source", "target", "format"),
)
