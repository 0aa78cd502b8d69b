"""Answers under way: the beginning of each text's answer that is certain, as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.answers.compose import choices, is_garbled
from engine.answers.plan import Plan, Sentence
from engine.answers.text_model import TextModel
from engine.schedule.aio import Watch
from engine.text.form import beginning
from engine.types import Result


@dataclass(frozen=True, slots=True)
class Partial:
    """What the answer to text `index` is certain to begin with, up to the last complete word."""

    index: int
    text: str


class Drafts:
    """Collects the news of a group's jobs; nothing is decoded until somebody asks. For one event loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._changed: dict[int, None] = {}  # numbers of texts, the first changed first

    def begin(self, model: TextModel, plans: Sequence[Plan]) -> Watch:
        """Begin with the plans; return what is to be told the news of their jobs, all in one row."""
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
        """Whole sentences and the white space between them, then what is settled of the next."""
        plan, news, ready = self._plans[number], self._news[number], self._ready[number]
        settled = ""
        while len(ready) < len(plan.sentences) and not settled:
            sentence, progress = plan.sentences[len(ready)], news.get(len(ready))
            if sentence.source is None:
                ready.append((sentence.text, sentence.phrases))
            elif isinstance(progress, Result):
                choice = choices(self._model, plan, sentence, progress.hypotheses)[0]
                if is_garbled(plan, sentence, choice):  # it is decoded again
                    break
                ready.append((choice.text, choice.order))
            elif progress is None or sentence.phrases or plan.replace_unk:  # which words is known in the end
                break
            else:
                settled = self._certain_text(plan, sentence, progress)
                break
        texts, gaps = [text for text, _ in ready], plan.layout.gaps
        if settled:
            texts.append(settled)
        parts = [gaps[0]] if texts else []
        for i, text in enumerate(texts):
            parts += [text] if not i else [gaps[i] or self._model.between, text]
        return plan.masked.restore("".join(parts), [number for _, order in ready for number in order])[0]

    def _certain_text(self, plan: Plan, sentence: Sentence, tokens: list[int]) -> str:
        text = self._model.tokenizer.decode_whole_words(tokens)
        text = text.replace(plan.masked.mark, "") if plan.masked.mark else text
        return beginning(sentence.text, text, self._model.languages) if plan.follow_form else text
