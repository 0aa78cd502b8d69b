"""A sentence of a text as a source for the engine, and the form of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.answers.formats import Formats
from engine.answers.options import ResolvedOptions
from engine.text.form import beginning, follow, is_all_capitals
from engine.types import QUOTAS, DecodeOptions


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a text, as the model reads it.

    text: sentence with a private-use character, the mark, in the place of each protected phrase.
    source: token ids that the model reads; None: the sentence is echoed, or has a fixed translation.
    phrases: numbers of the phrases of the plan that the marks replace, in order.
    symbols: placeholder of each phrase that `source` does not spell out, by number of the phrase.
    quotas: token of each placeholder with 1 if `source` has it, otherwise 0; empty without placeholders.
    marks: quotation marks and brackets removed from `source`; attention puts them back into the answer.
    pairs: `source` has quotation marks or brackets, which the model may lose.
    fallback: form to decode if this one's answer is garbled, "fast" or "masked"; "": there is none.
    fast: decode first without attention and token quotas; both slow down every request of the same step.
    fixed: fixed translation of the sentence in the bundle.
    clause: the sentence is a part of one that was cut at a dash or a bracket, so that it ends as its source.
    numbers: whether the text has digits, or numbers above two in words, outside its phrases.
    banned: tokens with digits that the answer must not have, since an earlier answer had wrong numbers.
    prefix: target tokens before the first of these tokens; None: this is no answer to wrong numbers.
    """

    text: str
    source: list[int] | None
    phrases: tuple[int, ...] = ()
    symbols: Mapping[int, str] = field(default_factory=dict)
    quotas: tuple[tuple[int, int], ...] = ()
    marks: Formats | None = None
    pairs: bool = False
    fallback: str = ""
    fast: bool = False
    fixed: str = ""
    clause: bool = False
    numbers: bool = False
    banned: tuple[int, ...] = ()
    prefix: tuple[int, ...] | None = None

    @property
    def unread(self) -> str:
        """Answer to a sentence that the model does not read."""
        return self.fixed or self.text

    @property
    def read(self) -> str:
        """Text without the quotation marks and brackets that `source` lacks."""
        return self.marks.segment.text if self.marks else self.text

    @property
    def spelled(self) -> list[int]:
        """Numbers of the phrases that `source` spells out."""
        return [number for number in self.phrases if number not in self.symbols]

    @property
    def can_lack(self) -> bool:
        """Whether an answer may lack phrases, marks or numbers that it must have."""
        return bool(self.phrases or self.fallback or self.numbers)

    def formed(self, answer: str, options: ResolvedOptions, languages: tuple[str, str]) -> str:
        """Return an answer in the form of the sentence: at least the capitals that `source` lacks.

        answer: answer with a mark in the place of each phrase.
        options: options of the answer.
        languages: codes of the two languages.
        """
        if options.follow_form or self.clause:
            return follow(self.read, answer, languages)
        return answer.upper() if options.protect and is_all_capitals(self.read) else answer

    def formed_beginning(self, settled: str, options: ResolvedOptions, languages: tuple[str, str]) -> str:
        """Return the beginning of the result of `formed` that later words cannot change.

        settled: whole words at the beginning of the answer.
        options: options of the answer.
        languages: codes of the two languages.
        """
        if options.follow_form or self.clause:
            return beginning(self.read, settled, languages)
        return self.formed(settled, options, languages)

    def options(self, decode: DecodeOptions) -> DecodeOptions:
        """Adapt decoding options to the sentence.

        If the answer must have phrases or marks, all hypotheses are returned. A sentence with placeholders is
        decoded with attention, and each placeholder of the source may come once, other placeholders never.
        """
        if self.prefix is not None:
            quotas = (*self.quotas, *((token, 0) for token in self.banned))[:QUOTAS]
            decode = replace(decode, n_best=decode.beam_size, prefix=self.prefix, quotas=quotas)
            return replace(decode, alignment=True) if self.symbols or self.marks else decode
        n_best = decode.beam_size if self.can_lack else decode.n_best
        if self.fast or not (self.symbols or self.marks):
            return replace(decode, n_best=n_best) if self.can_lack else decode
        return replace(decode, n_best=n_best, alignment=True, quotas=self.quotas)
