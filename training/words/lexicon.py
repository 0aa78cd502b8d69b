"""Learn a dictionary of single words from sentence pairs, to train models on words without a sentence.

Two words are an entry if each is the likeliest translation of the other by IBM model 1
(`training.words.shortlist`), and if most sentence pairs with one of them contain both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from training.words.shortlist import learn

Pair = tuple[str, str]
WORD: Final = re.compile(r"[^\W\d_]{2,}")
MAX_SENTENCE_WORDS: Final = 14  # alignments of longer sentences are less certain
MIN_PAIRS: Final = 4  # number of pairs that contain both words of an entry
MIN_DICE: Final = 0.5  # Dice coefficient of the two words of an entry
# a word is part of a fixed expression if this share of its sentences has the same word before it ...
EXPRESSION_SHARE: Final = 0.6
MAX_FREQUENCY_RATIO: Final = 10  # ... which is at most this many times as frequent (unlike an article)


def lexicon(pairs: Sequence[Pair]) -> list[Pair]:
    """Return word pairs, most frequent first, spelled like inside sentences."""
    encoded, sides = _encode(pairs)
    sizes = len(sides[0]) + 1, len(sides[1]) + 1
    # likeliest translation of each word, by its id
    forth = learn(encoded, sizes, 0, (1, 1)).likely[:, 0]
    back = learn(((t, s) for s, t in encoded), sizes[::-1], 0, (1, 1)).likely[:, 0]
    frequencies = [Counter(word for sentence in encoded for word in set(sentence[side])) for side in (0, 1)]
    # number of sentence pairs with a word and its likeliest translation
    both = Counter(
        (word, int(forth[word])) for s, t in encoded for word in set(s) if int(forth[word]) in set(t)
    )
    entries = []
    for (word, translation), count in both.most_common():
        dice = 2 * count / (frequencies[0][word] + frequencies[1][translation])
        if count >= MIN_PAIRS and back[translation] == word and dice >= MIN_DICE:
            entries.append((word, translation))
    bound = set().union(*(_expression_parts(encoded, entries, side, frequencies[side]) for side in (0, 1)))
    return [(sides[0][s - 1], sides[1][t - 1]) for s, t in entries if (s, t) not in bound]


def _encode(pairs: Sequence[Pair]) -> tuple[list[tuple[list[int], list[int]]], list[list[str]]]:
    """Return short pairs as ids of words, and the words of both sides from id 1; 0 means no word."""
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
    """Return the entries whose word on one side is the second part of a fixed expression.

    Such a word alone is no translation: "effects" of "side effects", which is one word in German.
    """
    before: dict[tuple[int, int], Counter[int]] = {entry: Counter() for entry in entries}
    translations = dict(entries)
    for sentence in sentences:
        for word in set(sentence[0]):
            translation = translations.get(word)
            if translation in sentence[1]:
                entry = (word, translation)
                place = sentence[side].index(entry[side])
                # 0: the word is the first of its sentence
                before[entry][sentence[side][place - 1] if place else 0] += 1
    bound = set()
    for entry, counts in before.items():
        word, count = counts.most_common(1)[0]
        if (
            word
            and count >= EXPRESSION_SHARE * counts.total()
            and frequencies[word] <= MAX_FREQUENCY_RATIO * frequencies[entry[side]]
        ):
            bound.add(entry)
    return bound


def _words(sentence: str) -> list[str]:
    """Return the words of a sentence, without a capitalised first word: its usual case is unknown."""
    words = WORD.findall(sentence)
    return [word for number, word in enumerate(words) if number or word.islower()]
