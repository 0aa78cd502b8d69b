"""Texts to sources for the engine: sentences, echoes, prefixes, and placeholders for what stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from engine.errors import InvalidRequest, TooLarge
from engine.text.protect import Marked, Masked, mask
from engine.text.split import Layout, split
from engine.text.tokenizer import Tokenizer
from engine.types import DecodeOptions, Limits

# languages written without spaces between sentences; their translations need one
SPACELESS: Final = frozenset({"bo", "ja", "km", "lo", "my", "th", "zh", "zt"})
Job = tuple[list[int], DecodeOptions]  # a source, ending with end-of-sentence, and how to decode it
OPTIONS: Final = frozenset(f.name for f in fields(DecodeOptions))


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How texts are answered.

    decode: overrides of the model's DecodeOptions by field name. prefix: what the first sentence's target
    begins with. alternatives: further hypotheses wanted; the beam is widened for them unless `decode` names a
    beam_size. split: translate sentence by sentence; off, each text is one source. truncate: shorten a source
    that is too long (the result says so) instead of refusing it. Summaries never split. coverage: say which
    source words nothing attended to. replace_unk: an unknown target word becomes the source word that it
    attends to most, by the bundle's dictionary of such words or as it stands.

    What stays as it is in translations: ignore: phrases, to the letter and as whole words. glossary: source
    phrase to target phrase, likewise. protect: also addresses, numbers and fields of formats (`%s`,
    `{name}`), as far as the model has placeholder symbols; without them the other two are refused.
    """

    decode: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    alternatives: int = 0
    alignment: bool = False
    split: bool = True
    truncate: bool = False
    coverage: bool = False
    replace_unk: bool = False
    ignore: tuple[str, ...] = ()
    glossary: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False


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
    name: str = ""

    @property
    def between(self) -> str:
        """What goes between translations of sentences that touched."""
        spaceless = [_spaceless(code) for code in (self.source, self.target)]
        return " " if spaceless == [True, False] else ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """text: with marks. source: what the model reads; None: echo it. phrases: which of the plan's phrases its
    marks stand for, in order. symbols: the placeholders of those that `source` does not spell. strict: the
    same with placeholders for all, where `source` spells numbers and the model may get them wrong.
    """

    text: str
    source: list[int] | None
    phrases: tuple[int, ...] = ()
    symbols: Mapping[int, str] = field(default_factory=dict)
    strict: Sentence | None = None

    def options(self, decode: DecodeOptions) -> DecodeOptions:
        """Where phrases must come out, every hypothesis is looked at, and what placeholders attend to."""
        if not self.phrases:
            return decode
        return replace(decode, n_best=decode.beam_size, alignment=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """One text, ready for the engine; sentences[i] is layout.sentences[i]. decode: of sentences without
    phrases. alignment: whether the caller wants it, whatever `decode` asks."""

    layout: Layout
    sentences: list[Sentence]
    decode: DecodeOptions
    masked: Masked
    prefix: tuple[int, ...] = ()
    alignment: bool = False
    coverage: bool = False
    truncated: bool = False
    replace_unk: bool = False

    @property
    def places(self) -> list[int]:
        """The sentences that the model reads: one for each job."""
        return [i for i, sentence in enumerate(self.sentences) if sentence.source is not None]

    @property
    def jobs(self) -> list[Job]:
        """Sources with their options; only the first gets the prefix."""
        first = replace(self.decode, prefix=self.prefix)
        return [self._job(place, self.decode if i else first) for i, place in enumerate(self.places)]

    def stricter(self, wrong: Sequence[int]) -> tuple[Plan, list[Job]]:
        """The plan with placeholders for all phrases of the jobs `wrong`, and these jobs again."""
        sentences, places = list(self.sentences), self.places
        for job in wrong:
            strict = sentences[places[job]].strict
            assert strict
            sentences[places[job]] = strict
        made = replace(self, sentences=sentences)
        jobs = made.jobs
        return made, [jobs[job] for job in wrong]

    @property
    def tokens(self) -> int:
        return sum(len(s.source) for s in self.sentences if s.source is not None)

    def _job(self, place: int, decode: DecodeOptions) -> Job:
        sentence = self.sentences[place]
        assert sentence.source
        return sentence.source, sentence.options(decode)


def plan(model: TextModel, text: str | Marked, options: TextOptions) -> Plan:
    """Raises InvalidRequest on unknown options and text that is no Unicode, TooLarge on a text that must stay
    whole and is longer than the model's limit. Option values are checked by the engine."""
    if not model.limits.attention:
        raise InvalidRequest(
            "a language model does not answer texts, it scores them: POST /score, convoy score"
        )
    marked = text if isinstance(text, Marked) else Marked(text)
    check_text(marked.text)
    decode = _decode(model, options)
    masked = _masked(model, marked, options)
    prefix = tuple(model.tokenizer.encode_target(options.prefix)) if options.prefix else ()
    alignment = decode.alignment
    replaces = options.replace_unk
    if replaces and not model.tokenizer.replaces_unk:
        raise InvalidRequest("only models with dictionaries of words can replace_unk: leave it out")
    decode = replace(decode, alignment=alignment or options.coverage or replaces)
    empty = Plan(
        Layout([], []), [], decode, masked, prefix, alignment, options.coverage, replace_unk=replaces
    )
    if model.task != "translate" or not options.split:
        return _whole(model, options, empty)
    return _split(model, empty)


def _split(model: TextModel, empty: Plan) -> Plan:
    """Sentence by sentence."""
    masked, symbols = empty.masked, model.tokenizer.placeholders
    known: dict[str, list[int]] = {}

    def encode(spelled: str) -> list[int]:
        if spelled not in known:
            known[spelled] = model.tokenizer.encode(spelled)
        return known[spelled]

    def fits(part: str) -> bool:
        count = masked.count(part)
        if count > len(symbols):
            return False
        spelled = masked.spell(part.strip(), range(count), dict(enumerate(symbols)))
        return len(encode(spelled)) < model.limits.source

    layout = split(masked.text, model.source, fits, masked.stand_in)
    sentences, first = list[Sentence](), 0
    for text in layout.sentences:
        phrases = tuple(range(first, first + masked.count(text)))
        first += len(phrases)
        if _readable(text):
            sentences.append(_sentence(model, masked, text, phrases, encode))
        else:
            sentences.append(Sentence(text, None, phrases))
    return replace(empty, layout=layout, sentences=sentences)


def _sentence(
    model: TextModel,
    masked: Masked,
    text: str,
    phrases: tuple[int, ...],
    encode: Callable[[str], list[int]],
) -> Sentence:
    """With placeholders, but at first with its numbers as they are: models translate around them better."""
    symbols = dict(zip(phrases, model.tokenizer.placeholders, strict=False))
    strict = Sentence(text, [*encode(masked.spell(text, phrases, symbols)), model.eos], phrases, symbols)
    fewer = {number: symbol for number, symbol in symbols.items() if not masked.phrases[number].number}
    if len(fewer) == len(symbols):
        return strict
    source = [*encode(masked.spell(text, phrases, fewer)), model.eos]
    if len(source) > model.limits.source:
        return strict
    return Sentence(text, source, phrases, fewer, strict)


def _whole(model: TextModel, options: TextOptions, empty: Plan) -> Plan:
    """The whole text as one source."""
    symbols = model.tokenizer.placeholders
    masked = empty.masked.at_most(len(symbols))
    text = masked.text
    layout = _frame(text)
    phrases = tuple(range(len(masked.phrases)))
    if not _readable(text):
        echoes = [Sentence(sentence, None, phrases) for sentence in layout.sentences]
        return replace(empty, layout=layout, masked=masked, sentences=echoes)
    sentence = _sentence(model, masked, " ".join(text.split()), phrases, model.tokenizer.encode)
    ids, limit = sentence.source or [], model.limits.source
    truncated = len(ids) > limit
    if truncated and not options.truncate:
        remedy = "set truncate to use its beginning only" if model.task != "translate" else "let it be split"
        raise TooLarge(f"the text has {len(ids)} tokens; this model reads at most {limit}: {remedy}")
    if truncated:
        sentence = replace(sentence, source=[*ids[: limit - 1], model.eos])
    return replace(empty, layout=layout, masked=masked, sentences=[sentence], truncated=truncated)


def _masked(model: TextModel, marked: Marked, options: TextOptions) -> Masked:
    asked = bool(options.ignore or options.glossary or marked.spans)
    symbols, translates = model.tokenizer.placeholders, model.task == "translate"
    if asked and not (symbols and translates):
        why = "only translations keep phrases" if not translates else "the model has no placeholder symbols"
        raise InvalidRequest(f"{why}: leave out ignore, glossary and marked spans")
    for phrase in (*options.ignore, *options.glossary, *options.glossary.values()):
        check_text(phrase)
    if not (asked or options.protect) or not (symbols and translates):
        return Masked(marked.text)
    return mask(
        marked,
        ignore=options.ignore,
        glossary=options.glossary,
        protect=options.protect,
        symbols=symbols,
        spaced=not _spaceless(model.source),
    )


def _frame(text: str) -> Layout:
    body = text.strip()
    if not body:
        return Layout([], [text])
    begin = text.index(body)
    return Layout([body], [text[:begin], text[begin + len(body) :]])


def _readable(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _spaceless(code: str) -> bool:
    return code.partition("-")[0].lower() in SPACELESS


def check_text(text: str) -> None:
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
    check_text(options.prefix)
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
