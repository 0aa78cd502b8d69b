"""Convoy's own routes: summarize.py, score.py, status.py, web.py (the page)."""

from typing import Final

from server.contract import Contract
from server.contracts.convoy import score, status, summarize, web

CONTRACT: Final = Contract(
    routers=(summarize.router, score.router, status.router, web.router),
    paths=("/*",),
    open_paths=(
        *("/", "/favicon.ico", "/frontend/settings", "/health", "/health/ready", "/models", "/version"),
        *("/static/*", "/static-offline-docs/*"),
    ),
    operator_paths={
        "/metrics": "metrics_auth_token",
        "/docs|/openapi.json|/spec": "docs_auth_token",
        "/models/[^/]+/(re|un)?load": "admin_token",
    },
    text_fields=frozenset({"q", "source_text"}),
    query_key_fields=("key", "token"),  # as clients of Google and of reading tools send it, to any path
    key_schemes=frozenset({"bearer"}),
)
