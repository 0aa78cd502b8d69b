"""Texts to sources for the engine: sentences, echoes, prefixes, and placeholders for what stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, Final

from engine.errors import InvalidRequest, TooLarge
from engine.text.borrowed import BorrowedWord, BorrowingTokenizer, symbols_of
from engine.text.form import is_all_capitals, to_sentence_case
from engine.text.numerals import localise
from engine.text.protect import MarkedText, MaskedText, mask
from engine.text.split import Layout, pack, split
from engine.text.tokenizer import Tokenizer
from engine.types import QUOTAS, DecodeJob, DecodeOptions, Limits

# languages written without spaces between sentences; their translations need one
SPACELESS: Final = frozenset({"bo", "ja", "km", "lo", "my", "th", "zh", "zt"})
OPTIONS: Final = frozenset(f.name for f in fields(DecodeOptions))
# truncate: its beginning is read. parts: it is cut at sentence borders, and the summaries of the parts are
# joined. refine: likewise, and what was joined is summarized again until one part is left
STRATEGIES: Final = ("truncate", "parts", "refine")
TEXTUAL: Final = frozenset({"prefix", "free_prefix", "quotas"})  # made of texts and of the model's languages


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How texts are answered.

    decode: overrides of the model's DecodeOptions by field name.
    prefix: what the first sentence's target begins with.
    alternatives: further hypotheses wanted; the beam is widened for them unless `decode` names a beam_size.
    split: translate sentence by sentence; off, each text is one source.
    truncate: shorten a source that is too long (the result says so) instead of refusing it. Summaries never
        split.
    strategy: what becomes of a text that is too long for one (STRATEGIES); None: as `truncate` says.
    coverage: say which source words nothing attended to.
    replace_unk: an unknown target word becomes the source word that it attends to most, by the bundle's
        dictionary of such words or as it stands.

    What stays as it is in translations:

    ignore: phrases, to the letter and as whole words.
    glossary: source phrase to target phrase, likewise.
    protect: also addresses, numbers with their signs and units, fields of formats (`%s`, `{name}`), emoji,
        names in networks and words in characters that the model lacks, as far as it has placeholders; without
        them the other two are refused.
    local_numbers: with `protect`, amounts are written as the target language does, or that of `numerals`.
    follow_form: capitals and final marks follow the source (`engine.text.form`), and a sentence in capitals
        is read as if it were none.
    """

    decode: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    alternatives: int = 0
    alignment: bool = False
    split: bool = True
    truncate: bool = False
    strategy: str | None = None
    coverage: bool = False
    replace_unk: bool = False
    ignore: tuple[str, ...] = ()
    glossary: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False
    local_numbers: bool = False
    numerals: str = ""
    follow_form: bool = False

    @property
    def cuts(self) -> bool:
        """Whether a text that is too long is cut into parts."""
        return self.strategy in ("parts", "refine")


@dataclass(frozen=True, slots=True)
class TextModel:
    """What turning text into sources and back needs to know of a bundle.

    unk: the token that unknown words become, if there is one.
    replace_unk: whether unknown words are replaced unasked.
    truncates: whether the beginning of a text that is too long is read, unasked.
    borrowed: words that are placeholders, where the vocabulary has no symbols of its own.
    """

    task: str
    source: str
    target: str
    tokenizer: Tokenizer
    defaults: DecodeOptions
    limits: Limits
    eos: int
    name: str = ""
    unk: int | None = None
    replace_unk: bool = False
    truncates: bool = False
    borrowed: tuple[BorrowedWord, ...] = ()

    @property
    def placeholders(self) -> tuple[str, ...]:
        return self.tokenizer.placeholders or symbols_of(self.borrowed)

    @property
    def keeping(self) -> Tokenizer:
        """The tokenizer of sentences that hold placeholders."""
        return BorrowingTokenizer(self.tokenizer, self.borrowed) if self.borrowed else self.tokenizer

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target

    @property
    def between(self) -> str:
        """What goes between translations of sentences that touched."""
        spaceless = [_spaceless(code) for code in (self.source, self.target)]
        return " " if spaceless == [True, False] else ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a text, as the model reads it.

    text: with marks.
    source: what the model reads; None: echo it.
    phrases: which of the plan's phrases its marks stand for, in order.
    symbols: the placeholders of those that `source` does not spell.
    quotas: where `source` has placeholders, the token of each, and whether it has this one.
    strict: the same with placeholders for all, where `source` spells numbers and the model may get them
        wrong.
    """

    text: str
    source: list[int] | None
    phrases: tuple[int, ...] = ()
    symbols: Mapping[int, str] = field(default_factory=dict)
    quotas: tuple[tuple[int, int], ...] = ()
    strict: Sentence | None = None

    def options(self, decode: DecodeOptions) -> DecodeOptions:
        """Where phrases must come out, every hypothesis is looked at, and what placeholders attend to; of
        placeholders none comes that the source lacks, and none once more."""
        if not self.phrases:
            return decode
        return replace(decode, n_best=decode.beam_size, alignment=True, quotas=self.quotas)


@dataclass(frozen=True, slots=True)
class Plan:
    """One text, ready for the engine; sentences[i] is layout.sentences[i].

    decode: of sentences without phrases.
    alignment: whether the caller wants it, whatever `decode` asks.
    follow_form: see TextOptions.
    """

    layout: Layout
    sentences: list[Sentence]
    decode: DecodeOptions
    masked: MaskedText
    prefix: tuple[int, ...] = ()
    alignment: bool = False
    coverage: bool = False
    truncated: bool = False
    replace_unk: bool = False
    follow_form: bool = False

    @property
    def places(self) -> list[int]:
        """The sentences that the model reads: one for each job."""
        return [i for i, sentence in enumerate(self.sentences) if sentence.source is not None]

    @property
    def jobs(self) -> list[DecodeJob]:
        """Sources with their options; only the first gets the prefix."""
        first = replace(self.decode, prefix=self.prefix)
        return [self._job(place, self.decode if i else first) for i, place in enumerate(self.places)]

    def stricter(self, jobs: Sequence[int]) -> Plan:
        """The same plan with placeholders for all phrases of some jobs, given by their numbers."""
        sentences, places = list(self.sentences), self.places
        for job in jobs:
            strict = sentences[places[job]].strict
            assert strict
            sentences[places[job]] = strict
        return replace(self, sentences=sentences)

    def with_attention(self) -> Plan:
        """The same plan with attention, which costs something at each step, of all jobs."""
        return replace(self, decode=replace(self.decode, alignment=True))

    @property
    def tokens(self) -> int:
        return sum(len(s.source) for s in self.sentences if s.source is not None)

    def _job(self, place: int, decode: DecodeOptions) -> DecodeJob:
        sentence = self.sentences[place]
        assert sentence.source
        return DecodeJob(sentence.source, sentence.options(decode))


def plan(model: TextModel, text: str | MarkedText, options: TextOptions) -> Plan:
    """Raises InvalidRequest on unknown options and text that is no Unicode, TooLarge on a text that must stay
    whole and is longer than the model's limit. Option values are checked by the engine."""
    if not model.limits.attention:
        raise InvalidRequest(
            "a language model does not answer texts, it scores them: POST /score, convoy score"
        )
    marked = text if isinstance(text, MarkedText) else MarkedText(text)
    check_text(marked.text)
    decode = _decode(model, options)
    masked = _mask_text(model, marked, options)
    prefix = model.tokenizer.beginning + tuple(
        model.tokenizer.encode_target(options.prefix) if options.prefix else ()
    )
    alignment = decode.alignment
    if options.strategy not in (None, *STRATEGIES):
        raise InvalidRequest(f"strategy {options.strategy!r} is none of {', '.join(STRATEGIES)}")
    replaces = options.replace_unk or model.replace_unk
    if replaces and not model.tokenizer.replaces_unk:
        raise InvalidRequest("only models with dictionaries of words can replace_unk: leave it out")
    decode = replace(decode, alignment=alignment or options.coverage)
    empty = Plan(
        Layout([], []), [], decode, masked, prefix, alignment, options.coverage, replace_unk=replaces
    )
    empty = replace(empty, follow_form=options.follow_form and model.task == "translate")
    if model.task != "translate" or not options.split:
        return _whole(model, options, empty)
    return _plan_sentences(model, empty)


def _plan_sentences(model: TextModel, empty: Plan) -> Plan:
    """Sentence by sentence."""
    masked, symbols = empty.masked, model.placeholders
    encode = cache(model.keeping.encode)  # a sentence that fits is read again as it is planned

    def fits(part: str) -> bool:
        count = masked.count(part)
        if count > len(symbols):
            return False
        spelled = masked.spell(part.strip(), range(count), dict(enumerate(symbols)))
        return len(encode(spelled)) < model.limits.source

    layout = split(masked.text, model.source, fits, masked.stand_in)
    sentences, first = list[Sentence](), 0
    for number, text in enumerate(layout.sentences):
        phrases = tuple(range(first, first + masked.count(text)))
        first += len(phrases)
        if _readable(text) and number not in layout.fixed:
            sentences.append(_sentence(model, empty, text, phrases, encode))
        else:
            sentences.append(Sentence(text, None, phrases))
    return replace(empty, layout=layout, sentences=sentences)


def _sentence(
    model: TextModel,
    empty: Plan,
    text: str,
    phrases: tuple[int, ...],
    encode: Callable[[str], list[int]],
) -> Sentence:
    """With placeholders, but at first with numbers and codes as they are: models translate them better so."""
    masked = empty.masked
    shown = to_sentence_case(text) if empty.follow_form and is_all_capitals(text) else text
    symbols = dict(zip(phrases, model.placeholders, strict=False))
    source = [*encode(masked.spell(shown, phrases, symbols)), model.eos]
    strict = Sentence(text, source, phrases, symbols, _quotas(model, source, symbols))
    fewer = {number: symbol for number, symbol in symbols.items() if not masked.phrases[number].trusted}
    if len(fewer) == len(symbols):
        return strict
    source = [*encode(masked.spell(shown, phrases, fewer)), model.eos]
    if len(source) > model.limits.source:
        return strict
    return Sentence(text, source, phrases, fewer, _quotas(model, source, fewer), strict)


def _quotas(
    model: TextModel, source: Sequence[int], symbols: Mapping[int, str]
) -> tuple[tuple[int, int], ...]:
    """The placeholders' tokens, and how often each may come in a target: once where the source was written
    with it and has it. A borrowed one may also be the beginning of another word there, which counts not."""
    if not symbols:
        return ()
    keeping = model.keeping
    own = set(symbols.values()).intersection(keeping.pieces(source, target=False))
    ranked = sorted(model.placeholders, key=lambda symbol: symbol not in own)[:QUOTAS]
    return tuple((keeping.encode_target(symbol)[-1], int(symbol in own)) for symbol in ranked)


def _whole(model: TextModel, options: TextOptions, empty: Plan) -> Plan:
    """The whole text as one source."""
    symbols = model.placeholders
    masked = empty.masked.at_most(len(symbols))
    text = masked.text
    layout = _frame(text)
    phrases = tuple(range(len(masked.phrases)))
    if not _readable(text):
        echoes = [Sentence(sentence, None, phrases) for sentence in layout.sentences]
        return replace(empty, layout=layout, masked=masked, sentences=echoes)
    whole = replace(empty, masked=masked)
    sentence = _sentence(model, whole, " ".join(text.split()), phrases, model.keeping.encode)
    ids, limit = sentence.source or [], model.limits.source
    truncated = len(ids) > limit
    if truncated and options.cuts and model.task != "translate":
        return _parts(model, whole)
    if truncated and not (options.truncate or options.strategy == "truncate" or model.truncates):
        remedy = (
            "let it be split" if model.task == "translate" else "choose a strategy: parts, refine, truncate"
        )
        raise TooLarge(f"the text has {len(ids)} tokens; this model reads at most {limit}: {remedy}")
    if truncated:
        source = [*ids[: limit - 1], model.eos]
        sentence = replace(sentence, source=source, quotas=_quotas(model, source, sentence.symbols))
    return replace(whole, layout=layout, sentences=[sentence], truncated=truncated)


def _parts(model: TextModel, empty: Plan) -> Plan:
    """A text that is too long for one summary as parts that end with sentences, each as long as may be."""
    encode, limit = model.tokenizer.encode, model.limits.source

    def fits(part: str) -> bool:
        return len(encode(" ".join(part.split()))) < limit

    parts = pack(split(empty.masked.text, model.source, fits).sentences, fits)
    sentences = [_sentence(model, empty, " ".join(part.split()), (), encode) for part in parts]
    layout = Layout(parts, ["", *[" "] * (len(parts) - 1), ""])
    return replace(empty, layout=layout, sentences=sentences)


def _mask_text(model: TextModel, marked: MarkedText, options: TextOptions) -> MaskedText:
    explicit = bool(options.ignore or options.glossary or marked.spans)
    symbols, translates = model.placeholders, model.task == "translate"
    if explicit and not (symbols and translates):
        why = "only translations keep phrases" if not translates else "the model has no placeholder symbols"
        raise InvalidRequest(f"{why}: leave out ignore, glossary and marked spans")
    for phrase in (*options.ignore, *options.glossary, *options.glossary.values()):
        check_text(phrase)
    if not (explicit or options.protect) or not (symbols and translates):
        return MaskedText(marked.text)
    local = partial(localise, source=model.source, target=options.numerals or model.target)
    return mask(
        marked,
        ignore=(*options.ignore, *(word.word for word in model.borrowed)),
        glossary=options.glossary,
        protect=options.protect,
        symbols=symbols,
        spaced=not _spaceless(model.source),
        lacks=model.tokenizer.lacks,
        local=local if options.local_numbers else None,
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
        raise InvalidRequest(f"unknown decoding options {unknown}; known are {sorted(OPTIONS - TEXTUAL)}")
    if TEXTUAL & set(options.decode):
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
    begin = model.tokenizer.beginning
    decode = replace(model.defaults, **values, prefix=begin, free_prefix=len(begin))
    decode.check(model.limits)  # here too, so that a text answered without the model is no way around it
    return decode
