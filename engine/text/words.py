"""`words.json` of a bundle: phrases with a fixed translation, and the rule for names (see `convoy words`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.bundle.bundle import Bundle
from engine.bundle.json_file import read_json
from engine.errors import BundleError
from engine.text.form import MARKS
from engine.text.given_names import GIVEN_NAMES

WORDS_FILE: Final = "words.json"
MAX_PHRASES: Final = 4_096
MAX_PHRASE_CHARACTERS: Final = 64
MAX_NAME_TOKENS: Final = 64
COLONS: Final = {"fr": " :"}  # by language, where the colon differs
NAME: Final = re.compile(r"[^\W\d_a-zß-öø-ÿ][^\W\d_]+(?:[-'’][^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class BundleWords:
    """Words that are translated by rule.

    names: least number of tokens of a name that stands alone (`engine.text.placeables.names`). 0: no name
        stands alone; None: names are left to the model.
    phrases: fixed translation of each phrase, by its `key`. At the end of a phrase, {f} is a woman's given
        name, {m} a man's and {g} any, perhaps with a surname; {s} is any name.
    colon: colon of the language of the translations.
    """

    names: int | None = None
    phrases: Mapping[str, str] = field(default_factory=dict)
    colon: str = ":"

    def translation(self, sentence: str) -> str | None:
        """Return the fixed translation of a sentence, or None; case and final marks are ignored.

        A comma or colon at the end stays. A full name that stands alone is its own translation.
        """
        if len(sentence) > 2 * MAX_PHRASE_CHARACTERS:
            return None
        if (exact := self.phrases.get(key(sentence))) is not None:
            return exact
        text, mark = _without_pause(sentence)
        translated = self.phrases.get(key(text)) if mark else None
        translated = translated or self._with_name(text.strip().rstrip(MARKS).rstrip())
        if translated is None:
            return None
        return translated.rstrip(",") + mark.replace(":", self.colon)

    def _with_name(self, text: str) -> str | None:
        """Return the translation of a phrase that ends with a name, or of a full name."""
        words = text.split(" ")
        for count in (1, 2):
            before, name = words[:-count], words[-count:]
            if not before or not all(map(NAME.fullmatch, name)):
                break
            given = GIVEN_NAMES.get(name[0])
            for slot in [f"{{{given}}}", "{g}", "{s}"] if given else ["{s}"]:
                pattern = self.phrases.get(key(" ".join([*before, slot])))
                if pattern is not None:
                    return pattern.replace(slot, " ".join(name))
        is_name = self.names is not None and len(words) == 2 and words[0] in GIVEN_NAMES
        return text if is_name and NAME.fullmatch(words[1]) else None


def _without_pause(sentence: str) -> tuple[str, str]:
    """Return a sentence without the comma or colon at its end, and that mark."""
    text = sentence.rstrip()
    return (text[:-1].rstrip(), text[-1]) if text[-1:] in (",", ":") else (text, "")


def key(phrase: str) -> str:
    """Return a phrase without case and final marks, for comparison."""
    return phrase.strip().rstrip(MARKS).rstrip().casefold()


def read_words(bundle: Bundle) -> BundleWords:
    """Read `words.json` of a bundle. Raises BundleError if the file has other content."""
    names, phrases = stored_words(bundle)
    colon = COLONS.get(bundle.target, ":")
    return BundleWords(names, {key(source): target for source, target in phrases.items()}, colon)


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
