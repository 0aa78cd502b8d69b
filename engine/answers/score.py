"""Scores texts: the probability of each token of a text.

Scoring is decoding with every token forced, end-of-sentence last, in the same batches as other requests. A
language model scores a text alone; other models score a target of a source.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from engine.answers.options import check_text
from engine.answers.stream import answers_of, flow
from engine.answers.text_model import TextModel
from engine.errors import InvalidRequest
from engine.schedule.aio import generate_group
from engine.schedule.any_engine import AnyEngine
from engine.types import DecodeJob, DecodeOptions, Result, Timings


@dataclass(frozen=True, slots=True)
class TextScore:
    """Score of a text.

    tokens: pieces of the text, end-of-sentence last.
    token_scores: natural-log probability of each token.
    words: number of words of the text.
    timings: times of the scoring.
    """

    tokens: list[str]
    token_scores: list[float]
    words: int
    timings: Timings

    @property
    def total(self) -> float:
        """Natural-log probability of the text, end-of-sentence included."""
        return math.fsum(self.token_scores)

    @property
    def perplexity(self) -> float:
        """Perplexity by tokens, end-of-sentence included."""
        return perplexity(self.total, len(self.token_scores))

    @property
    def word_perplexity(self) -> float:
        """Perplexity by words, plus one for end-of-sentence; comparable between vocabularies."""
        return perplexity(self.total, self.words + 1)


@dataclass(frozen=True, slots=True)
class ForcedText:
    """One text, ready for the engine.

    source, target: token ids with end-of-sentence.
    free: number of first target tokens that are not text, and have no score.
    """

    source: list[int]
    target: list[int]
    free: int = 0

    @property
    def jobs(self) -> list[DecodeJob]:
        """One job that forces all tokens of the target before end-of-sentence."""
        inner = tuple(self.target[:-1])
        options = DecodeOptions(
            beam_size=1, min_length=0, max_length_b=len(inner), prefix=inner, free_prefix=self.free
        )
        return [DecodeJob(self.source, options)]

    @property
    def tokens(self) -> int:
        return len(self.source)


def perplexity(total: float, count: int) -> float:
    """Compute one over the geometric mean probability of events; inf if it is too large for a float.

    total: natural-log probability of all events together.
    count: number of events.
    """
    try:
        return math.exp(-total / count)
    except OverflowError:
        return math.inf


async def score(
    engine: AnyEngine,
    model: TextModel,
    texts: Sequence[str],
    sources: Sequence[str] | None,
    deadline: float = math.inf,
) -> list[TextScore]:
    """Score texts as one group: all are accepted or none.

    engine: engine of the model.
    model: text side of the model.
    texts: texts to score.
    sources: source of each text; None for a language model.
    deadline: time.monotonic() after which the scores are of no use.

    Raises InvalidRequest on texts or sources that are too long, and on a wrong number of sources; also the
    errors of `generate_group`.
    """
    if sources is not None and len(sources) != len(texts):
        raise InvalidRequest(f"{len(texts)} texts, but {len(sources)} sources: each text needs its own")
    pairs = list(zip(texts, repeat(None) if sources is None else sources, strict=False))

    def prepare() -> list[ForcedText]:
        return [_forced_text(model, text, source) for text, source in pairs]

    plans = await asyncio.to_thread(prepare)
    results = await generate_group(engine, [job for plan in plans for job in plan.jobs], deadline)
    return [_text_score(model, plan, [result]) for plan, result in zip(plans, results, strict=True)]


def score_many(
    engine: AnyEngine, model: TextModel, pairs: Iterable[tuple[str, str | None]]
) -> Generator[TextScore]:
    """Yield the scores of texts in input order and in bounded memory, by `engine.answers.stream.flow`.

    engine: engine of the model.
    model: text side of the model.
    pairs: texts with their sources; the source is None for a language model.
    """
    scores = flow(
        engine,
        pairs,
        lambda pair: _forced_text(model, *pair),
        lambda plan, results: _text_score(model, plan, results),
    )
    return answers_of(scores)


def _forced_text(model: TextModel, text: str, source: str | None) -> ForcedText:
    """Return the tokens of a text and its source. Raises InvalidRequest if they can't be scored."""
    if model.limits.shortlisted:
        raise InvalidRequest(
            "with a shortlist there are no probabilities of the whole vocabulary: score with --no-shortlist"
        )
    check_text(text)
    begin = model.tokenizer.beginning
    target = [*begin, *model.tokenizer.encode_target(text)]
    longest = model.limits.target
    if len(target) > longest:
        raise InvalidRequest(
            f"the text has {len(target)} tokens; this model scores at most {longest}: split it"
        )
    return ForcedText(_source_tokens(model, source), [*target, model.eos], len(begin))


def _source_tokens(model: TextModel, source: str | None) -> list[int]:
    """Return the source tokens: end-of-sentence alone for a language model. Raises InvalidRequest."""
    if not model.limits.attention:
        if source is not None:
            raise InvalidRequest("a language model reads no source: leave it out")
        return [model.eos]
    if source is None:
        raise InvalidRequest(
            "this model scores targets of a source: give the source of each text (source_text, --source)"
        )
    check_text(source)
    ids = [*model.tokenizer.encode(" ".join(source.split())), model.eos]
    limit = model.limits.source
    if len(ids) > limit and model.truncates:
        return model.beginning(ids)
    if len(ids) > limit:
        raise InvalidRequest(f"the source has {len(ids)} tokens; this model reads at most {limit}: split it")
    return ids


def _text_score(model: TextModel, plan: ForcedText, results: Sequence[Result]) -> TextScore:
    """Return the score of a text from the result of its only job."""
    (result,) = results
    (hypothesis,) = result.hypotheses
    return TextScore(
        tokens=model.tokenizer.pieces(plan.target[plan.free :], target=True),
        token_scores=hypothesis.token_scores[plan.free :],
        words=len(model.tokenizer.words(plan.target[:-1], target=True)),
        timings=result.timings,
    )
