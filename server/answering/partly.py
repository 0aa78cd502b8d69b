"""Routes that answer texts; with `partial`, each text has an answer or an error of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response

from engine.api import ConvoyError, InvalidRequest, TooLarge
from server.answering.events import events
from server.answering.results import OnPartial, renumber, run_together
from server.callers.access import charge, refund_texts
from server.http.openapi import STREAMED, body_of, errors, fields_of, in_query
from server.http.parameters import while_connected
from server.http.responses import json_response
from server.http.schemas import TextRequest, check_sizes
from server.http.unread import with_warnings
from server.state import AppState, refuse_while_draining, state_of

Call = TypeVar("Call", bound="TextCall")
MAX_SINGLE_TEXTS: Final = 16  # answered one by one at the same time; others wait outside the engine's queue
OF_A_TEXT: Final = (InvalidRequest, TooLarge)  # errors of one text; other errors concern all texts
# returns the answer to texts, given by their numbers in the request. A value of the answer is a list with an
# entry for each text, or an object of numbers for all texts; the greatest numbers of several answers are kept
Work = Callable[[list[int]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class TextCall:
    """A checked request to translate or summarize.

    texts: texts in the order of the request.
    batch: whether the request had an array of texts.
    alternatives: number of other answers to each text.
    options: the other fields of the request.
    deadline: latest time of the answer, of time.monotonic().
    warnings: warnings about fields that were not read, by name.
    """

    texts: list[str]
    batch: bool
    alternatives: int
    options: TextRequest
    deadline: float
    warnings: dict[str, str]


# returns the answer of a call; passes beginnings that are final to the listener
Answer = Callable[[AppState, Call, OnPartial | None], Awaitable[dict[str, Any]]]


async def answer_partly(
    request: Request, texts: Sequence[str], work: Work, prefix: str = ""
) -> tuple[dict[str, Any], list[ConvoyError | None]]:
    """Answer every text that can be answered; return the answer, and each text's error or None.

    request: request of the client, which is charged for the answered texts.
    texts: texts of any length, in the order of the request.
    work: function that answers some of the texts.
    prefix: beginning of each answer, read with each text.

    All good texts are answered together; after an error, each by itself. A list of the answer has None for a
    text with an error. Raises the first error when no text is answered, and errors that concern all texts.
    """
    limit = state_of(request).settings.char_limit
    faults: list[ConvoyError | None] = [_length_error(text, limit) for text in texts]
    good = [number for number, fault in enumerate(faults) if fault is None]
    await charge(request, (texts[number] for number in good), prefix)
    parts: dict[tuple[int, ...], dict[str, Any]] = {}
    try:
        if good:
            parts[tuple(good)] = await work(good)
    except OF_A_TEXT:
        for number, result in zip(good, await _answer_one_by_one(good, work), strict=True):
            if isinstance(result, ConvoyError):
                faults[number] = result
            else:
                # the key is a tuple with one number
                parts[number,] = result
        await refund_texts(request, (texts[number] for number in good if faults[number]), prefix)
    if not parts:
        raise next(fault for fault in faults if fault is not None)
    return _join_parts(parts, len(texts)), faults


def add_text_routes(
    router: APIRouter,
    path: str,
    check: Callable[[Request], Awaitable[Call]],
    answer: Answer[Call],
    **described: Any,
) -> None:
    """Add a route that answers texts, and a route for EventSource, which can only send a GET.

    router: router of a contract.
    path: path of the POST route; the GET route is at `path`/stream.
    check: function that reads, checks and charges a request. Its docstring describes the POST route.
    answer: function that returns the answer of a call.
    described: `tags` of the POST route, its `response_model`, the `request_model` and its language `codes`.
    """
    codes, model = described.get("codes", ()), described["request_model"]
    responses = STREAMED | errors(400, 404, 413, 429, 503, 504)

    async def whole(request: Request) -> Response:
        call = await check(request)
        return await respond(request, call, answer, stream=bool(call.options.stream))

    async def stream(request: Request) -> Response:
        refuse_while_draining(request)
        return await respond(request, await check(request), answer, stream=True)

    router.post(
        path,
        name=path.strip("/"),
        tags=described.get("tags"),
        description=inspect.getdoc(check),
        response_model=described["response_model"],
        responses=responses,
        openapi_extra=body_of(model, codes),
    )(whole)
    router.get(
        f"{path}/stream",
        name=f"{path.strip('/')}_stream",
        tags=["Streaming"],
        description=f"As POST {path} with `stream`, for EventSource: parameters are in the query string.",
        response_class=Response,
        responses=responses,
        openapi_extra={"parameters": in_query(*fields_of(model, codes))},
    )(stream)


async def respond(request: Request, call: Call, answer: Answer[Call], *, stream: bool) -> Response:
    """Answer a call as a whole; with the option `partial`, answer each text that can be answered.

    request: request of the client.
    call: checked request.
    answer: function that returns the answer of a call.
    stream: whether the answer is sent as events while it grows.

    Raises what `answer` raises.
    """
    work = partial(_answer_call, request, call, answer)
    if stream:
        return await events(request, work)
    return await json_response(await while_connected(request, work()), call.deadline)


async def _answer_call(
    request: Request, call: Call, answer: Answer[Call], on_partial: OnPartial | None = None
) -> dict[str, Any]:
    """Return the answer of a call; with `partial`, also the list `errors`, with None for an answered text."""
    state = state_of(request)
    if not (call.batch and call.options.partial):
        return with_warnings(await answer(state, call, on_partial), call.warnings)

    async def answer_some(numbers: list[int]) -> dict[str, Any]:
        listener = renumber(on_partial, numbers) if on_partial else None
        return await answer(state, replace(call, texts=[call.texts[n] for n in numbers]), listener)

    parts, faults = await answer_partly(request, call.texts, answer_some, call.options.prefix)
    errors = [{"code": fault.code, "error": str(fault)} if fault else None for fault in faults]
    return with_warnings(parts | {"errors": errors}, call.warnings)


async def _answer_one_by_one(numbers: Sequence[int], work: Work) -> list[dict[str, Any] | ConvoyError]:
    """Answer each text by itself; return its answer or its error. Raises errors that concern all texts."""
    places, turn = asyncio.Semaphore(MAX_SINGLE_TEXTS), asyncio.Lock()

    async def answer_text(number: int) -> dict[str, Any] | ConvoyError:
        """Return the answer to one text, or its error."""
        async with places:
            async with turn:  # planning runs in the event loop: let other tasks run between two texts
                await asyncio.sleep(0)
            try:
                return await work([number])
            except OF_A_TEXT as error:
                return error.with_traceback(None)  # a thousand tracebacks slow down the garbage collector

    return await run_together(answer_text(number) for number in numbers)


def _length_error(text: str, limit: int) -> ConvoyError | None:
    """Return the error of a text with too many characters; None when it has at most `limit`."""
    try:
        check_sizes(text, limit, -1)
    except InvalidRequest as error:
        return error
    return None


def _join_parts(parts: dict[tuple[int, ...], dict[str, Any]], count: int) -> dict[str, Any]:
    """Join the answers to groups of texts in one answer to `count` texts.

    parts: answer to each group, by the numbers of its texts in the request.
    count: number of texts in the request.
    """
    answer: dict[str, Any] = {}
    for numbers, part in parts.items():
        for name, values in part.items():
            if isinstance(values, list):
                joined = answer.setdefault(name, [None] * count)
                for number, value in zip(numbers, values, strict=True):
                    joined[number] = value
            else:
                greatest = answer.setdefault(name, dict(values))
                answer[name] = {key: max(value, greatest[key]) for key, value in values.items()}
    return answer
