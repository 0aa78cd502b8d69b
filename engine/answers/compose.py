"""Results of the engine back to texts: sentences, what stays as it is, alternatives, alignment, trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from engine.answers.alignment import Alignment, make_alignments
from engine.answers.choices import Choice, choices
from engine.answers.formats import apply
from engine.answers.plan import Plan, Sentence
from engine.answers.quality import Coverage, Repetition, coverage, repetition
from engine.answers.text_model import TextModel
from engine.schedule.slices import Slices
from engine.text.placeables.masking import KeptSpan
from engine.types import NO_TIME, DecodeJob, Hypothesis, Result, Timings

NOTHING: Final[Mapping[int, list[Choice]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TextResult:
    """The answer to one text. A text without letters or digits is echoed: score 0, no tokens.

    alternatives: further texts, best first: text r joins the r-th best answer to each sentence (a sentence
        with fewer gives its best); texts seen before are left out.
    score: score of the single sentence's hypothesis; else the mean of several, weighted by target length with
        end-of-sentence.
    alternative_scores: scores of the alternatives, likewise.
    tokens, token_scores: the model's own pieces and natural-log probabilities, end-of-sentence of each
        sentence included.
    finish: "length" when any sentence was ended by its limit, else "stop".
    alignment: attention of each sentence that the model read, where it was asked for.
    truncated: whether only the beginning of the text was read.
    parts: number of parts that a text was cut into for its summary.
    rounds: number of times that the joined summaries of parts were summarized again.
    timings: times of the slowest sentence, field by field.
    source_tokens: number of tokens that the model read, with end-of-sentence.
    target_tokens: number of tokens that the model wrote, without end-of-sentence.
    coverage: attention on the words of each sentence that the model read, where it was asked for.
    repetition: repetition of the worst sentence.
    kept: places of protected phrases in `text`.
    forced: number of phrases in `text` that the model had lost or repeated, put back by force.
    model: name of the model.
    via: result of the first model of a pivot translation. All else is the second model's, but for timings
        (the sum), truncated, source_tokens, alignment and kept: they are about the source.
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
    forced: int = 0
    model: str = ""
    via: TextResult | None = None


def compose(
    model: TextModel, plan: Plan, results: Sequence[Result], ranked: Mapping[int, list[Choice]] = NOTHING
) -> Slices[TextResult]:
    """Compose the answer to a text, in slices of a sentence.

    model: the model that answered.
    plan: the text's plan.
    results: one of each job of the plan.
    ranked: what `choices` has listed of some of its sentences, by number.
    """
    ranking, options = [list[Choice]() for _ in plan.sentences], plan.options
    for place, result in zip(plan.places, results, strict=True):
        ranking[place] = ranked.get(place) or choices(model, plan, plan.sentences[place], result.hypotheses)
        yield
    pairs = [(s, c[0]) for s, c in zip(plan.sentences, ranking, strict=True) if c]
    first, *others = _rank_texts(model, plan, ranking)
    if not pairs:
        return TextResult(first.text, kept=first.kept, model=model.name)
    answer = TextResult(
        text=first.text,
        alternatives=[other.text for other in others],
        score=first.score,
        alternative_scores=[other.score for other in others],
        alignment=_alignments(model, plan, pairs, (plan.source, first.text)) if options.alignment else [],
        truncated=plan.truncated,
        parts=1 if model.task == "translate" else len(plan.sentences),
        timings=slowest([result.timings for result in results]),
        source_tokens=plan.tokens,
        coverage=[_coverage(model, plan, s, c) for s, c in pairs] if options.coverage else [],
        kept=first.kept,
        forced=first.forced,
        model=model.name,
    )
    return _with_targets(answer, model, [choice.hypothesis for _, choice in pairs])


def _with_targets(answer: TextResult, model: TextModel, best: Sequence[Hypothesis]) -> TextResult:
    """The answer with tokens, scores and ends of the best hypothesis of each sentence."""
    return replace(
        answer,
        tokens=[p for h in best for p in model.tokenizer.pieces([*h.tokens, model.eos], target=True)],
        token_scores=[score for h in best for score in h.token_scores],
        finish="length" if any(h.finish == "length" for h in best) else "stop",
        target_tokens=sum(len(h.tokens) for h in best),
        repetition=repetition([h.tokens for h in best]),
    )


def slowest(timings: Sequence[Timings]) -> Timings:
    """Take the maximum of each field."""
    return Timings(
        queue=max((t.queue for t in timings), default=0.0),
        encode=max((t.encode for t in timings), default=0.0),
        decode=max((t.decode for t in timings), default=0.0),
        steps=max((t.steps for t in timings), default=0),
    )


@dataclass(frozen=True, slots=True)
class Retry:
    """Sentences of one text that are decoded again.

    A sentence that lost or repeated a number gets placeholders; a sentence whose unknown words are to be
    replaced gets attention, so that not every sentence has to pay for it.

    plan: the plan of the text, with placeholders and attention where they are needed.
    places: positions of the sentences among the plan's jobs.
    results: of the plan before, one of each job.
    """

    plan: Plan
    places: Sequence[int]
    results: Sequence[Result]

    @property
    def jobs(self) -> list[DecodeJob]:
        """The jobs to be done again. Their texts have had their turn: such jobs go first and are never
        refused."""
        jobs = self.plan.jobs
        return [jobs[place] for place in self.places]

    def merge(self, again: Iterator[Result]) -> list[Result]:
        """Return the first results, with new ones for the jobs that were done again.

        again: the new results, in the order of `jobs`.

        The timings of a new result are the sum of both.
        """
        merged = list(self.results)
        for place in self.places:
            result = next(again)
            merged[place] = result._replace(timings=result.timings + merged[place].timings)
        return merged


def settle(model: TextModel, plan: Plan, results: Sequence[Result]) -> Slices[TextResult | Retry]:
    """Compose the answer to a text, or find the sentences that must be decoded again before: in slices of a
    sentence.

    model: the model that answered.
    plan: the plan of the text.
    results: one of each job of the plan.
    """
    garbles, unknown, ranked = list[int](), list[int](), dict[int, list[Choice]]()
    for job, (place, result) in enumerate(zip(plan.places, results, strict=True)):
        sentence = plan.sentences[place]
        if sentence.stricter:
            ranked[place] = choices(model, plan, sentence, result.hypotheses)
            yield
        if place in ranked and ranked[place][0].garbled:
            garbles.append(job)
        elif plan.options.replace_unk and any(
            h.attention is None and model.unk in h.tokens for h in result.hypotheses
        ):
            unknown.append(job)
    if not (garbles or unknown):
        return (yield from compose(model, plan, results, ranked))
    again = plan.stricter(garbles)
    return Retry(again.with_attention() if unknown else again, sorted((*garbles, *unknown)), results)


@dataclass(frozen=True, slots=True)
class _RankedText:
    """A whole text made of one answer to each sentence.

    kept: places of its phrases.
    forced: number of phrases that were put back by force.
    """

    text: str
    kept: list[KeptSpan]
    score: float
    forced: int = 0


def _rank_texts(model: TextModel, plan: Plan, ranking: list[list[Choice]]) -> list[_RankedText]:
    """Distinct texts, best first: text r joins the r-th best answer to each sentence."""
    ranked: dict[str, _RankedText] = {}
    for rank in range(max(map(len, ranking), default=0) or 1):
        row = [c[rank if rank < len(c) else 0] if c else None for c in ranking]
        texts, order = list[str](), list[int]()
        for choice, sentence in zip(row, plan.sentences, strict=True):
            texts.append(choice.text if choice else sentence.unread)
            order += choice.order if choice else sentence.phrases
        text, kept = plan.masked.restore(plan.layout.join(texts, model.between), order)
        pairs = [(s, c) for s, c in zip(plan.sentences, row, strict=True) if c]
        score, forced = _mean_score([c for _, c in pairs]), sum(c.forced for _, c in pairs)
        if plan.formats:
            every = list(zip(plan.sentences, row, strict=True))
            alignment = _alignments(model, plan, every, (plan.formats.segment.text, text))
            formatted = apply(plan.formats, text, alignment, kept, model.languages)
            text, kept, forced = formatted.text, formatted.kept, forced + formatted.forced
        else:
            kept = plan.masked.caller_spans(kept)
        ranked.setdefault(text, _RankedText(text, kept, score, forced))
    return list(ranked.values())


def _mean_score(row: Sequence[Choice]) -> float:
    """The mean of the scores, weighted by the length of the targets with end-of-sentence."""
    hypotheses = [choice.hypothesis for choice in row]
    if len(hypotheses) == 1:
        return hypotheses[0].score
    lengths = [len(h.token_scores) for h in hypotheses]
    return sum(h.score * n for h, n in zip(hypotheses, lengths, strict=True)) / (sum(lengths) or 1)


def _alignments(
    model: TextModel, plan: Plan, pairs: Sequence[tuple[Sentence, Choice | None]], texts: tuple[str, str]
) -> list[Alignment]:
    """Make alignments of the sentences that were read; phrases stand in the place of placeholders. A sentence
    with a fixed translation stems from it as a whole.

    texts: source and answer, where the places of pieces are looked for.
    """
    sources, targets, matrices = list[list[str]](), list[list[str]](), list[Any]()
    for sentence, choice in pairs:
        if choice is None and sentence.fixed:
            sources.append([sentence.text, ""])
            targets.append([sentence.fixed, ""])
            matrices.append(np.eye(2, dtype=np.float32))
        if choice is None:
            continue
        assert sentence.source
        shown = _symbol_texts(plan, sentence)
        tokenizer = model.placeholder_tokenizer if sentence.symbols else model.tokenizer
        pieces = tokenizer.pieces(sentence.source, target=False)
        sources.append([shown[piece][0] if piece in shown else piece for piece in pieces])
        targets.append([shown[piece][1] if piece in shown else piece for piece in choice.pieces])
        matrices.append(choice.attention)
    return make_alignments(*texts, sources, targets, matrices)


def _coverage(model: TextModel, plan: Plan, sentence: Sentence, choice: Choice) -> Coverage:
    """Words as they were written, where the tokenizer finds as many as white space does; else as it reads
    them."""
    assert sentence.source
    tokens = sentence.source[:-1]
    starts = model.tokenizer.words(tokens, target=False)
    words = plan.masked.spell(sentence.read, sentence.phrases, {}).split()
    if len(words) != len(starts):
        ends = [*starts[1:], len(tokens)]
        spans = zip(starts, ends, strict=True)
        words = [model.tokenizer.word(tokens[begin:end], target=False) for begin, end in spans]
    return coverage(choice.attention, words, starts)


def _symbol_texts(plan: Plan, sentence: Sentence) -> dict[str, tuple[str, str]]:
    """What each symbol of a sentence stands for, in the source and in the target."""
    phrases = ((symbol, plan.masked.phrases[number]) for number, symbol in sentence.symbols.items())
    return {symbol: (phrase.source, phrase.target) for symbol, phrase in phrases}
