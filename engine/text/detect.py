"""Language detection by py3langid (naive Bayes over byte n-grams, 140 languages).

The library's sums of log-likelihoods are as confident for one word as for a page. Here they are divided by a
temperature that grows with the text, and widespread languages and requested languages get a prior. The
library does badly on a few words, so common words are listed (`engine.text.first_words`), and in doubt the
vocabularies of the served models are compared. The constants were fitted so that about 80 % of the answers
with a confidence of 80 % are right (docs/text.md has the table and its data).
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from engine.text.codes import language_of
from engine.text.first_words import FIRST_WORDS, LANGUAGES_BY_WORD, WORD, known_weights, words_of

LOADING: Final = threading.Lock()
# a text of TEMPERATURE_BYTES has this temperature; it grows with the square root of the length
TEMPERATURE: Final = 3.0
TEMPERATURE_BYTES: Final = 20
WIDESPREAD_LOG_ODDS: Final = 5.0  # prior of a widespread language
REQUESTED_LOG_ODDS: Final = 2.0  # prior of a requested language
MAX_CHARACTERS: Final = 4_000  # only the beginning of a longer text is read
FIRST_WORD_LOG_ODDS: Final = 6.0  # prior of a language that lists the only word of a text
UNKNOWN_WORDS_LOG_ODDS: Final = -1.0  # prior of a served language if its vocabularies lack all words
KNOWN_SHARE: Final = 0.5  # least share of words in a vocabulary that fits a text
NO_FEATURES: Final = -1e30  # the library's sum is lower if a text has no known n-gram
# percent from which a language that was not requested is reported
REPORTED_CONFIDENCE: Final = 50.0
# percent instead, if all served vocabularies lack the words of the text
REPORTED_UNKNOWN_CONFIDENCE: Final = 40.0
# percent from which a requested language is preferred to it
PREFERRED_CONFIDENCE: Final = 10.0
# if all requested languages together have less (percent), the script is another and any language is reported
EXCLUDED_CONFIDENCE: Final = 3.0
HALF_TYPED_LETTERS: Final = 2  # so few Latin letters may begin any word, so no other language is reported
DOUBTED_CHARACTERS: Final = 500  # characters that are read to doubt a given language
DOUBTED_WORDS: Final = 4  # least number of its words
DOUBTED_SHARE: Final = 3  # common words of another language to one of the given language
SURE_CONFIDENCE: Final = 98.0  # percent from which the given language is wrong
WIDESPREAD_CODES: Final = """
ar bg ca cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv nl no pl pt ro ru
sk sl sr sv th tr uk vi zh
"""
WIDESPREAD_PRIORS: Final = dict.fromkeys(WIDESPREAD_CODES.split(), WIDESPREAD_LOG_ODDS)


@dataclass(frozen=True, slots=True)
class Detection:
    """The language of a text.

    ranked: requested languages, best first, each with a confidence in percent. All languages of the library
        together have 100.
    other: code of the language of the text if no requested language fits.
    """

    ranked: list[tuple[str, float]]
    other: str | None = None


KnownShares = Callable[[Sequence[str]], Mapping[str, float]]


def detect(text: str, among: Sequence[str], known: KnownShares | None = None) -> Detection:
    """Rank languages for a text, against all languages of the library.

    text: a text of any length; only its first `MAX_CHARACTERS` are read.
    among: codes of the requested languages.
    known: returns the share of words, from 0 to 1, that the vocabularies of each of these languages have. It
        is called for short texts if no requested language has half of the confidence.

    Confidences are 0 for a text without letters and for a language that the library lacks; ties keep the
    order of `among`. The first call loads the model (0.8 s, 77 MB).
    """
    text = text[:MAX_CHARACTERS]
    if not any(character.isalpha() for character in text):
        return Detection([(language, 0.0) for language in among])
    labels = [language_of(language) for language in among]
    words = words_of(text)
    confidences = _confidences(text, frozenset(labels), known_weights(words))
    reported, preferred = REPORTED_CONFIDENCE, PREFERRED_CONFIDENCE
    doubtful = max((confidences.get(label, 0.0) for label in labels), default=0.0) < REPORTED_CONFIDENCE
    if known and doubtful and not all(map(str.isupper, words)):  # vocabularies lack abbreviations
        known_shares = {language_of(language): share for language, share in known(words).items()}
        confidences = _lower_unknown(confidences, known_shares)
        # a requested language with a tenth of the confidence does not fit such a text
        if known_shares and max(known_shares.values()) < KNOWN_SHARE:
            reported, preferred = REPORTED_UNKNOWN_CONFIDENCE, REPORTED_CONFIDENCE
    ranked = sorted(
        ((language, confidences.get(label, 0.0)) for language, label in zip(among, labels, strict=True)),
        key=lambda pair: -pair[1],
    )
    best = max(confidences, key=confidences.__getitem__)
    requested = sum(confidences.get(label, 0.0) for label in set(labels))
    doubted = confidences[best] < reported and requested >= EXCLUDED_CONFIDENCE
    doubted = doubted or (text.isascii() and len(text.strip()) <= HALF_TYPED_LETTERS)
    fits = best in labels or doubted or (bool(ranked) and ranked[0][1] >= preferred)
    return Detection(ranked) if fits else Detection([(language, 0.0) for language, _ in ranked], best)


def is_doubtful(text: str, language: str) -> bool:
    """Return whether a text has common words of another language, and fewer of the given one.

    text: a text of any length; only its first `DOUBTED_CHARACTERS` are read.
    language: code of the language that the text should have.
    """
    words, label = _first_words(text), language_of(language)
    if len(words) < DOUBTED_WORDS or label not in FIRST_WORDS:
        return False
    found = Counter(code for word in words for code in LANGUAGES_BY_WORD.get(word.casefold(), ()))
    return max(found.values(), default=0) >= max(DOUBTED_WORDS // 2, 1 + DOUBTED_SHARE * found[label])


def surely_other(text: str, language: str, among: Sequence[str]) -> str | None:
    """Return the language of a text that is surely not in the given language; None in any doubt.

    text: a text of any length; only its first `DOUBTED_CHARACTERS` are read.
    language: code of the language that the text should have.
    among: codes of the requested languages.

    The detector runs only for a doubtful text (`is_doubtful`).
    """
    if not is_doubtful(text, language):
        return None
    detection, label = detect(" ".join(_first_words(text)), among), language_of(language)
    best, confidence = detection.ranked[0]
    own = sum(share for code, share in detection.ranked if language_of(code) == label)
    if detection.other is not None:
        return None if language_of(detection.other) == label else detection.other
    sure = language_of(best) != label and confidence >= SURE_CONFIDENCE and own <= 100 - SURE_CONFIDENCE
    return best if sure else None


def _first_words(text: str) -> list[str]:
    return WORD.findall(text[:DOUBTED_CHARACTERS].replace("’", "'"))


def _lower_unknown(confidences: dict[str, float], known_shares: Mapping[str, float]) -> dict[str, float]:
    """Lower the confidence of languages whose vocabularies lack words of the text; the sum stays 100."""
    lowered = {
        label: confidences[label] * math.exp(UNKNOWN_WORDS_LOG_ODDS * (1 - share))
        for label, share in known_shares.items()
        if label in confidences
    }
    masses = confidences | lowered
    scale = 100 / sum(masses.values())
    return {label: scale * mass for label, mass in masses.items()}


def _confidences(text: str, labels: frozenset[str], word_weights: Mapping[str, float]) -> dict[str, float]:
    """Return the confidence of every language of the library, in percent."""
    # the identifier ranks all languages: restricting it would change state that threads share
    ranked = _identifier().rank(text)
    scores = np.array([score for _, score in ranked], np.float64).clip(NO_FEATURES)
    if scores.max() <= NO_FEATURES:
        scores[:] = 0.0
    temperature = TEMPERATURE * (len(text.encode("utf-8", "replace")) / TEMPERATURE_BYTES) ** 0.5
    priors = dict.fromkeys(labels, REQUESTED_LOG_ODDS)
    for label, weight in word_weights.items():
        # a listed word makes up for the prior of widespread languages
        spread = 0.0 if label in WIDESPREAD_PRIORS else WIDESPREAD_LOG_ODDS * min(weight, 1.0)
        priors[label] = priors.get(label, 0.0) + FIRST_WORD_LOG_ODDS * weight + spread
    odds = scores / temperature + [
        WIDESPREAD_PRIORS.get(label, 0.0) + priors.get(label, 0.0) for label, _ in ranked
    ]
    masses = np.exp(odds - odds.max())
    return dict(zip((label for label, _ in ranked), (100 * masses / masses.sum()).tolist(), strict=True))


def _identifier() -> Any:
    with LOADING:
        return _load()


@cache
def _load() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=False)
