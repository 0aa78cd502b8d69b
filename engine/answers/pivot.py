"""Translation through a third language: two models, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.compose import TextResult
from engine.engine import Engine
from engine.plan import TextModel, TextOptions, plan
from engine.stream import stream
from engine.text.protect import Marked


@dataclass(frozen=True, slots=True)
class Step:
    """A model at work."""

    engine: Engine
    text: TextModel


def first_options(options: TextOptions) -> TextOptions:
    """What of a request goes to the first model: no prefix and no alternatives, which are of the answer."""
    return replace(options, prefix="", alternatives=0)


def carried(result: TextResult, second: TextModel) -> str | Marked:
    """The first model's answer as the second's text; what stayed as it was stays so."""
    if not (result.kept and second.tokenizer.placeholders):
        return result.text
    spans = tuple((kept.begin, kept.end) for kept in result.kept if kept.begin < kept.end)
    return Marked(result.text, spans)


def joined(first: TextResult, second: TextResult) -> TextResult:
    """The second model's answer, with the first's in `via`."""
    return replace(
        second,
        model=f"{first.model}+{second.model}",
        via=first,
        truncated=first.truncated or second.truncated,
        source_tokens=first.source_tokens,
        timings=first.timings + second.timings,
    )


def stream_through(
    steps: Sequence[Step], lines: Iterable[str | Marked], options: TextOptions
) -> Iterator[TextResult]:
    """`stream` through one model or two; two work at the same time, on different texts."""
    if len(steps) == 1:
        yield from stream(steps[0].engine, steps[0].text, lines, options)
        return
    first, last = steps
    plan(last.text, "", options)  # what the last model can't do is refused before the first has worked
    between: deque[TextResult] = deque()
    answers = stream(first.engine, first.text, lines, first_options(options))

    def pass_on() -> Iterator[str | Marked]:
        for answer in answers:
            between.append(answer)
            yield carried(answer, last.text)

    final = stream(last.engine, last.text, pass_on(), options)
    try:
        for answer in final:
            yield joined(between.popleft(), answer)
    finally:
        final.close()
        answers.close()
