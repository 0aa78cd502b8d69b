"""Results of the engine back to texts: sentences, what stays as it is, alternatives, alignment, trust."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from engine.plan import Plan, Sentence, TextModel
from engine.text.protect import Kept, mend, whole
from engine.trust import Coverage, Repetition, coverage, repetition
from engine.types import Hypothesis, Result, Timings

NO_TIME: Final = Timings(0.0, 0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Cross-attention of one sentence: matrix is float32 [len(target), len(source)], rows sum to 1. source
    and target are vocabulary pieces, each ending with end-of-sentence; a protected phrase is one piece."""

    source: list[str]
    target: list[str]
    matrix: Any


@dataclass(frozen=True, slots=True)
class TextResult:
    """The answer to one text.

    score: of a single sentence the hypothesis's own; of several their mean, weighted by target length with
    end-of-sentence. alternatives: rank by rank, sentence r-th bests joined (a sentence with fewer gives its
    best); texts seen before are left out. alternative_scores: likewise. tokens, token_scores: the model's own
    pieces and natural-log probabilities, end-of-sentence of each sentence included. finish: "length" when any
    sentence was ended by its limit, else "stop". alignment, coverage: one per sentence that the model read.
    repetition: of the worst sentence. kept: where protected phrases stand in `text`. timings: of the
    slowest sentence, field by field. source_tokens include end-of-sentence, target_tokens exclude it.
    A text without letters or digits is echoed: score 0, no tokens.

    model: whose answer it is. via: of a pivot translation, the first model's result; all else is the second
    model's, which has read via.text, but for timings (the sum), truncated and source_tokens.
    """

    text: str
    alternatives: list[str] = field(default_factory=list)
    score: float = 0.0
    alternative_scores: list[float] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    token_scores: list[float] = field(default_factory=list)
    finish: str = "stop"
    alignment: list[Alignment] = field(default_factory=list)
    truncated: bool = False
    timings: Timings = NO_TIME
    source_tokens: int = 0
    target_tokens: int = 0
    coverage: list[Coverage] = field(default_factory=list)
    repetition: Repetition = Repetition()
    kept: list[Kept] = field(default_factory=list)
    model: str = ""
    via: TextResult | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer to a sentence. text: with marks, which stand for the plan's phrases in `order`. pieces,
    attention: of the target as it is written, end-of-sentence included."""

    hypothesis: Hypothesis
    text: str
    order: tuple[int, ...]
    pieces: list[str]
    attention: Any


def compose(model: TextModel, plan: Plan, results: Sequence[Result]) -> TextResult:
    """Results, one of each job, back to a text."""
    waiting = iter(results)
    found = [choices(model, plan, s, next(waiting).hypotheses) if s.source else [] for s in plan.sentences]
    read = [(s, c[0]) for s, c in zip(plan.sentences, found, strict=True) if c]
    ranked = _ranked(model, plan, found)
    text, kept, score = ranked[0]
    if not read:
        return TextResult(text, kept=kept, model=model.name)
    best = [choice.hypothesis for _, choice in read]
    return TextResult(
        text=text,
        alternatives=[text for text, _, _ in ranked[1:]],
        score=score,
        alternative_scores=[score for _, _, score in ranked[1:]],
        tokens=[p for h in best for p in model.tokenizer.pieces([*h.tokens, model.eos], target=True)],
        token_scores=[score for h in best for score in h.token_scores],
        finish="length" if any(h.finish == "length" for h in best) else "stop",
        alignment=[_alignment(model, plan, s, c) for s, c in read] if plan.alignment else [],
        truncated=plan.truncated,
        timings=slowest([result.timings for result in results]),
        source_tokens=plan.tokens,
        target_tokens=sum(len(h.tokens) for h in best),
        coverage=[_coverage(model, plan, s, c) for s, c in read] if plan.coverage else [],
        repetition=repetition([h.tokens for h in best]),
        kept=kept,
        model=model.name,
    )


def slowest(timings: Sequence[Timings]) -> Timings:
    """The maximum of each field."""
    return Timings(
        queue=max((t.queue for t in timings), default=0.0),
        encode=max((t.encode for t in timings), default=0.0),
        decode=max((t.decode for t in timings), default=0.0),
        steps=max((t.steps for t in timings), default=0),
    )


def choices(model: TextModel, plan: Plan, sentence: Sentence, found: Sequence[Hypothesis]) -> list[Choice]:
    """Answers to a sentence, best first: those that hold each phrase once come before those mended."""
    if not sentence.phrases:
        return [_choice(model, plan, sentence, h) for h in found]
    right, wrong = list[Choice](), list[Choice]()
    every, wanted = frozenset(model.tokenizer.placeholders), _wanted(model, sentence)
    for h in found:
        good = whole(model.tokenizer.pieces(h.tokens, target=True), list(wanted), every)
        mended = (h.tokens, h.attention) if good else _mended(model, h, wanted, every)
        choice = _choice(model, plan, sentence, h, *mended)
        (right if good and not lost(plan, sentence, choice) else wrong).append(choice)
    return [*right, *wrong][: plan.decode.n_best]


def doubtful(model: TextModel, plan: Plan, results: Sequence[Result]) -> list[int]:
    """The jobs whose answer lacks a number, or repeats it: decode them again, with placeholders."""
    found = []
    for job, (place, result) in enumerate(zip(plan.places, results, strict=True)):
        sentence = plan.sentences[place]
        if sentence.strict and lost(plan, sentence, choices(model, plan, sentence, result.hypotheses)[0]):
            found.append(job)
    return found


def lost(plan: Plan, sentence: Sentence, choice: Choice) -> bool:
    """Whether an answer lacks a number that the model has read as it is, or repeats it."""
    spelled = [number for number in sentence.phrases if number not in sentence.symbols]
    return bool(sentence.strict) and plan.masked.lost(choice.text, spelled)


def merged(results: Sequence[Result], jobs: Sequence[int], again: Sequence[Result]) -> list[Result]:
    """Results with those of some jobs replaced; their timings are of both."""
    found = list(results)
    for job, result in zip(jobs, again, strict=True):
        found[job] = replace(result, timings=result.timings + found[job].timings)
    return found


def _wanted(model: TextModel, sentence: Sentence) -> dict[str, int]:
    """The placeholders that a sentence must have, each with its position in the source; not those cut off."""
    assert sentence.source
    pieces = model.tokenizer.pieces(sentence.source, target=False)
    columns = {piece: i for i, piece in enumerate(pieces)}
    return {symbol: columns[symbol] for symbol in sentence.symbols.values() if symbol in columns}


def _choice(
    model: TextModel,
    plan: Plan,
    sentence: Sentence,
    found: Hypothesis,
    tokens: list[int] | None = None,
    attention: Any = None,
) -> Choice:
    """tokens, attention: as they were mended, if they were."""
    if tokens is None:
        tokens, attention = found.tokens, found.attention
    order = list[int]()
    if plan.replace_unk:
        text = model.tokenizer.replaced(tokens, attention, sentence.text)
    else:
        text = model.tokenizer.decode(tokens)
    if plan.masked.mark:
        text = text.replace(plan.masked.mark, "")
    numbers = {symbol: number for number, symbol in sentence.symbols.items()}

    def hide(match: re.Match[str]) -> str:
        order.append(numbers[match.group()])
        return plan.masked.mark

    if numbers:
        text = re.sub("|".join(map(re.escape, numbers)), hide, text)
    pieces = model.tokenizer.pieces([*tokens, model.eos], target=True)
    return Choice(found, text, tuple(order), pieces, attention)


def _mended(
    model: TextModel, found: Hypothesis, wanted: dict[str, int], symbols: frozenset[str]
) -> tuple[list[int], Any]:
    """Tokens and attention of a target in which each wanted symbol is there once."""
    tokenizer, tokens, rows = model.tokenizer, list(found.tokens), list(found.attention)
    pieces = tokenizer.pieces(tokens, target=True)
    words = tokenizer.words(tokens, target=True)
    for edit in mend(pieces, wanted, symbols, found.attention, words):
        new = tokenizer.encode_target(edit.symbol) if edit.symbol else []
        new = new[-1:] if edit.remove else new  # in the place of another, the space before it stays
        end = edit.at + edit.remove
        tokens[edit.at : end] = new
        there = np.zeros_like(found.attention[0])
        there[wanted.get(edit.symbol or "", 0)] = 1
        rows[edit.at : end] = [there] * len(new)
    return tokens, np.stack(rows)


def _ranked(model: TextModel, plan: Plan, found: list[list[Choice]]) -> list[tuple[str, list[Kept], float]]:
    """Distinct texts, each with where its phrases stand and its score, best first."""
    ranked: dict[str, tuple[str, list[Kept], float]] = {}
    for rank in range(max((len(choices) for choices in found), default=0) or 1):
        chosen = [c[rank if rank < len(c) else 0] if c else None for c in found]
        texts, order = list[str](), list[int]()
        for choice, sentence in zip(chosen, plan.sentences, strict=True):
            texts.append(choice.text if choice else sentence.text)
            order += choice.order if choice else sentence.phrases
        scored = [(c.hypothesis.score, len(c.hypothesis.token_scores)) for c in chosen if c]
        total = sum(length for _, length in scored) or 1
        mean = scored[0][0] if len(scored) == 1 else sum(s * n for s, n in scored) / total
        text, kept = plan.masked.restore(plan.layout.join(texts, model.between), order)
        ranked.setdefault(text, (text, kept, mean))
    return list(ranked.values())


def _alignment(model: TextModel, plan: Plan, sentence: Sentence, choice: Choice) -> Alignment:
    """Placeholders are shown as what they stand for."""
    assert sentence.source
    shown = _shown(plan, sentence)
    source = model.tokenizer.pieces(sentence.source, target=False)
    return Alignment(
        [shown[piece][0] if piece in shown else piece for piece in source],
        [shown[piece][1] if piece in shown else piece for piece in choice.pieces],
        choice.attention,
    )


def _coverage(model: TextModel, plan: Plan, sentence: Sentence, choice: Choice) -> Coverage:
    """Words as they were written, where the tokenizer finds as many as white space does; else as it reads
    them."""
    assert sentence.source
    tokens = sentence.source[:-1]
    starts = model.tokenizer.words(tokens, target=False)
    words = plan.masked.spell(sentence.text, sentence.phrases, {}).split()
    if len(words) != len(starts):
        ends = [*starts[1:], len(tokens)]
        spans = zip(starts, ends, strict=True)
        words = [model.tokenizer.word(tokens[begin:end], target=False) for begin, end in spans]
    return coverage(choice.attention, words, starts)


def _shown(plan: Plan, sentence: Sentence) -> dict[str, tuple[str, str]]:
    """What each symbol of a sentence stands for, in the source and in the target."""
    found = ((symbol, plan.masked.phrases[number]) for number, symbol in sentence.symbols.items())
    return {symbol: (phrase.source, phrase.target) for symbol, phrase in found}
