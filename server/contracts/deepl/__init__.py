"""DeepL's interface, version 2: translate.py, documents.py, glossaries.py and their routes, languages.py.

Errors are {"message": "..."}.
"""

from typing import Final

from server.contract import Contract
from server.contracts.deepl import documents, glossary_routes, translate

CONTRACT: Final = Contract(
    routers=(translate.router, documents.router, glossary_routes.router),
    paths=("/v2/translate*", "/v2/languages*", "/v2/usage*", "/v2/document*", "/v2/glossar*"),
    error_keys=("message",),
    statuses={"key_required": 403, "quota": 456},
)
