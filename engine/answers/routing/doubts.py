"""Reasons for doubt of a model's answers to the sentences of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.answers.choices import Choice, choices
from engine.answers.compose import coverage_of
from engine.answers.plan import Plan
from engine.answers.quality import repetition
from engine.answers.sentence import Sentence
from engine.answers.text_model import TextModel
from engine.schedule.slices import Slices, each
from engine.text.detect import surely_other
from engine.types import Result

UNSCORED: Final = -float("inf")  # score of a sentence that is in doubt for another reason


@dataclass(frozen=True, slots=True)
class Doubts:
    """Limits beyond which an answer to a sentence is in doubt.

    A loop, an answer that the limit of the length ended, a lost phrase that was put back by force and an
    answer in another language are always in doubt.

    score: least mean log-probability of a token.
    repeated: largest share of repeated 4-grams.
    missed: largest share of the source's words that the answer lacks; None: not measured. The measure needs
        attention, which slows down each step.
    """

    score: float
    repeated: float = 0.5
    missed: float | None = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """An answer in doubt: its reason, and its score; the least score is the greatest doubt."""

    reason: str
    score: float


def find_doubts_each(
    model: TextModel,
    pairs: Sequence[tuple[Plan, list[Result]]],
    limits: Doubts,
    languages: Sequence[str],
) -> Slices[list[dict[int, Doubt]]]:
    """Return the doubts about the answers to each text, in slices of a sentence.

    model: model that answered.
    pairs: plan of each text with the results of its jobs.
    limits: limits of the answers.
    languages: codes of the languages that answers are compared with.
    """
    return (yield from each(find_doubts(model, *pair, limits, languages) for pair in pairs))


def find_doubts(
    model: TextModel, plan: Plan, results: Sequence[Result], limits: Doubts, languages: Sequence[str]
) -> Slices[dict[int, Doubt]]:
    """Return the doubts about the answers to the sentences of a text, by number of the sentence.

    model: model that answered.
    plan: plan of the text.
    results: result of each job of the plan.
    limits: limits of the answers.
    languages: codes of the languages that answers are compared with.
    """
    doubts = dict[int, Doubt]()
    for number, result in zip(plan.job_sentences, results, strict=True):
        sentence = plan.sentences[number]
        (best, *_) = choices(model, plan, sentence, result.hypotheses)
        yield
        score, reason = best.hypothesis.score, _certain_fault(model, plan, sentence, best, limits)
        if not reason and surely_other(best.text, model.target, languages):
            reason = "language"
        yield
        if reason:
            doubts[number] = Doubt(reason, UNSCORED)
        elif score < limits.score:
            doubts[number] = Doubt("score", score)
    return doubts


def _certain_fault(model: TextModel, plan: Plan, sentence: Sentence, best: Choice, limits: Doubts) -> str:
    """Return the fault of an answer that no score makes up for, "" if it has none."""
    repeats = repetition([best.hypothesis.tokens])
    if repeats.loop or repeats.share > limits.repeated:
        return "repetition"
    if best.hypothesis.finish == "length":
        return "length"
    if best.forced or best.garbled:
        return "phrases"
    if limits.missed is not None and best.attention is not None:
        covered = coverage_of(model, plan, sentence, best)
        if len(covered.missed) > limits.missed * len(covered.words):
            return "coverage"
    return ""
