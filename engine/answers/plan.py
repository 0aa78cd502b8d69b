"""Plans texts as sources for the engine: sentences, prefixes, and placeholders for protected phrases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from engine.answers.formats import Formats, formats_of
from engine.answers.options import ResolvedOptions, TextOptions, check_kept_phrases, check_text, resolve
from engine.answers.sentence import Sentence
from engine.answers.text_model import TextModel
from engine.errors import InvalidRequest, TooLarge
from engine.schedule.slices import Slices, at_once
from engine.text.capitals import read_capitals
from engine.text.form import follow, is_all_capitals, to_sentence_case
from engine.text.newlines import unwrap
from engine.text.numbers import has_numbers
from engine.text.numerals import localise
from engine.text.placeables.markup import PlainText, read_markup
from engine.text.placeables.masked_text import MarkedText, MaskedText
from engine.text.placeables.masking import MaskRules, mask
from engine.text.placeables.pairs import quoted_words, without_pairs
from engine.text.split import Layout, pack, paragraphs, split
from engine.text.tokenizers.characters import hint_tokens
from engine.text.wrapping import ONE_LINE, Wrapping
from engine.types import QUOTAS, DecodeJob, DecodeOptions

MAX_SENTENCES: Final = 4_096  # largest number of sentences of one request
TOO_MANY_SENTENCES: Final = f"more than {MAX_SENTENCES} sentences in one request: send fewer or shorter texts"
MAX_CHARACTERS_PER_TOKEN: Final = 32  # in sentences that models read as a whole


@dataclass(frozen=True, slots=True)
class Plan:
    """One text, ready for the engine; sentences[i] is layout.sentences[i].

    options: options of the answer; `options.decode` is for sentences without phrases.
    masked: text that the model reads, with masked phrases.
    truncated: whether only the beginning of the text is read.
    formats: formats and phrases that attention puts back into the answer, if there are any.
    formatted: number of the first sentence with formats or such phrases.
    lines: lines of the caller's text, into which the answer is wrapped.
    next_lines: lines of the caller's text if the answer of the next model is wrapped instead.
    """

    layout: Layout
    sentences: list[Sentence]
    options: ResolvedOptions
    masked: MaskedText
    truncated: bool = False
    formats: Formats | None = None
    formatted: int | None = None
    lines: Wrapping = ONE_LINE
    next_lines: Wrapping = ONE_LINE

    @property
    def job_sentences(self) -> list[int]:
        """Numbers of the sentences that the model reads, one for each job."""
        return [i for i, sentence in enumerate(self.sentences) if sentence.source is not None]

    @property
    def jobs(self) -> list[DecodeJob]:
        """Sources with their options; only the first has the prefix."""
        return at_once(self.job_slices(range(len(self.job_sentences))))

    def job_slices(self, numbers: Iterable[int]) -> Slices[list[DecodeJob]]:
        """Return some of the jobs, in slices of a job.

        numbers: indexes of the jobs.
        """
        decode, sentences = self.options.decode, self.job_sentences
        same = decode.prefix == self.options.prefix
        first = decode if same else replace(decode, prefix=self.options.prefix)
        jobs = list[DecodeJob]()
        for number in numbers:
            jobs.append(self._job(sentences[number], decode if number else first))
            yield
        return jobs

    def fallen_back(self, model: TextModel, sentence: Sentence) -> Sentence:
        """Return the fallback of a sentence of this plan.

        model: model that answers.
        sentence: sentence with a fallback.
        """
        fallback = _Planner(model, self.options, self.masked).fallback(sentence)
        return replace(fallback, clause=sentence.clause, numbers=sentence.numbers)

    def with_sentences(self, others: Mapping[int, Sentence]) -> Plan:
        """Return the same plan with other forms of some sentences, by number of the sentence."""
        sentences = [others.get(number, sentence) for number, sentence in enumerate(self.sentences)]
        return replace(self, sentences=sentences)

    def with_attention(self) -> Plan:
        """Return the same plan with attention for all jobs, which slows down each step."""
        decode = replace(self.options.decode, alignment=True)
        return replace(self, options=replace(self.options, decode=decode))

    @property
    def source(self) -> str:
        """Text of the caller."""
        return self.formats.source if self.formats else self.masked.original

    @property
    def tokens(self) -> int:
        """Number of source tokens of all sentences."""
        return sum(len(s.source) for s in self.sentences if s.source is not None)

    def _job(self, number: int, decode: DecodeOptions) -> DecodeJob:
        sentence = self.sentences[number]
        assert sentence.source
        return DecodeJob(sentence.source, sentence.options(decode))


def plan(
    model: TextModel,
    text: str | MarkedText,
    options: TextOptions,
    resolved: ResolvedOptions | None = None,
    most: float = math.inf,
) -> Slices[Plan]:
    """Make one text ready for the engine, in slices.

    model: model that answers.
    text: text, optionally with protected spans.
    options: options of the caller.
    resolved: result of `resolve` for these options; None: resolve them here.
    most: largest number of sentences.

    Raises InvalidRequest on unknown options and on text that is not Unicode, and TooLarge on too many
    sentences or on a whole text that exceeds the model's limit. The engine checks the values of options.
    """
    if not model.limits.attention:
        raise InvalidRequest(
            "a language model does not answer texts, it scores them: POST /score, convoy score"
        )
    marked = text if isinstance(text, MarkedText) else MarkedText(text)
    check_text(marked.text)
    resolved = resolved or resolve(model, options)
    unwrapped = unwrap(marked.text, resolved.newlines, marked.spans, marked.lines)
    marked = replace(marked, text=unwrapped.text)
    plain = yield from _without_markup(model, marked, resolved)
    # spans of the caller, moved to their places in the text without markup
    shown = MarkedText(plain.text, tuple((plain.position(b), plain.position(e)) for b, e in marked.spans))
    found = yield from _mask_phrases(model, shown, _mask_rules(model, shown, options, resolved))
    masked = found if model.placeholders else found.borders
    planner = _Planner(model, resolved, masked, most)
    planned = yield from planner.sentence_by_sentence() if resolved.split else planner.whole(options)
    lines, next_lines = (unwrapped.lines, ONE_LINE) if options.wraps else (ONE_LINE, unwrapped.lines)
    planned = replace(planned, lines=lines, next_lines=next_lines)
    phrases = planned.masked.written if model.placeholders else [p for p in found.written if not p[2].border]
    if plain.text == marked.text and (model.placeholders or not phrases):
        return planned
    formats = yield from formats_of(marked.text, plain, phrases)
    first = min((span.begin for span in formats.segment.spans), default=0)
    return replace(planned, formats=formats, formatted=_sentence_at(planned, first)).with_attention()


def _sentence_at(planned: Plan, position: int) -> int:
    """Return the number of the sentence that contains a position of the masked text, or of the next one."""
    end = 0
    for number, (gap, sentence) in enumerate(zip(planned.layout.gaps, planned.sentences, strict=False)):
        end += len(gap) + len(planned.masked.spell(sentence.text, sentence.phrases, {}))
        if position < end:
            return number
    return max(0, len(planned.sentences) - 1)


def _mask_phrases(model: TextModel, marked: MarkedText, rules: MaskRules) -> Slices[MaskedText]:
    found = yield from mask(marked, rules)
    return found.hinted if model.remote else found


def _without_markup(model: TextModel, marked: MarkedText, options: ResolvedOptions) -> Slices[PlainText]:
    if model.remote or not options.protect:
        return PlainText(marked.text)
    plain = yield from read_markup(marked.text, marked.spans)
    return (yield from read_capitals(plain, model.source, model.word_tokens, model.known_words))


class _Planner:
    """Planner of one masked text for a model."""

    def __init__(
        self, model: TextModel, options: ResolvedOptions, masked: MaskedText, most: float = math.inf
    ) -> None:
        """most: largest number of sentences."""
        self.model, self.options, self.masked, self.room = model, options, masked, most
        self.encode = cache(model.placeholder_tokenizer.encode)  # `_fits` encodes each sentence too

    def sentence_by_sentence(self) -> Slices[Plan]:
        """Plan each sentence as one source."""
        masked, model = self.masked, self.model
        protect = self.options.protect
        seen = masked.stand_in
        yield
        clauses, count = protect and not model.remote, self._count
        found = split(masked.text, model.source, self._fits, seen, clauses=clauses, count=count)
        layout = yield from found
        layout = paragraphs(layout, self._fits) if model.paragraphs else layout
        sentences, first = list[Sentence](), 0
        for number, text in enumerate(layout.sentences):
            yield
            phrases = tuple(range(first, first + masked.count(text)))
            first += len(phrases)
            fixed = self._fixed(text)
            if fixed:
                sentences.append(Sentence(text, None, fixed=fixed))
            elif _has_words(text) and number not in layout.fixed:
                numbers = protect and has_numbers(text, model.source)
                sentence = replace(
                    self._sentence(text, phrases), clause=number in layout.clauses, numbers=numbers
                )
                sentences.append(sentence)
            else:
                sentences.append(Sentence(text, None, phrases))
        return Plan(layout, sentences, self.options, masked)

    def _count(self, sentence: str) -> None:
        """Count a sentence that has words. Raises TooLarge if there are too many."""
        self.room -= _has_words(sentence)
        if self.room < 0:
            raise TooLarge(TOO_MANY_SENTENCES)

    def _fixed(self, text: str) -> str:
        """Return the fixed translation of a sentence, "" if it has none."""
        if not self.options.protect or self.options.prefix != self.model.tokenizer.beginning:
            return ""
        translation = self.model.words.translation(text)
        return follow(text, translation, self.model.languages) if translation else ""

    def whole(self, options: TextOptions) -> Slices[Plan]:
        """Plan the whole text as one source, or as the parts that the caller's strategy asks for."""
        model = self.model
        self.masked = self.masked.at_most(len(model.placeholders))
        text, phrases = self.masked.text, tuple(range(len(self.masked.phrases)))
        layout = _trimmed_layout(text)
        if not _has_words(text):
            echoes = [Sentence(sentence, None, phrases) for sentence in layout.sentences]
            return Plan(layout, echoes, self.options, self.masked)
        sentence = self._sentence(" ".join(text.split()), phrases)
        ids, limit = sentence.source or [], model.limits.source
        truncated = len(ids) > limit
        if truncated and options.cuts and model.task != "translate":
            return (yield from self._parts())
        if truncated and not (options.truncate or options.strategy == "truncate" or model.truncates):
            splits = "let it be split" if model.task == "translate" else ""
            remedy = splits or "choose a strategy: parts, refine, truncate"
            raise TooLarge(f"the text has {len(ids)} tokens; this model reads at most {limit}: {remedy}")
        if truncated:
            source = model.beginning(ids)
            sentence = replace(sentence, source=source, quotas=self._quotas(source, sentence.symbols))
        if model.task != "translate":  # a summary drops the white space around its text
            layout = Layout([text.strip()], ["", ""])
        return Plan(layout, [sentence], self.options, self.masked, truncated)

    def _parts(self) -> Slices[Plan]:
        """Plan a text that is too long for one summary as parts of whole sentences, as long as possible."""
        encode, limit = self.model.tokenizer.encode, self.model.limits.source

        def fits(part: str) -> bool:
            return len(encode(" ".join(part.split()))) < limit

        layout = yield from split(self.masked.text, self.model.source, fits)
        parts = yield from pack(layout.sentences, fits)
        sentences = list[Sentence]()
        for part in parts:
            sentences.append(self._sentence(" ".join(part.split()), ()))
            yield
        layout = Layout(parts, ["", *[" "] * (len(parts) - 1), ""])
        return Plan(layout, sentences, self.options, self.masked)

    def _fits(self, part: str) -> bool:
        """Return whether the source of a part, with placeholders for its phrases, is short enough."""
        symbols, count = self.model.placeholders, self.masked.count(part)
        if symbols and count > len(symbols):
            return False
        limit = min(self.model.limits.source, self.model.max_sentence_tokens)
        if len(part) > MAX_CHARACTERS_PER_TOKEN * limit:  # encoding it would take long
            return False
        spelled = self.masked.spell(part.strip(), range(count), dict(enumerate(symbols)))
        return len(self.encode(spelled)) < limit

    def _sentence(self, text: str, phrases: tuple[int, ...]) -> Sentence:
        """Plan a sentence in the first form that fits; the other forms are its fallbacks, in this order.

        verbatim: numbers and codes are spelled out, because models translate them better so
        fast: placeholders for all phrases, without attention and quotas
        masked: placeholders for all phrases, with attention and quotas, without quotation marks and brackets
        """
        symbols, marks = self._symbols(phrases), self._marks(text)
        untrusted = {n: symbol for n, symbol in symbols.items() if not self.masked.phrases[n].trusted}
        masked = partial(self._masked, text, phrases, marks)
        if len(untrusted) == len(symbols) and not marks:
            return masked()
        # models copy a quoted word that they would translate without its marks
        if marks and any(self.model.word_tokens(word) == 1 for word in quoted_words(text)):
            return masked()
        if not marks and not self.model.remote and self._loses_phrases(phrases):
            return replace(masked(), fast=True, fallback="masked")
        source = self._source(text, phrases, untrusted)
        if len(source) > self.model.limits.source:
            return masked()
        quotas, fallback = self._quotas(source, untrusted), "masked" if marks else "fast"
        return Sentence(text, source, phrases, untrusted, quotas, pairs=marks is not None, fallback=fallback)

    def fallback(self, sentence: Sentence) -> Sentence:
        """Return the form of a sentence that is decoded if the answer to the sentence is garbled."""
        masked = self._masked(sentence.text, sentence.phrases, self._marks(sentence.text))
        fast = sentence.fallback == "fast" and not self.model.remote  # an upstream is asked twice anyway
        return replace(masked, fast=True, fallback="masked") if fast else masked

    def _masked(self, text: str, phrases: tuple[int, ...], marks: Formats | None) -> Sentence:
        """Return a sentence with placeholders for all phrases, and without its marks."""
        symbols = self._symbols(phrases)
        source = self._source(marks.segment.text if marks else text, phrases, symbols)
        return Sentence(text, source, phrases, symbols, self._quotas(source, symbols), marks)

    def _symbols(self, phrases: tuple[int, ...]) -> dict[int, str]:
        """Return the placeholder of each phrase, except phrases that the model reads in other words."""
        masked = (number for number in phrases if not self.masked.phrases[number].read_as)
        return dict(zip(masked, self.model.placeholders, strict=False))

    def _marks(self, text: str) -> Formats | None:
        """Return the quotation marks and brackets of a sentence, None if there are none."""
        reads_pairs = self.model.remote or not self.options.protect
        plain = PlainText(text) if reads_pairs else without_pairs(text, self.model.target)
        return at_once(formats_of(text, plain, ())) if plain.formats and _has_words(plain.text) else None

    def _loses_phrases(self, numbers: Sequence[int]) -> bool:
        """Return whether a model loses one of these phrases nearly always if they are spelled out."""
        phrases = [p for p in map(self.masked.phrases.__getitem__, numbers) if p.trusted or p.name]
        return sum(not (p.in_words or p.read_as) for p in phrases) > 1 and any(p.name for p in phrases)

    def _source(self, text: str, phrases: tuple[int, ...], symbols: Mapping[int, str]) -> list[int]:
        """Return the tokens of a sentence with placeholders for some of its phrases."""
        model = self.model
        if self.options.protect and not model.remote and is_all_capitals(text):
            text = to_sentence_case(text, model.source, lambda word: len(self.encode(word)))
        spelled = {n: self.masked.phrases[n] for n in phrases if n not in symbols}
        hints = hint_tokens({phrase.source: phrase.target for phrase in spelled.values() if phrase.hinted})
        words = {n: phrase.read_as for n, phrase in spelled.items() if phrase.read_as}
        return [*self.encode(self.masked.spell(text, phrases, {**symbols, **words})), *hints, model.eos]

    def _quotas(self, source: Sequence[int], symbols: Mapping[int, str]) -> tuple[tuple[int, int], ...]:
        """Return the token of each placeholder, and how often a target may have it.

        This is once if the sentence was given the placeholder and the source has its piece, otherwise never:
        a word of the source that only begins with a placeholder word does not count.
        """
        if not symbols:
            return ()
        tokenizer = self.model.placeholder_tokenizer
        own = set(symbols.values()).intersection(tokenizer.pieces(source, target=False))
        # placeholders of the sentence first, as a request has at most QUOTAS
        ranked = sorted(self.model.placeholders, key=lambda symbol: symbol not in own)[:QUOTAS]
        return tuple((self.model.placeholder_token(symbol), int(symbol in own)) for symbol in ranked)


def _mask_rules(
    model: TextModel, marked: MarkedText, options: TextOptions, resolved: ResolvedOptions
) -> MaskRules:
    """Return the rules for masking a text. Raises InvalidRequest if marked phrases can't be kept."""
    if options.ignore or options.glossary or marked.spans:
        check_kept_phrases(options, model)
    elif not resolved.protect:
        return MaskRules()
    symbols = model.placeholders
    local = partial(localise, source=model.source, target=options.numerals or model.target)
    return MaskRules(
        ignore=(*options.ignore, *(word.word for word in model.placeholder_words)),
        glossary=options.glossary,
        protect=resolved.protect,
        nonwords=model.spaced and not model.remote,
        symbols=symbols,
        spaced=model.spaced,
        lacks=model.lacks,
        names=model.name_rule,
        languages=model.languages,
        local=local if options.local_numbers and resolved.protect else None,
        number_words=resolved.protect and bool(symbols) and not model.remote,
        long_forms=resolved.protect and model.task == "translate" and not model.remote,
    )


def _trimmed_layout(text: str) -> Layout:
    """Return the layout of a text as one sentence without white space around it; none if it is blank."""
    body = text.strip()
    if not body:
        return Layout([], [text])
    begin = text.index(body)
    return Layout([body], [text[:begin], text[begin + len(body) :]])


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)
