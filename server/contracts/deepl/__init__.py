"""DeepL's interface.

translate, documents, languages     version 2
glossaries, entries                 the store of glossaries of both versions, and lookup of their entries
glossary_routes                     glossaries of version 2, of one pair of languages
multilingual_routes                 glossaries of version 3, of several pairs

Errors are {"message": "..."}.
"""

from typing import Final

from server.contract import Contract, under
from server.contracts.deepl import documents, glossary_routes, multilingual_routes, translate

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
)
