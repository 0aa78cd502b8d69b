"""DeepL's interface.

translate, documents, languages     version 2
glossaries, entries                 the store of glossaries of both versions, and lookup of their entries
glossary_routes                     glossaries of version 2, of one pair of languages
multilingual_routes                 glossaries of version 3, of several pairs

Errors are {"message": "..."}.
"""

from typing import Final

from engine.api import Service
from server.contract import Codes, Contract, under
from server.contracts.deepl import documents, glossary_routes, multilingual_routes, translate
from server.contracts.deepl.glossaries import pairs_of
from server.contracts.deepl.languages import languages_of


def _codes(service: Service) -> Codes:
    """Return DeepL's codes of languages, by kind of field."""
    sources, targets = (
        frozenset(language["language"].lower() for language in languages_of(service, target=target))
        for target in (False, True)
    )
    pairs = pairs_of(service)
    return {
        "deepl source": sources | {""},
        "deepl target": targets | {code.partition("-")[0] for code in targets},
        "glossary source": frozenset(source for source, _ in pairs),
        "glossary target": frozenset(target for _, target in pairs),
    }


CONTRACT: Final = Contract(
    routers=(
        *(translate.router, translate.first_version, documents.router, glossary_routes.router),
        multilingual_routes.router,
    ),
    paths=(
        *("/v1/translate", "/v1/languages", "/v1/usage"),
        "/v2/translate*",
        "/v2/languages*",
        "/v2/usage*",
        "/v2/document*",
        "/v2/glossar*",
        "/v3/*",
    ),
    error_body=under("message"),
    statuses={"key_required": 403, "quota": 456},
    stored_paths=("/v2/document*", "/v2/glossaries*", "/v3/glossaries*"),
    text_fields=frozenset({"text"}),
    key_fields=("auth_key",),
    key_schemes=frozenset({"deepl-auth-key"}),
    codes=_codes,
)
