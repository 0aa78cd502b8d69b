"""Plug-in for Ollama's clients: routes.py, and answers.py with the formats of its answers."""

from typing import Final

from server.contract import Contract
from server.contracts.ollama import routes

CONTRACT: Final = Contract(
    routers=(routes.router,),
    paths=("/api/*",),
    open_paths=("/api/version",),
    text_fields=frozenset({"prompt"}),
)
