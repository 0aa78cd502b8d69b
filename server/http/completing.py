"""The parts of the OpenAPI description that depend on the running server: limits, languages, security."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from engine.api import ModelInfo
from server.contract import Contract
from server.http.openapi import MULTIPART, SERVED

PLAIN_CODE: Final = re.compile("[a-z]{2,3}")
REGION: Final = "[-_](?:[A-Za-z]{2}|[0-9]{3})"
SECURITY: Final = {
    "ApiKey": {"type": "http", "scheme": "bearer", "description": "A key, where the server has keys."},
    "ApiKeyHeader": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same."},
    "DeepLKey": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "The same, as DeepL's clients send it: `DeepL-Auth-Key KEY`.",
    },
    "OperatorToken": {"type": "http", "scheme": "bearer", "description": "A token of the operator's."},
}
# returns who may send a request of a method and path: "anybody", "key" or "operator"
Who = Callable[[str, str], str]


def option_limits(models: Sequence[ModelInfo], alternatives: int) -> dict[str, int]:
    """Return the greatest value of each option that a served model accepts, by the option's name.

    models: served models; without any, there are no limits.
    alternatives: the server's own limit of alternatives; -1: no limit.
    """
    if not models:
        return {}
    # widest beam, and longest answer in tokens
    beams, longest = (max(getattr(info.limits, name) for info in models) for name in ("beams", "target"))
    # the first hypothesis is the answer itself
    others = beams - 1 if alternatives == -1 else min(alternatives, beams - 1)
    most = dict.fromkeys(("beam_size", "diverse_groups"), beams) | {"alternatives": others, "n": others + 1}
    most |= dict.fromkeys(("min_length", "max_length"), longest)
    return most if any(info.limits.language_model for info in models) else most | {"lm_weight": 0}


def complete_schema(
    schema: dict[str, Any],
    limits: Mapping[str, int],
    who: Who,
    served: Mapping[str, Collection[str]],
    options: Mapping[str, int],
    contract_of: Callable[[str], Contract],
) -> dict[str, Any]:
    """Write limits, languages and security into an OpenAPI description, and return it.

    schema: description, which is changed.
    limits: "texts", "characters", "phrases", "tags", "bytes" and "file bytes" of a request; -1: no limit.
    who: function that returns who may send a request: "anybody", "key" or "operator".
    served: clients' codes of languages, by kind of field (its value of `SERVED`).
    options: greatest value of each option, from `option_limits`.
    contract_of: returns the contract of a path.
    """
    patterns = {kind: _pattern(codes) for kind, codes in served.items()}
    schema.setdefault("components", {})["securitySchemes"] = SECURITY
    for path, methods in schema["paths"].items():
        contract = contract_of(path)
        for method, operation in methods.items():
            operation["security"] = _security(who(method.upper(), path), contract)
            for parameter in operation.get("parameters", ()):
                _name_languages({"": parameter["schema"]}, patterns)
                _limit_options({parameter["name"]: parameter["schema"]}, options)
            body = operation.get("requestBody", {})
            for kind, content in body.get("content", {}).items():
                most = limits["file bytes" if kind == MULTIPART else "bytes"]
                body["description"] = f"At most {most} bytes{', the file' * (kind == MULTIPART)}."
                _limit(content["schema"].get("properties", {}), contract.text_fields, limits)
                _name_languages(content["schema"].get("properties", {}), patterns)
                _limit_options(content["schema"].get("properties", {}), options)
    return schema


def _security(who: str, contract: Contract) -> list[dict[str, list[str]]]:
    """Return the kinds of credentials that an operation accepts, in OpenAPI's format."""
    if who == "operator":
        return [{"OperatorToken": []}]
    if who == "anybody":
        return []
    keys: list[dict[str, list[str]]] = [{}, {"ApiKey": []}, {"ApiKeyHeader": []}]  # {}: a server without keys
    return [*keys, {"DeepLKey": []}] if "deepl-auth-key" in contract.key_schemes else keys


def _pattern(codes: Collection[str]) -> str:
    """Return a pattern that matches the codes in any case, also with a region: de, DE, de-AT."""
    return f"^({'|'.join(map(_code_pattern, sorted(codes)))})$" if codes else ""


def _code_pattern(code: str) -> str:
    """Return a pattern for a code in any case; a code of two or three letters may have a region."""
    cased = "".join(
        f"[{c.upper()}{c}]" if c.isascii() and c.isalpha() else re.escape(c) if c.isascii() else c
        for c in code
    )
    return f"{cased}(?:{REGION})?" if PLAIN_CODE.fullmatch(code) else cased


def _name_languages(properties: dict[str, Any], patterns: Mapping[str, str]) -> None:
    """Write the pattern of languages into the fields that name languages."""
    for field in properties.values():
        kinds = [field, *field.get("anyOf", ())]
        for kind in (*kinds, *(kind.get("items", {}) for kind in kinds)):
            if (codes := kind.pop(SERVED, None)) and patterns[codes]:
                kind["pattern"] = patterns[codes]
        _name_languages(field.get("items", {}).get("properties", {}), patterns)


def _limit_options(properties: dict[str, Any], options: Mapping[str, int]) -> None:
    """Write the greatest values of options into fields that are numbers, or strings of digits."""
    for name in properties.keys() & options.keys():
        for kind in (properties[name], *properties[name].get("anyOf", ())):
            if kind.get("type") in ("integer", "number", ["integer", "null"]):
                kind["maximum"] = options[name]
            elif "pattern" in kind:
                # a negative number counts as 0; a valid number may have leading zeros
                counts = "|".join(map(str, range(options[name] + 1)))
                kind["pattern"] = f"^(-[0-9]{{1,9}}|0{{0,8}}({counts}))?$"


def _limit(properties: dict[str, Any], texts: Collection[str], limits: Mapping[str, int]) -> None:
    """Write limits into the fields of a body.

    properties: schemas of the fields, by name.
    texts: names of fields that hold texts.
    limits: limits of `complete_schema`.
    """
    for field in (properties[name] for name in texts if name in properties):
        for kind in (field, *field.get("anyOf", ())):
            if kind.get("type") == "string" and limits["characters"] != -1:
                kind["maxLength"] = limits["characters"]
            elif kind.get("type") == "array" and limits["texts"] != -1:
                kind["maxItems"] = limits["texts"]
    for name in ("format", "tag_handling"):
        if name in properties and limits["tags"] != -1:
            description = properties[name].get("description", "")
            properties[name]["description"] = f"{description} At most {limits['tags']} tags.".strip()
    if limits["phrases"] != -1:
        for name, key in (("ignore", "maxItems"), ("glossary", "maxProperties")):
            if name in properties:
                properties[name][key] = limits["phrases"]
