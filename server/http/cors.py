"""Headers for web pages that may read responses (CORS)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

Pairs = list[tuple[bytes, bytes]]

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")  # of all contracts
USUAL_NAMES: Final = b"Authorization, Content-Type, X-API-Key, X-Request-ID, X-Request-Timeout"
# names of headers, as a browser lists them before it sends a request with them
REQUESTED_NAMES: Final = re.compile(
    r"[\w!#$%&'*+.^`|~-]{1,64}(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]{1,64}){0,63}", re.A
)
OTHER_HEADERS: Final = [
    (b"access-control-allow-methods", ", ".join(METHODS).encode()),
    (
        b"access-control-expose-headers",
        b"Inference-Header-Content-Length, Retry-After, X-Request-ID, X-Trace-ID",
    ),
    (b"access-control-max-age", b"1728000"),
]


def cors_headers(scope: Scope, origins: Sequence[str]) -> Pairs:
    """Return the CORS headers of a response.

    scope: scope of the request.
    origins: origins whose pages may read responses; "*": all, with LibreTranslate's headers.

    A preflight request may name any headers, because the server grants nothing by a header that a browser
    adds without the page.
    """
    headers = Headers(scope=scope)
    requested = headers.get("access-control-request-headers", "")
    names = requested.encode("latin-1") if REQUESTED_NAMES.fullmatch(requested) else USUAL_NAMES
    # caches must keep the responses to different requests apart
    vary = ["Access-Control-Request-Headers"] if scope["method"] == "OPTIONS" else []
    if "*" not in origins:
        vary.insert(0, "Origin")
    common = [(b"vary", ", ".join(vary).encode())] if vary else []
    allowed = [(b"access-control-allow-headers", names), *OTHER_HEADERS]
    if "*" in origins:
        return [(b"access-control-allow-origin", b"*"), *common, *allowed]
    asking = headers.get("origin", "")
    if asking not in origins:
        return common
    return [(b"access-control-allow-origin", asking.encode("latin-1")), *common, *allowed]
