"""Windows of lines through an engine: sorted by length, each text once, and every line gets a row."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from corpus.columns import Answer, values_of
from corpus.job import CorpusJob
from corpus.line import LineStatus, OutputRow, Window
from engine.api import (
    Cancelled,
    ConvoyError,
    DecodeOptions,
    DeviceLost,
    ExecutorFailed,
    Overloaded,
    Service,
    Stopping,
    TextOptions,
    TextResult,
    TooLarge,
    Unavailable,
)

Tag = TypeVar("Tag")
# errors that are not the text's: the engine is not there any more
FATAL: Final = (Stopping, DeviceLost, Overloaded, Cancelled, Unavailable)
LINES_AHEAD: Final = 40_000  # between the line read last and the one written next
FILLER: Final = ""  # a text that costs nothing: while it is answered, older ones are


@dataclass(slots=True)
class _Batch(Generic[Tag]):
    """A window in flight; None is the end of something, which the tag says.

    rows: rows of the window's lines; lines without an answer have a preliminary one.
    languages: detected language of each line; None: not detected.
    left: number of texts that have no answer yet.
    """

    tag: Tag
    window: Window | None
    rows: list[OutputRow] = field(default_factory=list)
    languages: list[str | None] = field(default_factory=list)
    left: int = 0


class Answering:
    """How the lines of a job are answered."""

    def __init__(self, service: Service, job: CorpusJob) -> None:
        self._service, self._job = service, job
        self._seed = int(job.options.decode.get("seed", 0))
        self._sampling = DecodeOptions(**job.options.decode).draws
        self._detects = job.only_language or "language" in job.columns

    def answer(
        self,
        windows: Iterable[tuple[Tag, Window | None]],
        on_answered: Callable[[Tag, int, int], object] = lambda tag, lines, words: None,
    ) -> Generator[tuple[Tag, Window | None, list[OutputRow]]]:
        """Yield the windows with the rows of their lines, in order.

        Windows are read ahead, so that the engine has work from one to the next; None passes as it is.

        windows: each with whose it is.
        on_answered: told whose lines have an answer, how many, and how many words they have.

        Raises the engine's own errors (FATAL), and what reading raises.
        """
        pending: deque[_Batch[Tag]] = deque()
        asked: deque[tuple[_Batch[Tag] | None, list[int]]] = deque()

        def texts() -> Iterator[tuple[str, TextOptions]]:
            for tag, window in windows:
                batch = _Batch(tag, window)
                if window is not None:
                    questions = self._questions(window, batch)
                    batch.left = len(questions)
                    pending.append(batch)
                    for places in questions:
                        asked.append((batch, places))
                        yield window.lines[places[0]].text, self._options(window, places[0])
                else:
                    pending.append(batch)
                while sum(len(batch.rows) for batch in pending) > LINES_AHEAD:
                    asked.append((None, []))
                    yield FILLER, self._job.options

        with closing(self._service.run_each(self._job.route, texts())) as outcomes:
            for outcome in outcomes:
                batch, places = asked.popleft()
                if batch is not None:
                    row = self._take(batch, places, outcome)
                    on_answered(batch.tag, len(places), row.words * len(places))
                yield from _finished(pending)
        yield from _finished(pending)

    def _questions(self, window: Window, batch: _Batch[Tag]) -> list[list[int]]:
        """The lines that are asked together, as their numbers in the window; the others get their rows."""
        same: dict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(window.lines):
            language = self._language(line.text) if self._detects and line.text else None
            status, reason = line.status, line.reason
            if self._job.only_language and line.text and language not in (None, self._job.languages[0]):
                status, reason = LineStatus.LANGUAGE, f"detected as {language}"
            answer = Answer(line.text, status, None, language, self._job)
            batch.languages.append(language)
            batch.rows.append(OutputRow(status, values_of(answer), 0, reason))
            if status is LineStatus.OK:
                # samples of equal texts differ, as their places do
                same[f"{number} {line.text}" if self._sampling else line.text].append(number)
        return sorted(same.values(), key=lambda places: -len(window.lines[places[0]].text))

    def _options(self, window: Window, number: int) -> TextOptions:
        """The job's; samples have a seed of the line's own."""
        options = self._job.options
        if not self._sampling:
            return options
        place = f"{self._seed} {window.first + number} {window.name}"
        seed = int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest()) >> 1
        return replace(options, decode={**options.decode, "seed": seed})

    def _take(self, batch: _Batch[Tag], places: list[int], outcome: TextResult | ConvoyError) -> OutputRow:
        assert batch.window is not None
        line = batch.window.lines[places[0]]
        if isinstance(outcome, ExecutorFailed):  # perhaps another line's fault: once more, alone
            outcome = self._again(line.text, self._options(batch.window, places[0]))
        if isinstance(outcome, FATAL):
            raise outcome
        status, reason = _status(outcome)
        result = outcome if isinstance(outcome, TextResult) else None
        values = values_of(Answer(line.text, status, result, batch.languages[places[0]], self._job))
        row = OutputRow(status, values, len(line.text.split()), reason)
        for place in places:
            batch.rows[place] = row
        batch.left -= 1
        return row

    def _again(self, text: str, options: TextOptions) -> TextResult | ConvoyError:
        try:
            (result,) = asyncio.run(self._service.run(self._job.route, [text], options))
        except ConvoyError as error:
            return error
        return result

    def _language(self, text: str) -> str | None:
        detection = self._service.detect(text)
        if detection.other is not None or not detection.ranked:
            return detection.other
        best, confidence = detection.ranked[0]
        return best if confidence else None


def _finished(pending: deque[_Batch[Tag]]) -> Iterator[tuple[Tag, Window | None, list[OutputRow]]]:
    while pending and not pending[0].left:
        batch = pending.popleft()
        yield batch.tag, batch.window, batch.rows


def _status(outcome: TextResult | ConvoyError) -> tuple[LineStatus, str]:
    if isinstance(outcome, TextResult):
        if outcome.repetition.loop:
            return LineStatus.REPETITIVE, "the answer goes round in circles"
        return LineStatus.OK, ""
    if isinstance(outcome, TooLarge):
        return LineStatus.TOO_LONG, str(outcome)
    return (LineStatus.FAILED if isinstance(outcome, ExecutorFailed) else LineStatus.REFUSED), str(outcome)
