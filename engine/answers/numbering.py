"""Numbers of answers: a number that the source lacks, or lost numbers, and sentences to decode again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.answers.formats import formats_of
from engine.answers.plan import Plan
from engine.answers.sentence import Sentence
from engine.answers.text_model import TextModel
from engine.schedule.slices import at_once
from engine.text.numbers import DIGITS, foreign_magnitudes, foreign_numbers, foreign_words, shortened_words
from engine.text.placeables.markup import PlainText
from engine.text.placeables.masked_text import Phrase
from engine.text.placeables.pairs import without_pairs
from engine.types import Hypothesis

if TYPE_CHECKING:
    from engine.answers.formats import Formats

NUMBERED_WORD: Final = re.compile(r"[\w-]*\d[\w-]*")


class WrongNumbers(NamedTuple):
    """The wrong numbers of an answer.

    foreign: numbers in digits that the source has neither in digits nor in words.
    lost: numbers in digits of the source that the answer has neither in digits nor in words.
    words: numbers in words of the answer that the source lacks. If the source has no numbers and the answer
        was not decoded again without digits, only words for a million or more count. Then numbers in words
        of the source of which the answer has a part only: 90 of 95.
    """

    foreign: list[str]
    lost: list[str]
    words: list[int]


def wrong_numbers(model: TextModel, plan: Plan, sentence: Sentence, answer: str) -> WrongNumbers | None:
    """Return the wrong numbers of an answer, None if there are none.

    model: model that answered; the engine of a remote one has compared them.
    plan: plan of the text. Numbers are not compared without `protect`, or after a prefix of the caller.
    sentence: sentence of the plan; `MaskedText.garbles` checks the numbers in its phrases.
    answer: answer with a mark in the place of each placeholder.
    """
    if model.remote or not plan.options.protect or plan.options.prefix != model.tokenizer.beginning:
        return None
    source = plan.masked.spell(sentence.text, sentence.phrases, dict.fromkeys(sentence.symbols, ""))
    back = model.target, model.source
    foreign = foreign_numbers(answer, source, back)
    lost = foreign_numbers(sentence.text, answer, model.languages) if sentence.numbers else []
    # other sentences may have been streamed
    checked = sentence.prefix or sentence.can_lack
    words = foreign_words(answer, source, back) if checked else foreign_magnitudes(answer, source, back)
    if sentence.numbers:
        words += shortened_words(sentence.text, answer, model.languages)
    return WrongNumbers(foreign, lost, words) if foreign or lost or words else None


def without(numbers: Iterable[str], text: str) -> str:
    """Return a text without some of its numbers, and without the spaces before them."""
    for number in numbers:
        text = re.sub(rf" ?(?<!\d){re.escape(number)}(?!\d)", "", text)
    return text


def without_digits(
    model: TextModel, plan: Plan, sentence: Sentence, hypotheses: Sequence[Hypothesis]
) -> Sentence:
    """Return a sentence that is decoded again from its first wrong digit on, without such digits.

    model: model that answered.
    plan: plan of the text.
    sentence: sentence with wrong numbers in its best answer. Attention puts words with digits that are in no
        phrase back into the answer.
    hypotheses: results of the search, best first.
    """
    source = set(DIGITS.findall(plan.masked.spell(sentence.text, sentence.phrases, {})))
    source = {digit for run in source for digit in run}
    banned, prefix = dict[int, None](), list(hypotheses[0].tokens)
    for h in reversed(hypotheses):
        pieces = model.placeholder_tokenizer.pieces(h.tokens, target=True)
        digits = [set(filter(str.isdigit, piece)) for piece in pieces]
        wrong = [
            not found <= source and piece not in model.placeholders
            for piece, found in zip(pieces, digits, strict=True)
        ]
        banned |= dict.fromkeys(t for t, is_wrong in zip(h.tokens, wrong, strict=True) if is_wrong)
        prefix = h.tokens[: wrong.index(True)] if True in wrong else h.tokens[:0]
    begin = model.tokenizer.beginning
    whole = prefix if tuple(prefix[: len(begin)]) == begin else [*begin, *prefix]
    marks = _with_words(sentence, model) if sentence.numbers and model.placeholders else sentence.marks
    return replace(sentence, banned=tuple(banned), prefix=tuple(whole), marks=marks)


def _with_words(sentence: Sentence, model: TextModel) -> Formats:
    """Return the marks of a sentence, with its words with digits as phrases."""
    plain = without_pairs(sentence.text, model.target) if sentence.marks else PlainText(sentence.text)
    words = NUMBERED_WORD.finditer(plain.text)
    phrases = [(*match.span(), Phrase(match[0], match[0], False)) for match in words]
    return at_once(formats_of(sentence.text, plain, phrases))
