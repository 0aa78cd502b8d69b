"""A dictionary of single words out of sentence pairs, so that a model learns what a word alone means.

A word and its translation are the likeliest of each other by IBM model 1 (`training.shortlist`) and meet in
most of the sentences that hold either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from training.shortlist import learn

Pair = tuple[str, str]
WORD: Final = re.compile(r"[^\W\d_]{2,}")
MAX_SENTENCE_WORDS: Final = 14  # in longer ones it is harder to say what belongs together
FEWEST: Final = 4  # sentences that hold both
MEETING: Final = 0.5  # Dice coefficient
BOUND: Final = 0.6  # share of the sentences in which one and the same word stands before the entry's
RARER: Final = 10  # times as frequent that word may be at most; articles are more


def lexicon(pairs: Sequence[Pair]) -> list[Pair]:
    """List word pairs as they are spelled inside sentences, most frequent first."""
    encoded, sides = _encode(pairs)
    sizes = len(sides[0]) + 1, len(sides[1]) + 1
    forth = learn(encoded, sizes, 0, (1, 1)).likely[:, 0]
    back = learn(((t, s) for s, t in encoded), sizes[::-1], 0, (1, 1)).likely[:, 0]
    frequencies = [Counter(word for sentence in encoded for word in set(sentence[side])) for side in (0, 1)]
    both = Counter(
        (word, int(forth[word])) for s, t in encoded for word in set(s) if int(forth[word]) in set(t)
    )
    entries = []
    for (word, translation), count in both.most_common():
        dice = 2 * count / (frequencies[0][word] + frequencies[1][translation])
        if count >= FEWEST and back[translation] == word and dice >= MEETING:
            entries.append((word, translation))
    bound = set().union(*(_expression_parts(encoded, entries, side, frequencies[side]) for side in (0, 1)))
    return [(sides[0][s - 1], sides[1][t - 1]) for s, t in entries if (s, t) not in bound]


def _encode(pairs: Sequence[Pair]) -> tuple[list[tuple[list[int], list[int]]], list[list[str]]]:
    """Short pairs as numbers of words, and the words of both sides from number 1; 0 stands for none."""
    lengths = range(1, MAX_SENTENCE_WORDS + 1)
    every = [(_words(source), _words(target)) for source, target in pairs]
    sentences = [(s, t) for s, t in every if len(s) in lengths and len(t) in lengths]
    sides = [sorted({word for sentence in sentences for word in sentence[side]}) for side in (0, 1)]
    ids = [{word: number for number, word in enumerate(words, 1)} for words in sides]
    return [([ids[0][w] for w in s], [ids[1][w] for w in t]) for s, t in sentences], sides


def _expression_parts(
    sentences: Sequence[tuple[list[int], list[int]]],
    entries: Sequence[tuple[int, int]],
    side: int,
    frequencies: Counter[int],
) -> set[tuple[int, int]]:
    """Entries whose word of one side is the second part of a fixed expression, and no translation alone:
    "effects" of "side effects", which is one word in German."""
    before: dict[tuple[int, int], Counter[int]] = {entry: Counter() for entry in entries}
    translations = dict(entries)
    for sentence in sentences:
        for word in set(sentence[0]):
            translation = translations.get(word)
            if translation in sentence[1]:
                entry = (word, translation)
                place = sentence[side].index(entry[side])
                before[entry][sentence[side][place - 1] if place else 0] += 1
    bound = set()
    for entry, counts in before.items():
        word, count = counts.most_common(1)[0]
        if word and count >= BOUND * counts.total() and frequencies[word] <= RARER * frequencies[entry[side]]:
            bound.add(entry)
    return bound


def _words(sentence: str) -> list[str]:
    """Words of a sentence; its first one only if it is spelled in lower case, as its capital may be that of
    the beginning."""
    words = WORD.findall(sentence)
    return [word for number, word in enumerate(words) if number or word.islower()]
