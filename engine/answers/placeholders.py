"""Chooses the words of a vocabulary that a model copies best as its placeholders.

A candidate is a word that is one token on both sides. It replaces a word of some sentences, and its score is
the share of answers that have its token exactly once. This works for any language: without texts, sentences
are made of words of the vocabulary.
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

DEFAULT_PLACEHOLDERS: Final = 8  # number of placeholders of a model
# candidates are tried in ROUGH_SENTENCES each; the best FINALISTS are tried again in FINE_SENTENCES each
CANDIDATES: Final = 240
ROUGH_SENTENCES: Final = 2
FINALISTS: Final = 32
FINE_SENTENCES: Final = 12
MAX_ANSWER_TOKENS: Final = 64
MIN_COPIED_SHARE: Final = 0.25  # least share of sentences; mending repairs the other answers
CANDIDATE_WORD: Final = re.compile(r"[^\W\d_]{2,12}")
REPLACED_WORD: Final = re.compile(r"[^\W\d_]{3,}")
ANY_WORD: Final = re.compile(r"[^\W\d_]+")  # made sentences such as "Er du es." have shorter words only

Decode = Callable[[Sequence[DecodeJob]], Sequence[Sequence[int]]]  # the best target of each source


@dataclass(frozen=True, slots=True)
class PlaceholderChoice:
    """Words that become placeholders of a model, best first.

    shares: share of sentences in which each word was copied, from 0 to 1.
    """

    words: tuple[PlaceholderWord, ...]
    shares: tuple[float, ...]

    @property
    def files(self) -> dict[str, bytes]:
        """Files for the bundle, by name."""
        return {PLACEHOLDERS_FILE: dump(self.words, sum(self.shares) / max(1, len(self.shares)))}


async def choose_placeholders(
    engine: AnyEngine, model: TextModel, vocabulary: int, texts: Sequence[str], count: int
) -> PlaceholderChoice:
    """Run `best_copied` with the model of an engine.

    engine: engine that decodes.
    model: text side of the model.
    vocabulary: number of source tokens.
    texts: sentences of the source language; may be empty.
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
    """Return the words of a vocabulary that a model copies most often.

    model: text side of the model.
    vocabulary: number of source tokens.
    decode: function that returns the best target of each source.
    texts: sentences of the source language; if empty, sentences are made of words of the vocabulary.
    count: largest number of words; each must be copied in MIN_COPIED_SHARE of the sentences.
    """
    words = list(_words(model, vocabulary))
    # a fixed seed: a model always gets the same words
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
    """Yield the words that are one token on both sides, and that decoding restores."""
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
    """Make sentences of random words of the vocabulary."""
    samples = (draw.choices(words, k=draw.randint(3, 7)) for _ in range(40)) if words else ()
    return [" ".join(word.word for word in sentence).capitalize() + "." for sentence in samples]


def _shares(
    model: TextModel, decode: Decode, words: Sequence[PlaceholderWord], sentences: Sequence[str]
) -> dict[PlaceholderWord, float]:
    """Return, by word, the share of sentences with one copy of the word in their greedy answer."""
    longest = min(MAX_ANSWER_TOKENS, model.limits.target)
    begin = model.tokenizer.beginning
    options = replace(model.defaults, n_best=1, beam_size=1, min_length=0, max_length=longest)
    options = replace(options, prefix=begin, free_prefix=len(begin))
    jobs: list[DecodeJob] = []
    tried: list[PlaceholderWord] = []
    for word in words:
        for sentence in _insert(word.word, sentences):
            source = model.tokenizer.encode(sentence)
            if source.count(word.source) == 1 and len(source) < model.limits.source:
                jobs.append(DecodeJob([*source, model.eos], options))
                tried.append(word)
    counts = dict.fromkeys(words, 0)
    for word, target in zip(tried, decode(jobs), strict=True):
        counts[word] += target.count(word.target) == 1
    return {word: count / max(1, len(sentences)) for word, count in counts.items()}


def _insert(word: str, sentences: Iterable[str]) -> Iterator[str]:
    """Replace the longest word of each sentence by a word."""
    for sentence in sentences:
        longest = max(ANY_WORD.finditer(sentence), key=lambda match: len(match[0]))
        yield sentence[: longest.start()] + word + sentence[longest.end() :]
