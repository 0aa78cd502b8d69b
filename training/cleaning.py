"""Drop harmful training pairs, and count them by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.text.detect import detect

Pair = tuple[str, str]
MAX_LENGTH_RATIO: Final = 2.5  # largest ratio of the sides' lengths in characters
MIN_COMPARED_CHARACTERS: Final = 24  # the ratio of shorter texts means nothing ("Ja." and "Yes, I do.")
MIN_COPIED_WORDS: Final = 3  # shorter texts that are equal on both sides are mostly names
MIN_DETECTED_WORDS: Final = 5  # the language of shorter texts is uncertain
MIN_CONFIDENCE: Final = 95.0  # confidence of language detection, in percent


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """The remaining pairs, and the number of dropped pairs by reason."""

    pairs: list[Pair]
    dropped: dict[str, int]


def clean(pairs: Sequence[Pair], held_out: Iterable[Pair], languages: tuple[str, str]) -> CleaningResult:
    """Drop pairs of unequal lengths, copies, other languages, repetitions, and pairs near a held-out one.

    pairs: pairs of the training set.
    held_out: pairs of the validation and test sets; texts that differ from one of their sides only in case,
        punctuation and spaces are dropped.
    languages: codes of the source and target language; if equal, languages and lengths are not compared.
    """
    sources, targets = zip(*((normalise(s), normalise(t)) for s, t in held_out), strict=True)
    measured = {*sources, *targets} - {""}  # texts that models are measured with
    seen: set[Pair] = set()
    rest: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pair in pairs:
        reason = _reason_to_drop(pair, languages)
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
    """Return the letters and digits of a text in lower case."""
    return "".join(filter(str.isalnum, text.casefold()))


def _reason_to_drop(pair: Pair, languages: tuple[str, str]) -> str | None:
    """Return the reason to drop a pair, without looking at other pairs, or None."""
    source, target = pair
    if not (source.strip() and target.strip()):
        return "empty"
    if source == target and len(source.split()) >= MIN_COPIED_WORDS:
        return "copied"
    if languages[0] == languages[1]:
        return None
    shorter, longer = sorted(map(len, pair))
    if longer > MIN_COMPARED_CHARACTERS and longer > MAX_LENGTH_RATIO * shorter:
        return "of unlike lengths"
    if any(_foreign(text, code, languages) for text, code in zip(pair, languages, strict=True)):
        return "in another language"
    return None


def _foreign(text: str, language: str, among: tuple[str, str]) -> bool:
    """Return whether a text is certainly in the other of the two languages `among`."""
    if len(text.split()) < MIN_DETECTED_WORDS:
        return False
    likeliest, likelihood = detect(text, among).ranked[0]
    return likeliest != language and likelihood >= MIN_CONFIDENCE
