"""Unfinished answers: the certain beginning of the answer to each text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.answers.choices import choices
from engine.answers.plan import Plan
from engine.answers.sentence import Sentence
from engine.answers.text_model import TextModel
from engine.schedule.aio import Watch
from engine.schedule.slices import Slices
from engine.text.numbers import DIGITS
from engine.types import Result


@dataclass(frozen=True, slots=True)
class Partial:
    """The certain beginning of the answer to text `index`, up to the last complete word."""

    index: int
    text: str


class Drafts:
    """Collects the updates of a group's jobs; `take` turns them into text. For one event loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._changed: dict[int, None] = {}  # numbers of texts, the first changed first

    def begin(self, model: TextModel, plans: Sequence[Plan]) -> Watch:
        """Set the plans. Returns the function for updates of jobs, which are numbered across all plans."""
        self._model, self._plans = model, plans
        # text and sentence of each job
        self._jobs = [
            (text, number)
            for text, plan in enumerate(plans)
            for number, sentence in enumerate(plan.sentences)
            if sentence.source is not None
        ]
        # newest update of each sentence, by text
        self._updates: list[dict[int, list[int] | Result]] = [{} for _ in plans]
        # finished sentences of each text, with the phrases that their marks replace
        self._ready: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in plans]
        self._yielded = [0] * len(plans)  # number of characters that `take` has yielded
        return self._watch

    def take(self) -> Slices[list[Partial]]:
        """Return the beginning of each answer that has become longer since the last call, in slices of a
        sentence."""
        self.changed.clear()
        numbers, self._changed = self._changed, {}
        return self._take(numbers)

    def _take(self, numbers: Iterable[int]) -> Slices[list[Partial]]:
        """Return the beginnings of the answers to texts that have become longer."""
        partials = list[Partial]()
        for number in numbers:
            text = yield from self._beginning(number)
            if len(text) > self._yielded[number]:
                self._yielded[number] = len(text)
                partials.append(Partial(number, text))
        return partials

    def _watch(self, job: int, update: list[int] | Result) -> None:
        """Store the newest update of a job."""
        text, number = self._jobs[job]
        self._updates[text][number] = update
        self._changed[text] = None
        self.changed.set()

    def _beginning(self, number: int) -> Slices[str]:
        """Return the finished sentences of a text, and the certain beginning of the next sentence."""
        plan, updates, ready = self._plans[number], self._updates[number], self._ready[number]
        # the places of formats are known only in the finished answer
        count = len(plan.sentences) if plan.formatted is None else plan.formatted
        while len(ready) < count:
            finished = self._finished(plan, plan.sentences[len(ready)], updates.get(len(ready)))
            if finished is None:
                break
            ready.append(finished)
            yield
        texts, gaps = [text for text, _ in ready], plan.layout.gaps
        if len(ready) < count:
            texts += self._certain_text(plan, plan.sentences[len(ready)], updates.get(len(ready)))
        parts = [gaps[0]] if texts else []
        for i, text in enumerate(texts):
            parts += [text] if not i else [self._model.space(gaps[i], texts[i - 1]), text]
        order = [number for _, numbers in ready for number in numbers]
        text = plan.lines.wrap(plan.masked.restore("".join(parts), order)[0])
        # a mark after the last word may move the word to the next line
        return text.rpartition(" ")[0] if any(plan.lines.widths) and len(ready) < count else text

    def _finished(
        self, plan: Plan, sentence: Sentence, progress: list[int] | Result | None
    ) -> tuple[str, tuple[int, ...]] | None:
        """Return the answer to a sentence, and the phrases of its marks; None if it may still change."""
        if sentence.source is None:
            return sentence.unread, sentence.phrases
        if not isinstance(progress, Result):
            return None
        choice = choices(self._model, plan, sentence, progress.hypotheses)[0]
        if choice.garbled or choice.misnumbered:  # the sentence will be decoded again
            return None
        return choice.text, choice.order

    def _certain_text(
        self, plan: Plan, sentence: Sentence, progress: list[int] | Result | None
    ) -> Iterator[str]:
        """Yield the certain beginning of an unfinished sentence, if there is one."""
        # the places of phrases and the replacements of unknown words are known only at the end
        settled = not (sentence.can_lack or plan.options.replace_unk)
        if isinstance(progress, Result) or not progress or not settled:
            return
        text = self._model.tokenizer.decode_whole_words(progress)
        text = text.replace(plan.masked.mark, "") if plan.masked.mark else text
        if plan.options.protect:  # a sentence with wrong numbers is decoded again from the first digit on
            text = DIGITS.split(text, maxsplit=1)[0].rpartition(" ")[0] if DIGITS.search(text) else text
        text = sentence.formed_beginning(text, plan.options, self._model.languages)
        if text:
            yield text
