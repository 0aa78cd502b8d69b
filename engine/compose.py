"""Texts to sources and results back to texts: sentences, echoes, prefixes, alternatives, alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from engine.errors import InvalidRequest, TooLarge
from engine.text.split import Layout, split
from engine.text.tokenizer import Tokenizer
from engine.types import DecodeOptions, Hypothesis, Limits, Result, Timings

# languages written without spaces between sentences; their translations need one
SPACELESS: Final = frozenset({"bo", "ja", "km", "lo", "my", "th", "zh", "zt"})
OPTIONS: Final = frozenset(f.name for f in fields(DecodeOptions))
NO_TIME: Final = Timings(0.0, 0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How texts are answered.

    decode: overrides of the model's DecodeOptions by field name. prefix: what the first sentence's target
    begins with. alternatives: further hypotheses wanted; the beam is widened for them unless `decode` names a
    beam_size. split: translate sentence by sentence; off, each text is one source. truncate: shorten a source
    that is too long (the result says so) instead of refusing it. Summaries never split.
    """

    decode: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    alternatives: int = 0
    alignment: bool = False
    split: bool = True
    truncate: bool = False


@dataclass(frozen=True, slots=True)
class Alignment:
    """Cross-attention of one sentence: matrix is float32 [len(target), len(source)], rows sum to 1. source
    and target are vocabulary pieces, each ending with end-of-sentence."""

    source: list[str]
    target: list[str]
    matrix: Any


@dataclass(frozen=True, slots=True)
class TextResult:
    """The answer to one text.

    score: of a single sentence the hypothesis's own; of several their mean, weighted by target length with
    end-of-sentence. alternatives: rank by rank, sentence r-th bests joined (a sentence with fewer gives its
    best); texts seen before are left out. alternative_scores: likewise. tokens, token_scores: pieces and
    natural-log probabilities, end-of-sentence of each sentence included. finish: "length" when any sentence
    was ended by its limit, else "stop". alignment: one per sentence that the model read. timings: of the
    slowest sentence, field by field. source_tokens include end-of-sentence, target_tokens exclude it.
    A text without letters or digits is echoed: score 0, no tokens.
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


@dataclass(frozen=True, slots=True)
class TextModel:
    """What turning text into sources and back needs to know of a bundle."""

    task: str
    source: str
    target: str
    tokenizer: Tokenizer
    defaults: DecodeOptions
    limits: Limits
    eos: int

    @property
    def between(self) -> str:
        """What goes between translations of sentences that touched."""
        codes = (code.split("-")[0].lower() for code in (self.source, self.target))
        spaceless = [code in SPACELESS for code in codes]
        return " " if spaceless == [True, False] else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """One text, ready for the engine. sources[i] belongs to layout.sentences[i]; None: echo it."""

    layout: Layout
    sources: list[list[int] | None]
    decode: DecodeOptions
    prefix: tuple[int, ...]
    truncated: bool = False

    @property
    def jobs(self) -> list[tuple[list[int], DecodeOptions]]:
        """Sources with their options; only the first gets the prefix."""
        sources = [s for s in self.sources if s is not None]
        first = replace(self.decode, prefix=self.prefix)
        return [(source, self.decode if i else first) for i, source in enumerate(sources)]

    @property
    def tokens(self) -> int:
        return sum(len(s) for s in self.sources if s is not None)


def plan(model: TextModel, text: str, options: TextOptions) -> Plan:
    """Raises InvalidRequest on unknown options and text that is no Unicode, TooLarge on a text that must stay
    whole and is longer than the model's limit. Option values are checked by the engine."""
    _check_text(text)
    decode = _decode(model, options)
    prefix = tuple(model.tokenizer.encode_target(options.prefix)) if options.prefix else ()
    known: dict[str, list[int]] = {}

    def encode(sentence: str) -> list[int]:
        if sentence not in known:
            known[sentence] = model.tokenizer.encode(sentence)
        return known[sentence]

    if model.task != "translate" or not options.split:
        return _whole(model, text, options, Plan(_frame(text), [], decode, prefix))
    layout = split(text, model.source, lambda part: len(encode(part.strip())) < model.limits.source)
    sources = [[*encode(s), model.eos] if _readable(s) else None for s in layout.sentences]
    return Plan(layout, sources, decode, prefix)


def compose(model: TextModel, plan: Plan, results: Sequence[Result]) -> TextResult:
    """Results, one of each job, back to a text."""
    waiting = iter(results)
    found = [next(waiting).hypotheses if source else [] for source in plan.sources]
    best = [hypotheses[0] for hypotheses in found if hypotheses]
    if not best:
        return TextResult(plan.layout.join(plan.layout.sentences))
    sources = [source for source in plan.sources if source]
    ranked = _ranked(model, plan, found)
    pieces = [model.tokenizer.pieces([*h.tokens, model.eos], target=True) for h in best]
    return TextResult(
        text=ranked[0][0],
        alternatives=[text for text, _ in ranked[1:]],
        score=ranked[0][1],
        alternative_scores=[score for _, score in ranked[1:]],
        tokens=[piece for sentence in pieces for piece in sentence],
        token_scores=[score for h in best for score in h.token_scores],
        finish="length" if any(h.finish == "length" for h in best) else "stop",
        alignment=[
            Alignment(model.tokenizer.pieces(source, target=False), target, h.attention)
            for source, target, h in zip(sources, pieces, best, strict=True)
            if h.attention is not None
        ],
        truncated=plan.truncated,
        timings=slowest([result.timings for result in results]),
        source_tokens=plan.tokens,
        target_tokens=sum(len(h.tokens) for h in best),
    )


def slowest(timings: Sequence[Timings]) -> Timings:
    """The maximum of each field."""
    return Timings(
        queue=max((t.queue for t in timings), default=0.0),
        encode=max((t.encode for t in timings), default=0.0),
        decode=max((t.decode for t in timings), default=0.0),
        steps=max((t.steps for t in timings), default=0),
    )


def _ranked(model: TextModel, plan: Plan, found: list[list[Hypothesis]]) -> list[tuple[str, float]]:
    """Distinct texts with their scores, best first."""
    ranked: dict[str, float] = {}
    for rank in range(max(len(hypotheses) for hypotheses in found)):
        chosen = [h[rank if rank < len(h) else 0] if h else None for h in found]
        texts = [
            model.tokenizer.decode(h.tokens) if h else sentence
            for h, sentence in zip(chosen, plan.layout.sentences, strict=True)
        ]
        scored = [(h.score, len(h.token_scores)) for h in chosen if h]
        total = sum(length for _, length in scored)
        mean = scored[0][0] if len(scored) == 1 else sum(s * n for s, n in scored) / total
        ranked.setdefault(plan.layout.join(texts, model.between), mean)
    return list(ranked.items())


def _whole(model: TextModel, text: str, options: TextOptions, empty: Plan) -> Plan:
    """The whole text as one source."""
    if not _readable(text):
        return replace(empty, sources=[None] * len(empty.layout.sentences))
    ids, limit = model.tokenizer.encode(" ".join(text.split())), model.limits.source
    truncated = len(ids) >= limit
    if truncated and not options.truncate:
        remedy = "set truncate to use its beginning only" if model.task != "translate" else "let it be split"
        raise TooLarge(f"the text has {len(ids) + 1} tokens; this model reads at most {limit}: {remedy}")
    return replace(empty, sources=[[*ids[: limit - 1], model.eos]], truncated=truncated)


def _frame(text: str) -> Layout:
    body = text.strip()
    if not body:
        return Layout([], [text])
    begin = text.index(body)
    return Layout([body], [text[:begin], text[begin + len(body) :]])


def _readable(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the text holds half of a surrogate pair: send valid Unicode") from None


def _decode(model: TextModel, options: TextOptions) -> DecodeOptions:
    unknown = sorted(set(options.decode) - OPTIONS)
    if unknown:
        raise InvalidRequest(f"unknown decoding options {unknown}; known are {sorted(OPTIONS - {'prefix'})}")
    if "prefix" in options.decode:
        raise InvalidRequest("give the prefix as text, not among the decoding options")
    if options.alternatives < 0:
        raise InvalidRequest("alternatives must not be negative")
    _check_text(options.prefix)
    values = {"n_best": 1} | dict(options.decode)
    values["n_best"] = max(values["n_best"], options.alternatives + 1)
    values["alignment"] = options.alignment or values.get("alignment", model.defaults.alignment)
    if "beam_size" not in values:
        values["beam_size"] = max(model.defaults.beam_size, values["n_best"])
    if options.alternatives >= values["beam_size"]:
        least = options.alternatives + 1
        raise InvalidRequest(f"{options.alternatives} alternatives need a beam_size of at least {least}")
    decode = replace(model.defaults, **values, prefix=())
    decode.check(model.limits)  # here too, so that a text answered without the model is no way around it
    return decode
