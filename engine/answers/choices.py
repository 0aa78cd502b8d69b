"""Answers to one sentence, with its phrases and marks: correct answers before mended ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from engine.answers.alignment import make_alignments
from engine.answers.formats import apply
from engine.answers.numbering import without, wrong_numbers
from engine.answers.plan import Plan
from engine.answers.quality import Coverage
from engine.answers.sentence import Sentence
from engine.answers.text_model import TextModel
from engine.schedule.slices import at_once
from engine.text.numbers import DIGITS, foreign_numbers
from engine.text.placeables.mend import mend, whole
from engine.text.placeables.pairs import close_as_opened, keeps_pairs
from engine.types import Hypothesis

HOUR_OR_DAY: Final = re.compile(r"(\d{1,2})(?:.Uhr)?")
NOON: Final = 12
MORNING: Final = re.compile(r"\d ?a\.?m(?!\w)", re.IGNORECASE)
GLUED_WORD: Final = re.compile(r"[^\W\d_]{5}")  # a word that touches a phrase; an ending is shorter


@dataclass(frozen=True, slots=True)
class Origin:
    """The other model that gave an answer to a sentence.

    model: name of the model.
    source, target: pieces of the model's alignment, end-of-sentence included.
    coverage: attention on the words of the sentence, if requested.
    """

    model: str
    source: list[str]
    target: list[str]
    coverage: list[Coverage]


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer to a sentence.

    text: answer with `MaskedText.mark`, a private-use character, in the place of each protected phrase.
    order: number of the phrase of each such mark, in the order of the text.
    pieces: target pieces, end-of-sentence included.
    attention: float array [pieces, source], or None.
    forced: number of phrases and marks that were put back by force.
    garbled: whether the answer lacks or repeats a number, name, quotation mark or bracket that the source
        spells out, or lacks a placeholder that can't be put back without attention.
    misnumbered: whether the answer has numbers that its source lacks, or lacks numbers, and the sentence was
        not yet decoded without their digits.
    origin: other model that gave the answer, whose tokens and attention these are; None: the model itself.
    """

    hypothesis: Hypothesis
    text: str
    order: tuple[int, ...]
    pieces: list[str]
    attention: Any
    forced: int = 0
    garbled: bool = False
    misnumbered: bool = False
    origin: Origin | None = None


def choices(
    model: TextModel, plan: Plan, sentence: Sentence, hypotheses: Sequence[Hypothesis]
) -> list[Choice]:
    """List the answers to a sentence, best first: correct answers (each phrase once), then mended ones.

    model: model that answered.
    plan: plan of the text.
    sentence: sentence of the plan.
    hypotheses: results of the search, best first.
    """
    count = plan.options.decode.n_best
    if not sentence.can_lack:
        return _choices_without_phrases(model, plan, sentence, hypotheses)[:count]
    correct, mended = list[Choice](), list[Choice]()
    placeholders, required = frozenset(model.placeholders), _required_placeholders(model, sentence)
    for h in hypotheses:
        pieces = model.placeholder_tokenizer.pieces(h.tokens, target=True)
        is_whole = whole(pieces, list(required), placeholders)
        needs_no_mending = is_whole or h.attention is None
        target = (
            (h.tokens, h.attention)
            if needs_no_mending
            else _mend_placeholders(model, h, required, placeholders)
        )
        forced = sum(pieces.count(symbol) != 1 for symbol in required)
        choice = _make_choice(model, plan, sentence, h, *target)
        mended_whole = is_whole or not needs_no_mending
        garbled = _is_garbled(plan, sentence, choice.text, model.languages, whole=mended_whole)
        if forced or garbled:
            choice = replace(choice, forced=choice.forced + forced, garbled=garbled)
        numbered = choice if garbled else _with_numbers(model, plan, sentence, choice)
        right = is_whole and not garbled and numbered is choice
        (correct if right else mended).append(numbered)
        if len(correct) == count:
            break
    return [*correct, *mended][:count]


def _choices_without_phrases(
    model: TextModel, plan: Plan, sentence: Sentence, hypotheses: Sequence[Hypothesis]
) -> list[Choice]:
    """List the answers to a sentence without phrases: answers with right numbers first."""
    made = [_make_choice(model, plan, sentence, h) for h in hypotheses]
    made = [_with_numbers(model, plan, sentence, found) for found in made]
    return sorted(made, key=lambda choice: choice.misnumbered or bool(choice.forced))


def _with_numbers(model: TextModel, plan: Plan, sentence: Sentence, choice: Choice) -> Choice:
    """Return a choice with right numbers unchanged.

    Another choice is marked, so that the sentence is decoded again: in its fallback form, or without wrong
    digits. If it was, or if only words are wrong, the answer is the source. It only loses the digits if a
    stream has sent its beginning.
    """
    wrong = wrong_numbers(model, plan, sentence, choice.text)
    if not wrong:
        return choice
    if sentence.fallback:
        return replace(choice, garbled=True)
    if sentence.prefix is None and (wrong.foreign or wrong.lost):
        return replace(choice, misnumbered=True)
    if sentence.can_lack:
        return replace(choice, text=sentence.text, order=sentence.phrases, forced=choice.forced + 1)
    return replace(choice, text=without(wrong.foreign, choice.text), forced=choice.forced + 1)


def _is_garbled(
    plan: Plan, sentence: Sentence, answer: str, languages: tuple[str, str], *, whole: bool
) -> bool:
    """Return `Choice.garbled` of an answer.

    languages: codes of the languages of the sentence and of the answer.
    whole: whether the answer has each placeholder once, also after mending.
    """
    if not sentence.fallback:
        return False
    lost = sentence.pairs and not keeps_pairs(sentence.text, answer)
    garbled = plan.masked.garbles(answer, sentence.spelled, languages[1])
    if garbled and not (lost or not whole):
        exact = _exact_phrases(plan, sentence, answer, languages)
        return len(exact) == len(sentence.spelled) or plan.masked.garbles(answer, exact, languages[1])
    return lost or not whole or garbled


def _exact_phrases(plan: Plan, sentence: Sentence, answer: str, languages: tuple[str, str]) -> list[int]:
    """Return the phrases in the source of a sentence that its answer must have to the letter.

    Others are numbers that the answer has as ordinals (October 20th), or as hours (5 p.m.) of half a day.
    """
    source = plan.masked.spell(sentence.text, sentence.phrases, {})
    digits = set(DIGITS.findall(answer))
    has_others = not digits.issubset(DIGITS.findall(source))

    def is_named(number: str) -> bool:
        found = HOUR_OR_DAY.fullmatch(number)
        if not found or source.count(number) > 1:
            return False
        number = found[1]
        ordinals = re.findall(rf"(?<![\w.,]){number}(?:st|nd|rd|th|e|er|ème)(?!\w)", answer)
        morning = int(number) > NOON and MORNING.search(answer)
        shifted = has_others and not morning and digits.isdisjoint(DIGITS.findall(number))
        return len(ordinals) == 1 or (shifted and number not in foreign_numbers(source, answer, languages))

    return [number for number in sentence.spelled if not is_named(plan.masked.phrases[number].source)]


def _required_placeholders(model: TextModel, sentence: Sentence) -> dict[str, int]:
    """Return the placeholders in the source of a sentence, each with its position."""
    assert sentence.source
    pieces = model.placeholder_tokenizer.pieces(sentence.source, target=False)
    columns = {piece: i for i, piece in enumerate(pieces)}
    return {symbol: columns[symbol] for symbol in sentence.symbols.values() if symbol in columns}


def _make_choice(
    model: TextModel,
    plan: Plan,
    sentence: Sentence,
    hypothesis: Hypothesis,
    tokens: list[int] | None = None,
    attention: Any = None,
) -> Choice:
    """Decode a hypothesis and correct its text: quotation marks, spelling, marks for phrases, then form.

    tokens: target ids with each placeholder once; None: ids and attention of the hypothesis.
    attention: float array [target, source] that belongs to `tokens`, or None.
    """
    if tokens is None:
        tokens, attention = hypothesis.tokens, hypothesis.attention
    order = list[int]()
    tokenizer = model.placeholder_tokenizer if sentence.symbols else model.tokenizer
    if plan.options.replace_unk and attention is not None:
        text = tokenizer.replace_unknown(tokens, attention, sentence.read)
    else:
        text = tokenizer.decode(tokens)
    if plan.masked.mark:  # a mark that the model wrote replaces no phrase
        text = text.replace(plan.masked.mark, "")
    if sentence.pairs:
        text = close_as_opened(text, model.target)
    text = plan.masked.respelled(text, sentence.spelled, model.word_tokens)
    numbers = {symbol: number for number, symbol in sentence.symbols.items()}

    def hide(match: re.Match[str]) -> str:
        """Return the mark that replaces a placeholder, and append its phrase's number to `order`."""
        order.append(numbers[match.group()])
        return plan.masked.mark

    if numbers:
        text = re.sub("|".join(map(re.escape, numbers)), hide, text)
        text = _separate_words(sentence, text, order, plan.masked.mark)
    # last: as in the source, marks now stand for the phrases
    text = sentence.formed(text, plan.options, model.languages)
    choice = Choice(
        hypothesis, text, tuple(order), tokenizer.pieces([*tokens, model.eos], target=True), attention
    )
    return choice if sentence.marks is None else _with_marks(model, plan, sentence, choice)


def _separate_words(sentence: Sentence, text: str, order: Sequence[int], mark: str) -> str:
    """Insert a space between a phrase and a word that touches it, if the sentence has a space there.

    sentence: sentence of the source.
    text: answer with a mark for each phrase.
    order: number of the phrase of each mark in `text`.
    mark: character that stands for a phrase.
    """
    parts, sources = text.split(mark), sentence.text.split(mark)
    around = dict(zip(sentence.phrases, pairwise(sources), strict=True))  # text before and after each phrase
    for number, phrase in enumerate(order):
        before, after = around[phrase]
        if before[-1:] == " " and parts[number][-1:].isalpha():
            parts[number] += " "
        if after[:1] == " " and GLUED_WORD.match(parts[number + 1]):
            parts[number + 1] = " " + parts[number + 1]
    return mark.join(parts)


def _with_marks(model: TextModel, plan: Plan, sentence: Sentence, choice: Choice) -> Choice:
    """Put the quotation marks and brackets that the source lacked into an answer."""
    assert sentence.marks and sentence.source
    tokenizer, mark = model.placeholder_tokenizer, plan.masked.mark
    symbols = dict.fromkeys(sentence.symbols.values(), mark)
    sources, targets = (
        [symbols.get(piece, piece) for piece in pieces]
        for pieces in (tokenizer.pieces(sentence.source, target=False), choice.pieces)
    )
    alignment = at_once(make_alignments(sentence.read, choice.text, [sources], [targets], [choice.attention]))
    formatted = at_once(apply(sentence.marks, choice.text, alignment, (), model.languages))
    return replace(choice, text=formatted.text, forced=len(sentence.marks.formats) + formatted.forced)


def _mend_placeholders(
    model: TextModel, hypothesis: Hypothesis, columns: dict[str, int], symbols: frozenset[str]
) -> tuple[list[int], Any]:
    """Return the tokens and the attention of a target, edited to have each placeholder once.

    columns: position of each required placeholder in the source.
    symbols: all placeholders of the model.
    """
    tokenizer, tokens, rows = model.placeholder_tokenizer, list(hypothesis.tokens), list(hypothesis.attention)
    pieces = tokenizer.pieces(tokens, target=True)
    words = tokenizer.words(tokens, target=True)
    for edit in mend(pieces, columns, symbols, hypothesis.attention, words):
        new = tokenizer.encode_target(edit.symbol) if edit.symbol else []
        new = new[-1:] if edit.remove else new  # a replaced token keeps the space before it
        end = edit.at + edit.remove
        tokens[edit.at : end] = new
        # an inserted token attends only to its placeholder in the source
        row = np.zeros_like(hypothesis.attention[0])
        row[columns.get(edit.symbol or "", 0)] = 1
        rows[edit.at : end] = [row] * len(new)
    return tokens, np.stack(rows)
