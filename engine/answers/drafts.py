"""Answers under way: the beginning of each text's answer that is certain, as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.answers.choices import choices
from engine.answers.plan import Plan, Sentence
from engine.answers.text_model import TextModel
from engine.schedule.aio import Watch
from engine.text.form import beginning
from engine.types import Result


@dataclass(frozen=True, slots=True)
class Partial:
    """The certain beginning of the answer to text `index`, up to the last complete word."""

    index: int
    text: str


class Drafts:
    """Collects the news of a group's jobs; nothing is decoded until somebody asks. For one event loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._changed: dict[int, None] = {}  # numbers of texts, the first changed first

    def begin(self, model: TextModel, plans: Sequence[Plan]) -> Watch:
        """Begin with the plans; return the function that hears the news of their jobs, all in one row."""
        self._model, self._plans = model, plans
        self._jobs = [
            (text, place)
            for text, plan in enumerate(plans)
            for place, sentence in enumerate(plan.sentences)
            if sentence.source is not None
        ]
        self._news: list[dict[int, list[int] | Result]] = [{} for _ in plans]  # of each text, by sentence
        # whole sentences, in order, with the phrases that their marks stand for
        self._ready: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in plans]
        self._told = [0] * len(plans)  # characters
        return self._watch

    def take(self) -> Iterator[Partial]:
        """Yield the newest beginning of each text where it has got longer since it was last taken."""
        self.changed.clear()
        while self._changed:
            number = next(iter(self._changed))
            del self._changed[number]
            text = self._beginning(number)
            if len(text) > self._told[number]:
                self._told[number] = len(text)
                yield Partial(number, text)

    def _watch(self, job: int, news: list[int] | Result) -> None:
        text, place = self._jobs[job]
        self._news[text][place] = news
        self._changed[text] = None
        self.changed.set()

    def _beginning(self, number: int) -> str:
        """Whole sentences and the white space between them, then the certain beginning of the next."""
        plan, news, ready = self._plans[number], self._news[number], self._ready[number]
        # only the finished answer shows where formats stand
        count = len(plan.sentences) if plan.formatted is None else plan.formatted
        while len(ready) < count:
            finished = self._finished(plan, plan.sentences[len(ready)], news.get(len(ready)))
            if finished is None:
                break
            ready.append(finished)
        texts, gaps = [text for text, _ in ready], plan.layout.gaps
        if len(ready) < count:
            texts += self._certain_text(plan, plan.sentences[len(ready)], news.get(len(ready)))
        parts = [gaps[0]] if texts else []
        for i, text in enumerate(texts):
            parts += [text] if not i else [gaps[i] or self._model.between, text]
        return plan.masked.restore("".join(parts), [number for _, order in ready for number in order])[0]

    def _finished(
        self, plan: Plan, sentence: Sentence, progress: list[int] | Result | None
    ) -> tuple[str, tuple[int, ...]] | None:
        """The answer to a sentence with the phrases of its marks; None as long as it may change."""
        if sentence.source is None:
            return sentence.unread, sentence.phrases
        if not isinstance(progress, Result):
            return None
        choice = choices(self._model, plan, sentence, progress.hypotheses)[0]
        if choice.garbled:  # the sentence is decoded again
            return None
        return choice.text, choice.order

    def _certain_text(
        self, plan: Plan, sentence: Sentence, progress: list[int] | Result | None
    ) -> Iterator[str]:
        """The certain beginning of a sentence under way, if there is some."""
        # only the finished sentence shows where phrases stand, and which words replace unknown ones
        settled = not (sentence.can_lack or plan.options.replace_unk)
        if isinstance(progress, Result) or not progress or not settled:
            return
        text = self._model.tokenizer.decode_whole_words(progress)
        text = text.replace(plan.masked.mark, "") if plan.masked.mark else text
        if plan.options.follow_form:
            text = beginning(sentence.text, text, self._model.languages)
        if text:
            yield text
