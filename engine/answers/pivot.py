"""Translation through a third language: two models, one after the other."""

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
from engine.text.placeables.masking import MarkedText


@dataclass(frozen=True, slots=True)
class Stage:
    """A model at work."""

    engine: AnyEngine
    text: TextModel


def options_of(options: TextOptions, first: TextModel, last: TextModel) -> tuple[TextOptions, TextOptions]:
    """Choose the options of each of two models.

    options: the caller's options, for both together.
    first, last: the models.

    The first model gets no prefix and no alternatives: prefix and alternatives belong to the final answer.
    Amounts can be read in the source language only, so the first model writes amounts as the final language
    does, and the last model keeps them. Where one of the models keeps nothing, the last model localises the
    amounts that the first one wrote.
    """
    through = bool(options.local_numbers and first.placeholders and last.placeholders)
    numerals = last.target if through else ""
    early = replace(options, prefix="", alternatives=0, local_numbers=through, numerals=numerals)
    return early, replace(options, local_numbers=options.local_numbers and not through)


def carry_over(result: TextResult, second: TextModel) -> str | MarkedText:
    """Make the first model's answer the second model's text; phrases that stayed as they were stay so."""
    if not (result.kept and second.placeholders):
        return result.text
    spans = tuple((phrase.begin, phrase.end) for phrase in result.kept if phrase.begin < phrase.end)
    return MarkedText(result.text, spans)


def join_results(first: TextResult, second: TextResult) -> TextResult:
    """Join the second model's answer with the first's in `via`; alignment and kept spans are the source's."""
    spans = [phrase.span for phrase in first.kept if phrase.begin < phrase.end]  # as `carry_over` counts them
    return replace(
        second,
        model=f"{first.model}+{second.model}",
        via=first,
        truncated=first.truncated or second.truncated,
        source_tokens=first.source_tokens,
        timings=first.timings + second.timings,
        alignment=through(first.alignment, second.alignment),
        kept=[replace(phrase, span=spans[phrase.span] if phrase.span >= 0 else -1) for phrase in second.kept],
    )


def stream_through(
    stages: Sequence[Stage], texts: Iterable[tuple[str | MarkedText, TextOptions]]
) -> Outcomes:
    """Answer texts as `stream` does, through one model or two; two work at the same time, on different texts.

    stages: the model, or two models of which the second reads the answers of the first.
    texts: each with how it is answered.
    """
    if len(stages) == 1:
        return (yield from stream(stages[0].engine, stages[0].text, texts))
    first, last = stages
    waiting: deque[TextOptions] = deque()  # of the texts that the first has not answered yet
    between: deque[TextResult | ConvoyError] = deque()  # answers of the first, until the last's come

    def before() -> Iterator[tuple[str | MarkedText, TextOptions]]:
        known = None
        for text, options in texts:
            early, late = options_of(options, first.text, last.text)
            if options is not known:  # what the last model can't do is refused before the first has worked
                plan(last.text, "", late)
                known = options
            waiting.append(late)
            yield text, early

    answers = stream(first.engine, first.text, before())

    def pass_on() -> Iterator[tuple[str | MarkedText, TextOptions]]:
        for answer in answers:
            between.append(answer)
            options = waiting.popleft()
            if not isinstance(answer, ConvoyError):
                yield carry_over(answer, last.text), options

    final = stream(last.engine, last.text, pass_on())
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
    """Take the errors from the front of a queue."""
    while between and isinstance(between[0], ConvoyError):
        error = between.popleft()
        assert isinstance(error, ConvoyError)
        yield error
