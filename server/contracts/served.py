"""Which languages the contracts' clients may name, as far as a running server has them."""

from __future__ import annotations

from typing import Final

from engine.api import Service
from server.contracts.deepl.glossaries import pairs_of
from server.contracts.deepl.languages import languages_of
from server.contracts.reading.shapes import CODES_TO_HCFY, DETECT_WORDS
from server.languages import outward

AUTO: Final = "auto"


def served_codes(service: Service) -> dict[str, frozenset[str]]:
    """List the codes of languages by the kind of field that may name them.

    Returns the codes by what a field has as `SERVED` in `server/http/openapi.py`.
    """
    codes = frozenset(outward(language.code) for language in service.languages())
    hcfy = codes | {CODES_TO_HCFY[code] for code in codes & set(CODES_TO_HCFY)}
    deepl = {
        target: frozenset(language["language"].lower() for language in languages_of(service, target=target))
        for target in (False, True)
    }
    pairs = pairs_of(service)
    all_pairs = {(language.code, target) for language in service.languages() for target in language.targets}
    return {
        "auto": codes | {AUTO},
        "auto or none": codes | DETECT_WORDS,
        "target": codes,
        "pair": frozenset(f"{outward(source)}|{outward(target)}" for source, target in all_pairs),
        "hcfy or none": hcfy | DETECT_WORDS,
        "deepl source": deepl[False] | {""},
        "deepl target": deepl[True] | {code.partition("-")[0] for code in deepl[True]},
        "glossary source": frozenset(source for source, _ in pairs),
        "glossary target": frozenset(target for _, target in pairs),
    }
