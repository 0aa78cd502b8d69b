"""Headers for web pages that may read responses (CORS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

Pairs = list[tuple[bytes, bytes]]

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")  # of all contracts
OTHER_HEADERS: Final = [
    (
        b"access-control-allow-headers",
        b"Authorization, Content-Type, X-API-Key, X-Request-ID, X-Request-Timeout",
    ),
    (b"access-control-allow-methods", ", ".join(METHODS).encode()),
    (b"access-control-expose-headers", b"Retry-After, X-Request-ID, X-Trace-ID"),
    (b"access-control-max-age", b"1728000"),
]


def cors_headers(scope: Scope, origins: Sequence[str]) -> Pairs:
    """Return the CORS headers of a response.

    scope: scope of the request.
    origins: origins whose pages may read responses; "*": all, with LibreTranslate's headers.
    """
    if "*" in origins:
        return [(b"access-control-allow-origin", b"*"), *OTHER_HEADERS]
    asking = Headers(scope=scope).get("origin", "")
    vary = (b"vary", b"Origin")  # caches must keep the responses to different origins apart
    if asking not in origins:
        return [vary]
    return [(b"access-control-allow-origin", asking.encode("latin-1")), vary, *OTHER_HEADERS]
