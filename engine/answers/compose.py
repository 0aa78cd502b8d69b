"""Results of the engine back to texts: sentences, what stays as it is, alternatives, alignment, trust."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from engine.answers.alignment import Alignment, make_alignments
from engine.answers.plan import Plan, Sentence
from engine.answers.quality import Coverage, Repetition, coverage, repetition
from engine.answers.text_model import TextModel
from engine.text.form import follow
from engine.text.mend import mend, whole
from engine.text.protect import KeptSpan
from engine.types import DecodeJob, Hypothesis, Result, Timings

NO_TIME: Final = Timings(0.0, 0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class TextResult:
    """The answer to one text.

    alternatives: rank by rank, sentence r-th bests joined (a sentence with fewer gives its best); texts seen
        before are left out.
    score: of a single sentence the hypothesis's own; of several their mean, weighted by target length with
        end-of-sentence.
    alternative_scores: likewise.
    tokens, token_scores: the model's own pieces and natural-log probabilities, end-of-sentence of each
        sentence included.
    finish: "length" when any sentence was ended by its limit, else "stop".
    alignment, coverage: one per sentence that the model read.
    parts, rounds: of a summary, into how many parts the text was cut, and how often what they gave was
        summarized again.
    timings: of the slowest sentence, field by field. source_tokens include end-of-sentence, target_tokens
        exclude it. A text without letters or digits is echoed: score 0, no tokens.
    repetition: of the worst sentence.
    kept: where protected phrases stand in `text`.
    model: whose answer it is.
    via: of a pivot translation, the first model's result; all else is the second model's, which has read
        via.text, but for timings (the sum), truncated, source_tokens, alignment and kept (of the source).
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
    parts: int = 1
    rounds: int = 0
    timings: Timings = NO_TIME
    source_tokens: int = 0
    target_tokens: int = 0
    coverage: list[Coverage] = field(default_factory=list)
    repetition: Repetition = Repetition()
    kept: list[KeptSpan] = field(default_factory=list)
    model: str = ""
    via: TextResult | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer to a sentence.

    text: with marks, which stand for the plan's phrases in `order`.
    pieces, attention: of the target as it is written, end-of-sentence included.
    """

    hypothesis: Hypothesis
    text: str
    order: tuple[int, ...]
    pieces: list[str]
    attention: Any


def compose(model: TextModel, plan: Plan, results: Sequence[Result]) -> TextResult:
    """Compose a text of results, one of each job."""
    waiting = iter(results)
    ranking = [choices(model, plan, s, next(waiting).hypotheses) if s.source else [] for s in plan.sentences]
    pairs = [(s, c[0]) for s, c in zip(plan.sentences, ranking, strict=True) if c]
    ranked = _rank_texts(model, plan, ranking)
    text, phrases, score = ranked[0]
    if not pairs:
        return TextResult(text, kept=phrases, model=model.name)
    best = [choice.hypothesis for _, choice in pairs]
    return TextResult(
        text=text,
        alternatives=[text for text, _, _ in ranked[1:]],
        score=score,
        alternative_scores=[score for _, _, score in ranked[1:]],
        tokens=[p for h in best for p in model.tokenizer.pieces([*h.tokens, model.eos], target=True)],
        token_scores=[score for h in best for score in h.token_scores],
        finish="length" if any(h.finish == "length" for h in best) else "stop",
        alignment=_alignments(model, plan, pairs, text) if plan.alignment else [],
        truncated=plan.truncated,
        parts=1 if model.task == "translate" else len(plan.sentences),
        timings=slowest([result.timings for result in results]),
        source_tokens=plan.tokens,
        target_tokens=sum(len(h.tokens) for h in best),
        coverage=[_coverage(model, plan, s, c) for s, c in pairs] if plan.coverage else [],
        repetition=repetition([h.tokens for h in best]),
        kept=phrases,
        model=model.name,
    )


def slowest(timings: Sequence[Timings]) -> Timings:
    """Take the maximum of each field."""
    return Timings(
        queue=max((t.queue for t in timings), default=0.0),
        encode=max((t.encode for t in timings), default=0.0),
        decode=max((t.decode for t in timings), default=0.0),
        steps=max((t.steps for t in timings), default=0),
    )


def choices(
    model: TextModel, plan: Plan, sentence: Sentence, hypotheses: Sequence[Hypothesis]
) -> list[Choice]:
    """List the answers to a sentence, best first: those that hold each phrase once, then those mended."""
    if not sentence.phrases:
        return [_choice(model, plan, sentence, h) for h in hypotheses]
    right, wrong = list[Choice](), list[Choice]()
    every, symbols = frozenset(model.placeholders), _required_placeholders(model, sentence)
    for h in hypotheses:
        good = whole(model.keeping.pieces(h.tokens, target=True), list(symbols), every)
        mended = (h.tokens, h.attention) if good else _mend_placeholders(model, h, symbols, every)
        choice = _choice(model, plan, sentence, h, *mended)
        (right if good and not is_garbled(plan, sentence, choice) else wrong).append(choice)
    return [*right, *wrong][: plan.decode.n_best]


@dataclass(frozen=True, slots=True)
class Retry:
    """Sentences of one text that are decoded again: those that lost a number, or repeat it, with
    placeholders; those whose unknown words are to be replaced, with attention, which all would pay for else.

    plan: the text's, with placeholders for all phrases of the first, and attention where it is needed.
    places: of the sentences among the plan's jobs.
    """

    plan: Plan
    places: Sequence[int]

    @property
    def jobs(self) -> list[DecodeJob]:
        """The jobs to be done again. They have had their turn: they go first and are never refused."""
        jobs = self.plan.jobs
        return [jobs[place] for place in self.places]

    def merge(self, results: Sequence[Result], again: Iterator[Result]) -> list[Result]:
        """Return the first results, those of the jobs replaced by the next of `again`.

        The timings of the new ones are of both.
        """
        merged = list(results)
        for place in self.places:
            result = next(again)
            merged[place] = replace(result, timings=result.timings + merged[place].timings)
        return merged


def retry_of(model: TextModel, plan: Plan, results: Sequence[Result]) -> Retry | None:
    """Find the sentences that must be decoded again; None where all is well."""
    garbles, unknown = list[int](), list[int]()
    for job, (place, result) in enumerate(zip(plan.places, results, strict=True)):
        sentence = plan.sentences[place]
        if sentence.strict and is_garbled(
            plan, sentence, choices(model, plan, sentence, result.hypotheses)[0]
        ):
            garbles.append(job)
        elif plan.replace_unk and any(
            h.attention is None and model.unk in h.tokens for h in result.hypotheses
        ):
            unknown.append(job)
    if not (garbles or unknown):
        return None
    again = plan.stricter(garbles)
    return Retry(again.with_attention() if unknown else again, sorted((*garbles, *unknown)))


def is_garbled(plan: Plan, sentence: Sentence, choice: Choice) -> bool:
    """Say whether an answer lacks a number that the model has read as it is, or repeats it."""
    spelled = [number for number in sentence.phrases if number not in sentence.symbols]
    return bool(sentence.strict) and plan.masked.garbles(choice.text, spelled)


def _required_placeholders(model: TextModel, sentence: Sentence) -> dict[str, int]:
    """The placeholders that a sentence must have, each with its position in the source; not those cut off."""
    assert sentence.source
    pieces = model.keeping.pieces(sentence.source, target=False)
    columns = {piece: i for i, piece in enumerate(pieces)}
    return {symbol: columns[symbol] for symbol in sentence.symbols.values() if symbol in columns}


def _choice(
    model: TextModel,
    plan: Plan,
    sentence: Sentence,
    hypothesis: Hypothesis,
    tokens: list[int] | None = None,
    attention: Any = None,
) -> Choice:
    """Make an answer of a hypothesis.

    tokens, attention: as they were mended, if they were.
    """
    if tokens is None:
        tokens, attention = hypothesis.tokens, hypothesis.attention
    order = list[int]()
    tokenizer = model.keeping if sentence.symbols else model.tokenizer
    if plan.replace_unk and attention is not None:
        text = tokenizer.replace_unknown(tokens, attention, sentence.text)
    else:
        text = tokenizer.decode(tokens)
    if plan.masked.mark:
        text = text.replace(plan.masked.mark, "")
    numbers = {symbol: number for number, symbol in sentence.symbols.items()}

    def hide(match: re.Match[str]) -> str:
        order.append(numbers[match.group()])
        return plan.masked.mark

    if numbers:
        text = re.sub("|".join(map(re.escape, numbers)), hide, text)
    if plan.follow_form:
        text = follow(sentence.text, text, model.languages)
    pieces = tokenizer.pieces([*tokens, model.eos], target=True)
    return Choice(hypothesis, text, tuple(order), pieces, attention)


def _mend_placeholders(
    model: TextModel, hypothesis: Hypothesis, columns: dict[str, int], symbols: frozenset[str]
) -> tuple[list[int], Any]:
    """Tokens and attention of a target in which each symbol of `columns` is there once."""
    tokenizer, tokens, rows = model.keeping, list(hypothesis.tokens), list(hypothesis.attention)
    pieces = tokenizer.pieces(tokens, target=True)
    words = tokenizer.words(tokens, target=True)
    for edit in mend(pieces, columns, symbols, hypothesis.attention, words):
        new = tokenizer.encode_target(edit.symbol) if edit.symbol else []
        new = new[-1:] if edit.remove else new  # in the place of another, the space before it stays
        end = edit.at + edit.remove
        tokens[edit.at : end] = new
        there = np.zeros_like(hypothesis.attention[0])
        there[columns.get(edit.symbol or "", 0)] = 1
        rows[edit.at : end] = [there] * len(new)
    return tokens, np.stack(rows)


def _rank_texts(
    model: TextModel, plan: Plan, ranking: list[list[Choice]]
) -> list[tuple[str, list[KeptSpan], float]]:
    """Distinct texts, each with where its phrases stand and its score, best first."""
    ranked: dict[str, tuple[str, list[KeptSpan], float]] = {}
    for rank in range(max((len(choices) for choices in ranking), default=0) or 1):
        row = [c[rank if rank < len(c) else 0] if c else None for c in ranking]
        texts, order = list[str](), list[int]()
        for choice, sentence in zip(row, plan.sentences, strict=True):
            texts.append(choice.text if choice else sentence.text)
            order += choice.order if choice else sentence.phrases
        scored = [(c.hypothesis.score, len(c.hypothesis.token_scores)) for c in row if c]
        total = sum(length for _, length in scored) or 1
        mean = scored[0][0] if len(scored) == 1 else sum(s * n for s, n in scored) / total
        text, phrases = plan.masked.restore(plan.layout.join(texts, model.between), order)
        ranked.setdefault(text, (text, phrases, mean))
    return list(ranked.values())


def _alignments(
    model: TextModel, plan: Plan, pairs: Sequence[tuple[Sentence, Choice]], text: str
) -> list[Alignment]:
    """Make alignments of what was read; placeholders are shown as what they stand for.

    text: the answer.
    """
    sources, targets = list[list[str]](), list[list[str]]()
    for sentence, choice in pairs:
        assert sentence.source
        shown = _symbol_texts(plan, sentence)
        tokenizer = model.keeping if sentence.symbols else model.tokenizer
        pieces = tokenizer.pieces(sentence.source, target=False)
        sources.append([shown[piece][0] if piece in shown else piece for piece in pieces])
        targets.append([shown[piece][1] if piece in shown else piece for piece in choice.pieces])
    return make_alignments(
        plan.masked.original, text, sources, targets, [choice.attention for _, choice in pairs]
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


def _symbol_texts(plan: Plan, sentence: Sentence) -> dict[str, tuple[str, str]]:
    """What each symbol of a sentence stands for, in the source and in the target."""
    phrases = ((symbol, plan.masked.phrases[number]) for number, symbol in sentence.symbols.items())
    return {symbol: (phrase.source, phrase.target) for symbol, phrase in phrases}
