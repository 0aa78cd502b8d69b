"""Leaving out pairs that teach what they should not, and saying how many there were of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.text.detect import detect

Pair = tuple[str, str]
RATIO: Final = 2.5  # characters of the longer side for one of the shorter
SHORT: Final = 24  # characters; below, lengths say nothing ("Ja." and "Yes, I do.")
COPIED: Final = 3  # words; shorter texts that are equal on both sides are names, most of the time
SURE: Final = 5, 95.0  # words from which the language can be told, and the confidence that decides


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """The pairs that stay, and the number of those left out by reason."""

    pairs: list[Pair]
    dropped: dict[str, int]


def clean(pairs: Sequence[Pair], held_out: Iterable[Pair], languages: tuple[str, str]) -> CleaningResult:
    """Leave out pairs of unlike lengths, copies, pairs in other languages, repetitions, and near duplicates
    of lines that measure the model.

    pairs: of the training set.
    held_out: of the validation and test sets; neither side of them may be seen in training, whatever its
        case, punctuation and spaces.
    languages: of the two sides; where they are the same, neither language nor lengths are looked at.
    """
    sources, targets = zip(*((normalise(s), normalise(t)) for s, t in held_out), strict=True)
    measured = {*sources, *targets} - {""}
    seen: set[Pair] = set()
    rest: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pair in pairs:
        reason = _fault(pair, languages)
        if reason is None and not measured.isdisjoint(map(normalise, pair)):
            reason = "near a validation or test line"
        if reason is None and pair in seen:
            reason = "repeated"
        seen.add(pair)
        if reason is None:
            rest.append(pair)
        else:
            dropped[reason] += 1
    return CleaningResult(rest, dict(sorted(dropped.items())))


def normalise(text: str) -> str:
    """Reduce a text to its letters and digits, in lower case.

    Texts that differ only in marks, spaces and case become equal.
    """
    return "".join(filter(str.isalnum, text.casefold()))


def _fault(pair: Pair, languages: tuple[str, str]) -> str | None:
    """What is wrong with a pair by itself, or None."""
    source, target = pair
    if not (source.strip() and target.strip()):
        return "empty"
    if source == target and len(source.split()) >= COPIED:
        return "copied"
    if languages[0] == languages[1]:
        return None
    shorter, longer = sorted(map(len, pair))
    if longer > SHORT and longer > RATIO * shorter:
        return "of unlike lengths"
    if any(_foreign(text, code, languages) for text, code in zip(pair, languages, strict=True)):
        return "in another language"
    return None


def _foreign(text: str, language: str, among: tuple[str, str]) -> bool:
    """Whether a text is surely in the other one of two languages."""
    words, confidence = SURE
    if len(text.split()) < words:
        return False
    likeliest, likelihood = detect(text, among).ranked[0]
    return likeliest != language and likelihood >= confidence
