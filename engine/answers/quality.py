"""How far an answer can be trusted: source words that nothing attended to, and targets that go round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

# attention mass, in target tokens, below which a source word counts as missed: 4 % of the words of the
# Tatoeba test sets do, most of them "of", "to" and "zu", and 20 % when only half of the answer is decoded
MISSED: Final = 0.2
NGRAM_TOKENS: Final = 4
LOOP_REPEATS: Final = 3
MIN_LOOP_TOKENS: Final = 6
MAX_REPEATED_TOKENS: Final = 24


@dataclass(frozen=True, slots=True)
class Coverage:
    """The attention that the words of one sentence got.

    words: words of the source.
    mass: attention on each word, summed over all target tokens (end-of-sentence included) and the word's
        pieces.
    missed: numbers of the words with a letter or digit and a mass below MISSED: the answer may lack their
        sense.
    """

    words: list[str]
    mass: list[float]
    missed: list[int]


@dataclass(frozen=True, slots=True)
class Repetition:
    """How much of an answer is said again.

    share: share of a sentence's 4-grams of target tokens that stood in it before, from 0 to 1.
    loop: whether up to 24 tokens are repeated three times or more in a row, six tokens or more in all.
    """

    share: float = 0.0
    loop: bool = False


def coverage(attention: Any, words: Sequence[str], starts: Sequence[int]) -> Coverage:
    """Sum up the attention on each word of a source.

    attention: float array [target, source], rows sum to 1; its last column is end-of-sentence.
    words: words of the source.
    starts: position in the source where each word begins.
    """
    columns = attention[:, :-1].sum(0)
    ends = [*starts[1:], len(columns)]
    mass = [float(columns[begin:end].sum()) for begin, end in zip(starts, ends, strict=True)]
    contents = (any(c.isalnum() for c in word) for word in words)
    missed = [i for i, (m, content) in enumerate(zip(mass, contents, strict=True)) if content and m < MISSED]
    return Coverage(list(words), mass, missed)


def repetition(sentences: Sequence[Sequence[int]]) -> Repetition:
    """Measure the worst of several targets, in token ids."""
    return Repetition(share=max(map(_repetition, sentences), default=0.0), loop=any(map(_loops, sentences)))


def _repetition(tokens: Sequence[int]) -> float:
    grams = [tuple(tokens[i : i + NGRAM_TOKENS]) for i in range(len(tokens) - NGRAM_TOKENS + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _loops(tokens: Sequence[int]) -> bool:
    for unit in range(1, min(MAX_REPEATED_TOKENS, len(tokens) // LOOP_REPEATS) + 1):
        # tokens equal to the one a unit before
        enough, run = max(LOOP_REPEATS * unit, MIN_LOOP_TOKENS) - unit, 0
        for i in range(unit, len(tokens)):
            run = run + 1 if tokens[i] == tokens[i - unit] else 0
            if run >= enough:
                return True
    return False
