"""Translation through a third language by two models, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.answers.alignment import through
from engine.answers.compose import TextResult
from engine.answers.options import TextOptions
from engine.answers.plan import plan
from engine.answers.stream import Outcomes, stream
from engine.answers.text_model import TextModel
from engine.errors import ConvoyError
from engine.schedule.any_engine import AnyEngine
from engine.schedule.slices import at_once
from engine.schedule.workers import Workers
from engine.text.placeables.masked_text import MarkedText


@dataclass(frozen=True, slots=True)
class Stage:
    """A model with its engine, and the workers for long texts; None: their work runs in slices."""

    engine: AnyEngine
    text: TextModel
    workers: Workers | None = None


def options_of(options: TextOptions, first: TextModel, last: TextModel) -> tuple[TextOptions, TextOptions]:
    """Choose the options of each of two models.

    options: options of the caller, for both models together.
    first, last: models.

    Prefix and alternatives belong to the final answer: the first model gets none. The last model reads
    whole paragraphs, as the first one does not wrap its answer, and wraps its own as the source. Amounts can
    be read in the source language only: the first model writes amounts in the format of the final language,
    and the last model keeps them. If one of the models has no placeholders, the last model localises the
    amounts that the first model wrote.
    """
    through = bool(options.local_numbers and first.placeholders and last.placeholders)
    numerals = last.target if through else ""
    early = replace(options, prefix="", alternatives=0, local_numbers=through, numerals=numerals, wraps=False)
    return early, replace(options, local_numbers=options.local_numbers and not through)


def carry_over(result: TextResult, second: TextModel) -> MarkedText:
    """Make the first model's answer the second model's text; kept phrases stay protected."""
    kept = result.kept if second.placeholders else ()
    spans = tuple((phrase.begin, phrase.end) for phrase in kept if phrase.begin < phrase.end)
    return MarkedText(result.text, spans, lines=result.next_lines)


def join_results(first: TextResult, second: TextResult) -> TextResult:
    """Return the second answer with the first one in `via`; alignment and kept spans are the source's."""
    # `span` of the second answer is an index of these, the spans that `carry_over` protects
    spans = [phrase.span for phrase in first.kept if phrase.begin < phrase.end]
    return replace(
        second,
        model=f"{first.model}+{second.model}",
        via=first,
        doubtful=first.doubtful + second.doubtful,
        truncated=first.truncated or second.truncated,
        source_tokens=first.source_tokens,
        timings=first.timings + second.timings,
        alignment=through(first.alignment, second.alignment),
        kept=[replace(phrase, span=spans[phrase.span] if phrase.span >= 0 else -1) for phrase in second.kept],
    )


def stream_through(
    stages: Sequence[Stage], texts: Iterable[tuple[str | MarkedText, TextOptions]]
) -> Outcomes:
    """Answer texts like `stream`, by one model, or by two models that work on different texts at a time.

    stages: one model, or two models of which the second reads the answers of the first.
    texts: texts with their options.
    """
    if len(stages) == 1:
        return (yield from stream(stages[0].engine, stages[0].text, texts))
    first, last = stages
    waiting: deque[TextOptions] = deque()  # options of the texts that the first model has not answered yet
    between: deque[TextResult | ConvoyError] = deque()  # first answers that wait for the last model

    def texts_for_first() -> Iterator[tuple[str | MarkedText, TextOptions]]:
        """Yield texts with the options of the first model; those of the last model go to `waiting`."""
        checked_options = None
        for text, options in texts:
            early, late = options_of(options, first.text, last.text)
            # options that the last model refuses fail before the first model works
            if options is not checked_options:
                at_once(plan(last.text, "", late))
                checked_options = options
            waiting.append(late)
            yield text, early

    answers = stream(first.engine, first.text, texts_for_first())

    def texts_for_last() -> Iterator[tuple[str | MarkedText, TextOptions]]:
        """Yield answers of the first model, except errors, as texts for the last model."""
        for answer in answers:
            between.append(answer)
            options = waiting.popleft()
            if not isinstance(answer, ConvoyError):
                yield carry_over(answer, last.text), options

    final = stream(last.engine, last.text, texts_for_last())
    try:
        for outcome in final:
            yield from _errors(between)
            answer = between.popleft()
            assert isinstance(answer, TextResult)
            yield outcome if isinstance(outcome, ConvoyError) else join_results(answer, outcome)
        yield from _errors(between)
    finally:
        final.close()
        answers.close()


def _errors(between: deque[TextResult | ConvoyError]) -> Iterator[ConvoyError]:
    """Take and yield the errors at the front of a queue."""
    while between and isinstance(between[0], ConvoyError):
        error = between.popleft()
        assert isinstance(error, ConvoyError)
        yield error
