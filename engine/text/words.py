"""`words.json` of a bundle: phrases with a fixed translation, and the rule for names (see `convoy words`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.bundle.json_file import read_json
from engine.errors import BundleError
from engine.text.form import MARKS

WORDS_FILE: Final = "words.json"
MAX_PHRASES: Final = 4_096
MAX_PHRASE_CHARACTERS: Final = 64
MAX_NAME_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class BundleWords:
    """Words that are translated by rule.

    names: least number of tokens of a name that stands alone (`engine.text.placeables.names`). 0: no name
        stands alone; None: names are left to the model.
    phrases: fixed translation of each phrase, by its `key`.
    """

    names: int | None = None
    phrases: Mapping[str, str] = field(default_factory=dict)

    def translation(self, sentence: str) -> str | None:
        """Return the fixed translation of a sentence, or None; case and final marks are ignored."""
        return self.phrases.get(key(sentence)) if len(sentence) <= 2 * MAX_PHRASE_CHARACTERS else None


def key(phrase: str) -> str:
    """Return a phrase without case and final marks, for comparison."""
    return phrase.strip().rstrip(MARKS).rstrip().casefold()


def read_words(bundle: Bundle) -> BundleWords:
    """Read `words.json` of a bundle. Raises BundleError if the file has other content."""
    names, phrases = stored_words(bundle)
    return BundleWords(names, {key(source): target for source, target in phrases.items()})


def stored_words(bundle: Bundle) -> tuple[int | None, dict[str, str]]:
    """Return the arguments of the `dump_words` call that wrote the file of a bundle.

    Returns (None, {}) if there is no file. Raises BundleError as `read_words` does.
    """
    if WORDS_FILE not in bundle.files():
        return None, {}
    path, remedy = bundle.file(WORDS_FILE), f"run: convoy words {bundle.path} --reset"
    description = read_json(path, dict, remedy)
    names, phrases = description.get("names"), description.get("phrases", {})
    if not (names is None or (type(names) is int and 0 <= names <= MAX_NAME_TOKENS)):
        raise BundleError(f"{path}: names must be null or a number from 0 to {MAX_NAME_TOKENS}; {remedy}")
    if not (
        isinstance(phrases, dict) and len(phrases) <= MAX_PHRASES and all(map(_is_valid, phrases.items()))
    ):
        raise BundleError(
            f"{path}: phrases must be at most {MAX_PHRASES} pairs of at most {MAX_PHRASE_CHARACTERS} "
            f"characters; {remedy}"
        )
    return names, phrases


def _is_valid(pair: tuple[str, Any]) -> bool:
    return all(isinstance(side, str) and 0 < len(side.strip()) <= MAX_PHRASE_CHARACTERS for side in pair)


def dump_words(names: int | None, phrases: Mapping[str, str]) -> bytes:
    """Return the content of `words.json`.

    names: see `BundleWords`.
    phrases: translation by phrase.
    """
    description = {"names": names, "phrases": dict(phrases)}
    return json.dumps(description, ensure_ascii=False, indent=1).encode() + b"\n"
