"""Users of a Convoy server, for locust: `locust -f loadtest/http/locustfile.py --host http://127.0.0.1:8000`.

CONVOY_KEY is sent as the key, if it is set. Locust's users wait for their answers, so that a slow server gets
fewer requests: to measure latency under a given load use `python -m loadtest.http.openloop`.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from locust import FastHttpUser, between, tag, task

sys.path.insert(0, str(Path(__file__).parents[2]))  # locust loads this file outside of its package
from loadtest.texts import document, sentences  # noqa: E402

DE_EN = {"source": "de", "target": "en"}


class _User(FastHttpUser):
    abstract = True

    def on_start(self) -> None:
        self.chance = random.Random(id(self))
        self.text = sentences(self.chance.randrange(2**32))
        key = os.environ.get("CONVOY_KEY")
        self.head = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(self, path: str, values: dict[str, Any], name: str, field: str) -> None:
        """Post a request; an answer without `field` counts as a failure."""
        with self.rest("POST", path, json=values, headers=self.head, name=name) as answer:
            if answer.js is None or not answer.js.get(field):
                answer.failure(f"status {answer.status_code} without {field}")


class Translator(_User):
    """A user who translates one sentence at a time."""

    weight = 6
    wait_time = between(0.5, 2.0)

    @tag("translate")
    @task
    def translate(self) -> None:
        self.ask("/translate", DE_EN | {"q": next(self.text)}, "translate", "translatedText")


class Summarizer(_User):
    """A user who summarizes a page of text."""

    weight = 1
    wait_time = between(2.0, 5.0)

    @tag("summarize")
    @task
    def summarize(self) -> None:
        values = {"q": document(self.chance, 8), "truncate": True}
        self.ask("/summarize", values, "summarize", "summaryText")


class SubtitleTool(_User):
    """A user who translates 32 sentences at once."""

    weight = 1
    wait_time = between(2.0, 6.0)

    @tag("batch")
    @task
    def batch(self) -> None:
        texts = [next(self.text) for _ in range(32)]
        self.ask("/translate", DE_EN | {"q": texts}, "batch of 32", "translatedText")


class Reader(_User):
    """A user who reads an event stream; the time to the first words is measured."""

    weight = 2
    wait_time = between(1.0, 3.0)

    @tag("stream")
    @task
    def stream(self) -> None:
        """Request a streamed translation, and report the time to its first words."""
        values = DE_EN | {"q": document(self.chance, 3), "stream": True}
        began, first = time.perf_counter(), 0.0
        with self.client.post(
            "/translate", json=values, headers=self.head, name="stream", stream=True, catch_response=True
        ) as answer:
            size, ends = 0, False
            while line := answer.stream.readline(b"\n"):
                if line.startswith(b"data:"):
                    first = first or time.perf_counter() - began
                size, ends = size + len(line), ends or line == b"event: result\n"
            if not ends:
                answer.failure(f"status {answer.status_code} without a result")
                return
        self.environment.events.request.fire(
            request_type="SSE",
            name="first words",
            response_time=first * 1000,
            response_length=size,
            exception=None,
            context={},
        )
