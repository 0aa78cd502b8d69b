"""The tools for agents: the SDK makes names, descriptions and schemas from these functions."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, Literal

from fastapi import Request
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from engine.api import ConvoyError, TextOptions, in_slices, one_slice
from server.answering.texts import (
    TranslationTask,
    accept_texts,
    pick_summarizer,
    resolve_pair,
    translate_texts,
)
from server.answering.translation import candidates, run_each
from server.callers.access import refund
from server.errors import INTERNAL
from server.http.schemas import check_sizes, texts_of
from server.languages import name_of, outward
from server.observing.context import FAILED, current, set_outcome
from server.state import AppState, deadline_of, refuse_while_draining, state_of

logger = logging.getLogger(__name__)

Call = Context[Any, Any]
# fail_fast: collecting the errors of 200,000 items takes a second of the event loop
TextList = Annotated[list[str], Field(fail_fast=True)]
Texts = Annotated[str | TextList, Field(description="A text, or several: all are translated or none.")]
Code = Annotated[str, Field(description="Code of a language, as list_languages has it, such as en.")]
CodeOrAuto = Annotated[str, Field(description="Code of the text's language; auto detects it.")]


class Translated(BaseModel):
    text: str
    source: str = Field(description="Code of the original's language.")


class TranslatedTexts(BaseModel):
    translations: list[Translated]


class LikelyLanguage(BaseModel):
    language: str
    confidence: float = Field(description="From 0 to 100.")


class LikelyLanguages(BaseModel):
    languages: list[LikelyLanguage] = Field(description="Most likely first.")


class KnownLanguage(BaseModel):
    code: str
    name: str
    targets: list[str] = Field(description="Codes of the languages that it can be translated into.")


class KnownLanguages(BaseModel):
    languages: list[KnownLanguage]


class SummaryText(BaseModel):
    summary: str
    truncated: bool = Field(description="Whether only the beginning was read.")


async def translate_text(
    ctx: Call, text: Texts, target: Code, source: CodeOrAuto = "auto"
) -> TranslatedTexts:
    """Translate text from one language into another.

    ctx: context of the call.
    text: one text, or several.
    target: code of the language to translate into.
    source: code of the text's language; "auto" detects it.
    """
    async with _answering(ctx) as (request, state):
        deadline = deadline_of(request, state)
        pair = resolve_pair(state.service, source, target)
        texts = await accept_texts(request, texts_of({"q": text}))
        answer = await translate_texts(state, TranslationTask(texts, *pair, deadline))
        pairs = zip(answer.texts, answer.sources, strict=True)
        return TranslatedTexts(translations=[Translated(text=t, source=outward(s)) for t, s in pairs])


async def detect_language(ctx: Call, text: str) -> LikelyLanguages:
    """Detect which language a text is in."""
    async with _answering(ctx) as (request, state):
        settings = state.settings
        (checked,) = check_sizes([text], settings.char_limit, settings.batch_limit)
        detecting = one_slice(candidates, state.service, checked)
        guesses = await in_slices(detecting, deadline_of(request, state))
        return LikelyLanguages(languages=[LikelyLanguage(**guess) for guess in guesses])


async def list_languages(ctx: Call) -> KnownLanguages:
    """List the languages that can be translated, each with its target languages."""
    async with _answering(ctx) as (_, state):
        languages = [
            KnownLanguage(
                code=outward(language.code),
                name=name_of(language.code),
                targets=sorted(map(outward, language.targets)),
            )
            for language in state.service.languages()
        ]
        return KnownLanguages(languages=languages)


async def summarize(
    ctx: Call,
    text: str,
    language: CodeOrAuto = "auto",
    strategy: Annotated[
        Literal["truncate", "parts", "refine"],
        Field(
            description="For a text too long for the model: read its beginning, its parts, or refine these."
        ),
    ] = "refine",
) -> SummaryText:
    """Summarize a text in its own language.

    ctx: context of the call.
    text: text of any length.
    language: code of the text's language; "auto" detects it.
    strategy: treatment of a text that is too long for the model.
    """
    async with _answering(ctx) as (request, state):
        deadline = deadline_of(request, state)
        texts = check_sizes(texts_of({"q": text}), state.settings.char_limit, state.settings.batch_limit)
        route = await pick_summarizer(state.service, texts, language)
        await accept_texts(request, texts)
        options = TextOptions(split=False, strategy=strategy)
        (result,) = await run_each(state, texts, [route], options, deadline)
        return SummaryText(summary=result.text, truncated=result.truncated)


TOOLS: Final = (translate_text, detect_language, list_languages, summarize)


@asynccontextmanager
async def _answering(ctx: Call) -> AsyncIterator[tuple[Request, AppState]]:
    """Provide the HTTP request of a call. An error becomes a tool's error, and the charge is refunded."""
    request = ctx.request_context.request
    assert isinstance(request, Request)
    state = state_of(request)
    current.set(request.state.context)  # the SDK runs tools in tasks of its own
    try:
        refuse_while_draining(request)
        yield request, state
    except ConvoyError as error:
        state.metrics.record_rejection(error.code, request.scope)
        await _record_failure(request)
        raise ToolError(str(error)) from None
    except Exception:
        logger.exception("a tool failed")
        await _record_failure(request)
        raise ToolError(INTERNAL) from None


async def _record_failure(request: Request) -> None:
    """Mark the request as failed, and refund its charge."""
    set_outcome(FAILED)
    await refund(request)
