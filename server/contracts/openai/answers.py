"""Responses for OpenAI's clients: completions, chunks of streams, and errors."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from engine.api import ConvoyError, Partial, TextResult
from server.answering.chats import ANY_MODEL, TextJob
from server.answering.events import Deltas, Dialect, Event, events
from server.answering.results import OnPartial
from server.contract import Fault
from server.contracts.openai.tasks import CompletionFields, warnings_of
from server.errors import STATUSES
from server.http.openapi import EVENTS, errors
from server.http.parameters import while_connected
from server.http.responses import json_response
from server.http.unread import with_warnings

# status by our code of an error, if it differs from `STATUSES`
ERROR_STATUSES: Final = {"key_required": 401, "invalid_key": 401, "quota": 429, "too_large": 400}
LEAST_LOGPROB: Final = -9999.0  # of a token without probability, as OpenAI's
# OpenAI's code by our code of an error
ERROR_CODES: Final = {
    "key_required": "invalid_api_key",
    "invalid_key": "invalid_api_key",
    "overloaded": "rate_limit_exceeded",
    "quota": "insufficient_quota",
    "slowdown": "rate_limit_exceeded",
    "too_large": "context_length_exceeded",
    "unknown_model": "model_not_found",
    "unsupported_parameter": "unsupported_parameter",
}


class OpenAIError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorAnswer(BaseModel):
    error: OpenAIError


class CompletionAnswer(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]


# responses of both routes
COMPLETED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The answer; with `stream` as server-sent events.", "content": EVENTS},
    **errors(400, 404, 413, 429, 503, 504, model=OpenAIErrorAnswer),
}


@dataclass(frozen=True, slots=True)
class CompletionShape:
    """The differences between the formats of chats and completions.

    prefix: prefix of an answer's id.
    kind, chunk_kind: `object` of an answer, and of a chunk.
    whole: function that makes the fields of a choice from its text.
    part: function that makes the fields of a chunk's choice from its new text, and whether it is the first.
    logprobs: function that makes `logprobs` of a choice from tokens and their natural-log probabilities.
    """

    prefix: str
    kind: str
    chunk_kind: str
    whole: Callable[[str], dict[str, Any]]
    part: Callable[[str, bool], dict[str, Any]]
    logprobs: Callable[[list[str], list[float]], dict[str, Any]]

    def scores(self, result: TextResult) -> dict[str, Any]:
        """Return `logprobs` of the first answer to a text; the tokens are those of the model."""
        return self.logprobs(result.tokens, [max(score, LEAST_LOGPROB) for score in result.token_scores])


class CompletionChunks(Dialect):
    """OpenAI's stream: the new text of each choice, its finish reason, the numbers of tokens, [DONE]."""

    def __init__(
        self,
        head: dict[str, Any],
        shape: CompletionShape,
        warnings: Mapping[str, str],
        *,
        usage: bool,
        count: int,
        scored: bool,
    ) -> None:
        self._head, self._shape, self._warnings, self._usage = head, shape, warnings, usage
        self._scored = scored
        self._count = count  # choices of each text
        self._deltas = Deltas()
        self._begun: set[int] = set()

    def partial(self, partial: Partial) -> list[Event]:
        """Return the new text of the first choice of a text; its other choices are sent at the end."""
        return self._grown(partial.index * self._count, partial.text)

    def _grown(self, index: int, text: str) -> list[Event]:
        new = self._deltas.next(index, text)
        return [self._chunk([self._choice(index, new)])] if new else []

    def result(self, answer: dict[str, Any]) -> list[Event]:
        """Return the last events: the end of each choice, the numbers of tokens if requested, and [DONE]."""
        chunks = []
        for number, result in enumerate(answer["results"]):
            for index, text in enumerate(islice(_repeat_last(result), self._count), number * self._count):
                chunks += self._grown(index, text)
                choice = self._choice(index, "", result.finish)
                if self._scored and index == number * self._count:
                    choice["logprobs"] = self._shape.scores(result)
                chunks.append(self._chunk([choice]))
        usage = {"usage": usage_of(answer["results"])} if self._usage else {}
        if last := with_warnings(usage, self._warnings):
            chunks.append(self._chunk([], **last))
        return [*chunks, ("", b"[DONE]")]

    def error(self, error: ConvoyError) -> list[Event]:
        return [("", error_body(Fault(str(error), STATUSES[error.code], error.code)))]

    def _choice(self, index: int, new: str, finish: str | None = None) -> dict[str, Any]:
        """Return a chunk's choice with new text and, at the end, the finish reason."""
        first = index not in self._begun
        self._begun.add(index)
        fields = self._shape.part(new, first)
        return {"index": index, **fields, "logprobs": None, "finish_reason": finish}

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> Event:
        return "", self._head | {"object": self._shape.chunk_kind, "choices": choices} | more


async def respond(
    request: Request,
    job: TextJob,
    values: Mapping[str, Any],
    fields: CompletionFields,
    shape: CompletionShape,
) -> Response:
    """Answer a job, as a whole or as a stream.

    request: request of the client.
    job: checked and charged texts, with their task.
    values: all fields of the request, known or not.
    fields: validated fields of the request.
    shape: shape of a chat or of completions.

    Raises what `TextJob.results` raises.
    """
    id = f"{shape.prefix}{secrets.token_hex(12)}"
    head, warnings = (
        {"id": id, "created": int(time.time()), "model": fields.model or ANY_MODEL},
        warnings_of(values),
    )
    if not fields.stream:
        results = await while_connected(request, job.results())
        answer: dict[str, Any] = {"object": shape.kind, "choices": _choices(results, fields, shape)}
        answer |= {"usage": usage_of(results)}
        return await json_response(with_warnings(head | answer, warnings), job.deadline)

    async def answer_job(on_partial: OnPartial | None) -> dict[str, Any]:
        return {"results": await job.results(on_partial)}  # `CompletionChunks.result` reads them

    with_usage = bool(fields.stream_options and fields.stream_options.include_usage)
    return await events(
        request,
        answer_job,
        CompletionChunks(head, shape, warnings, usage=with_usage, count=fields.n, scored=fields.scored),
    )


def _choices(
    results: list[TextResult], fields: CompletionFields, shape: CompletionShape
) -> list[dict[str, Any]]:
    """Return the choices of all texts: the first text has the indexes 0 to n - 1, and so on.

    A text with fewer answers repeats its last one, because clients expect `n` choices.
    """
    return [
        {
            "index": number * fields.n + rank,
            **shape.whole(text),
            "logprobs": shape.scores(result) if fields.scored and rank == 0 else None,
            "finish_reason": result.finish,
        }
        for number, result in enumerate(results)
        for rank, text in enumerate(islice(_repeat_last(result), fields.n))
    ]


def _repeat_last(result: TextResult) -> Iterator[str]:
    """Yield the answers to a text, and the last one again without end."""
    answers = [result.text, *result.alternatives]
    return chain(answers, repeat(answers[-1]))


def usage_of(results: list[TextResult]) -> dict[str, int]:
    """Return the numbers of tokens, under OpenAI's names."""
    prompt = sum(result.source_tokens for result in results)
    completion = sum(result.target_tokens for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def error_body(fault: Fault) -> dict[str, Any]:
    """Return the body of an error in OpenAI's shape."""
    kind = "server_error" if fault.status >= 500 else "invalid_request_error"
    if fault.status == 429:
        kind = "insufficient_quota" if fault.code == "quota" else "rate_limit_error"
    values = {"message": fault.message, "type": kind, "param": fault.parameter or None}
    return {"error": values | {"code": ERROR_CODES.get(fault.code)}}
