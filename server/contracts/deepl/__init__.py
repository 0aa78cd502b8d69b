"""DeepL's interface, version 2: translate.py, documents.py, languages.py;
glossaries.py and their routes, multilingual.py those of version 3.

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
