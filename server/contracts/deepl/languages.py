"""DeepL's codes of languages, and our codes for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from engine.api import InvalidRequest, Service
from server.languages import inward, name_of, resolve_code

# DeepL's target codes and their names, by our code
VARIANTS: Final = {
    "en": (("EN-GB", "English (British)"), ("EN-US", "English (American)")),
    "pt": (("PT-PT", "Portuguese (European)"),),
    "pb": (("PT-BR", "Portuguese (Brazilian)"),),
    "zh": (("ZH-HANS", "Chinese (simplified)"),),
    "zt": (("ZH-HANT", "Chinese (traditional)"),),
    "no": (("NB", "Norwegian (bokmål)"),),
    "nb": (("NB", "Norwegian (bokmål)"),),
}
SOURCES: Final = {"pb": "PT", "zt": "ZH", "no": "NB"}  # DeepL's source code by our code, if it differs


def codes_of(service: Service, values: dict[str, Any]) -> tuple[str | None, str]:
    """Return our codes of source (None: detect it) and target of a request.

    service: service with the models.
    values: fields of the request.

    Raises InvalidRequest in DeepL's words.
    """
    languages = service.languages()
    target = _language_parameter(
        values, "target_lang", {code for lang in languages for code in (lang.code, *lang.targets)}
    )
    if target is None:
        raise InvalidRequest("Value for 'target_lang' not supported.")
    return _language_parameter(values, "source_lang", {language.code for language in languages}), target


def model_code(code: str, codes: Collection[str]) -> str | None:
    """Return our code for a code of DeepL, in any case; None when no model has the language.

    code: code of DeepL, or any other code or name of a language.
    codes: our codes of languages with a model.
    """
    found = resolve_code(code, codes)
    return found if found in codes else None


def base_of(code: str) -> str:
    """Return DeepL's code without its variant, in lower case, for our code or any code of DeepL."""
    return SOURCES.get(code.lower(), code).partition("-")[0].lower()


def languages_of(service: Service, *, target: bool) -> list[dict[str, Any]]:
    """Return the answer of /v2/languages, sorted by code."""
    names: dict[str, str] = {}
    for language in service.languages():
        if not target and language.targets:
            code = SOURCES.get(language.code, language.code.upper())
            names.setdefault(code, name_of(inward(code)))
        for into in language.targets if target else ():
            names |= dict(VARIANTS.get(into, ((into.upper(), name_of(into)),)))
    formality = {"supports_formality": False} if target else {}
    return [{"language": code, "name": names[code]} | formality for code in sorted(names)]


def _language_parameter(values: dict[str, Any], name: str, codes: Collection[str]) -> str | None:
    """Return our code for a parameter; None when it is missing. Raises InvalidRequest."""
    value = values.get(name)
    if value in (None, ""):
        return None
    code = model_code(value, codes) if isinstance(value, str) else None
    if code is None:
        raise InvalidRequest(f"Value for '{name}' not supported.")
    return code
