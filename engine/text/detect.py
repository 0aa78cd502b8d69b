"""The language of a text, by py3langid (naive Bayes over byte n-grams, 140 languages).

The library's sums of log-likelihoods know no doubt: of one word they are as sure as of a page. Here they are
divided by a temperature that grows with the text, and languages that are written much, or that are asked for,
come with a prior. Of a few words the library knows little: those that people type first are known by heart
(`engine.text.first_words`). The constants were fitted so that of what is said with 80 % about 80 % are right
(docs/text.md has the table and its data).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from engine.text.codes import short
from engine.text.first_words import known_shares

LOADING: Final = threading.Lock()
TEMPERATURE: Final = 3.0  # of a text of TEMPERATURE_BYTES; it grows with the root of the length
TEMPERATURE_BYTES: Final = 20
WIDESPREAD_LOG_ODDS: Final = 5.0  # prior of a language that is written much
ASKED_LOG_ODDS: Final = 2.0  # prior of a language that is asked for
MAX_CHARACTERS: Final = 4_000  # of a text that are looked at
FIRST_WORD_LOG_ODDS: Final = 6.0  # of a language that knows all words of a short text by heart
NO_FEATURES: Final = -1e30  # the library's sum of a text without a known n-gram is below
# a language that nobody asked for is believed from this confidence on (percent),
BELIEVED_CONFIDENCE: Final = 50.0
# when no language that was asked for has as much as this
DOUBTED_CONFIDENCE: Final = 10.0
# or whatever its confidence, when all of these together have less than this, as of another script
EXCLUDED_CONFIDENCE: Final = 3.0
HALF_TYPED_LETTERS: Final = 2  # of a word that may go on: nothing is believed of it but its script
WIDESPREAD_CODES: Final = """
ar bg ca cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv nl no pl pt ro ru
sk sl sr sv th tr uk vi zh
"""
WIDESPREAD: Final = frozenset(WIDESPREAD_CODES.split())
# codes that the library does not know, and its own codes for them
LIBRARY_CODES: Final[Mapping[str, str]] = {"nb": "no", "zt": "zh", "iw": "he", "in": "id", "fil": "tl"}


@dataclass(frozen=True, slots=True)
class Detection:
    """The language of a text.

    ranked: languages that were asked for, best first, each with a confidence in percent; all languages that
        there are have 100 together.
    other: code of the language of the text, where none of the languages asked for fits.
    """

    ranked: list[tuple[str, float]]
    other: str | None = None


def detect(text: str, among: Sequence[str]) -> Detection:
    """Rank the languages `among` for a text, against all that the library knows.

    A text without letters, and a language the library does not know, have confidence 0; ties keep the order
    of `among`. Of a long text its beginning is looked at. The first call loads the model (0.8 s, 77 MB).
    """
    text = text[:MAX_CHARACTERS]
    if not any(character.isalpha() for character in text):
        return Detection([(language, 0.0) for language in among])
    labels = [_language_code(language) for language in among]
    shares = _shares(text, frozenset(labels))
    ranked = sorted(
        ((language, shares.get(label, 0.0)) for language, label in zip(among, labels, strict=True)),
        key=lambda pair: -pair[1],
    )
    best = max(shares, key=shares.__getitem__)
    asked = sum(shares.get(label, 0.0) for label in set(labels))
    doubted = shares[best] < BELIEVED_CONFIDENCE and asked >= EXCLUDED_CONFIDENCE
    doubted = doubted or (text.isascii() and len(text.strip()) <= HALF_TYPED_LETTERS)
    fits = best in labels or doubted or (bool(ranked) and ranked[0][1] >= DOUBTED_CONFIDENCE)
    return Detection(ranked) if fits else Detection([(language, 0.0) for language, _ in ranked], best)


def _shares(text: str, labels: frozenset[str]) -> dict[str, float]:
    """Every language's confidence, in percent."""
    # one identifier for all languages, restricted here: its own restriction is state shared by all threads
    scores = {label: max(float(score), NO_FEATURES) for label, score in _identifier().rank(text)}
    if max(scores.values()) <= NO_FEATURES:
        scores = dict.fromkeys(scores, 0.0)
    first = known_shares(text)
    heat = TEMPERATURE * (len(text.encode("utf-8", "replace")) / TEMPERATURE_BYTES) ** 0.5
    odds = np.array(
        [
            score / heat
            + WIDESPREAD_LOG_ODDS * (label in WIDESPREAD)
            + ASKED_LOG_ODDS * (label in labels)
            + FIRST_WORD_LOG_ODDS * first.get(label, 0.0)
            for label, score in scores.items()
        ]
    )
    masses = np.exp(odds - odds.max())
    return dict(zip(scores, (100 * masses / masses.sum()).tolist(), strict=True))


def _language_code(language: str) -> str:
    base = short(language.partition("-")[0].lower())
    return LIBRARY_CODES.get(base, base)


def _identifier() -> Any:
    with LOADING:
        return _load()


@cache
def _load() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=False)
