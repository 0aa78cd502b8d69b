"""Codes and names of languages: LibreTranslate's, and every other code or name that means one of ours."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

from engine.api import KNOWN_NAMES, LANGUAGE_NAMES, OTHER_NAMES, VARIANTS, language_of, short

# LibreTranslate answers with these aliases of its codes, and accepts both in requests
ALIASES: Final = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
SHORT: Final = {alias.casefold(): code for code, alias in ALIASES.items()}
FAR: Final = 9  # greater than every difference of two variants of a language
MAX_NAME: Final = 64  # characters of a code or name
REMEMBERED_TAGS: Final = 1_024
# a language with script and region (BCP 47), as NLLB ("deu_Latn") or as a locale ("de_DE.UTF-8") writes it
TAG: Final = re.compile(
    r"(?P<language>[a-z]{2,3})(?:-(?P<script>[a-z]{4}))?(?:-(?P<region>[a-z]{2}|\d{3}))?(?:\.utf-?8)?"
)
NAME_PARTS: Final = re.compile(r"[\s()（）,_-]+")
INFLECTED: Final = re.compile(r"(.+sch)en?")  # of a German name: ins Englische, aus dem Deutschen
# script of a code without one, by language and region
SCRIPTS: Final = {("zh", region): "hant" for region in ("tw", "hk", "mo")} | {("zh", ""): "hans"}


class Tag(NamedTuple):
    """A language, its script and its region, in small letters; "": not given."""

    language: str
    script: str = ""
    region: str = ""


def inward(code: str) -> str:
    """Return our code for a client's code: lower case, without aliases, of two letters if possible.

    For example "deu" is "de".
    """
    plain = code.strip().casefold()
    return SHORT.get(plain, short(plain))


def resolve_code(code: str, codes: Collection[str]) -> str:
    """Return the known code that is nearest to a client's code or name; otherwise the result of `inward`.

    code: code of a client, or a name. "en-US" and "eng_Latn" are "en", "zh-TW" is "zt", "Deutsch" is "de".
    codes: known codes. A variant finds the language itself, and the reverse, if there is nothing nearer.
    """
    plain = inward(code)
    for exact in (code.strip(), plain):
        if exact in codes:
            return exact
    wanted = tag_of(code)
    known = [(_distance(wanted, tag), known) for known in codes if (tag := tag_of(known))] if wanted else []
    distance, nearest = min(known, default=((FAR,), plain))
    return nearest if distance < (FAR,) else plain


def tag_of(code: str) -> Tag | None:
    """Return the language, script and region of a code or name; None when it is neither."""
    return _tag_of(code.strip()) if len(code) <= MAX_NAME else None


def outward(code: str) -> str:
    """Return LibreTranslate's code for ours: zh-Hans for zh."""
    return ALIASES.get(code, code)


def name_of(code: str) -> str:
    """Return the English name of a language, or the code itself."""
    return LANGUAGE_NAMES.get(code, code)


@lru_cache(REMEMBERED_TAGS)
def _tag_of(code: str) -> Tag | None:
    """Return the tag of a code or name without white space around it."""
    match = TAG.fullmatch(code.casefold().replace("_", "-"))
    if match is None:
        return _tag_of_name(_plain_name(code))
    base, script, region = match["language"], match["script"] or "", match["region"] or ""
    if base in SPECIAL:
        return SPECIAL[base]
    language = language_of(base)
    return Tag(language, script or SCRIPTS.get((language, region), SCRIPTS.get((language, ""), "")), region)


def _tag_of_name(name: str) -> Tag | None:
    """Return the tag of a plain name, with or without the word of a variant; None when it is unknown."""
    inflected = INFLECTED.fullmatch(name)
    if code := CODES_BY_NAME.get(name) or (inflected and CODES_BY_NAME.get(inflected[1])):
        return _tag_of(code)
    words = name.split()
    for count in (1, 2):
        for variant, rest in ((words[:count], words[count:]), (words[-count:], words[:-count])):
            found, code = VARIANTS.get(" ".join(variant)), CODES_BY_NAME.get(" ".join(rest))
            if found and code:
                return _tag_of("-".join(filter(None, (language_of(code), *found))))
    return None


def _plain_name(name: str) -> str:
    """Return a name in small letters, without accents and punctuation."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return NAME_PARTS.sub(" ", "".join(c for c in letters if unicodedata.category(c) != "Mn")).strip()


def _distance(wanted: Tag, known: Tag) -> tuple[int, ...]:
    """Return how far a known language is from a wanted one, to be compared; (FAR,) for another language."""
    if wanted.language != known.language:
        return (FAR,)
    pairs = ((wanted.script, known.script), (wanted.region, known.region))
    return tuple(0 if one == other else 1 if "" in (one, other) else 2 for one, other in pairs)


SPECIAL: Final = {
    "pb": Tag("pt", "", "br"),
    "zt": Tag("zh", "hant", ""),
}  # LibreTranslate's codes of variants
# reversed: of several codes with one name the first remains
CODES_BY_NAME: Final = {
    _plain_name(name): code
    for names_of in (OTHER_NAMES, KNOWN_NAMES)
    for code, names in reversed(names_of.items())
    for name in (names.split("|") if isinstance(names, str) else names)
}
