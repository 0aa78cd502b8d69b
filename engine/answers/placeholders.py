"""Which words of a model's vocabulary it copies best: those become its placeholders.

A candidate is a word that is one token on both sides. It is put into sentences in the place of one of their
words, and counts where the answer holds its token once. Nothing here depends on the language: without texts
the sentences are made of the vocabulary's own words.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.answers.text_model import TextModel
from engine.schedule.aio import generate_group
from engine.schedule.engine import Engine
from engine.text.borrowed import FILE, BorrowedWord, dump
from engine.types import DecodeJob

COUNT: Final = 8  # placeholders of a model
CANDIDATES: Final = 240  # words that are tried,
ROUGH: Final = 2  # each in so many sentences; of these the best FEW
FEW: Final = 32
FINE: Final = 12  # in so many
LONGEST: Final = 64  # tokens of an answer
LEAST: Final = 0.25  # of the sentences that a word must be kept in; mending does the rest
WORD: Final = re.compile(r"[^\W\d_]{2,12}")
PLACE: Final = re.compile(r"[^\W\d_]{3,}")

Decode = Callable[[Sequence[DecodeJob]], Sequence[Sequence[int]]]  # the best target of each source


@dataclass(frozen=True, slots=True)
class Borrowing:
    """Words, best first.

    shares: of the sentences that each was in, how many kept it.
    """

    words: tuple[BorrowedWord, ...]
    shares: tuple[float, ...]

    @property
    def files(self) -> dict[str, bytes]:
        """What a bundle gets."""
        return {FILE: dump(self.words, sum(self.shares) / max(1, len(self.shares)))}


async def borrow(
    engine: Engine, model: TextModel, vocabulary: int, texts: Sequence[str], count: int
) -> Borrowing:
    """Run `choose` with the model behind an engine."""
    loop = asyncio.get_running_loop()

    def decode(jobs: Sequence[DecodeJob]) -> list[list[int]]:
        results = asyncio.run_coroutine_threadsafe(generate_group(engine, jobs), loop).result()
        return [result.hypotheses[0].tokens for result in results]

    return await asyncio.to_thread(choose, model, vocabulary, decode, texts, count)


def choose(
    model: TextModel, vocabulary: int, decode: Decode, texts: Sequence[str] = (), count: int = COUNT
) -> Borrowing:
    """Try the words of a vocabulary of so many source tokens, and choose those that are copied most often.

    texts: sentences of the source language; without them of words of the vocabulary.

    Fewer words than asked for where fewer are copied in LEAST of the sentences.
    """
    words = list(_words(model, vocabulary))
    draw = random.Random(1)
    sentences = [text for text in texts if PLACE.search(text)] or _sentences(draw, words)
    capital = [word for word in words if word.word[:1].isupper()]
    rest = draw.sample(words, min(len(words), CANDIDATES))
    trial = list(dict.fromkeys([*draw.sample(capital, min(len(capital), CANDIDATES // 2)), *rest]))[
        :CANDIDATES
    ]
    rough = _shares(model, decode, trial, draw.sample(sentences, min(len(sentences), ROUGH)))
    best = [word for word in sorted(trial, key=lambda word: -rough[word]) if rough[word]][:FEW]
    fine = _shares(model, decode, best, draw.sample(sentences, min(len(sentences), FINE)))
    selection = [word for word in sorted(best, key=lambda word: -fine[word]) if fine[word] >= LEAST][:count]
    return Borrowing(tuple(selection), tuple(fine[word] for word in selection))


def _words(model: TextModel, vocabulary: int) -> Iterator[BorrowedWord]:
    """Words that are one token on both sides, and come back as they are."""
    tokenizer = model.tokenizer
    begin = len(tokenizer.encode("")) if tokenizer.encode("") else 0
    for token in range(vocabulary):
        word = tokenizer.word([token], target=False).strip()
        if not WORD.fullmatch(word) or tokenizer.encode(word)[begin:] != [token]:
            continue
        target = tokenizer.encode_target(word)
        if len(target) == 1 and tokenizer.decode(target) == word:
            yield BorrowedWord(word, token, target[0])


def _sentences(draw: random.Random, words: Sequence[BorrowedWord]) -> list[str]:
    """Sentences of words of the vocabulary, so that a model of any language has some."""
    samples = (draw.choices(words, k=draw.randint(3, 7)) for _ in range(40)) if words else ()
    return [" ".join(word.word for word in sentence).capitalize() + "." for sentence in samples]


def _shares(
    model: TextModel, decode: Decode, words: Sequence[BorrowedWord], sentences: Sequence[str]
) -> dict[BorrowedWord, float]:
    """How often each word came out once, by greedy search."""
    longest = min(LONGEST, model.limits.target)
    begin = model.tokenizer.beginning
    options = replace(model.defaults, n_best=1, beam_size=1, min_length=0, max_length=longest)
    options = replace(options, prefix=begin, free_prefix=len(begin))
    jobs: list[DecodeJob] = []
    tried: list[BorrowedWord] = []
    for word in words:
        for sentence in _with(word.word, sentences):
            source = model.tokenizer.encode(sentence)
            if source.count(word.source) == 1 and len(source) < model.limits.source:
                jobs.append(DecodeJob([*source, model.eos], options))
                tried.append(word)
    counts = dict.fromkeys(words, 0)
    for word, target in zip(tried, decode(jobs), strict=True):
        counts[word] += target.count(word.target) == 1
    return {word: count / max(1, len(sentences)) for word, count in counts.items()}


def _with(word: str, sentences: Iterable[str]) -> Iterator[str]:
    """Sentences with the word in the place of their longest one."""
    for sentence in sentences:
        longest = max(PLACE.finditer(sentence), key=lambda match: len(match[0]))
        yield sentence[: longest.start()] + word + sentence[longest.end() :]
