"""Answers to one sentence: with its phrases and marks, right ones before mended ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from engine.answers.alignment import make_alignments
from engine.answers.formats import apply
from engine.answers.plan import Plan, Sentence
from engine.answers.text_model import TextModel
from engine.text.form import follow
from engine.text.placeables.mend import mend, whole
from engine.text.placeables.pairs import close_as_opened, keeps_pairs
from engine.types import Hypothesis

GLUED_WORD: Final = re.compile(r"[^\W\d_]{5}")  # that touches a phrase, and is no ending


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer to a sentence.

    text: the answer, with marks for phrases of the plan.
    order: numbers of the phrases that the marks stand for.
    pieces: pieces of the target as it is written, end-of-sentence included.
    attention: float array [pieces, source], or None.
    forced: number of phrases and marks that were put back by force.
    garbled: whether it lacks what the model has read as it is (number, name or mark) or repeats it, or lacks
        a placeholder and no attention says its place.
    """

    hypothesis: Hypothesis
    text: str
    order: tuple[int, ...]
    pieces: list[str]
    attention: Any
    forced: int = 0
    garbled: bool = False


def choices(
    model: TextModel, plan: Plan, sentence: Sentence, hypotheses: Sequence[Hypothesis]
) -> list[Choice]:
    """List the answers to a sentence: right ones (each phrase is there once), then mended ones, best first.

    model: the model that answered.
    plan: the plan of the text.
    sentence: one of its sentences.
    hypotheses: the search's answers to the sentence, best first.
    """
    if not sentence.can_lack:
        return [_choice(model, plan, sentence, h) for h in hypotheses]
    right, wrong, count = list[Choice](), list[Choice](), plan.options.decode.n_best
    every, symbols = frozenset(model.placeholders), _required_placeholders(model, sentence)
    for h in hypotheses:
        pieces = model.placeholder_tokenizer.pieces(h.tokens, target=True)
        good = whole(pieces, list(symbols), every)
        kept = good or h.attention is None
        mended = (h.tokens, h.attention) if kept else _mend_placeholders(model, h, symbols, every)
        forced = sum(pieces.count(symbol) != 1 for symbol in symbols)
        choice = _choice(model, plan, sentence, h, *mended)
        garbled = _is_garbled(plan, sentence, choice.text, whole=good or not kept)
        if forced or garbled:
            choice = replace(choice, forced=choice.forced + forced, garbled=garbled)
        (right if good and not garbled else wrong).append(choice)
        if len(right) == count:  # the others cost as much, and nobody sees them
            break
    return [*right, *wrong][:count]


def _is_garbled(plan: Plan, sentence: Sentence, answer: str, *, whole: bool) -> bool:
    """See `Choice.garbled`.

    whole: whether the answer holds each placeholder once, mended or not.
    """
    if sentence.stricter is None:
        return False
    lost = sentence.pairs and not keeps_pairs(sentence.text, answer)
    return lost or not whole or plan.masked.garbles(answer, sentence.spelled)


def _required_placeholders(model: TextModel, sentence: Sentence) -> dict[str, int]:
    """The placeholders that a sentence must have, each with its position in the source; not those cut off."""
    assert sentence.source
    pieces = model.placeholder_tokenizer.pieces(sentence.source, target=False)
    columns = {piece: i for i, piece in enumerate(pieces)}
    return {symbol: columns[symbol] for symbol in sentence.symbols.values() if symbol in columns}


def _choice(
    model: TextModel,
    plan: Plan,
    sentence: Sentence,
    hypothesis: Hypothesis,
    tokens: list[int] | None = None,
    attention: Any = None,
) -> Choice:
    """Make an answer of a hypothesis.

    tokens, attention: as they were mended, if they were.
    """
    if tokens is None:
        tokens, attention = hypothesis.tokens, hypothesis.attention
    order = list[int]()
    tokenizer = model.placeholder_tokenizer if sentence.symbols else model.tokenizer
    if plan.options.replace_unk and attention is not None:
        text = tokenizer.replace_unknown(tokens, attention, sentence.read)
    else:
        text = tokenizer.decode(tokens)
    if plan.masked.mark:
        text = text.replace(plan.masked.mark, "")
    if sentence.pairs:
        text = close_as_opened(text, model.target)
    text = plan.masked.respelled(text, sentence.spelled, model.word_tokens)
    numbers = {symbol: number for number, symbol in sentence.symbols.items()}

    def hide(match: re.Match[str]) -> str:
        order.append(numbers[match.group()])
        return plan.masked.mark

    if numbers:
        text = re.sub("|".join(map(re.escape, numbers)), hide, text)
        text = _apart(sentence, text, order, plan.masked.mark)
    if plan.options.follow_form:
        text = follow(sentence.read, text, model.languages)
    choice = Choice(
        hypothesis, text, tuple(order), tokenizer.pieces([*tokens, model.eos], target=True), attention
    )
    return choice if sentence.marks is None else _with_marks(model, plan, sentence, choice)


def _apart(sentence: Sentence, text: str, order: Sequence[int], mark: str) -> str:
    """An answer with a space between a phrase and a word that touches it, where the sentence has one."""
    first, *rest = text.split(mark)
    if not any(map(GLUED_WORD.match, rest)):
        return text
    after = dict(zip(sentence.phrases, sentence.text.split(mark)[1:], strict=True))
    glued = (GLUED_WORD.match(part) and after[n][:1] == " " for n, part in zip(order, rest, strict=True))
    parts = (mark + " " * bool(apart) + part for apart, part in zip(glued, rest, strict=True))
    return first + "".join(parts)


def _with_marks(model: TextModel, plan: Plan, sentence: Sentence, choice: Choice) -> Choice:
    """An answer with the quotation marks and brackets that its source lacked."""
    assert sentence.marks and sentence.source
    tokenizer, mark = model.placeholder_tokenizer, plan.masked.mark
    symbols = dict.fromkeys(sentence.symbols.values(), mark)
    sources, targets = (
        [symbols.get(piece, piece) for piece in pieces]
        for pieces in (tokenizer.pieces(sentence.source, target=False), choice.pieces)
    )
    alignment = make_alignments(sentence.read, choice.text, [sources], [targets], [choice.attention])
    text = apply(sentence.marks, choice.text, alignment, (), model.languages).text
    return replace(choice, text=text, forced=len(sentence.marks.formats))


def _mend_placeholders(
    model: TextModel, hypothesis: Hypothesis, columns: dict[str, int], symbols: frozenset[str]
) -> tuple[list[int], Any]:
    """Tokens and attention of a target in which each symbol of `columns` is there once."""
    tokenizer, tokens, rows = model.placeholder_tokenizer, list(hypothesis.tokens), list(hypothesis.attention)
    pieces = tokenizer.pieces(tokens, target=True)
    words = tokenizer.words(tokens, target=True)
    for edit in mend(pieces, columns, symbols, hypothesis.attention, words):
        new = tokenizer.encode_target(edit.symbol) if edit.symbol else []
        new = new[-1:] if edit.remove else new  # in the place of another, the space before it stays
        end = edit.at + edit.remove
        tokens[edit.at : end] = new
        there = np.zeros_like(hypothesis.attention[0])
        there[columns.get(edit.symbol or "", 0)] = 1
        rows[edit.at : end] = [there] * len(new)
    return tokens, np.stack(rows)
