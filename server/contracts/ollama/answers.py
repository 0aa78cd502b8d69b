"""Answers in Ollama's format: a whole one, or lines of JSON as a text grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from engine.api import ConvoyError, Partial, TextResult
from server.answering.events import Deltas, Dialect, Event

# makes the fields of an answer that hold its text
TextFields = Callable[[str], dict[str, Any]]


def chat_fields(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}}


def generate_fields(text: str) -> dict[str, Any]:
    return {"response": text}


def now() -> str:
    """Return the present time, like 2026-11-26T03:00:00.000000Z."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class OllamaAnswer:
    """The parts of one answer that its text does not change.

    model: name of the model, as the client wrote it.
    fields: function that makes the fields with the text.
    warnings: warnings about fields of the request.
    """

    def __init__(self, model: str, fields: TextFields, warnings: Mapping[str, str]) -> None:
        self._model, self._fields, self._warnings = model, fields, warnings
        self._begin = time.monotonic_ns()

    def part(self, text: str) -> dict[str, Any]:
        """Return a line with new text, before the last line."""
        return {"model": self._model, "created_at": now(), **self._fields(text), "done": False}

    def empty(self, reason: str) -> dict[str, Any]:
        """Return the answer to a request without a text, which only loads or unloads a model."""
        return self.part("") | {"done": True, "done_reason": reason}

    def whole(self, result: TextResult, text: str | None = None) -> dict[str, Any]:
        """Return the last line, or the whole answer.

        result: result of the text.
        text: rest of the text that no line has had; None: the whole text.
        """
        duration = time.monotonic_ns() - self._begin
        warnings = {"warnings": dict(self._warnings)} if self._warnings else {}
        return (
            self.part(result.text if text is None else text)
            | {"done": True, "done_reason": result.finish or "stop"}
            | {"total_duration": duration, "load_duration": 0, "prompt_eval_duration": 0}
            | {"prompt_eval_count": result.source_tokens, "eval_count": result.target_tokens}
            | {"eval_duration": duration}
            | warnings
        )


class AnswerLines(Dialect):
    """A line for each new part of the text, and a last one with the numbers."""

    json_lines = True

    def __init__(self, answer: OllamaAnswer) -> None:
        self._answer, self._deltas = answer, Deltas()

    def partial(self, partial: Partial) -> list[Event]:
        new = self._deltas.next(0, partial.text)
        return [("", self._answer.part(new))] if new else []

    def result(self, answer: dict[str, Any]) -> list[Event]:
        """Return the rest of the text, and the last line, which has none."""
        (result,) = answer["results"]
        return [*self.partial(Partial(0, result.text)), ("", self._answer.whole(result, ""))]

    def error(self, error: ConvoyError) -> list[Event]:
        return [("", {"error": str(error)})]
