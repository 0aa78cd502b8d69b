"""Writes a translation with the text of its kept spans, in steps."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from documents.spans import Segment, weave

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]  # work that pauses after each small part

CLINGING: Final = " ,.;:!?)]"  # characters without white space before them


def finished(steps: Steps[T]) -> T:
    """Return the result of work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Restorer:
    """Rewrites a translation with the source text of kept spans, and with white space around spans as in the
    source.

    source, target: segments with the same spans.
    spans: result, each span at its characters in the new text.
    kept_texts: text of kept spans by number; default: their text in the source.
    parts, length, last: new text so far, its length and its last character.
    inside: a kept span is open; its translated text is omitted.
    glue: the next text needs a space before it.
    """

    def __init__(self, source: Segment, target: Segment, kept_texts: Mapping[int, str]) -> None:
        self.source, self.target, self.spans = source, target, list(target.spans)
        self.kept_texts = kept_texts
        self.parts, self.length, self.last = list[str](), 0, " "
        self.inside, self.glue = False, False

    def restored(self) -> Steps[Segment]:
        """Return the new text with its spans, in steps."""
        for kind, value in weave(self.target):
            if isinstance(value, str):
                self._append("" if self.inside else value)
            elif kind == "begin":
                self._begin(value)
            else:
                self.inside = False
                self.spans[value] = replace(self.spans[value], end=self.length)
            yield
        return Segment("".join(self.parts), tuple(self.spans))

    def _append(self, text: str) -> None:
        """Append text, with a space before it if `glue` is set and the text is no punctuation."""
        if text and self.glue and text[0] not in CLINGING:
            text = " " + text
        self.glue = self.glue and not text
        self.parts.append(text)
        self.length, self.last = self.length + len(text), text[-1:] or self.last

    def _begin(self, number: int) -> None:
        """Begin a span at the end of the new text; a kept span gets its text at once."""
        old, span = self.source.spans[number], self.spans[number]
        if (old.spaced or old.apart) and old.begin == old.end and span.begin == span.end:
            missing = old.apart if self.glue else old.spaced and not self.last.isspace()
            self.glue = False
            self._append(" " if missing else "")
            self.glue = old.spaced
            self.spans[number] = replace(span, begin=self.length)
        elif old.kept:
            self._keep(number)
        elif old.begin == old.end and span.begin == span.end and not old.line:
            self._add_space_before(number)
        else:
            if self.glue and span.begin < span.end and self.target.text[span.begin] not in CLINGING:
                self._append(" ")
            self.spans[number] = replace(span, begin=self.length)

    def _add_space_before(self, number: int) -> None:
        """Begin a point; white space before it in the source goes before it, unless words follow."""
        at, end = self.source.spans[number].begin, self.spans[number].end
        spaced = self.source.text[max(0, at - 1) : at].isspace()
        if spaced and not self.last.isspace() and self.target.text[end : end + 1] in CLINGING:
            self._append(" ")
        self.spans[number] = replace(self.spans[number], begin=self.length)

    def _keep(self, number: int) -> None:
        """Append the text of a kept span, and its white space in the source if the translation lost it."""
        text, old, span = self.source.text, self.source.spans[number], self.spans[number]
        lost = span.begin == span.end  # the translation has no text for the span
        if self.glue or (
            lost and text[max(0, old.begin - 1) : old.begin].isspace() and not self.last.isspace()
        ):
            self._append(" ")
        self.glue = False
        self.spans[number] = replace(span, begin=self.length)
        self._append(self.kept_texts.get(number, text[old.begin : old.end]))
        self.inside, self.glue = True, lost and text[old.end : old.end + 1].isspace()
