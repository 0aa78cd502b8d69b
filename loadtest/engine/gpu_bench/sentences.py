"""Sentences of newstest2013, and their lengths with random ids for models without a tokenizer.

A model with random weights would end its answers anywhere. So each answer is given its length, by
`min_length` and `max_length`: end-of-sentence is banned before that length and forced there. The length is
that of the line's translation in newstest2013.de, counted like its source: words and marks, times PIECES for
the pieces of BPE.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from engine.bundle.bundle import Bundle
from engine.bundle.config import ModelConfig
from engine.text.tokenizers.tokenizer import open_tokenizer
from engine.types import DecodeOptions, Outcome, Request
from loadtest.engine.gpu_bench.setting import Setting
from loadtest.texts import LONGEST_WORDS, MEDIAN_LOG, SPREAD
from loadtest.texts import sentences as made_up_sentences

PIECES: Final = 1.2  # assumed number of pieces a word with a joint BPE vocabulary of 33K
WORDS: Final = re.compile(r"\w+|[^\w\s]")
MAX_LINE_TOKENS: Final = 200
NEWSTEST: Final = "newstest/newstest2013.{}.gz"
MADE_UP_LINES: Final = 300  # used without newstest
FIRST_WORD: Final = 4  # lower ids are special tokens


@dataclass(frozen=True, slots=True)
class SizedSentence:
    """A source and the length of its answer.

    source: token ids with end-of-sentence.
    target: number of tokens of the answer without end-of-sentence.
    """

    source: tuple[int, ...]
    target: int


def lines(corpora: Path, language: str) -> list[str]:
    """Return the lines of newstest2013, or an empty list if the corpus is missing."""
    path = corpora / NEWSTEST.format(language)
    if not path.exists():
        return []
    return gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()


def lengths(corpora: Path, count: int) -> tuple[str, list[tuple[int, int]]]:
    """Return the origin of the lengths, and the numbers of source and target tokens of `count` sentences.

    The order is random but reproducible, so that the first ones are a fair sample.
    """
    chance = random.Random(2013)
    sides = [[_tokens(line) for line in lines(corpora, language)] for language in ("en", "de")]
    pairs = list(zip(*sides, strict=True))
    origin = "newstest2013 en and de"
    if not pairs:
        origin = "made up: a log-normal with newstest's median and spread"
        words = (min(LONGEST_WORDS, max(3, chance.lognormvariate(MEDIAN_LOG, SPREAD))) for _ in range(count))
        pairs = [(round(w * PIECES),) * 2 for w in words]
    chance.shuffle(pairs)
    return origin, [pairs[i % len(pairs)] for i in range(count)]


def sentences(config: ModelConfig, pairs: Sequence[tuple[int, int]], seed: int = 0) -> list[SizedSentence]:
    """Draw random words of given lengths, cut to the longest source of the model.

    config: configuration of the model.
    pairs: number of source and target tokens of each sentence.
    seed: number that determines the random words.
    """
    chance = np.random.default_rng(seed)
    most_source, most_target = config.max_source - 2, config.max_target - 1
    work = []
    for source, target in pairs:
        ids = chance.integers(FIRST_WORD, config.source_vocab, min(source, most_source))
        work.append(SizedSentence((*ids.tolist(), config.eos), min(target, most_target)))
    return work


def real_sources(setting: Setting, bundle: Bundle, count: int) -> tuple[str, list[list[int]]]:
    """Return the origin of the text, and the token ids of its lines, limited to the positions of the model.

    setting: options with the folder of corpora.
    bundle: model with a tokenizer.
    count: largest number of lines.
    """
    tokenizer, config = open_tokenizer(bundle), bundle.config
    origin, texts = f"newstest2013.{bundle.source}", lines(setting.corpora, bundle.source)
    if not texts:
        origin, more = "made up", made_up_sentences(2013)
        texts = [next(more) for _ in range(MADE_UP_LINES)]
    most = config.max_source - 2
    return origin, [[*tokenizer.encode(line)[:most], config.eos] for line in texts[:count]]


def request(sentence: SizedSentence, beam: int, reply: Callable[[Outcome], None]) -> Request:
    """Return a request whose answer has exactly the target's length.

    sentence: source, and length of the answer.
    beam: number of beams of the request.
    reply: function called with the outcome.
    """
    exact = sentence.target  # equal limits leave the search no other length
    options = DecodeOptions(beam_size=beam, min_length=exact, max_length=exact, max_length_b=exact)
    return Request(list(sentence.source), options, reply)


def _tokens(line: str) -> int:
    return min(MAX_LINE_TOKENS, max(1, round(PIECES * len(WORDS.findall(line)))))
