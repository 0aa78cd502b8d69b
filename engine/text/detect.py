"""The language of a text, by py3langid (naive Bayes over byte n-grams, 140 languages).

The library's sums of log-likelihoods know no doubt: of one word they are as sure as of a page. Here they are
divided by a temperature that grows with the text, and languages that are written much, or that are asked for,
come with a prior. Of a few words the library knows little: those that people type first are known by heart
(`engine.text.first_words`), and where that leaves a doubt, the vocabularies of the models that are served say
which words they know. The constants were fitted so that of what is said with 80 % about 80 % are right
(docs/text.md has the table and its data).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from engine.text.codes import primary, short
from engine.text.first_words import known_weights, words_of

LOADING: Final = threading.Lock()
TEMPERATURE: Final = 3.0  # of a text of TEMPERATURE_BYTES; it grows with the root of the length
TEMPERATURE_BYTES: Final = 20
WIDESPREAD_LOG_ODDS: Final = 5.0  # prior of a language that is written much
REQUESTED_LOG_ODDS: Final = 2.0  # prior of a language that is asked for
MAX_CHARACTERS: Final = 4_000  # of a text that are looked at
FIRST_WORD_LOG_ODDS: Final = 6.0  # of a language of which a text's only word is known by heart
UNKNOWN_WORDS_LOG_ODDS: Final = -1.0  # of a language that is served, whose vocabularies know no word
KNOWN_SHARE: Final = 0.5  # of words, from which a vocabulary knows a text
NO_FEATURES: Final = -1e30  # the library's sum of a text without a known n-gram is below
# a language that nobody asked for is believed from this confidence on (percent),
BELIEVED_CONFIDENCE: Final = 50.0
# or from this one, when no vocabulary of a language that is served knows the text
BELIEVED_UNKNOWN_CONFIDENCE: Final = 40.0
# when no language that was asked for has as much as this
DOUBTED_CONFIDENCE: Final = 10.0
# or whatever its confidence, when all of these together have less than this, as of another script
EXCLUDED_CONFIDENCE: Final = 3.0
HALF_TYPED_LETTERS: Final = 2  # of a word that may go on: nothing is believed of it but its script
WIDESPREAD_CODES: Final = """
ar bg ca cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv nl no pl pt ro ru
sk sl sr sv th tr uk vi zh
"""
WIDESPREAD_PRIORS: Final = dict.fromkeys(WIDESPREAD_CODES.split(), WIDESPREAD_LOG_ODDS)
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


KnownShares = Callable[[Sequence[str]], Mapping[str, float]]


def detect(text: str, among: Sequence[str], known: KnownShares | None = None) -> Detection:
    """Rank languages for a text, against all that the library knows.

    text: of any length; of a long one its beginning is looked at.
    among: codes of the languages.
    known: tells of a few words the share that the vocabularies of each of these languages know, from 0 to 1;
        it is asked of short texts where no language of `among` has half of the confidence.

    A text without letters, and a language the library does not know, have confidence 0; ties keep the order
    of `among`. The first call loads the model (0.8 s, 77 MB).
    """
    text = text[:MAX_CHARACTERS]
    if not any(character.isalpha() for character in text):
        return Detection([(language, 0.0) for language in among])
    labels = [_language_code(language) for language in among]
    words = words_of(text)
    shares = _confidences(text, frozenset(labels), known_weights(words))
    believed, least = BELIEVED_CONFIDENCE, DOUBTED_CONFIDENCE
    doubtful = max((shares.get(label, 0.0) for label in labels), default=0.0) < BELIEVED_CONFIDENCE
    if known and doubtful and not all(map(str.isupper, words)):  # an abbreviation is in no vocabulary
        known_shares = {_language_code(language): share for language, share in known(words).items()}
        shares = _lower_unknown(shares, known_shares)
        # then a tenth of the confidence speaks for none of them
        if known_shares and max(known_shares.values()) < KNOWN_SHARE:
            believed, least = BELIEVED_UNKNOWN_CONFIDENCE, BELIEVED_CONFIDENCE
    ranked = sorted(
        ((language, shares.get(label, 0.0)) for language, label in zip(among, labels, strict=True)),
        key=lambda pair: -pair[1],
    )
    best = max(shares, key=shares.__getitem__)
    asked = sum(shares.get(label, 0.0) for label in set(labels))
    doubted = shares[best] < believed and asked >= EXCLUDED_CONFIDENCE
    doubted = doubted or (text.isascii() and len(text.strip()) <= HALF_TYPED_LETTERS)
    fits = best in labels or doubted or (bool(ranked) and ranked[0][1] >= least)
    return Detection(ranked) if fits else Detection([(language, 0.0) for language, _ in ranked], best)


def _lower_unknown(shares: dict[str, float], known_shares: Mapping[str, float]) -> dict[str, float]:
    """Every language's confidence, in percent, less for those whose vocabularies lack words of the text."""
    lessened = {
        label: shares[label] * math.exp(UNKNOWN_WORDS_LOG_ODDS * (1 - share))
        for label, share in known_shares.items()
        if label in shares
    }
    masses = shares | lessened
    scale = 100 / sum(masses.values())
    return {label: scale * mass for label, mass in masses.items()}


def _confidences(text: str, labels: frozenset[str], first: Mapping[str, float]) -> dict[str, float]:
    """Every language's confidence, in percent."""
    # one identifier for all languages, restricted here: its own restriction is state shared by all threads
    ranked = _identifier().rank(text)
    scores = np.array([score for _, score in ranked], np.float64).clip(NO_FEATURES)
    if scores.max() <= NO_FEATURES:
        scores[:] = 0.0
    heat = TEMPERATURE * (len(text.encode("utf-8", "replace")) / TEMPERATURE_BYTES) ** 0.5
    priors = dict.fromkeys(labels, REQUESTED_LOG_ODDS)
    for label, weight in first.items():
        # of a language that is written little, as if it were written much
        written = 0.0 if label in WIDESPREAD_PRIORS else WIDESPREAD_LOG_ODDS * min(weight, 1.0)
        priors[label] = priors.get(label, 0.0) + FIRST_WORD_LOG_ODDS * weight + written
    odds = scores / heat + [WIDESPREAD_PRIORS.get(label, 0.0) + priors.get(label, 0.0) for label, _ in ranked]
    masses = np.exp(odds - odds.max())
    return dict(zip((label for label, _ in ranked), (100 * masses / masses.sum()).tolist(), strict=True))


def _language_code(language: str) -> str:
    base = short(primary(language))
    return LIBRARY_CODES.get(base, base)


def _identifier() -> Any:
    with LOADING:
        return _load()


@cache
def _load() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=False)
