"""Translates windows of lines by an engine: longest first, equal texts once, with a row for each line."""

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
# errors of the engine, not of the text: it can't answer any more
FATAL: Final = (Stopping, DeviceLost, Overloaded, Cancelled, Unavailable)
LINES_AHEAD: Final = 40_000  # maximum number of lines read and not yet written
FILLER: Final = ""  # a text without work, sent to wait for the answers of older texts


@dataclass(slots=True)
class _Batch(Generic[Tag]):
    """A window that is being answered.

    tag: any object by which the caller recognizes the window.
    window: the lines; None: no lines, only the tag is yielded in order.
    rows: rows of the window's lines; lines without an answer have a preliminary one.
    languages: detected language of each line; None: not detected.
    unanswered: number of texts that have no answer yet.
    """

    tag: Tag
    window: Window | None
    rows: list[OutputRow] = field(default_factory=list)
    languages: list[str | None] = field(default_factory=list)
    unanswered: int = 0


class Answering:
    """Answers the lines of a job."""

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

        Windows are read ahead, so that the engine always has work.

        windows: pairs of a tag, any object of the caller, and its lines; None is yielded again in order.
        on_answered: called with a tag, the number of newly answered lines, and their number of words.

        Raises the errors of the engine (FATAL), and the errors of reading.
        """
        pending: deque[_Batch[Tag]] = deque()
        # batch and lines of each text at the engine; outcomes come in the same order; None: a filler
        sent: deque[tuple[_Batch[Tag] | None, list[int]]] = deque()

        def texts() -> Iterator[tuple[str, TextOptions]]:
            """Yield texts with their options; fillers let older answers arrive if too many lines wait."""
            for tag, window in windows:
                batch = _Batch(tag, window)
                if window is not None:
                    groups = self._group_lines(window, batch)
                    batch.unanswered = len(groups)
                    pending.append(batch)
                    for numbers in groups:
                        sent.append((batch, numbers))
                        yield window.lines[numbers[0]].text, self._options(window, numbers[0])
                else:
                    pending.append(batch)
                while sum(len(batch.rows) for batch in pending) > LINES_AHEAD:
                    sent.append((None, []))
                    yield FILLER, self._job.options

        with closing(self._service.run_each(self._job.route, texts())) as outcomes:
            for outcome in outcomes:
                batch, numbers = sent.popleft()
                if batch is not None:
                    row = self._record(batch, numbers, outcome)
                    on_answered(batch.tag, len(numbers), row.words * len(numbers))
                yield from _finished(pending)
        yield from _finished(pending)

    def _group_lines(self, window: Window, batch: _Batch[Tag]) -> list[list[int]]:
        """Return groups of lines with equal texts, as numbers in the window, longest text first.

        window: the lines.
        batch: gets the language and a preliminary row of each line.
        """
        by_text: dict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(window.lines):
            language = self._language(line.text) if self._detects and line.text else None
            status, reason = line.status, line.reason
            if self._job.only_language and line.text and language not in (None, self._job.languages[0]):
                status, reason = LineStatus.LANGUAGE, f"detected as {language}"
            answer = Answer(line.text, status, None, language, self._job)
            batch.languages.append(language)
            batch.rows.append(OutputRow(status, values_of(answer), 0, reason))
            if status is LineStatus.OK:
                # every line has a sample of its own
                by_text[f"{number} {line.text}" if self._sampling else line.text].append(number)
        return sorted(by_text.values(), key=lambda numbers: -len(window.lines[numbers[0]].text))

    def _options(self, window: Window, number: int) -> TextOptions:
        """Return the options of the job; with sampling, with a seed for this line."""
        options = self._job.options
        if not self._sampling:
            return options
        place = f"{self._seed} {window.first + number} {window.name}"
        seed = int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest()) >> 1
        return replace(options, decode={**options.decode, "seed": seed})

    def _record(self, batch: _Batch[Tag], numbers: list[int], outcome: TextResult | ConvoyError) -> OutputRow:
        """Store one row for all lines with the same text, and return it.

        batch: window of the lines.
        numbers: numbers of the lines in the window.
        outcome: result or error of their text.

        Raises the errors in FATAL.
        """
        assert batch.window is not None
        line = batch.window.lines[numbers[0]]
        # another line of the batch may be the cause: answer this one alone
        if isinstance(outcome, ExecutorFailed):
            outcome = self._answer_alone(line.text, self._options(batch.window, numbers[0]))
        if isinstance(outcome, FATAL):
            raise outcome
        status, reason = _status(outcome)
        result = outcome if isinstance(outcome, TextResult) else None
        values = values_of(Answer(line.text, status, result, batch.languages[numbers[0]], self._job))
        model = result.model if result else ""
        row = OutputRow(status, values, len(line.text.split()), reason, model)
        for place in numbers:
            batch.rows[place] = row
        batch.unanswered -= 1
        return row

    def _answer_alone(self, text: str, options: TextOptions) -> TextResult | ConvoyError:
        """Return the result or the error of one text in a call of its own."""
        try:
            (result,) = asyncio.run(self._service.run(self._job.route, [text], options))
        except ConvoyError as error:
            return error
        return result

    def _language(self, text: str) -> str | None:
        """Return the most likely language of a text, or a code outside the models'; None: unknown."""
        detection = self._service.detect(text)
        if detection.other is not None or not detection.ranked:
            return detection.other
        best, confidence = detection.ranked[0]
        return best if confidence else None


def _finished(pending: deque[_Batch[Tag]]) -> Iterator[tuple[Tag, Window | None, list[OutputRow]]]:
    """Remove answered windows from the front of the queue, and yield them."""
    while pending and not pending[0].unanswered:
        batch = pending.popleft()
        yield batch.tag, batch.window, batch.rows


def _status(outcome: TextResult | ConvoyError) -> tuple[LineStatus, str]:
    """Return the status of a line and, unless it is OK, the reason."""
    if isinstance(outcome, TextResult):
        if outcome.repetition.loop:
            return LineStatus.REPETITIVE, "the answer goes round in circles"
        return LineStatus.OK, ""
    if isinstance(outcome, TooLarge):
        return LineStatus.TOO_LONG, str(outcome)
    return (LineStatus.FAILED if isinstance(outcome, ExecutorFailed) else LineStatus.REFUSED), str(outcome)
