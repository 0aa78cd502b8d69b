"""Texts to sources for the engine: sentences, echoes, prefixes, and placeholders for what stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from engine.answers.options import STRATEGIES, TextOptions, check_text, decode_options
from engine.answers.text_model import TextModel
from engine.errors import InvalidRequest, TooLarge
from engine.text.form import is_all_capitals, to_sentence_case
from engine.text.numerals import localise
from engine.text.protect import MarkedText, MaskedText, mask
from engine.text.split import Layout, pack, split
from engine.types import QUOTAS, DecodeJob, DecodeOptions


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
        """Adapt the options to the sentence.

        Where phrases must come out, every hypothesis is looked at, and what placeholders attend to; no
        placeholder comes that the source lacks, and none more than once.
        """
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
        """Return the same plan with placeholders for all phrases of some jobs, given by their numbers."""
        sentences, places = list(self.sentences), self.places
        for job in jobs:
            strict = sentences[places[job]].strict
            assert strict
            sentences[places[job]] = strict
        return replace(self, sentences=sentences)

    def with_attention(self) -> Plan:
        """Return the same plan with attention of all jobs, which costs something at each step."""
        return replace(self, decode=replace(self.decode, alignment=True))

    @property
    def tokens(self) -> int:
        return sum(len(s.source) for s in self.sentences if s.source is not None)

    def _job(self, place: int, decode: DecodeOptions) -> DecodeJob:
        sentence = self.sentences[place]
        assert sentence.source
        return DecodeJob(sentence.source, sentence.options(decode))


def plan(model: TextModel, text: str | MarkedText, options: TextOptions) -> Plan:
    """Make one text ready for the engine.

    Raises InvalidRequest on unknown options and text that is no Unicode, TooLarge on a text that must stay
    whole and is longer than the model's limit. Option values are checked by the engine.
    """
    if not model.limits.attention:
        raise InvalidRequest(
            "a language model does not answer texts, it scores them: POST /score, convoy score"
        )
    marked = text if isinstance(text, MarkedText) else MarkedText(text)
    check_text(marked.text)
    decode = decode_options(model, options)
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
    shown = text
    if empty.follow_form and is_all_capitals(text):
        shown = to_sentence_case(text, model.source, lambda word: len(encode(word)))
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
        source = model.beginning(ids)
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
        spaced=model.spaced,
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
