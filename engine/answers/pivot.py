"""Translation through a third language: two models, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.answers.alignment import through
from engine.answers.compose import TextResult
from engine.answers.options import TextOptions
from engine.answers.plan import plan
from engine.answers.stream import stream
from engine.answers.text_model import TextModel
from engine.schedule.engine import Engine
from engine.text.protect import MarkedText


@dataclass(frozen=True, slots=True)
class Stage:
    """A model at work."""

    engine: Engine
    text: TextModel


def options_of(options: TextOptions, first: TextModel, last: TextModel) -> tuple[TextOptions, TextOptions]:
    """Choose what of a request goes to each model. The first gets no prefix and no alternatives, which are of
    the answer. Amounts are read in the source's language only, so the first writes them as the last language
    does, and the last keeps them; where one of them keeps nothing, the last reads those that the first wrote.
    """
    through = bool(options.local_numbers and first.placeholders and last.placeholders)
    numerals = last.target if through else ""
    early = replace(options, prefix="", alternatives=0, local_numbers=through, numerals=numerals)
    return early, replace(options, local_numbers=options.local_numbers and not through)


def carry_over(result: TextResult, second: TextModel) -> str | MarkedText:
    """Carry the first model's answer over as the second's text; what stayed as it was stays so."""
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
    stages: Sequence[Stage], lines: Iterable[str | MarkedText], options: TextOptions
) -> Iterator[TextResult]:
    """Answer as `stream` does, through one model or two; two work at the same time, on different texts."""
    if len(stages) == 1:
        yield from stream(stages[0].engine, stages[0].text, lines, options)
        return
    first, last = stages
    plan(last.text, "", options)  # what the last model can't do is refused before the first has worked
    between: deque[TextResult] = deque()
    early, options = options_of(options, first.text, last.text)
    answers = stream(first.engine, first.text, lines, early)

    def pass_on() -> Iterator[str | MarkedText]:
        for answer in answers:
            between.append(answer)
            yield carry_over(answer, last.text)

    final = stream(last.engine, last.text, pass_on(), options)
    try:
        for answer in final:
            yield join_results(between.popleft(), answer)
    finally:
        final.close()
        answers.close()
