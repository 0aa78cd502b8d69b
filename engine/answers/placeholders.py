"""The words of its vocabulary that a model copies best become its placeholders.

A candidate is a word that is one token on both sides. A sentence gets the candidate in the place of one of
its words, and counts for the candidate where the answer holds its token once. Nothing here depends on the
language: without texts the sentences are made of the vocabulary's own words.
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
from engine.schedule.any_engine import AnyEngine
from engine.text.tokenizers.placeholder_words import PLACEHOLDERS_FILE, PlaceholderWord, dump
from engine.types import DecodeJob

DEFAULT_PLACEHOLDERS: Final = 8  # of a model
# words that are tried, each in ROUGH_SENTENCES; the best FINALISTS are tried again, each in FINE_SENTENCES
CANDIDATES: Final = 240
ROUGH_SENTENCES: Final = 2
FINALISTS: Final = 32
FINE_SENTENCES: Final = 12
MAX_ANSWER_TOKENS: Final = 64
MIN_COPIED_SHARE: Final = 0.25  # of the sentences that a word must be kept in; mending does the rest
CANDIDATE_WORD: Final = re.compile(r"[^\W\d_]{2,12}")
REPLACED_WORD: Final = re.compile(r"[^\W\d_]{3,}")

Decode = Callable[[Sequence[DecodeJob]], Sequence[Sequence[int]]]  # the best target of each source


@dataclass(frozen=True, slots=True)
class PlaceholderChoice:
    """The words that a model gets as placeholders, best first.

    shares: share of the sentences in which each word was copied, from 0 to 1.
    """

    words: tuple[PlaceholderWord, ...]
    shares: tuple[float, ...]

    @property
    def files(self) -> dict[str, bytes]:
        """The files that a bundle gets, by name."""
        return {PLACEHOLDERS_FILE: dump(self.words, sum(self.shares) / max(1, len(self.shares)))}


async def choose_placeholders(
    engine: AnyEngine, model: TextModel, vocabulary: int, texts: Sequence[str], count: int
) -> PlaceholderChoice:
    """Run `best_copied` with the model behind an engine.

    engine: the engine that decodes.
    model: its texts.
    vocabulary: number of source tokens.
    texts: sentences of the source language, perhaps none.
    count: number of placeholders.
    """
    loop = asyncio.get_running_loop()

    def decode(jobs: Sequence[DecodeJob]) -> list[list[int]]:
        results = asyncio.run_coroutine_threadsafe(generate_group(engine, jobs), loop).result()
        return [result.hypotheses[0].tokens for result in results]

    return await asyncio.to_thread(best_copied, model, vocabulary, decode, texts, count)


def best_copied(
    model: TextModel,
    vocabulary: int,
    decode: Decode,
    texts: Sequence[str] = (),
    count: int = DEFAULT_PLACEHOLDERS,
) -> PlaceholderChoice:
    """Try the words of a vocabulary, and choose those that are copied most often.

    model: the texts of the model.
    vocabulary: number of source tokens.
    decode: gives the best target of each source.
    texts: sentences of the source language; without texts they are made of words of the vocabulary.
    count: number of words; there are fewer where fewer are copied in MIN_COPIED_SHARE of the sentences.
    """
    words = list(_words(model, vocabulary))
    draw = random.Random(1)
    sentences = [text for text in texts if REPLACED_WORD.search(text)] or _sentences(draw, words)
    capital = [word for word in words if word.word[:1].isupper()]
    rest = draw.sample(words, min(len(words), CANDIDATES))
    trial = list(dict.fromkeys([*draw.sample(capital, min(len(capital), CANDIDATES // 2)), *rest]))[
        :CANDIDATES
    ]
    rough = _shares(model, decode, trial, draw.sample(sentences, min(len(sentences), ROUGH_SENTENCES)))
    best = [word for word in sorted(trial, key=lambda word: -rough[word]) if rough[word]][:FINALISTS]
    fine = _shares(model, decode, best, draw.sample(sentences, min(len(sentences), FINE_SENTENCES)))
    selection = [
        word for word in sorted(best, key=lambda word: -fine[word]) if fine[word] >= MIN_COPIED_SHARE
    ][:count]
    return PlaceholderChoice(tuple(selection), tuple(fine[word] for word in selection))


def _words(model: TextModel, vocabulary: int) -> Iterator[PlaceholderWord]:
    """Words that are one token on both sides, and come back as they are."""
    tokenizer = model.tokenizer
    begin = len(tokenizer.encode("")) if tokenizer.encode("") else 0
    for token in range(vocabulary):
        word = tokenizer.word([token], target=False).strip()
        if not CANDIDATE_WORD.fullmatch(word) or tokenizer.encode(word)[begin:] != [token]:
            continue
        target = tokenizer.encode_target(word)
        if len(target) == 1 and tokenizer.decode(target) == word:
            yield PlaceholderWord(word, token, target[0])


def _sentences(draw: random.Random, words: Sequence[PlaceholderWord]) -> list[str]:
    """Sentences of words of the vocabulary, so that a model of any language has some."""
    samples = (draw.choices(words, k=draw.randint(3, 7)) for _ in range(40)) if words else ()
    return [" ".join(word.word for word in sentence).capitalize() + "." for sentence in samples]


def _shares(
    model: TextModel, decode: Decode, words: Sequence[PlaceholderWord], sentences: Sequence[str]
) -> dict[PlaceholderWord, float]:
    """How often each word came out once, by greedy search."""
    longest = min(MAX_ANSWER_TOKENS, model.limits.target)
    begin = model.tokenizer.beginning
    options = replace(model.defaults, n_best=1, beam_size=1, min_length=0, max_length=longest)
    options = replace(options, prefix=begin, free_prefix=len(begin))
    jobs: list[DecodeJob] = []
    tried: list[PlaceholderWord] = []
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
        longest = max(REPLACED_WORD.finditer(sentence), key=lambda match: len(match[0]))
        yield sentence[: longest.start()] + word + sentence[longest.end() :]
