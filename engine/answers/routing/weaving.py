"""Answers of a second model in the places of sentences of a first model's plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.answers.alignment import by_words, diagonal
from engine.answers.choices import Choice, Origin
from engine.answers.compose import TextResult, compose
from engine.answers.plan import Plan
from engine.answers.text_model import TextModel
from engine.schedule.slices import Slices, each
from engine.text.placeables.masked_text import MarkedText
from engine.types import Hypothesis, Result


def spell(plan: Plan, number: int) -> tuple[MarkedText, list[int]]:
    """Return a sentence as the second model reads it, and the number of the phrase of each span.

    plan: plan of the text.
    number: number of the sentence.

    Spans are the phrases with spans of the caller: the second model finds other phrases itself.
    """
    sentence, masked = plan.sentences[number], plan.masked
    if not sentence.phrases:
        return MarkedText(sentence.text), []
    first, *rest = sentence.text.split(masked.mark)
    text, spans, kept = first, list[tuple[int, int]](), list[int]()
    for phrase, part in zip(sentence.phrases, rest, strict=True):
        source = masked.phrases[phrase].source
        if masked.phrases[phrase].spans:
            spans.append((len(text), len(text) + len(source)))
            kept.append(phrase)
        text += source + part
    return MarkedText(text, tuple(spans)), kept


def choice_of(model: TextModel, plan: Plan, number: int, result: TextResult) -> Choice | None:
    """Return the second model's answer to a sentence as a choice; None if it lost or repeated a span.

    model: first model.
    plan: plan of the text.
    number: number of the sentence.
    result: answer of the second model.
    """
    source, phrases = spell(plan, number)
    kept = sorted((place for place in result.kept if place.span >= 0), key=lambda place: place.begin)
    if sorted(place.span for place in kept) != list(range(len(phrases))):
        return None
    mark, parts, end = plan.masked.mark, list[str](), 0
    for place in kept:
        parts.append(result.text[end : place.begin].replace(mark, ""))
        end = place.end
    parts.append(result.text[end:].replace(mark, "") if mark else result.text[end:])
    text, sentence = mark.join(parts), plan.sentences[number]
    if sentence.clause:
        text = sentence.formed(text, plan.options, model.languages)
    known = dict[str, int]()  # number of each piece, which repetition is measured by
    pieces = result.tokens
    tokens = [known.setdefault(piece, len(known)) for piece in pieces[:-1]]
    sources, targets, matrix = _joined_alignment(source.text, result)
    hypothesis = Hypothesis(tokens, result.score, result.token_scores, result.finish, matrix)
    origin = Origin(result.model, sources, targets, result.coverage)
    order = tuple(phrases[place.span] for place in kept)
    return Choice(hypothesis, text, order, pieces, matrix, forced=result.forced, origin=origin)


def _joined_alignment(source: str, result: TextResult) -> tuple[list[str], list[str], Any]:
    """Return the pieces and the joined alignment of an answer, or an alignment by words if there is none."""
    if not result.alignment:
        return by_words(source, result.text)
    *firsts, last = result.alignment
    blocks = [(one.source[:-1], one.target[:-1], np.asarray(one.matrix)[:-1, :-1]) for one in firsts]
    blocks.append((last.source, last.target, np.asarray(last.matrix)))
    sources, targets = ([piece for block in blocks for piece in block[side]] for side in (0, 1))
    return sources, targets, diagonal([matrix for _, _, matrix in blocks]).astype(np.float32)


def compose_each(
    model: TextModel, parts: Sequence[tuple[Plan, list[Result], dict[int, list[Choice]]]]
) -> Slices[list[TextResult]]:
    """Return the answer of `compose` for each plan, in slices.

    model: first model.
    parts: plan of each text, the results of its jobs, and the second model's answers.
    """
    return (yield from each(compose(model, *part) for part in parts))
