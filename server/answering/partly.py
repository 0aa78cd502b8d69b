"""Arrays of which a bad text spoils itself alone: each text's answer or its error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response

from engine.api import ConvoyError, InvalidRequest, TooLarge
from server.answering.events import events
from server.answering.results import OnPartial, renumber
from server.callers.access import charge, give_back
from server.http.parameters import while_connected
from server.http.responses import json_response
from server.http.schemas import check_sizes
from server.http.unread import with_warnings
from server.state import AppState, state_of

OF_A_TEXT: Final = (InvalidRequest, TooLarge)  # errors that another text would not have had
# answers texts by their numbers in the request: by name a list with an entry for each text, or an object of
# numbers for all texts together, of which the greatest count
Work = Callable[[list[int]], Awaitable[dict[str, Any]]]
# makes the answer of a call, and tells a listener what is certain of it by then
Answer = Callable[[AppState, Any, OnPartial | None], Awaitable[dict[str, Any]]]


async def answer_partly(
    request: Request, texts: Sequence[str], work: Work, prefix: str = ""
) -> tuple[dict[str, Any], list[ConvoyError | None]]:
    """Answer those of several texts that can be answered, all together where none of them is at fault.

    request: the client's, which is charged for what is answered.
    texts: in the order of the request, of any length.
    work: answers some of the texts.
    prefix: the beginning of each answer, read with each text.

    Returns the answer, None where a text has none, and each text's error. Raises the first error where no
    text is answered, and what concerns all texts.
    """
    limit = state_of(request).settings.char_limit
    faults: list[ConvoyError | None] = [_too_long(text, limit) for text in texts]
    good = [number for number, fault in enumerate(faults) if fault is None]
    await charge(request, (texts[number] for number in good), prefix)
    parts: dict[tuple[int, ...], dict[str, Any]] = {}
    try:
        if good:
            parts[tuple(good)] = await work(good)
    except OF_A_TEXT:
        for number, result in zip(good, await _alone(good, work), strict=True):
            if isinstance(result, ConvoyError):
                faults[number] = result
            else:
                parts[number,] = result
        await give_back(request, (texts[number] for number in good if faults[number]), prefix)
    if not parts:
        raise next(fault for fault in faults if fault is not None)
    return _joined(parts, len(texts)), faults


async def respond(request: Request, call: Any, answer: Answer, *, stream: bool) -> Response:
    """Answer a call as a whole, or where it asks for that, each of its texts that can be answered.

    request: the client's.
    call: a dataclass with `texts`, `batch`, `deadline`, `warnings` and `options`, of which `partial` asks for
        that.
    answer: makes the answer of such a call.
    stream: whether the answer goes out as events while it grows.

    Raises what `answer` raises.
    """
    work = partial(_answer_call, request, call, answer)
    if stream:
        return await events(request, work)
    return await json_response(await while_connected(request, work()), call.deadline)


async def _answer_call(
    request: Request, call: Any, answer: Answer, on_partial: OnPartial | None = None
) -> dict[str, Any]:
    state = state_of(request)
    if not (call.batch and call.options.partial):
        return with_warnings(await answer(state, call, on_partial), call.warnings)

    async def some(numbers: list[int]) -> dict[str, Any]:
        listener = renumber(on_partial, numbers) if on_partial else None
        return await answer(state, replace(call, texts=[call.texts[n] for n in numbers]), listener)

    parts, faults = await answer_partly(request, call.texts, some, call.options.prefix)
    errors = [{"code": fault.code, "error": str(fault)} if fault else None for fault in faults]
    return with_warnings(parts | {"errors": errors}, call.warnings)


async def _alone(numbers: Sequence[int], work: Work) -> list[dict[str, Any] | ConvoyError]:
    """The answer to each text by itself, or its error. Raises what concerns all texts."""

    turn = asyncio.Lock()

    async def one(number: int) -> dict[str, Any] | ConvoyError:
        async with turn:  # each is planned in the event loop itself: others come between
            await asyncio.sleep(0)
        try:
            return await work([number])
        except OF_A_TEXT as error:
            return error.with_traceback(None)  # a thousand stacks take the collector of garbage long

    tasks = [asyncio.create_task(one(number)) for number in numbers]
    try:
        return await asyncio.gather(*tasks)
    finally:  # one was refused for all, or the client has gone
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _too_long(text: str, limit: int) -> ConvoyError | None:
    try:
        check_sizes(text, limit, -1)
    except InvalidRequest as error:
        return error
    return None


def _joined(parts: dict[tuple[int, ...], dict[str, Any]], count: int) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for numbers, part in parts.items():
        for name, values in part.items():
            if isinstance(values, list):
                places = answer.setdefault(name, [None] * count)
                for number, value in zip(numbers, values, strict=True):
                    places[number] = value
            else:
                greatest = answer.setdefault(name, dict(values))
                answer[name] = {key: max(value, greatest[key]) for key, value in values.items()}
    return answer
