"""Composes answers from results: sentences, phrases, alternatives, alignment and quality."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from engine.answers.alignment import Alignment, by_words, make_alignments
from engine.answers.choices import Choice, choices
from engine.answers.formats import apply
from engine.answers.numbering import without_digits
from engine.answers.plan import Plan
from engine.answers.quality import Coverage, Repetition, coverage, repetition
from engine.answers.sentence import Sentence
from engine.answers.text_model import TextModel
from engine.schedule.slices import Slices, at_once
from engine.text.languages import rules_of
from engine.text.placeables.masked_text import KeptSpan
from engine.text.wrapping import ONE_LINE, Wrapping
from engine.types import DOUBTFUL, NO_TIME, DecodeJob, Result, Timings

NOTHING: Final[Mapping[int, list[Choice]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SentenceVia:
    """The origin of the answer to a sentence, with routing by confidence.

    model: name of the model that gave the answer.
    doubt: reason for doubt of the first model's answer: score, coverage, repetition, language, phrases or
        length; "": there is none.
    refused: reason for the first model's answer in spite of a doubt: budget or failed; "": there is none.
    """

    model: str
    doubt: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class TextResult:
    """The answer to one text. A text without letters or digits is echoed: score 0, no tokens.

    alternatives: further distinct texts, best first: text r joins the r-th best answer to each sentence, or
        the best answer if a sentence has fewer.
    score: mean score of the sentences, weighted by target length with end-of-sentence.
    alternative_scores: score of each alternative.
    tokens, token_scores: target pieces and natural-log probabilities, end-of-sentence of each sentence
        included.
    finish: "length" if the limit ended any sentence, otherwise "stop".
    alignment: attention of each sentence that the model read, or alignment of its fixed translation, if
        requested.
    truncated: whether only the beginning of the text was read.
    parts: number of parts of a text that was too long for one summary.
    rounds: number of times that the joined summaries of parts were summarized again.
    timings: maximum of each field over the sentences.
    source_tokens: number of tokens that the model read, end-of-sentence included.
    target_tokens: number of tokens that the model wrote, without end-of-sentence.
    coverage: attention on the words of each sentence that the model read, if requested.
    repetition: repetition of the worst sentence.
    kept: places of protected phrases in `text`.
    forced: number of phrases in `text` that the model had lost or repeated, put back by force.
    model: name of the model.
    doubtful: number of answers of an upstream in `text` that have faults.
    instead_of: route that was asked first, if its upstream gave no good answer.
    next_lines: lines into which the answer of the next model is wrapped.
    via: result of the first model of a pivot translation. Timings are then the sum of both models, and
        truncated, source_tokens, alignment and kept describe the source; the rest is the second model's.
    sentences: origin of the answer to each sentence that a model read, with routing by confidence.
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
    doubtful: int = 0
    instead_of: str = ""
    next_lines: Wrapping = ONE_LINE
    via: TextResult | None = None
    sentences: list[SentenceVia] = field(default_factory=list)

    @property
    def provisional(self) -> bool:
        """Whether another model may give a better answer later: an upstream, or the one for doubts."""
        refused = any(sentence.refused for sentence in self.sentences)
        return bool(self.doubtful or self.instead_of or refused)


def compose(
    model: TextModel, plan: Plan, results: Sequence[Result], ranked: Mapping[int, list[Choice]] = NOTHING
) -> Slices[TextResult]:
    """Compose the answer to a text, in slices of a sentence.

    model: model that answered.
    plan: plan of the text.
    results: result of each job of the plan.
    ranked: results of `choices` for some sentences, by number of the sentence.
    """
    ranking, options = [list[Choice]() for _ in plan.sentences], plan.options
    for number, result in zip(plan.job_sentences, results, strict=True):
        sentence = plan.sentences[number]
        ranking[number] = ranked.get(number) or choices(model, plan, sentence, result.hypotheses)
        yield
    best = [(s, c[0] if c else None) for s, c in zip(plan.sentences, ranking, strict=True)]
    pairs = [(s, c) for s, c in best if c]
    first, *others = yield from _rank_texts(model, plan, ranking)
    alignment = list[Alignment]()
    if options.alignment:
        alignment = yield from _alignments(model, plan, best, (plan.source, first.text))
    if not pairs:
        return TextResult(
            first.text, kept=first.kept, alignment=alignment, model=model.name, next_lines=plan.next_lines
        )
    covered = yield from _coverages(model, plan, pairs)
    answer = TextResult(
        text=first.text,
        alternatives=[other.text for other in others],
        score=first.score,
        alternative_scores=[other.score for other in others],
        alignment=alignment,
        truncated=plan.truncated,
        parts=1 if model.task == "translate" else len(plan.sentences),
        timings=slowest([result.timings for result in results]),
        source_tokens=plan.tokens,
        coverage=covered,
        kept=first.kept,
        forced=first.forced,
        model=model.name,
        next_lines=plan.next_lines,
    )
    return _with_targets(answer, model, [choice for _, choice in pairs])


def _with_targets(answer: TextResult, model: TextModel, chosen: Sequence[Choice]) -> TextResult:
    """Add tokens, scores and ends of the best answer to each sentence to an answer."""
    best = [choice.hypothesis for choice in chosen]
    if model.remote:  # its tokens are characters without scores
        doubtful = sum(h.finish == DOUBTFUL for h in best)
        return replace(answer, target_tokens=sum(len(h.tokens) for h in best), doubtful=doubtful)
    return replace(
        answer,
        tokens=[piece for choice in chosen for piece in _pieces(model, choice)],
        token_scores=[score for h in best for score in h.token_scores],
        finish="length" if any(h.finish == "length" for h in best) else "stop",
        target_tokens=sum(len(h.tokens) for h in best),
        repetition=repetition([h.tokens for h in best]),
    )


def _pieces(model: TextModel, choice: Choice) -> list[str]:
    """Return the pieces of an answer, end-of-sentence included."""
    tokens = [*choice.hypothesis.tokens, model.eos]
    return choice.pieces if choice.origin else model.tokenizer.pieces(tokens, target=True)


def slowest(timings: Sequence[Timings]) -> Timings:
    """Return the maximum of each field."""
    return Timings(
        queue=max((t.queue for t in timings), default=0.0),
        encode=max((t.encode for t in timings), default=0.0),
        decode=max((t.decode for t in timings), default=0.0),
        steps=max((t.steps for t in timings), default=0),
    )


@dataclass(frozen=True, slots=True)
class Retry:
    """Sentences of one text that are decoded again.

    A sentence with a garbled answer is decoded in its fallback form, and one with wrong numbers without
    their digits. A sentence with unknown words to replace
    is decoded with attention, which slows down steps and is therefore left out at first.

    plan: new plan of the text.
    job_numbers: indexes of these sentences among the plan's jobs.
    results: results of the previous plan, one for each job.
    """

    plan: Plan
    job_numbers: Sequence[int]
    results: Sequence[Result]

    @property
    def jobs(self) -> list[DecodeJob]:
        """Jobs to decode again, as a follow-up (`Engine.submit`)."""
        return at_once(self.job_slices())

    def job_slices(self) -> Slices[list[DecodeJob]]:
        """Return the same jobs, in slices of a job."""
        return self.plan.job_slices(self.job_numbers)

    def merge(self, new: Iterator[Result]) -> list[Result]:
        """Return the results of all jobs, with new results for the jobs that were decoded again.

        new: results of `jobs`, in their order. Their timings are added to the timings of
            the old results.
        """
        merged = list(self.results)
        for job in self.job_numbers:
            result = next(new)
            merged[job] = result._replace(timings=result.timings + merged[job].timings)
        return merged


def settle(model: TextModel, plan: Plan, results: Sequence[Result]) -> Slices[TextResult | Retry]:
    """Compose the answer to a text, or return the sentences to decode again; in slices of a sentence.

    model: model that answered.
    plan: plan of the text.
    results: result of each job of the plan.
    """
    jobs, unknown, ranked = list[int](), False, dict[int, list[Choice]]()
    others = dict[int, Sentence]()  # next form of each sentence with a wrong answer
    for job, (number, result) in enumerate(zip(plan.job_sentences, results, strict=True)):
        sentence = plan.sentences[number]
        if sentence.fallback or plan.options.protect:
            ranked[number] = choices(model, plan, sentence, result.hypotheses)
            yield
        best = ranked[number][0] if number in ranked else None
        if best and best.garbled:
            others[number] = plan.fallen_back(model, sentence)
        elif best and best.misnumbered:
            others[number] = without_digits(model, plan, sentence, result.hypotheses)
        elif plan.options.replace_unk and any(
            h.attention is None and model.unk in h.tokens for h in result.hypotheses
        ):
            unknown = True
        else:
            continue
        jobs.append(job)
    if not jobs:
        return (yield from compose(model, plan, results, ranked))
    new = plan.with_sentences(others)
    return Retry(new.with_attention() if unknown else new, jobs, results)


@dataclass(frozen=True, slots=True)
class _RankedText:
    """A text made of one answer to each sentence.

    kept: places of protected phrases.
    forced: number of phrases that were put back by force.
    """

    text: str
    kept: list[KeptSpan]
    score: float
    forced: int = 0


def _rank_texts(model: TextModel, plan: Plan, ranking: list[list[Choice]]) -> Slices[list[_RankedText]]:
    """List distinct texts, best first, in slices: text r joins the r-th best answer to each sentence."""
    ranked: dict[str, _RankedText] = {}
    for rank in range(max(map(len, ranking), default=0) or 1):
        # answers of this rank; None for a sentence that the model did not read
        row = [c[rank if rank < len(c) else 0] if c else None for c in ranking]
        texts, order = list[str](), list[int]()
        for choice, sentence in zip(row, plan.sentences, strict=True):
            texts.append(choice.text if choice else sentence.unread)
            order += choice.order if choice else sentence.phrases
        text, kept = plan.masked.restore(plan.layout.join(texts, model.space), order)
        pairs = [(s, c) for s, c in zip(plan.sentences, row, strict=True) if c]
        score, forced = _mean_score([c for _, c in pairs]), sum(c.forced for _, c in pairs)
        if plan.formats:
            alignment = yield from _alignments(
                model, plan, list(zip(plan.sentences, row, strict=True)), (plan.formats.segment.text, text)
            )
            places = kept if model.placeholders else ()  # otherwise only borders are masked
            formatted = yield from apply(plan.formats, text, alignment, places, model.languages)
            text, kept, forced = formatted.text, formatted.kept, forced + formatted.forced
        else:
            kept = plan.masked.caller_spans(kept)
        text, kept = _wrapped(plan.lines, text, kept)
        ranked.setdefault(text, _RankedText(text, kept, score, forced))
    return list(ranked.values())


def _wrapped(lines: Wrapping, text: str, kept: list[KeptSpan]) -> tuple[str, list[KeptSpan]]:
    """Return an answer in the lines of its source, and the spans at their places in it."""
    if not lines.widths:
        return text, kept
    moved = partial(lines.moved, lines.breaks(text))
    return lines.wrap(text), [replace(s, begin=moved(s.begin), end=moved(s.end)) for s in kept]


def _mean_score(row: Sequence[Choice]) -> float:
    """Return the mean score, weighted by the length of the targets with end-of-sentence."""
    hypotheses = [choice.hypothesis for choice in row]
    if len(hypotheses) == 1:
        return hypotheses[0].score
    lengths = [len(h.token_scores) for h in hypotheses]
    return sum(h.score * n for h, n in zip(hypotheses, lengths, strict=True)) / (sum(lengths) or 1)


def _alignments(
    model: TextModel, plan: Plan, pairs: Sequence[tuple[Sentence, Choice | None]], texts: tuple[str, str]
) -> Slices[list[Alignment]]:
    """Make alignments of sentences, in slices, with phrases for placeholders; an echoed sentence has none.

    pairs: sentences, each with its answer; None: the model did not read it.
    texts: source and answer, in which the pieces are located.
    """
    pairs = [(sentence, choice) for sentence, choice in pairs if choice or sentence.fixed]
    sources, targets, matrices = list[list[str]](), list[list[str]](), list[Any]()
    for sentence, choice in pairs:
        yield
        source, target, matrix = _aligned_pieces(model, plan, sentence, choice)
        sources.append(source)
        targets.append(target)
        matrices.append(matrix)
    alignments = yield from make_alignments(*texts, sources, targets, matrices)
    return [
        replace(alignment, fixed=model.remote or not choice)
        for alignment, (_, choice) in zip(alignments, pairs, strict=True)
    ]


def _aligned_pieces(
    model: TextModel, plan: Plan, sentence: Sentence, choice: Choice | None
) -> tuple[list[str], list[str], Any]:
    """Return the pieces of a sentence and its answer, and their alignment.

    choice: answer; None: the sentence has a fixed translation, which is aligned by words.
    """
    if choice is None or model.remote:
        written = plan.masked.restore(choice.text, choice.order)[0] if choice else sentence.fixed
        return by_words(plan.masked.spell(sentence.text, sentence.phrases, {}), written)
    if choice.origin:
        return choice.origin.source, choice.origin.target, choice.attention
    assert sentence.source
    shown = _symbol_texts(plan, sentence)
    tokenizer = model.placeholder_tokenizer if sentence.symbols else model.tokenizer
    pieces = tokenizer.pieces(sentence.source, target=False)
    source = [shown[piece][0] if piece in shown else piece for piece in pieces]
    target = [shown[piece][1] if piece in shown else piece for piece in choice.pieces]
    return source, target, choice.attention


def _coverages(
    model: TextModel, plan: Plan, pairs: Sequence[tuple[Sentence, Choice]]
) -> Slices[list[Coverage]]:
    """Return the coverage of each sentence, if requested, in slices."""
    covered = list[Coverage]()
    for sentence, choice in pairs if plan.options.coverage and not model.remote else ():
        covered += (
            [coverage_of(model, plan, sentence, choice)] if not choice.origin else choice.origin.coverage
        )
        yield
    return covered


def coverage_of(model: TextModel, plan: Plan, sentence: Sentence, choice: Choice) -> Coverage:
    """Return the coverage of a sentence by an answer with attention.

    model: model that answered.
    plan: plan of the text.
    sentence: sentence of the plan.
    choice: answer of the model.

    Words are shown as in the text if the tokenizer counts as many words as white space separates, otherwise
    as the tokenizer decodes them.
    """
    assert sentence.source
    tokens = sentence.source[:-1]
    starts = model.tokenizer.words(tokens, target=False)
    words = plan.masked.spell(sentence.read, sentence.phrases, {}).split()
    if len(words) != len(starts):
        ends = [*starts[1:], len(tokens)]
        spans = zip(starts, ends, strict=True)
        words = [model.tokenizer.word(tokens[begin:end], target=False) for begin, end in spans]
    return coverage(choice.attention, words, starts, rules_of(model.source).empty_words)


def _symbol_texts(plan: Plan, sentence: Sentence) -> dict[str, tuple[str, str]]:
    """Return the phrase of each placeholder of a sentence, in the source and in the target language."""
    phrases = ((symbol, plan.masked.phrases[number]) for number, symbol in sentence.symbols.items())
    return {symbol: (phrase.source, phrase.target) for symbol, phrase in phrases}
