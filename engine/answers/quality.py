"""Measures of the quality of an answer: attention on source words, and repetition in targets."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

# a source word with less attention, in target tokens, counts as missed, unless it is an empty word:
# with "of", "to" and "zu" 4 % of the words of the Tatoeba test sets, and 20 % if only half of the answer
# is decoded
MISSED: Final = 0.2
MARKS: Final = '.,;:!?()[]"“”„«»…'  # around a word of a source
NGRAM_TOKENS: Final = 4
LOOP_REPEATS: Final = 3
MIN_LOOP_TOKENS: Final = 6
MAX_REPEATED_TOKENS: Final = 24


@dataclass(frozen=True, slots=True)
class Coverage:
    """Attention on the words of one sentence.

    words: words of the source.
    mass: attention on each word, summed over target tokens (end-of-sentence included) and pieces of the word.
    missed: indexes of words with a letter or digit and a mass below MISSED; the answer may lack them. Words
        that often have no counterpart, such as articles and auxiliaries, are left out.
    """

    words: list[str]
    mass: list[float]
    missed: list[int]


@dataclass(frozen=True, slots=True)
class Repetition:
    """Repetition in an answer.

    share: share of 4-grams of target tokens that occurred earlier in the sentence, from 0 to 1.
    loop: whether up to 24 tokens come three times or more in a row, six tokens or more in all.
    """

    share: float = 0.0
    loop: bool = False


def coverage(
    attention: Any, words: Sequence[str], starts: Sequence[int], empty_words: Set[str] = frozenset()
) -> Coverage:
    """Sum the attention on each word of a source.

    attention: float array [target, source], rows sum to 1; its last column is end-of-sentence.
    words: words of the source.
    starts: position in the source where each word begins.
    empty_words: words, in small letters, that are never missed.
    """
    columns = attention[:, :-1].sum(0)
    ends = [*starts[1:], len(columns)]
    mass = [float(columns[begin:end].sum()) for begin, end in zip(starts, ends, strict=True)]
    contents = (
        any(c.isalnum() for c in word) and word.strip(MARKS).casefold() not in empty_words for word in words
    )
    missed = [i for i, (m, content) in enumerate(zip(mass, contents, strict=True)) if content and m < MISSED]
    return Coverage(list(words), mass, missed)


def repetition(sentences: Sequence[Sequence[int]]) -> Repetition:
    """Return the worst repetition of several targets, given as token ids."""
    share = max(map(_repeated_share, sentences), default=0.0)
    return Repetition(share, loop=any(map(_loops, sentences)))


def _repeated_share(tokens: Sequence[int]) -> float:
    grams = [tuple(tokens[i : i + NGRAM_TOKENS]) for i in range(len(tokens) - NGRAM_TOKENS + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _loops(tokens: Sequence[int]) -> bool:
    """Return whether one unit of tokens is repeated in a row often enough to be a loop."""
    for unit in range(1, min(MAX_REPEATED_TOKENS, len(tokens) // LOOP_REPEATS) + 1):
        # `run` counts tokens that equal the token one unit before
        enough, run = max(LOOP_REPEATS * unit, MIN_LOOP_TOKENS) - unit, 0
        for i in range(unit, len(tokens)):
            run = run + 1 if tokens[i] == tokens[i - unit] else 0
            if run >= enough:
                return True
    return False
